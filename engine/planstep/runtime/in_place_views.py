"""Reads in modes whose data lies in the log before its transaction ends: each partition as it is, filtered here.

    m ─▶ where readers stop     entries from the offset to there ─▶ `filtered`, the mode's own ─▶ records

Readers of committed data stop before the first record of an open transaction. There is no snapshot: two partitions
are read one after the other, and a transaction that commits between the two reads is seen in one of them. All that
is read is durable. Positions are the mode's.

Next: client_hooks.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..host.versions import Pin
from ..proto.batch import HEADER_BYTES, Batch, timestamp_of
from ..proto.ids import tablet_prefix
from .snapshot_reads import Load, Segment, Snapshot, Views, trimmed_error, whole_batch


class InPlaceBounds(NamedTuple):
    """The log is [start, end); readers of committed data see only offsets before `stable`."""

    start: int = 0
    end: int = 0
    stable: int = 0


_EMPTY = InPlaceBounds()


class DurableRows:
    """Reads a tablet's durable keys, as the tablet's own functions want them."""

    __slots__ = ("_prefix", "_store")

    def __init__(self, store: Any, tablet: int) -> None:
        self._store = store
        self._prefix = tablet_prefix(tablet)

    def get(self, key: bytes) -> Any:
        return self._store.get(self._prefix + key)

    def scan(
        self, begin: bytes, end: bytes, *, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        rows = self._store.scan(self._prefix + begin, self._prefix + end, limit=limit)
        return [(key[len(self._prefix) :], row) for key, row in rows]


class InPlaceViews(Views, ABC):
    """Reads the released state of all hosts. A partition's row `m` is (start, end, stable); an entry's row begins
    with (address, length, records)."""

    has_holes = True

    def __init__(
        self,
        nodes: list[Any],
        check_open: Callable[[], None],
        rtt_ms: float,
        *,
        committed: bool,
    ) -> None:
        """`committed`: reads show no data of open or aborted transactions."""
        super().__init__(nodes, check_open, rtt_ms)
        self._committed = committed
        self._shown: dict[int, tuple[int, Any]] = {}
        """The entry that was shown last, by partition: most reads go on in it. What is shown once stays so."""

    @abstractmethod
    def filtered(
        self, tablet: int, offset: int, end: int, committed: bool
    ) -> Iterator[tuple[int, Any]]:
        """Yields the entries with records that overlap [offset, end), if `committed` without aborted ones."""

    def look(self, pin: Pin | None = None) -> Snapshot:
        """Makes what a read that belongs to no transaction sees."""
        return Snapshot(0, {}, pin)

    def snapshot(self) -> Snapshot:
        """Returns a look, which keeps the files of the present for as long as it is open."""
        pinned = None if self.following is None else self.following.pin()
        return self.look(None if pinned is None else pinned[1])

    def follow(self) -> None:
        """Reads what the store's owner has released by now, where that is another process."""
        if self.following is not None:
            self.following.look()

    def rows(self, tablet: int) -> DurableRows:
        return DurableRows(self._store(tablet), tablet)

    def log_meta(self, tablet: int) -> InPlaceBounds:
        row = self._store(tablet).get(tablet_prefix(tablet) + b"m")
        return _EMPTY if row is None else tuple.__new__(InPlaceBounds, row)

    def bounds(self, snap: Snapshot, tablet: int) -> tuple[int, int]:
        """Returns [log start, where readers stop), or up to the log's end with isolation="read_uncommitted"."""
        self.follow()
        return self.now(tablet)

    def now(self, tablet: int) -> tuple[int, int]:
        meta = self.log_meta(tablet)
        return meta.start, meta.stable if self._committed else meta.end

    def log_bounds(self, tablet: int) -> tuple[int, int]:
        """Returns [log start, first offset of an open transaction) under either isolation: what can be trimmed. An
        open transaction keeps all records from its first one on."""
        meta = self.log_meta(tablet)
        return meta.start, meta.stable

    def whole_log(self, tablet: int) -> tuple[int, int]:
        start, end, _ = self.log_meta(tablet)
        return start, end

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
            first, row = next(self.filtered(tablet, middle, high, False), (high, None))
            if row is None:
                high = middle
                continue
            address, _, records = row[:3]
            if timestamp_of(store.read_payload(address, HEADER_BYTES)) < ms:
                low = first + records
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
        for entry in self.filtered(tablet, offset, end, self._committed):
            self._shown[tablet] = entry
            yield entry

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
        self.follow()
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
            batch = self._batch(store, tablet, first, lo, (address, length, count), load)
            if hi < count and load is whole_batch:
                self._cache.put((tablet, first), batch)
            segments.append(Segment(partition, first + lo, lo, hi, batch))
            records += hi - lo
            size += length
            if records >= max_records:  # before the next entry is looked for
                break
        return segments

    def staged(self, tablet: int, tx: bytes) -> list[Batch]:
        return []  # sent data is in the log; the transaction itself shows only data not yet sent

    def visible_from(self, tablet: int, offset: int) -> int:
        """Skips markers and aborted records, as a fetch does."""
        start, end = self.now(tablet)
        position = max(offset, start)
        for first, _ in self._visible(tablet, position, end):
            return max(first, position)
        return max(position, end)
