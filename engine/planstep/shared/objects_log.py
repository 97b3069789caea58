"""Keeps a shared log in an object store: each turn is an object, created once under the turn's number.

    store                the root (root.py)
    log/<20 digits>      a turn (entry.py)
    floor/<20 digits>    turns below that number may be gone; the highest one counts
    run/<first>-<last>   turns once more, for readers that are far behind (runs.py)

    append   put (patient.py) ─ the name holds the same bytes ─▶ decided
                              └ other bytes ─▶ Fenced

No other answer than "done" decides. "It exists" may be said of one's own object, whose answer was lost, or where
nothing landed. An object that is absent may be on its way still. So the slot's bytes decide.

Left out: a reader that reached the end finds a hole of one slot, but not a wider one. Each opening lists the log,
and finds both.

Next: root.py.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, sleep

from ..errors import (
    Corruption,
    Fenced,
    FormatError,
    IoError,
    Trimmed,
)
from .ahead import AT_ONCE, FAR, Ahead, slot_name
from .counts import CountedObjects, Counts
from .entry import BEGIN, NO_CHAIN, Entry, Owner, read_entry
from .patient import LOG_TIMEOUT, PAUSE, PatientObjects
from .root import encode_root, read_root
from .runs import RUN, RUN_TURNS, RunWriter, run_name, turns_of
from .shared_log import Objects, Position, Root

_STORE, _LOG, _FLOOR = "store", "log/", "floor/"
_FLOOR_DATA = b"PSF1"
_NUMBER = re.compile("[0-9]{20}")
_POLL_MAX = 0.2


def open_root(objects: Objects, where: str, root: Root | None) -> Root:
    """Returns the root of a log, which is `root` if there was none. FormatError: none, and None was given."""
    data = objects.get(_STORE)
    if data is None:
        if root is None:
            raise FormatError(f"{where} is no shared log")
        data = _make_root(objects, where, encode_root(root))
    objects.sync(_STORE)
    return read_root(data, f"{where}/{_STORE}")


def root_of(objects: Objects, where: str) -> Root | None:
    """Returns the root of a log; None if there is none. FormatError, Corruption, IoError."""
    data = objects.get(_STORE)
    return None if data is None else read_root(data, f"{where}/{_STORE}")


def put_root(objects: Objects, where: str, root: Root, timeout: float = LOG_TIMEOUT) -> Root:
    """Writes the root of a log whose floor is there already; returns the one that is there."""
    data = PatientObjects(objects, where, timeout).put(_STORE, encode_root(root))
    return read_root(data, f"{where}/{_STORE}")


def _make_root(objects: Objects, where: str, root: bytes) -> bytes:
    """Writes the root unless another machine did meanwhile; returns what is there. Corruption: it was lost."""
    if objects.names(_FLOOR) and not objects.names(_LOG):
        raise FormatError(f"{where} is where a store is being seeded: wait until that has ended")
    if objects.names(_LOG) and objects.get(_STORE) is None:
        raise Corruption(f"{where}/{_STORE} is missing, though there are turns: bring it back")
    failure = IoError(f"{where} did not keep what was written to it")
    try:
        objects.create(_STORE, root)
    except IoError as error:  # it may be there all the same
        failure = error
    data = objects.get(_STORE)
    if data is None:
        raise failure
    return data


class ObjectsLog:
    """A SharedLog. Invariant: `_last` is the last turn that was read or appended, or where `open` said.

    `_known` is the last turn that a list showed; None: nothing was listed since `open`.
    """

    def __init__(
        self,
        objects: Objects,
        where: str,
        timeout: float = LOG_TIMEOUT,
        pause: float = PAUSE,
        linger: float = 0.0,
    ) -> None:
        """`timeout`, `pause`: as PatientObjects has them; `linger`: as SharedLog."""
        self._objects = CountedObjects(objects)
        self._patient = PatientObjects(self._objects, where, timeout, pause)
        self._where = where
        self._pause = pause
        self._linger = linger
        self._last: Entry | Position = Position()
        self._known: int | None = None
        self._ahead = Ahead(self._objects, where)
        self._runs = RunWriter(self._objects)

    @property
    def objects(self) -> Objects:
        return self._objects

    @property
    def counts(self) -> Counts:
        return self._objects.counts

    def count_into(self, counts: Counts) -> None:
        self._objects.counts = counts

    @property
    def local_sync(self) -> bool:
        return False

    @property
    def linger(self) -> float:
        return self._linger

    @property
    def polls(self) -> bool:
        return True

    def wait_less(self, timeout: float) -> None:
        self._patient.timeout = min(timeout, self._patient.timeout)

    def open(self, at: Position) -> None:
        self._last, self._known = at, None
        self._runs.reset()

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
            last = entries[-1] if entries else self._last
            try:
                entry = self._behind(last)
            except Corruption:
                if not entries:
                    raise
                break  # the turns before it are whole
            if entry is not None:
                entries.append(entry)
                size += len(entry.data)
            elif entries or self._ends_before(last.turn + 1):
                break
        if entries:
            self._patient.sync(slot_name(entries[-1].turn))
            self._last = entries[-1]
            self._runs.reset()
        return entries

    def _behind(self, last: Entry | Position) -> Entry | None:
        """Returns the turn behind another one; None: its slot is empty."""
        turn = last.turn + 1
        if self._known is None or turn > self._known + FAR:
            self._look_ahead(turn)
        found = self._ahead.take(turn, last)
        if isinstance(found, bytes):
            return self._decode(turn, found)
        return found or self._slot(turn)

    def _look_ahead(self, turn: int) -> None:
        """Lists what is there from a turn on, and fetches it ahead if that is far."""
        names = self._patient.names(RUN, run_name(max(0, turn - RUN_TURNS), 0))
        runs = [run for run in map(turns_of, names) if run is not None and run[1] >= turn]
        # A run alone says nothing: its last turn has to be there.
        above = runs[-1][1] if runs else 0
        slots = self._numbers(_LOG, slot_name(max(turn, above) - 1))
        if runs and not slots:
            slots = self._numbers(_LOG, slot_name(turn - 1))
        self._known = max(slots, default=turn - 1)
        if self._known - turn >= FAR:
            self._ahead.begin(self._known, runs)
        else:
            self._ahead.end()

    def _ends_before(self, turn: int) -> bool:
        """Returns whether neither this slot nor one above is written; False if this one is by now.

        Trimmed; Corruption for a hole.
        """
        assert self._known is not None
        above = self._known >= turn or self._patient.get(slot_name(turn + 1)) is not None
        if above and self._patient.get(slot_name(turn)) is not None:
            return False
        # Asked after the slot was absent: a floor is written before a slot is removed.
        floor = self.floor()
        if floor > turn:
            raise Trimmed(floor)
        if above:
            raise Corruption(
                f"{self._where}/{slot_name(turn)} is missing, though there are later turns"
            )
        return True

    def _slot(self, turn: int) -> Entry | None:
        data = self._patient.get(slot_name(turn))
        return None if data is None else self._decode(turn, data)

    def _decode(self, turn: int, data: bytes) -> Entry:
        where = f"{self._where}/{slot_name(turn)}"
        entry = read_entry(data, where)
        if entry.turn != turn:
            raise Corruption(f"{where} has the entry of turn {entry.turn}")
        return entry

    def _numbers(self, prefix: str, start: str = "") -> list[int]:
        names = self._patient.names(prefix, start)
        ends = (name.removeprefix(prefix) for name in names)
        return [int(end) for end in ends if _NUMBER.fullmatch(end)]

    # appending -----------------------------------------------------------------------------

    def append(self, entry: Entry) -> bytes:
        assert entry.turn == self._last.turn + 1
        found = self._patient.put(slot_name(entry.turn), entry.data)
        if found != entry.data:
            raise Fenced(self._decode(entry.turn, found).owner.term)
        self.counts.mine_after_doubt += self._patient.doubted
        self._last = entry
        self._runs.add(entry)
        if entry.kind == BEGIN:
            with suppress(IoError):
                self._objects.tidy()
        return b""

    def barrier(self) -> None:
        entry = self._slot(self._last.turn + 1)
        if entry is not None:
            raise Fenced(entry.owner.term)

    # trimming ------------------------------------------------------------------------------

    def has_turns(self) -> bool:
        """Returns whether a turn was ever written."""
        return bool(self._numbers(_LOG))

    def floor(self) -> int:
        return self.counts.see_floor(max(self._numbers(_FLOOR), default=1))

    def wrote(self, owner: Owner, turn: int) -> bool:
        """A void BEGIN is of a term that a later entry has, too, or none: terms of history rise."""
        floor = self.floor()
        above = 1 << 64
        for number in reversed([number for number in self._numbers(_LOG) if number <= floor]):
            entry = None
            with suppress(Corruption):
                entry = self._slot(number)
            if entry is None or entry.owner.term >= above:
                continue
            if entry.kind != BEGIN and number < floor:
                continue  # a trim is at work
            if number <= turn:
                return entry.owner == owner
            if number == turn + 1 and entry.before == NO_CHAIN:
                return False  # the log goes on behind a seed, whose last turn was in no log
            above = entry.owner.term + (entry.kind != BEGIN)
        return False

    def trim(self, turn: int, mark: bytes = b"") -> None:
        self._patient.put(f"{_FLOOR}{turn:020d}", _FLOOR_DATA)
        self.counts.see_floor(turn)
        _for_each([number for number in self._numbers(_LOG) if number < turn], self._remove)
        for name in self._patient.names(RUN):
            run = turns_of(name)
            if run is not None and run[1] < turn:
                self._patient.remove(name)

    def _remove(self, turn: int) -> None:
        with suppress(Corruption):  # it may have been a BEGIN
            entry = self._slot(turn)
            if entry is not None and entry.kind != BEGIN:
                self._patient.remove(slot_name(turn))

    def close(self) -> None:
        self._ahead.end()
        self._runs.close()
        self._objects.close()


def _for_each(turns: list[int], call: Callable[[int], None]) -> None:
    """Calls something for each turn, for many of them by threads. The order means nothing: the floor is there."""
    if len(turns) <= FAR:
        for turn in turns:
            call(turn)
        return
    pool = ThreadPoolExecutor(AT_ONCE, "planstep-trim")
    try:
        for _ in pool.map(call, turns):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
