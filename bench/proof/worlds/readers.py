"""Reads snapshots in the simulated world through the engine's own Views, key by key while the world goes on.

    open at S ─▶ read a key ─▶ time passes ─▶ read the next ─▶ … ─▶ SnapshotRead: step, times, values
                   └ its host does not serve S yet: asked again a little later

A reader is dropped when host 0 restarts, or when its snapshot is too old. A reader that still waits long after
the last fault will wait for ever: `unserved` names it.

Next: serial_model.py, which knows the values that they should have seen.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from ....errors import SnapshotTooOld
from ....proto.ids import host_of
from ....runtime.snapshot_reads import Snapshot, Views
from ..simulator.hosts import Seat
from ..simulator.world import World

RETRY_MS = 7.0


class Key(NamedTuple):
    """Names something to read of a tablet; `what` is "row", "bounds" or "consumer" (cumulative)."""

    what: str
    tablet: int
    key: bytes = b""


@dataclass
class SnapshotRead:
    """Holds the values that a snapshot showed, and when it was opened and all were read."""

    workload: str
    step: int
    invoked: float
    keys: tuple[Key, ...]
    values: dict[Key, Any] = field(default_factory=dict)
    completed: float = inf


@dataclass(eq=False)
class Reading:
    """A reader at work. It reads a key every `apart_ms`, within one `life` of host 0, and then calls `then`."""

    record: SnapshotRead
    snapshot: Snapshot
    life: int
    apart_ms: float
    then: Any

    @property
    def next(self) -> Key | None:
        keys, done = self.record.keys, len(self.record.values)
        return keys[done] if done < len(keys) else None


class NotYet(Exception):
    """The host does not serve the snapshot yet."""


class SimulatedViews(Views):
    """Views that raise NotYet where the engine's would wait: the simulator has no thread to wake them."""

    def serves(self, snap: Snapshot, tablet: int) -> bool:
        """Returns whether only undecided transactions could delay a read."""
        node = self._nodes[host_of(tablet)]
        return not self._distributed or self._served(node, snap, tablet, lambda body: False)

    def _host(self, snap: Snapshot, tablet: int, meets: Any) -> Any:
        node = self._nodes[host_of(tablet)]
        if not self._distributed:
            return node.host
        if not self._served(node, snap, tablet, meets):
            raise NotYet
        return node.host


class Readers:
    """Starts snapshots and keeps the values that they saw."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.views = SimulatedViews([Seat(world, n) for n in range(world.hosts)], lambda: None)
        self.reads: list[SnapshotRead] = []
        self.waiting: dict[Reading, Key] = {}
        """Readers under way, with the key that each waits for."""

    def read(self, workload: str, keys: tuple[Key, ...], apart_ms: float, then: Any = None) -> None:
        """Opens a snapshot and reads `keys`, one every `apart_ms`; calls `then` after the last."""
        if self.world.away[0]:
            return
        snapshot = self.views.snapshot()
        record = SnapshotRead(workload, snapshot.step, self.world.now, keys)
        self.begin(Reading(record, snapshot, self.world.lives[0], apart_ms, then))

    def begin(self, reading: Reading) -> None:
        """Lets a reader go on to its first key."""
        self.go_on(reading)

    def go_on(self, reading: Reading) -> None:
        world, record, snapshot = self.world, reading.record, reading.snapshot
        self.waiting.pop(reading, None)
        if self.is_over(reading):
            return
        more_ms = 0.0
        try:
            while (key := reading.next) is not None and not more_ms:
                record.values[key] = self._value(snapshot, key)
                more_ms = reading.apart_ms
        except NotYet:
            more_ms = RETRY_MS
        except SnapshotTooOld:
            snapshot.close()
            return
        if key is not None:
            self.waiting[reading] = key
            world.after(more_ms, self.go_on, reading)
            return
        record.completed = world.now
        snapshot.close()
        self.reads.append(record)
        if reading.then is not None:
            reading.then()

    def is_over(self, reading: Reading) -> bool:
        """Returns whether the process that read has ended."""
        return self.world.lives[0] != reading.life

    def unserved(self, dead: int | None = None) -> list[str]:
        """Names readers that still wait for a live host; if `dead` is dead, not those that only undecided
        transactions delay."""
        wrong = []
        for reading, key in self.waiting.items():
            record, host = reading.record, host_of(key.tablet)
            serves = self.views.serves(reading.snapshot, key.tablet)
            if dead is None or not (host == dead or serves):
                wrong.append(
                    f"a snapshot at step {record.step} is not served by host {host}, for {key.what} "
                    f"of {key.tablet:#x}, {self.world.now - record.invoked:.0f} ms after it was opened"
                )
        return wrong

    def _value(self, snapshot: Snapshot, key: Key) -> Any:
        if key.what == "row":
            row = self.views.read_row(snapshot, key.tablet, key.key)
            return None if row is None else (*row[0], row[1])
        if key.what == "bounds":
            return self.views.bounds(snapshot, key.tablet)
        return self.views.consumer(snapshot, key.tablet, key.key.decode())
