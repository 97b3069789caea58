"""Reserves reader slots in LMDB's lock file for the owner, and keeps other processes from taking all of them.

    owner    KEPT transactions, begun and ended at opening ─▶ each has its slot until it is forgotten
             a read ─▶ a free slot ─ none ─▶ one of the reserved; back with the read's end
    reader   takes a slot ─▶ counts those taken ─ too many ─▶ leaves, TooManyReaders

A foreign program may still take all slots. An open owner goes on then; a store cannot be opened, because
LMDB's binding needs a slot for that.

When an ended transaction is forgotten, the binding gives its slot to the next one begun, if configured to
spare one. Both happen within one hold of the interpreter's lock, so nothing comes between them.

Next: table.py.
"""

import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import lmdb

from ...errors import EngineClosed, TooManyReaders
from ..files import typed_errors

KEPT = 16
"""Reserved slots: more than a process uses at once, because turns read one after the other."""
LEFT_FREE = 86
"""Slots left free: of the 1,086 that a store has, readers of other processes may take 1,000."""
SPARED = 1
_SLOT_BYTES = 64
_HEADER_SLOTS = 2
_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.05


class Slots:
    """An owner's reserved slots. Invariant: transactions in `_kept` have ended, and nothing else refers to them.

    It is a queue because an interrupt amid a Condition would leave its lock held (runtime/wait_primitives.py).
    """

    def __init__(self, env: Any) -> None:
        """Reserves the slots. lmdb.ReadersFullError."""
        self._env = env
        self._kept: SimpleQueue[Any] = SimpleQueue()
        self.keep()

    def keep(self) -> None:
        """Reserves missing slots again, since some may have been lost. lmdb.ReadersFullError."""
        begun = [self._env.begin() for _ in range(KEPT - self._kept.qsize())]
        for txn in begun:
            txn.abort()
        while begun:
            self._kept.put(begun.pop())

    def lend(self, **settings: Any) -> "Lent":
        """Begins a read transaction in a reserved slot. TooManyReaders if no slot becomes free in time."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            # An interrupt may have lost a slot, so it also looks for a free one.
            with suppress(Empty):  # dropping it gives its slot to the next begin
                self._kept.get(timeout=min(left, _LOOK_SECONDS))
            try:
                return Lent(self, self._env.begin(**settings))
            except lmdb.ReadersFullError:
                pass  # another thread was faster: its transaction will return the slot
        places = self._env.info()["max_readers"]
        raise TooManyReaders(places, places - LEFT_FREE)

    def take_back(self, txn: Any) -> None:
        txn.abort()
        if self._kept.qsize() < KEPT:
            self._kept.put(txn)


class Lent:
    """A read transaction like lmdb.Transaction; its slot is given back when it ends."""

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
    """Checks the number of taken slots, for a reader that has one. TooManyReaders: the reader must leave."""
    limit = env.info()["max_readers"] - LEFT_FREE
    if taken(env) > limit:
        env.reader_check()  # some may belong to killed processes
        if (readers := taken(env)) > limit:
            raise TooManyReaders(readers, limit)


def taken(env: Any) -> int:
    """Counts the slots that processes hold, including the owner's reserved ones."""
    text: str = env.readers()
    return text.count("\n") - 1  # without the heading, or the line that says that there are none


def all_taken(folder: Path) -> TooManyReaders:
    """Builds the error for a full lock file; `folder` has the tables."""
    path = folder / "lock.mdb"
    with typed_errors(path):
        places = path.stat().st_size // _SLOT_BYTES - _HEADER_SLOTS
    return TooManyReaders(places, places - LEFT_FREE)
