"""Reads all hosts as of one step; a read takes part in no turn and waits for no sync.

A snapshot is S, the last released step, and for each other host the number of the last message that
the coordinator's host had sent to it by then. A host serves S once it has taken that message; a read
then waits only for planned, undecided transactions ≤ S that write what it reads. With one host both
hold already. S never comes from a clock.

An engine that reads another process's store has views of all hosts, at one step (following.py). A snapshot reads
the views that it was opened with.

Next: runtime.py.
"""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..closing import Closing
from ..errors import Corruption, IoError, PlanstepError, SnapshotTooOld
from ..host.log_entries import entries_between, first_behind
from ..host.versions import Pin
from ..proto.batch import HEADER_BYTES, Batch, timestamp_of
from ..proto.ids import Place, host_of, tablet_prefix
from ..proto.messages import PartitionPart, ShardPart
from ..tablets.intervals import Ranges, raised
from ..tablets.participant import TxRecord
from ..tablets.partition import EMPTY, FORGOTTEN, Bounds, Entry, EntryRow, Numbers, standing
from ..tablets.shard import RowFields
from .batch_cache import BatchCache
from .wait_primitives import wait_for

if TYPE_CHECKING:
    from ..store import Store
    from .following import Following, Shown

_WAIT_SECONDS = 30.0


class Segment(NamedTuple):
    """Records lo..hi of one stored batch; `offset` is that of the first. `place` has no n where there is none."""

    partition: int
    offset: int
    lo: int
    hi: int
    batch: Batch
    place: Place = Place(0, None)


Load: TypeAlias = Callable[[Any, int, int, int], Batch]
"""Makes an entry's batch of (store, address, bytes, records); it may read less than all."""


def whole_batch(store: Any, address: int, length: int, _records: int) -> Batch:
    return Batch.decode(store.read_payload(address, length))


def _moves_bounds(body: Any) -> bool:
    part = PartitionPart(*body)
    return bool(part.slices) or part.trim is not None


def trimmed_error(offset: int) -> SnapshotTooOld:
    return SnapshotTooOld(f"offset {offset} was trimmed since this read began: begin it again")


class Snapshot(Closing):
    """A pinned step. Close it: while it is open, overwritten versions stay in memory."""

    __slots__ = ("_pin", "bounds", "marks", "shown", "step")

    def __init__(
        self, step: int, marks: dict[int, int], pin: Pin | None, shown: "Shown | None" = None
    ) -> None:
        """`shown`: the views that it reads, of an engine that reads another process's store."""
        self.step = step
        self.marks = marks
        self.shown = shown
        self.bounds: dict[int, tuple[int, int]] = {}  # of the partitions that were looked at
        self._pin = pin

    def close(self) -> None:
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.close()


class Views:
    """Reads the released state of all hosts."""

    has_holes = False
    """True where some offsets of a log show no record: no reader may wait until those are consumed."""

    following: "Following | None" = None
    """Shows what another process, which owns the store, has released."""

    def __init__(
        self, nodes: list[Any], check_open: Callable[[], None], rtt_ms: float = 0.0
    ) -> None:
        self._rtt = rtt_ms / 1000
        self.fetches = 0
        self._nodes = nodes
        self._check_open = check_open  # raises when no thread will advance a host any more
        self._cache = BatchCache()
        self._last_read: dict[int, tuple[int, int]] = {}
        """[begin, end) of the batch that was read last, by partition: most reads go on in it, or behind it."""
        self.begin()

    def begin(self) -> None:
        """Begins to read from the nodes' hosts, as they are now."""
        self._distributed = len(self._nodes) > 1 or bool(self._nodes[0].host.links)

    def snapshot(self) -> Snapshot:
        node = self._nodes[0]
        if self._distributed:
            self.request()
        if self.following is not None and (pinned := self.following.pin()) is not None:
            shown, pin = pinned
            return Snapshot(pin.step, {}, pin, shown)
        host = node.host
        if not self._distributed:
            pin = host.history.open()
            return Snapshot(pin.step, {}, pin)
        with node.lock:  # step and link numbers of the same turn
            pin = host.history.open()
            marks = {target: link.durable for target, link in host.links.items()}
        return Snapshot(pin.step, marks, pin)

    def request(self) -> None:
        """Counts a request to a tablet, and waits for the round trip that the engine is set to (`rtt_ms`)."""
        self.fetches += 1
        if self._rtt:
            time.sleep(self._rtt)

    @property
    def cache_bytes(self) -> int:
        return self._cache.bytes

    def _store(self, tablet: int) -> Any:
        return self._nodes[host_of(tablet)].host.store

    def _host(self, snap: Snapshot, tablet: int, meets: Any) -> Any:
        """Returns the tablet's host, once it serves the snapshot for the rows that are read."""
        if snap.shown is not None:
            return snap.shown.hosts[host_of(tablet)]
        node = self._nodes[host_of(tablet)]
        if not self._distributed:
            return node.host
        deadline = time.monotonic() + _WAIT_SECONDS
        if self._served(node, snap, tablet, meets):
            return node.host
        with node.changed.listen() as queue:
            while not self._served(node, snap, tablet, meets):
                self._check_open()
                if time.monotonic() > deadline:
                    raise PlanstepError(
                        f"host {node.host.number} did not reach step {snap.step} within "
                        f"{_WAIT_SECONDS:.0f} s; a host that it waits for is down"
                    )
                wait_for(queue, 0.05)
        return node.host

    def _served(self, node: Any, snap: Snapshot, tablet: int, meets: Any) -> bool:
        host = node.host
        if node.down:
            return False
        link = host.links.get(0)  # from host 0, also to itself with "separate" tablets
        if link is not None and link.received < snap.marks.get(host.number, 0):
            return False
        prefix = tablet_prefix(tablet)
        for step, _, tx in host.store.get(prefix + b"q") or ():
            if step > snap.step:
                break
            record = host.store.get(prefix + b"t" + tx)
            if record is None or meets(TxRecord._make(record).body):
                return False
        return True

    # rows ----------------------------------------------------------------------------------

    def read_row(self, snap: Snapshot, tablet: int, key: bytes) -> tuple[Place, bytes] | None:
        host = self._host(
            snap, tablet, lambda body: any(key == k for k, _, _ in ShardPart(*body).writes)
        )
        full = tablet_prefix(tablet) + b"r" + key
        row: RowFields | None = host.history.value_at(full, host.store.get(full), snap.step)
        if row is None:
            return None
        step, n, value = row
        return Place(step, n), value

    def scan_rows(
        self,
        snap: Snapshot,
        tablet: int,
        begin: bytes,
        end: bytes,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, Place, bytes]]:
        """Returns the rows with begin <= key < end as of the snapshot, at most `limit`."""
        host = self._host(
            snap,
            tablet,
            lambda body: any(begin <= k < end for k, _, _ in ShardPart(*body).writes),
        )
        prefix = tablet_prefix(tablet) + b"r"
        first, last = prefix + begin, prefix + end
        step = snap.step
        rows = host.store.scan(first, last, reverse=reverse, limit=limit)
        # The history is read after the scan: by then it has any row that the scan missed.
        hidden = host.history.keys_between(first, last)
        if hidden or any(written > step for _, (written, _, _) in rows):
            newest: dict[bytes, RowFields | None] = dict.fromkeys(hidden)
            newest.update(host.store.scan(first, last))
            for key in host.history.keys_between(first, last):
                newest.setdefault(key, None)
            rows = []
            for key in sorted(newest, reverse=reverse):
                row = host.history.value_at(key, newest[key], step)
                if row is not None:
                    rows.append((key, row))
            rows = rows[:limit]
        host.history.check(step)  # else a deleted row whose version was forgotten would be missing
        return [(key[5:], Place(step, n), value) for key, (step, n, value) in rows]

    # partitions ----------------------------------------------------------------------------

    def bounds(self, snap: Snapshot, tablet: int) -> tuple[int, int]:
        """Returns [log start, log end) as of the snapshot."""
        known = snap.bounds.get(tablet)
        if known is None:
            host = self._host(snap, tablet, _moves_bounds)
            full = tablet_prefix(tablet) + b"m"
            _, _, start, end = host.history.value_at(full, host.store.get(full), snap.step) or EMPTY
            known = snap.bounds[tablet] = start, end
        return known

    def log_bounds(self, tablet: int) -> tuple[int, int]:
        """Returns [log start, log end) as last released, at whatever step."""
        _, _, start, end = self._last_bounds(tablet)
        return start, end

    def _last_bounds(self, tablet: int) -> Bounds:
        row = self._nodes[host_of(tablet)].host.store.get(tablet_prefix(tablet) + b"m")
        return EMPTY if row is None else tuple.__new__(Bounds, row)

    def whole_log(self, tablet: int) -> tuple[int, int]:
        """Returns [start, end) of the stored log, with what readers are not shown yet."""
        return self.log_bounds(tablet)

    def visible_to(self, tablet: int) -> int | None:
        """Returns the offset where the shown part of the log ends; None where that is the log's end."""
        return None

    def standing(self, tablet: int, consumer: str) -> tuple[int, int] | None:
        """Returns (lag, missed) of a consumer, as last released; None when it has no position here."""
        row = self._store(tablet).get(tablet_prefix(tablet) + b"c" + consumer.encode())
        if row is None:
            return None
        start, end = self.log_bounds(tablet)
        known = standing(row, None)
        position, ranges, more = raised(known.position, known.ranges or (), start)
        return end - position - sum(e - b for b, e in ranges), known.missed + more

    def lag(self, tablet: int, begin: int, end: int, taken: Ranges) -> int:
        """Counts what is left of [begin, end) without the ranges that were consumed, as the mode counts it."""
        return end - begin - sum(e - b for b, e in taken)

    def end(self, tablet: int) -> int:
        """Returns the log's end as last released, at whatever step."""
        return self._last_bounds(tablet).end

    def staged(self, tablet: int, tx: bytes) -> list[Batch]:
        """Returns the batches that an open transaction has staged at a partition, in order."""
        store = self._store(tablet)
        held = store.get(tablet_prefix(tablet) + b"s" + tx) or ()
        return [
            Batch.decode(store.read_payload(address, length)) for address, length, _ in held[1:]
        ]

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        """Returns the highest number of a producer in a partition, at the snapshot or later.

        None when it has none. Transactions that a crashed engine had planned count.
        """

        def numbers(body: Any) -> bool:
            numbered, _, _ = PartitionPart(*body).producer or (None, 0, 0)
            return numbered == producer

        host = self._host(snap, tablet, numbers)
        known = host.store.get(tablet_prefix(tablet) + b"p" + producer)
        return None if known is None else Numbers._make(known).last

    def consumer(
        self, snap: Snapshot, tablet: int, consumer: str
    ) -> tuple[int | None, int, Ranges, int]:
        """Returns (position, missed, an individual consumer's ranges beyond it, the step that last moved it).

        The position is None where none was committed.
        """

        def moves(body: Any) -> bool:
            part = PartitionPart(*body)
            moved = part.ranges + part.acks + part.seeks
            return any(consumer == c or offset is None for c, offset, _ in moved)

        host = self._host(snap, tablet, moves)
        prefix = tablet_prefix(tablet)
        full = prefix + b"c" + consumer.encode()
        row = host.history.value_at(full, host.store.get(full), snap.step)
        if row is None:
            full = prefix + FORGOTTEN
            forgotten = host.history.value_at(full, host.store.get(full), snap.step)
            return None, 0, (), standing(None, forgotten).moved
        known = standing(row, None)
        return known.position, known.missed, known.ranges or (), known.moved

    def moved(self, snap: Snapshot, tablet: int, consumer: str) -> int:
        """Returns the step that last moved a consumer, or forgot it where it has no position; 0 for none."""
        _, _, _, moved = self.consumer(snap, tablet, consumer)
        return moved

    def pending_ranges(self, tablet: int, consumer: str) -> list[tuple[int, int]]:
        """Returns the ranges that open transactions have acknowledged, in modes that have this: not to be handed
        out, and not consumed."""
        return []

    def consumers(self, tablet: int) -> list[str]:
        """Lists the consumers that have a position in the partition, by name."""
        store = self._store(tablet)
        prefix = tablet_prefix(tablet)
        return [key[5:].decode() for key, _ in store.scan(prefix + b"c", prefix + b"d")]

    def group_fields(self, consumer: str) -> dict[str, Any]:
        """Returns fields that describe a consumer's group, in modes that have groups."""
        return {}

    def position_fields(self, tablet: int, consumer: str) -> dict[str, Any]:
        """Returns fields that describe a consumer in a partition beyond its position."""
        return {}

    def visible_from(self, tablet: int, offset: int) -> int:
        """Returns the offset of the first record that is shown at `offset` or after it; the log's end where there
        is none. Called only for a log with holes."""
        return offset

    def read_segments(
        self,
        snap: Snapshot,
        tablet: int,
        partition: int,
        offset: int,
        max_records: int,
        max_bytes: int,
        *,
        load: Load = whole_batch,
    ) -> list[Segment]:
        """Returns the stored batches from `offset` on, cut to the limits; at least one record if there is any."""
        _, end = self.bounds(snap, tablet)
        if offset >= end:
            return []
        self.request()
        store = self._store(tablet) if snap.shown is None else snap.shown.stores[host_of(tablet)]
        prefix = tablet_prefix(tablet) + b"b"
        at = prefix + offset.to_bytes(8, "big")
        last = prefix + end.to_bytes(8, "big")
        result: list[Segment] = []
        records = size = 0
        # The batch that holds the offset; later ones only if there is room for more.
        entries: list[tuple[bytes, EntryRow]] = []
        begin, behind = self._last_read.get(tablet, (0, 0))
        if begin <= offset <= behind:
            key = at if offset == behind else prefix + begin.to_bytes(8, "big")
            entry = store.get(key)
            entries = [] if entry is None else [(key, entry)]
        entries = entries or store.scan(prefix, at + b"\x00", reverse=True, limit=1)
        while entries and offset < end:
            for key, (address, length, count, step, n) in entries:
                begin = int.from_bytes(key[-8:], "big")
                if records >= max_records or (result and size + length > max_bytes):
                    return result
                if not begin <= offset < begin + count:
                    raise trimmed_error(offset)
                lo = offset - begin
                hi = min(count, lo + max_records - records)
                batch = self._batch(store, tablet, begin, lo, (address, length, count), load)
                if hi < count and load is whole_batch:
                    self._cache.put((tablet, begin), batch)
                self._last_read[tablet] = begin, begin + count
                result.append(Segment(partition, offset, lo, hi, batch, Place(step, n)))
                records += hi - lo
                size += length
                offset = begin + hi
                at = key + b"\x00"
            if records >= max_records or size >= max_bytes:
                return result
            entries = store.scan(at, last, limit=max(1, min(max_records - records, 1000)))
        if offset < end:
            raise trimmed_error(offset)
        return result

    def entries(self, tablet: int, offset: int, end: int) -> Iterator[tuple[int, Any]]:
        """Yields (first offset, row) of the stored batches and markers that overlap [offset, end)."""
        return entries_between(self._store(tablet), tablet, offset, end)

    def offset_at(self, tablet: int, ms: int) -> int:
        """Returns the first offset whose batch was written at `ms` or later, as far as clocks agree."""
        store = self._store(tablet)

        def is_earlier(entry: Entry) -> bool:
            return timestamp_of(store.read_payload(entry.address, HEADER_BYTES)) < ms

        return first_behind(store, tablet, *self.log_bounds(tablet), is_earlier)

    def end_at(self, tablet: int, step: int) -> int:
        """Returns the log's end as of an earlier step; the log's start where all remaining records came later.

        Places never decrease along a partition.
        """
        store = self._store(tablet)
        return first_behind(
            store, tablet, *self.log_bounds(tablet), lambda entry: entry.step <= step
        )

    def _batch(
        self,
        store: "Store",
        tablet: int,
        begin: int,
        lo: int,
        entry: tuple[int, int, int],
        load: Load,
    ) -> Batch:
        batch = self._cache.get((tablet, begin))
        if batch is None:
            try:
                batch = load(store, *entry)
            except (Corruption, IoError) as error:
                start, log_end = self.whole_log(tablet)
                if not start <= begin < log_end:  # trimmed or dropped since the entry was read
                    raise trimmed_error(begin + lo) from error
                raise type(error)(f"offset {begin + lo}: {error}") from error
        return batch
