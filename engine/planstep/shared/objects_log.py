"""Keeps a shared log in an object store: each turn is an object, created once under the turn's number.

    store                the root (root.py)
    log/<20 digits>      a turn (entry.py)
    floor/<20 digits>    turns below that number may be gone; the highest one counts

    append   create ─ done ───────────▶ decided
                └ any other answer ─▶ get ─ the same bytes ─▶ decided
                                       ├ other bytes ─▶ Fenced
                                       └ nothing ─▶ create again … until the time-out: LogUnreachable

No other answer than "done" decides. "It exists" may be said of one's own object, whose answer was lost, or where
nothing landed. An object that is absent may be on its way still. So the slot's bytes decide.

Left out: reading many slots at once. A follower that reached the end finds a hole of one slot, but not a wider one;
each opening lists the whole log and finds both.

Next: root.py.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import TypeVar

from ..errors import (
    Corruption,
    Fenced,
    FormatError,
    IoError,
    LogUnreachable,
    NoSpace,
    Trimmed,
    reason,
)
from .entry import BEGIN, Entry, read_entry
from .root import encode_root, read_root
from .shared_log import Objects, Position, Root

LOG_TIMEOUT = 60.0
"""Seconds for which a call to the shared log waits."""
_STORE, _LOG, _FLOOR = "store", "log/", "floor/"
_FLOOR_DATA = b"PSF1"
_NUMBER = re.compile("[0-9]{20}")
_PAUSE, _PAUSE_MAX, _POLL_MAX = 0.02, 1.0, 0.2
_T = TypeVar("_T")


def slot_name(turn: int) -> str:
    return f"{_LOG}{turn:020d}"


def open_root(objects: Objects, where: str, root: Root | None) -> Root:
    """Returns the root of a log, which is `root` if there was none. FormatError: none, and None was given."""
    data = objects.get(_STORE)
    if data is None:
        if root is None:
            raise FormatError(f"{where} is no shared log")
        objects.create(_STORE, encode_root(root))
        data = objects.get(_STORE)
        if data is None:
            raise IoError(f"{where} did not keep what was written to it")
    objects.sync(_STORE)
    return read_root(data, f"{where}/{_STORE}")


class ObjectsLog:
    """A SharedLog. Invariant: `_turn` is the last turn that was read or appended, or where `open` said.

    `_sent` has the names that were sent, and whose content is not known.
    """

    def __init__(
        self, objects: Objects, where: str, timeout: float = LOG_TIMEOUT, pause: float = _PAUSE
    ) -> None:
        """`timeout`, in seconds: how long a call is repeated that fails; `pause`: the first wait, which doubles."""
        self._objects = objects
        self._where = where
        self._timeout = timeout
        self._pause = pause
        self._turn = 0
        self._sent: set[str] = set()
        self._listed = False

    @property
    def objects(self) -> Objects:
        return self._objects

    def open(self, at: Position) -> None:
        self._turn, self._listed = at.turn, False

    # reading -------------------------------------------------------------------------------

    def read(self, limit_bytes: int, wait: float) -> list[Entry]:
        deadline = monotonic() + wait
        pause = self._pause
        while not (entries := self._next(limit_bytes)):
            rest = deadline - monotonic()
            if rest <= 0:
                break
            sleep(min(pause, rest))
            pause = min(2 * pause, _POLL_MAX)
        return entries

    def _next(self, limit_bytes: int) -> list[Entry]:
        entries: list[Entry] = []
        size = 0
        while not entries or size < limit_bytes:
            turn = self._turn + len(entries) + 1
            try:
                entry = self._slot(turn)
            except Corruption:
                if not entries:
                    raise
                break  # the turns before it are whole
            if entry is not None:
                entries.append(entry)
                size += len(entry.data)
            elif entries or self._ends_before(turn):
                break
        if entries:
            self._patiently(partial(self._objects.sync, slot_name(entries[-1].turn)))
            self._turn = entries[-1].turn
        return entries

    def _ends_before(self, turn: int) -> bool:
        """Returns whether neither this slot nor one above is written; False if this one is by now.

        Trimmed; Corruption for a hole.
        """
        if self._listed:
            above = self._get(slot_name(turn + 1)) is not None
        else:
            above = any(number > turn for number in self._numbers(_LOG))
        if above and self._get(slot_name(turn)) is not None:
            return False
        # Asked after the slot was absent: a floor is written before a slot is removed.
        floor = self.floor()
        if floor > turn:
            raise Trimmed(floor)
        if above:
            raise Corruption(
                f"{self._where}/{slot_name(turn)} is missing, though there are later turns"
            )
        self._listed = True
        return True

    def _slot(self, turn: int) -> Entry | None:
        data = self._get(slot_name(turn))
        return None if data is None else self._decode(turn, data)

    def _decode(self, turn: int, data: bytes) -> Entry:
        where = f"{self._where}/{slot_name(turn)}"
        entry = read_entry(data, where)
        if entry.turn != turn:
            raise Corruption(f"{where} has the entry of turn {entry.turn}")
        return entry

    def _get(self, name: str) -> bytes | None:
        return self._patiently(partial(self._objects.get, name))

    def _numbers(self, prefix: str) -> list[int]:
        names = self._patiently(partial(self._objects.names, prefix))
        ends = (name.removeprefix(prefix) for name in names)
        return [int(end) for end in ends if _NUMBER.fullmatch(end)]

    # appending -----------------------------------------------------------------------------

    def append(self, entry: Entry) -> bytes:
        assert entry.turn == self._turn + 1
        found = self._put(slot_name(entry.turn), entry.data)
        if found != entry.data:
            raise Fenced(self._decode(entry.turn, found).owner.term)
        self._turn = entry.turn
        if entry.kind == BEGIN:
            with suppress(IoError):
                self._objects.tidy()
        return b""

    def barrier(self) -> None:
        entry = self._slot(self._turn + 1)
        if entry is not None:
            raise Fenced(entry.owner.term)

    def _put(self, name: str, data: bytes) -> bytes:
        """Creates an object unless there is one; returns what the name holds for ever. NoSpace: without effect."""
        found = self._patiently(partial(self._try_put, name, data))
        if isinstance(found, NoSpace):
            raise NoSpace(f"{self._where}: {reason(found)}") from found
        return found

    def _try_put(self, name: str, data: bytes) -> bytes | NoSpace:
        """Does this once. IoError: what the name holds is not known; NoSpace is returned, for it is an IoError."""
        doubt = name in self._sent
        self._sent.add(name)
        failure = IoError(f"{name} is said to be there, but it is not")
        try:
            if self._objects.create(name, data):
                self._sent.discard(name)
                return data
        except NoSpace as error:
            if not doubt:
                self._sent.discard(name)
                return error
            failure = error
        except IoError as error:
            failure = error
        found = self._objects.get(name)
        if found is None:
            raise failure
        self._objects.sync(name)
        self._sent.discard(name)
        return found

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        """Repeats an attempt while it fails. LogUnreachable once the time-out is over."""
        deadline = monotonic() + self._timeout
        pause = self._pause
        while True:
            try:
                return attempt()
            except IoError as error:
                rest = deadline - monotonic()
                if rest <= 0:
                    raise LogUnreachable(
                        f"the shared log {self._where} was not reached for {self._timeout:g} seconds "
                        f"({reason(error)}); reopen the store once it can be"
                    ) from error
            sleep(min(pause, rest))
            pause = min(2 * pause, _PAUSE_MAX)

    # trimming ------------------------------------------------------------------------------

    def floor(self) -> int:
        return max(self._numbers(_FLOOR), default=1)

    def trim(self, turn: int) -> None:
        self._put(f"{_FLOOR}{turn:020d}", _FLOOR_DATA)
        for number in self._numbers(_LOG):
            if number < turn and self._may_go(number):
                self._patiently(partial(self._objects.remove, slot_name(number)))

    def _may_go(self, turn: int) -> bool:
        try:
            entry = self._slot(turn)
        except Corruption:  # it may have been a BEGIN
            return False
        return entry is not None and entry.kind != BEGIN

    def close(self) -> None:
        self._objects.close()
