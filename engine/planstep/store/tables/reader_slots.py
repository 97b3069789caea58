"""Places for readers in LMDB's lock file: an owner keeps some of its own, other processes leave some free.

    owner    KEPT transactions, begun and ended at opening ─▶ each has its place until it is forgotten
             a read ─▶ a free place ─ none ─▶ one that is kept; back with the read's end
    reader   takes a place ─▶ counts those taken ─ too many ─▶ leaves, TooManyReaders

A program that is none of ours may take all there are. An owner that is open goes on then; none can be opened,
as LMDB's binding wants a place for that.

Of a transaction that ended and is forgotten the binding hands the place to the next that begins, if it was told to
spare one: nothing comes between the two, as both happen within one hold of the interpreter's lock.

Next: table.py.
"""

import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import lmdb

from ...errors import EngineClosed, TooManyReaders
from ..files import io_error

KEPT = 16
"""More than read at one moment in one process, as turns take them one after the other."""
LEFT_FREE = 86
"""Of the 1,086 that a store has: readers of other processes may take 1,000."""
SPARED = 1
_SLOT_BYTES = 64
_HEADER_SLOTS = 2
_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.05


class Slots:
    """Invariant: those in `_kept` have ended, and are known to nobody else.

    A queue, for an interrupt amid a Condition would leave its lock to nobody (runtime/wait_primitives.py).
    """

    def __init__(self, env: Any) -> None:
        """lmdb.ReadersFullError."""
        self._env = env
        self._kept: SimpleQueue[Any] = SimpleQueue()
        self.keep()

    def keep(self) -> None:
        """As many as there should be, some may have been lost. lmdb.ReadersFullError."""
        begun = [self._env.begin() for _ in range(KEPT - self._kept.qsize())]
        for txn in begun:
            txn.abort()
        while begun:
            self._kept.put(begun.pop())

    def lend(self, **settings: Any) -> "Lent":
        """A read transaction where no place is free. TooManyReaders where none comes back either."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            with suppress(
                Empty
            ):  # an interrupt may have lost a place: what is free is looked for, too
                self._kept.get(
                    timeout=min(left, _LOOK_SECONDS)
                )  # and forgotten: what begins next has its place
            try:
                return Lent(self, self._env.begin(**settings))
            except lmdb.ReadersFullError:
                pass  # another thread was faster: that one's place is not lost to others
        places = self._env.info()["max_readers"]
        raise TooManyReaders(places, places - LEFT_FREE)

    def take_back(self, txn: Any) -> None:
        txn.abort()
        if self._kept.qsize() < KEPT:
            self._kept.put(txn)


class Lent:
    """As lmdb.Transaction, one that reads; its place goes back with its end."""

    def __init__(self, slots: Slots, txn: Any) -> None:
        self._slots = slots
        self._txn = txn

    def __getattr__(self, name: str) -> Any:
        if self._txn is None:
            raise EngineClosed("the store was closed while it was read")
        return getattr(self._txn, name)

    def __enter__(self) -> "Lent":
        return self

    def __exit__(self, *exc: object) -> None:
        self.abort()

    def abort(self) -> None:
        held = [self._txn]
        self._txn = None
        if held[0] is not None:
            self._slots.take_back(held.pop())


def admit(env: Any) -> None:
    """Called by a reader that has a place. TooManyReaders when it has to leave."""
    limit = env.info()["max_readers"] - LEFT_FREE
    if taken(env) > limit:
        env.reader_check()  # some may be those of killed processes
        if (readers := taken(env)) > limit:
            raise TooManyReaders(readers, limit)


def taken(env: Any) -> int:
    """Places that processes have, an owner's kept ones too."""
    text: str = env.readers()
    return text.count("\n") - 1  # a heading, or a line that says that there are none


def all_taken(folder: Path) -> TooManyReaders:
    """By what LMDB did not let in; `folder` has the tables."""
    path = folder / "lock.mdb"
    try:
        places = path.stat().st_size // _SLOT_BYTES - _HEADER_SLOTS
    except OSError as error:
        raise io_error(error, path) from error
    return TooManyReaders(places, places - LEFT_FREE)
