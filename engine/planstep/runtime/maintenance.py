"""Runs the background jobs of the engine: trimming by age and size, and removing dropped topics and tables.

    every second ─▶ retention    offset below which records are too old, or too many ─▶ trim, a transaction
                 └▶ cleaning     tablets of dropped names ─▶ Clean, a thousand keys at a time
                                 once no snapshot is older than the drop

A trim names its offset, so that it is an input like any other; the offset stays below the records that open
transactions are reading. The jobs have a thread of their own, which commits and waits as a client does.

What it leaves out: it never trims a topic without retention, no matter what its consumers have consumed.
Next: runtime.py.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import EngineClosed, OffsetOutOfRange
from ..logs import tried_again, trimmed
from ..proto.batch import HEADER_BYTES, timestamp_of
from ..proto.ids import CATALOGUE_ID, host_of, tablet_prefix
from ..proto.messages import CLEANED, CataloguePart, Clean, PartitionPart
from .catalog import Dropped, Name, TopicInfo
from .floors import Floors
from .thread_pool import start
from .wait_primitives import Latch, Signal

if TYPE_CHECKING:
    from .runtime import Runtime

_EVERY_SECONDS = 1.0
_WAIT_SECONDS = 10.0
_CLEAN_KEYS = 1_000


class Maintenance:
    """Invariant: failed jobs are logged and tried again; no failure ends the thread."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._wake = Signal()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # tablet → (summed to, bytes by the log's start: as it is, and as the trim that is due makes it)
        self._sizes: dict[int, tuple[int, dict[int, int]]] = {}
        self.trimmed = 0
        self.reading: Callable[[int], int | None] = lambda tablet: None
        """The lowest offset that open transactions have read in a partition; the face sets it."""
        self.open_floors: Callable[[], dict[int, int]] = dict
        """The lowest offsets that open transactions have read, by partition, where retention may trim it; for a
        process that is attached. The face sets it."""
        self.floors = Floors()
        """Those of attached processes, at the owner."""
        self.leases: Callable[[], None] = lambda: None
        """Ends leases that have expired; the face sets it."""

    def wake(self) -> None:
        self._wake.set()

    def begin(self) -> None:
        """Begins the thread, once the face's settings and the mode's client are there. IoError."""
        if self._thread is not None:
            return
        thread = threading.Thread(
            target=self._serve,
            args=(self._runtime.threads.stopping,),
            name="planstep-maintenance",
            daemon=True,
        )
        start(thread)
        self._thread = thread

    @property
    def has_this_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def end(self) -> None:
        """Waits for the thread, unless this is it: engines' threads are stopping."""
        self._wake.set()
        thread = self._thread
        if thread is not None and thread.is_alive() and not self.has_this_thread:
            thread.join()

    def _serve(self, stopping: Latch) -> None:
        while not stopping.is_set():
            self._wake.wait(_EVERY_SECONDS)
            if stopping.is_set():
                return
            try:
                self._runtime.threads.in_background("maintenance", self.run)
            except EngineClosed:
                return
            except Exception as error:
                tried_again("retention or cleaning", error)

    def run(self, now_ms: int | None = None) -> None:
        """Does the jobs that are due; `now_ms` is for tests."""
        self.leases()
        link = self._runtime.link
        if link is not None:  # the rest is the owner's
            link.floors.tell(self.open_floors(), link.tell)
            return
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._runtime.hooks.tidy(now)
        for node in self._runtime.nodes:
            node.host.history.pins()  # closes those that nobody holds
        names = self._runtime.names
        for topic in list(names.topics.values()):
            if topic.retention_ms is not None or topic.retention_bytes is not None:
                self._retain(topic, now)
        for drop in list(names.dropped.values()):
            self._clean(drop)

    # retention -----------------------------------------------------------------------------

    def _retain(self, topic: TopicInfo, now_ms: int) -> None:
        for partition, tablet in enumerate(topic.partitions):
            start, end = self._runtime.views.log_bounds(tablet)
            offset = self._due(topic, tablet, (start, end), now_ms)
            floors = self.reading(tablet), self.floors.lowest(tablet)
            offset = min([offset, *(floor for floor in floors if floor is not None)])
            if offset > start:
                self.trim(tablet, offset)
                trimmed(topic.name, partition, offset)

    def _due(self, topic: TopicInfo, tablet: int, bounds: tuple[int, int], now_ms: int) -> int:
        """Returns the offset below which records are too old, or have too many bytes after them."""
        if topic.retention_bytes is None:
            return self._first_kept(topic, tablet, bounds, 0, now_ms)[0]
        held = self._held(tablet, *bounds)
        excess = held - topic.retention_bytes
        offset, left = self._first_kept(topic, tablet, bounds, excess, now_ms)
        start, end = bounds
        self._sizes[tablet] = end, {start: held, offset: held - (excess - left)}
        return offset

    def _first_kept(
        self, topic: TopicInfo, tablet: int, bounds: tuple[int, int], excess: int, now_ms: int
    ) -> tuple[int, int]:
        """Returns the offset of the first record to keep, and `excess` without the bytes before it."""
        store = self._runtime.nodes[host_of(tablet)].host.store
        prefix = tablet_prefix(tablet) + b"b"
        start, end = bounds
        oldest_ms = None if topic.retention_ms is None else now_ms - topic.retention_ms
        offset, at, last = start, prefix, prefix + b"\xff" * 9
        while offset < end:
            slices = store.scan(at, min(last, prefix + end.to_bytes(8, "big")), limit=256)
            for key, (address, length, count, *_) in slices:
                late = oldest_ms is not None and (
                    not length  # a marker has no time, and goes with what is before it
                    or timestamp_of(store.read_payload(address, HEADER_BYTES)) < oldest_ms
                )
                # Trims by size only while the rest is still at least as large as was asked for.
                if not late and excess < length:
                    return offset, excess
                excess -= length
                offset, at = int.from_bytes(key[5:], "big") + count, key + b"\x00"
            if not slices:
                break
        return offset, excess

    def _held(self, tablet: int, start: int, end: int) -> int:
        """Returns the bytes of a partition's slices. Reads only those added since the last time, unless the log was
        trimmed to another place than the one that was due.
        """
        store = self._runtime.nodes[host_of(tablet)].host.store
        prefix = tablet_prefix(tablet) + b"b"
        at, totals = self._sizes.get(tablet, (0, {}))
        total = totals.get(start, 0)
        if start not in totals:
            at = 0
        rows = store.scan(prefix + at.to_bytes(8, "big"), prefix + end.to_bytes(8, "big"))
        return total + sum(int(length) for _, (_, length, *_) in rows)

    def trim(self, tablet: int, offset: int) -> None:
        """Trims a partition's log to begin at `offset`; raises OffsetOutOfRange beyond its end."""
        runtime = self._runtime
        before = -1
        while True:
            runtime.look()
            start, end = runtime.views.log_bounds(tablet)
            if offset > end:
                raise OffsetOutOfRange(f"offset {offset} is beyond the log's end, {end}")
            if offset <= start or start == before:  # an open transaction may keep the rest
                return
            before = start
            part = PartitionPart(trim=offset)
            runtime.transactions.commit(runtime.new_tx(), {tablet: part}, _WAIT_SECONDS)
            with self._lock:
                self.trimmed += runtime.views.log_bounds(tablet)[0] - start

    # cleaning ------------------------------------------------------------------------------

    def _clean(self, drop: Dropped) -> None:
        runtime = self._runtime
        if runtime.nodes[0].host.history.oldest() < drop.step:
            return  # a snapshot may still read it
        if all([self._cleaned(tablet) for tablet in drop.tablets]):
            done = CataloguePart(drop.kind, drop.name, 0, "", runtime.hosts, CLEANED, drop.id)
            runtime.transactions.commit(runtime.new_tx(), {CATALOGUE_ID: done}, _WAIT_SECONDS)
            runtime.names.reload(Name(drop.kind, drop.name, drop.id))

    def _cleaned(self, tablet: int) -> bool:
        """Removes some of a tablet's keys; returns True when none is left."""
        runtime = self._runtime
        node = runtime.nodes[host_of(tablet)]
        prefix = tablet_prefix(tablet)
        if node.down:
            return False
        rows = node.host.store.scan(prefix, prefix + b"\xff", limit=2)
        if not rows or [key[4:] for key, _ in rows] == [runtime.schema.dropped_mark]:
            return True
        runtime.schema.tell_dropped(tablet)
        runtime.tell(tablet, Clean(_CLEAN_KEYS))
        self._wake.set()  # there is more
        return False
