"""Simulates the folder of a store that several processes have open: its lock, its log, its mark, views of it.

    owner ── Disk.commit: sync ─▶ the turn is in the log: durable ─▶ the mark moves: released ─▶ the turn goes on
                         └ killed: nothing of it      └ killed: the next owner releases it  └ killed: nobody is told
    attached ── View.newer: the mark ─▶ turns of the log up to it, none beyond

Between any two of these the owner may be killed, or the others look. The log is a list here: that of a real folder,
and its tail, have tests of their own (tests/store/test_tail.py).

Next: process.py.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ....errors import EngineClosed, IoError, NoSpace, NotSupported, StoreInUse
from ....proto.batch import Batch
from ....proto.stored import AnyRow
from ....store import MemoryStore, Show, Turn
from ....store.layers import GONE, Changes, Rows
from ....store.readers.released_mark import Mark
from ....store.turn import StoreCounters, decode_changes
from .streams import Listener

PATH = Path("store")
SYNC, DURABLE, RELEASED = MOMENTS = (
    "before it is durable",
    "before its release",
    "before its answers",
)


class Syncs(Protocol):
    """The world, as far as an owner's disk needs it."""

    disk: random.Random
    faulted: Counter[str]

    def durable(self, turn: Turn) -> None: ...
    def doomed(self) -> str:
        """Returns the moment of a turn at which its owner is killed, "" for none."""

    def moment(self, name: str, doomed: str, ms: float) -> None:
        """Lets the time of a moment pass; the process may end in it."""


class Lock:
    """The lock of the folder, held by one process (store/owner_lock.py)."""

    def __init__(self, folder: "Folder", pid: int) -> None:
        self.pid = pid
        self._folder = folder

    def close(self) -> None:
        if self._folder.lock is self:
            self._folder.lock = None


class Folder:
    """The folder. Invariant: `mark` is of the newest owner, and names a turn of `log`; None before the first."""

    def __init__(self, world: Syncs) -> None:
        self.world = world
        self.log: list[Changes] = []
        self.mark: Mark | None = None
        self.lock: Lock | None = None
        self.listener: Listener | None = None
        self.store = Disk(self, None)
        """The newest owner's; what is in memory of it is in the log."""
        self.failing = self.full = self.slow = 0.0
        """The odds of a turn: it is not written, for an I/O error or a full disk, or its sync takes long."""

    def take_lock(self, pid: int) -> Lock:
        """Takes the lock at once. StoreInUse."""
        if self.lock is not None:
            raise StoreInUse(None, None)
        self.lock = Lock(self, pid)
        return self.lock

    def own(self, lock: Lock) -> "Disk":
        """Opens the store for its owner, after whatever befell the one before. Call `begin_to_show`."""
        assert self.lock is lock, "the owner has the lock"
        self.store = store = self.store.after_power_loss(lock)
        return store

    def show(self, store: "Disk") -> None:
        self.mark = Mark(store.generation, len(self.log), True, len(self.log))

    def view(self) -> "View":
        """Opens a view of what is released."""
        return View(self, {}, 0).newer()


class Disk(MemoryStore):
    """The store as its owner has it open."""

    folder = PATH / "host-0"

    def __init__(self, folder: Folder, lock: Lock | None) -> None:
        super().__init__(bytes(16), generation=0)
        self._shared = folder
        self._lock: Lock | None = lock

    def after_power_loss(self, lock: Lock) -> "Disk":
        """Returns the store as the next owner finds it: perhaps the last turn was not shown any more."""
        store = super().crash()
        store.recover(lock)
        return store

    def recover(self, lock: Lock) -> None:
        log = self._shared.log
        self._lock = lock
        if self.last_turn < len(log):
            self._visible(log[-1])
            self.last_turn += 1
        assert self.last_turn == len(log), "a turn at a time is not shown yet"

    def commit(self, turn: Turn, show: Show | None = None) -> None:
        shared, world = self._shared, self._shared.world
        if turn.empty():
            super().commit(turn, show)
            return
        doomed = world.doomed()
        world.moment(SYNC, doomed, self._sync_ms())
        if world.disk.random() < shared.failing:
            world.faulted["turn failed"] += 1
            raise IoError("made to fail")
        if not turn.reserve and world.disk.random() < shared.full:
            world.faulted["disk full"] += 1
            raise NoSpace("made to be full")

        def released(visible: Callable[[], None]) -> None:
            assert shared.store is self, "an owner that is gone writes nothing"
            shared.log.append(decode_changes(turn.changes()))
            world.durable(turn)
            world.moment(DURABLE, doomed, world.disk.uniform(0.0, 0.1))

            def seen() -> None:
                visible()
                shared.show(self)

            if show is None:
                seen()
            else:
                show(seen)

        super().commit(turn, released)
        world.moment(RELEASED, doomed, world.disk.uniform(0.0, 0.1))

    def begin_to_show(self) -> None:
        """Shows all that is durable."""
        self._shared.show(self)

    def _sync_ms(self) -> float:
        disk = self._shared.world.disk
        if disk.random() < self._shared.slow:
            self._shared.world.faulted["disk slow"] += 1
            return disk.uniform(5, disk.choice((20, 200)))
        return disk.uniform(0.05, disk.choice((0.2, 1.0, 5.0)))

    def read_payload(self, address: int, length: int) -> bytes:
        """Returns what a workload has written: the first record of the batch (attached_world.py)."""
        return Batch.decode(super().read_payload(address, length)).values[0] or b""

    def listener(self) -> Listener:
        assert self._lock is not None
        self._shared.listener = Listener(self._shared.world, self._lock.pid)  # type: ignore[arg-type]
        return self._shared.listener

    def close(self) -> None:
        super().close()
        if self._lock is not None:
            self._lock.close()

    def crash(self) -> Any:
        self.close()


class View:
    """Shows what the folder's owner had released at a look; it never changes (store/readers/readonly.py)."""

    folder = PATH / "host-0"
    store_id = bytes(16)
    clean = True
    in_doubt = lags = False

    def __init__(self, folder: Folder, values: dict[bytes, Any], turn: int) -> None:
        self._folder = folder
        self._values = values
        self.last_turn = turn
        self.generation = 0
        self.counters = StoreCounters()
        self._keys: list[bytes] | None = None
        self._later: Callable[[], Any] | None = None
        self._closed = False

    def mark(self) -> Mark | None:
        self._check()
        return self._folder.mark

    def outdated(self) -> bool:
        return False  # it keeps nothing of the folder

    def folder_by_now(self) -> Path:
        return self.folder

    def newer(self, until: Mark | None = None) -> "View":
        """Opens a view as of the mark, which is read now: the turns since are read on."""
        mark = self._folder.mark if until is None else until
        assert mark is not None, "there is a store"
        values = dict(self._values)
        for changes in self._folder.log[self.last_turn : mark.turn]:
            values.update(changes)
        view = View(self._folder, values, mark.turn)
        view.generation = mark.generation
        return view

    def unchanged(self, tablet: bytes, since: int) -> bool:
        return True  # these worlds change no names

    def resting(self) -> "View":
        return self.newer(Mark(self.generation, self.last_turn, True, self.last_turn))

    def get(self, key: bytes) -> AnyRow:
        if self._closed and self._later is not None:
            row: AnyRow = self._later().get(key)
            return row
        self._check()
        value = self._values.get(key)
        return None if value is GONE else value

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows:
        self._check()
        if self._keys is None:
            self._keys = sorted(key for key, value in self._values.items() if value is not GONE)
        keys = [key for key in self._keys if begin <= key < end]
        if reverse:
            keys.reverse()
        return [(key, self._values[key]) for key in keys[:limit]]

    def read_payload(self, address: int, length: int) -> bytes:
        return self._folder.store.read_payload(address, length)

    def begin(self) -> Turn:
        raise NotSupported("it is another process's store")

    def give_way(self, later: Callable[[], Any]) -> None:
        self._later = later
        self.close()

    def close(self) -> None:
        self._closed = True

    crash = close

    def _check(self) -> None:
        if self._closed:
            raise EngineClosed("the view is closed")
