"""Reads in the Kafka-style mode: each partition as it is now, up to its last stable offset, filtered here.

    m ─▶ last stable offset     rows from the offset to there ─▶ read_committed filter ◀── aborted index
    c, n of the group coordinator ─▶ position, unless one is pending: UNSTABLE_OFFSET_COMMIT, look again

There is no snapshot: two partitions are read one after the other, and a transaction that commits between
the two reads is seen in one of them. All that is read is durable.

Next: hooks.py.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from ...coordinator.kafka.groups import pending_of, position_of
from ...host.versions import Pin, Retired
from ...proto.batch import HEADER_BYTES, Batch, timestamp_of
from ...proto.ids import GROUPS, Place, tablet_id, tablet_prefix
from ...proto.kafka.coordinators import group_of
from ...proto.kafka.messages import ABORT, COMMIT, TRANSACTIONAL
from ...proto.kafka.settings import KafkaSettings
from ...proxy.read_filter import Aborted, Kinds, aborted_between, visible
from ...tablets.intervals import Ranges
from ...tablets.kafka.rows import EMPTY, Bounds, Entry
from ..log_entries import ROWS
from ..snapshot_reads import Segment, Snapshot, Views, trimmed_error
from .errors import kafka_error

NO_PLACE = Place(0, None)
"""This mode gives transactions no place in a common order."""
WRITER = "writer:"
"""The prefix of transactional ids and groups that stand for writers' producers: numbers.py."""
KINDS = Kinds(TRANSACTIONAL, COMMIT, ABORT)
Positions = dict[tuple[str, int], int]
"""(consumer, partition's tablet) → the client's next position, in its consumer's memory."""


class LiveSnapshot(Snapshot):
    """Reads the present state at each call; holds the positions of one client, if it keeps some."""

    __slots__ = ("positions", "stable")

    def __init__(
        self,
        positions: Positions | None = None,
        stable: bool = False,
        pin: Pin | None = None,
    ) -> None:
        super().__init__(0, {}, pin)
        self.positions = positions
        self.stable = stable  # waits for the transaction that a pending position depends on


class _Durable:
    """Reads a tablet's durable keys (coordinator.groups.Rows)."""

    __slots__ = ("_prefix", "_store")

    def __init__(self, store: Any, tablet: int) -> None:
        self._store = store
        self._prefix = tablet_prefix(tablet)

    def get(self, key: bytes) -> Any:
        return self._store.get(self._prefix + key)

    def scan(self, begin: bytes, end: bytes) -> list[tuple[bytes, Any]]:
        rows = self._store.scan(self._prefix + begin, self._prefix + end)
        return [(key[len(self._prefix) :], row) for key, row in rows]


class KafkaViews(Views):
    """Reads the released state of all hosts."""

    has_holes = True

    def __init__(
        self,
        nodes: list[Any],
        check_open: Callable[[], None],
        settings: KafkaSettings,
        rtt_ms: float,
        writes: bool = True,
    ) -> None:
        super().__init__(nodes, check_open, rtt_ms)
        self._writes = writes
        self._settings = settings
        self._shown: dict[int, tuple[int, Any]] = {}
        """The entry that was shown last, by partition: most reads go on in it. What is shown once stays so."""

    def snapshot(self) -> Snapshot:
        """Returns a look. While it is open, a read-only engine moves to no newer view, so its reads stay valid."""
        while not self._writes:
            history = self._nodes[0].host.history
            try:
                return LiveSnapshot(pin=history.open(0))
            except Retired:
                pass
        return LiveSnapshot()

    # partitions ----------------------------------------------------------------------------

    def _meta(self, tablet: int) -> Bounds:
        row = self._store(tablet).get(tablet_prefix(tablet) + b"m")
        return EMPTY if row is None else tuple.__new__(Bounds, row)

    def bounds(self, snap: Snapshot, tablet: int) -> tuple[int, int]:
        """Returns [log start, last stable offset), or up to the log's end with isolation="read_uncommitted"."""
        return self.now(tablet)

    def now(self, tablet: int) -> tuple[int, int]:
        meta = self._meta(tablet)
        committed = self._settings.isolation == "read_committed"
        return meta.start, meta.stable if committed else meta.end

    def log_bounds(self, tablet: int) -> tuple[int, int]:
        """Returns [log start, last stable offset) under either isolation: what can be trimmed. An open transaction
        keeps all records from its first one on."""
        meta = self._meta(tablet)
        return meta.start, meta.stable

    def whole_log(self, tablet: int) -> tuple[int, int]:
        start, end, _ = self._meta(tablet)
        return start, end

    def standing(self, tablet: int, consumer: str) -> tuple[int, int] | None:
        """Returns (lag, 0); markers count as lag, as they do in Kafka."""
        position, _ = self.committed(tablet, consumer)
        if position is None:
            return None
        return max(0, self._meta(tablet).end - position), 0

    def end(self, tablet: int) -> int:
        _, end = self.now(tablet)
        return end

    def visible_to(self, tablet: int) -> int | None:
        return self.end(tablet)

    def offset_at(self, tablet: int, ms: int) -> int:
        """Returns an offset after all batches written before `ms`, as far as clocks agree, and before all others;
        markers in between have no time."""
        store = self._store(tablet)
        low, high = self.now(tablet)
        while low < high:
            middle = (low + high) // 2
            first, row = next(visible(self.entries(tablet, middle, high), (), KINDS), (high, None))
            if row is None:
                high = middle
                continue
            entry = Entry(*row)
            if timestamp_of(store.read_payload(entry.address, HEADER_BYTES)) < ms:
                low = first + entry.records
            elif first <= middle:
                high = max(low, first)
            else:
                high = middle
        return low

    def _visible(self, tablet: int, offset: int, end: int) -> Iterator[tuple[int, Any]]:
        """Yields the entries that this isolation shows."""
        last = self._shown.get(tablet)
        if last is not None and last[0] <= offset < last[0] + last[1][2]:
            yield last
            offset = last[0] + last[1][2]
            if offset >= end:
                return
        aborted: list[Aborted] = []
        if self._settings.isolation == "read_committed":
            aborted = aborted_between(self._index(tablet, offset), offset, end)
        for entry in visible(self.entries(tablet, offset, end), aborted, KINDS):
            self._shown[tablet] = entry
            yield entry

    def _index(self, tablet: int, offset: int) -> Iterator[Any]:
        """Yields the rows of the aborted index from a marker's offset on."""
        store, prefix = self._store(tablet), tablet_prefix(tablet) + b"a"
        at = prefix + offset.to_bytes(8, "big")
        while rows := store.scan(at, prefix + b"\xff" * 9, limit=ROWS):
            for key, row in rows:
                yield row
                at = key + b"\x00"

    def read_segments(
        self,
        snap: Snapshot,
        tablet: int,
        partition: int,
        offset: int,
        max_records: int,
        max_bytes: int,
    ) -> list[Segment]:
        start, end = self.now(tablet)
        if offset >= end:
            return []
        if offset < start:
            raise trimmed_error(offset)
        self.request()
        store = self._store(tablet)
        segments: list[Segment] = []
        records = size = 0
        for first, row in self._visible(tablet, offset, end):
            address, length, count = row[:3]
            if segments and size + length > max_bytes:
                break
            lo = max(0, offset - first)
            hi = min(count, lo + max_records - records)
            batch = self._batch(store, tablet, first, lo, address, length)
            if hi < count:
                self._cache.put((tablet, first), batch)
            segments.append(Segment(partition, first + lo, lo, hi, batch))
            records += hi - lo
            size += length
            if records >= max_records:  # before the next entry is looked for
                break
        return segments

    def staged(self, tablet: int, tx: bytes) -> list[Batch]:
        return []  # sent data is in the log; the transaction itself shows only data not yet sent

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        raise AssertionError("numbers.py has them")

    # consumers -----------------------------------------------------------------------------

    def moved(self, snap: Snapshot, tablet: int, consumer: str) -> int:
        return 0  # positions are the group's: the last commit wins

    def consumer(
        self, snap: Snapshot, tablet: int, consumer: str
    ) -> tuple[int | None, int, Ranges, int]:
        """Returns (offset of the next record to read, …); a transaction waits while a position is pending.

        A client uses a position in its own memory first, as a consumer of Kafka does; a fetched one would be
        old on arrival where another reader got the partition's records first.
        """
        assert isinstance(snap, LiveSnapshot)
        positions = snap.positions
        position = None if positions is None else positions.get((consumer, tablet))
        if position is None:
            if snap.stable and self._settings.isolation == "read_committed":
                position = self.stable_position(tablet, consumer)
            else:
                position, _ = self.committed(tablet, consumer)
            if position is None:
                return None, 0, (), 0
        return self.visible_from(tablet, position), 0, (), 0

    def stable_position(self, tablet: int, consumer: str) -> int | None:
        """Returns a position once no transaction is about to move it. KafkaError after max_block_ms."""
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        while True:
            self.request()
            position, pending = self.committed(tablet, consumer)
            if not pending:
                return position
            self._check_open()
            if time.monotonic() > deadline:
                raise kafka_error("UNSTABLE_OFFSET_COMMIT", f"consumer {consumer!r}")
            time.sleep(self._settings.retry_backoff_ms / 1000)

    def _group(self, consumer: str) -> "_Durable":
        group = group_of(consumer, len(self._nodes))
        return _Durable(self._store(group), group)

    def committed(self, tablet: int, consumer: str) -> tuple[int | None, bool]:
        """Returns (committed position or None, whether another one waits for its transaction's marker)."""
        rows = self._group(consumer)
        pending = bool(pending_of(rows, consumer, tablet))  # first: one that ends now has moved
        return position_of(rows, consumer, tablet), pending

    def group(self, consumer: str) -> tuple[int, tuple[str, ...]]:
        """Returns (generation, members) of a consumer's group; generation 0 when it never had a member."""
        row = self._group(consumer).get(b"g" + consumer.encode())
        return (0, ()) if row is None else row

    def group_fields(self, consumer: str) -> dict[str, Any]:
        generation, members = self.group(consumer)
        return {"generation": generation, "members": members}

    def position_fields(self, tablet: int, consumer: str) -> dict[str, Any]:
        moves = pending_of(self._group(consumer), consumer, tablet)
        pending = [{"producer": producer, "position": at} for producer, at in moves]
        return {"committed": self.committed(tablet, consumer)[0], "pending": pending}

    def visible_from(self, tablet: int, offset: int) -> int:
        """Skips markers and aborted records, as a fetch does."""
        start, end = self.now(tablet)
        position = max(offset, start)
        for first, _ in self._visible(tablet, position, end):
            return max(first, position)
        return max(position, end)

    def consumers(self, tablet: int) -> list[str]:
        names: dict[str, None] = {}
        suffix = tablet_prefix(tablet)
        for number in range(len(self._nodes)):
            group = tablet_id(GROUPS, number, 0)
            prefix = tablet_prefix(group)
            for key, _ in self._store(group).scan(prefix + b"c", prefix + b"d"):
                if key[-4:] == suffix and key[-5:-4] == b"\x00":
                    names[key[5:-5].decode()] = None
        return sorted(name for name in names if not name.startswith(WRITER))
