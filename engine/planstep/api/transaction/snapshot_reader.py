"""Reads as of one snapshot, for transactions, snapshot views and the handles.

    rows(table)      every shard scanned, merged by encoded key       hash partitioning scatters ranges
    records(topic)   partition after partition, whole batches cut to the records asked for

It records no conditions; read_set.py does that for transactions.

Next: transaction.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from ...errors import Corruption, OffsetOutOfRange, SnapshotTooOld
from ...proto.ids import Place
from ...runtime.snapshot_reads import Segment
from ...tablets.intervals import Ranges, joined, raised
from ...tablets.intervals import free as free_ranges
from ..arguments import INT_MAX, brief, integer, whole
from ..columns.batch import ReadBatch
from .routing import shard_of

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo, TopicInfo
    from ...runtime.runtime import Runtime
    from ...runtime.snapshot_reads import Snapshot


class Row(NamedTuple):
    """A stored row: encoded key, the shard's tablet, the place that wrote it, encoded value."""

    key: bytes
    tablet: int
    place: Place
    value: bytes


class Reading:
    """Reads one snapshot, which its owner closes."""

    __slots__ = ("runtime", "snap")

    def __init__(self, runtime: "Runtime", snap: "Snapshot") -> None:
        self.runtime = runtime
        self.snap = snap

    # rows ----------------------------------------------------------------------------------

    def row(self, table: "TableInfo", key: bytes) -> tuple[Place, bytes] | None:
        self.runtime.views.request()
        return self.runtime.views.read_row(self.snap, shard_of(key, table.shards), key)

    def rows(
        self,
        table: "TableInfo",
        begin: bytes,
        end: bytes,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """Returns rows with begin <= key < end in key order, at most `limit`."""
        rows: list[Row] = []
        self.runtime.views.request()  # to all shards at once
        scan = self.runtime.views.scan_rows
        for tablet in table.shards:
            scanned = scan(self.snap, tablet, begin, end, limit=limit, reverse=bool(reverse))
            rows += [Row(key, tablet, place, value) for key, place, value in scanned]
        if len(table.shards) > 1:
            rows.sort(key=itemgetter(0), reverse=bool(reverse))
        return rows[:limit]

    # records -------------------------------------------------------------------------------

    def bounds(self, tablet: int) -> tuple[int, int]:
        return self.runtime.views.bounds(self.snap, tablet)

    def standing(self, tablet: int, consumer: str) -> tuple[int, int, Ranges, int]:
        """Returns (position, missed, ranges beyond it, step that last moved it), raised to the log's start.

        Where no position was ever committed it is the log's start, and nothing was missed.
        """
        start, _ = self.bounds(tablet)
        position, missed, ranges, moved = self.runtime.views.consumer(self.snap, tablet, consumer)
        if position is None:
            return start, 0, (), moved
        position, ranges, more = raised(position, ranges, start)
        return position, missed + more, ranges, moved

    def moved(self, tablet: int, consumer: str) -> int:
        """Returns the step that last moved the consumer, 0 for none: a condition of transactions that consume."""
        return self.runtime.views.moved(self.snap, tablet, consumer)

    def position(self, tablet: int, consumer: str) -> int:
        """Returns the offset where the consumer continues: its position, or the log's start when that is higher."""
        return self.standing(tablet, consumer)[0]

    def free(
        self, tablet: int, consumer: str, held: Iterable[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Returns the ranges that an individual consumer has neither consumed nor `held`, ascending.

        Each range has a record.
        """
        position, _, ranges, _ = self.standing(tablet, consumer)
        position, ranges = joined(position, [*ranges, *held])
        free = free_ranges(position, ranges, self.bounds(tablet)[1])
        if not self.runtime.views.has_holes:
            return free
        pieces = (self.visible_range(tablet, begin, end) for begin, end in free)
        return [piece for piece in pieces if piece is not None]

    def visible_range(self, tablet: int, begin: int, end: int) -> tuple[int, int] | None:
        """Cuts [begin, end) to begin with the first record that is shown there; None without one.

        Offsets before it never reach a reader that could acknowledge them.
        """
        if self.runtime.views.has_holes:
            begin = self.runtime.views.visible_from(tablet, begin)
        return (begin, end) if begin < end else None

    def positions(self, topic: "TopicInfo", consumer: str) -> dict[int, int]:
        return {p: self.position(tablet, consumer) for p, tablet in enumerate(topic.partitions)}

    def segments(
        self, topic: "TopicInfo", partition: int, offset: int, max_records: int, max_bytes: int
    ) -> tuple[list[Segment], int]:
        """Returns (segments, bytes): records from `offset` on, at most so many, and about so many bytes."""
        tablet = topic.partitions[partition]
        segments: list[Segment] = []
        size = 0
        while max_records > 0 and size < max_bytes:
            try:
                read = self.runtime.views.read_segments(
                    self.snap, tablet, partition, offset, max_records, max_bytes - size
                )
            except Corruption as error:
                raise Corruption(f"topic {topic.name!r}, partition {partition}, {error}") from error
            if not read:
                break
            segments += read
            size += sum(len(segment.batch.data) for segment in read)
            max_records -= sum(segment.hi - segment.lo for segment in read)
            offset = end_of(read)
        return segments, size

    def inspect(
        self,
        topic: "TopicInfo",
        starts: dict[int, int],
        max_records: int,
        max_bytes: int,
    ) -> ReadBatch:
        """Reads records of several partitions from explicit offsets, checked against the logs."""
        ends = {}
        for partition, start in starts.items():
            integer("an offset", start)
            low, high = self.bounds(topic.partitions[partition])
            if not low <= start <= high:
                raise OffsetOutOfRange(
                    f"topic {topic.name!r}, partition {partition}: offset {start} is outside the "
                    f"log [{low}, {high})"
                )
            ends[partition] = high
        batch: list[Segment] = []
        more = False
        for partition, start in starts.items():
            segments: list[Segment] = []
            if max_records > 0 and max_bytes > 0:
                segments, size = self.segments(topic, partition, start, max_records, max_bytes)
                batch += segments
                max_records -= sum(segment.hi - segment.lo for segment in segments)
                max_bytes -= size
            at = end_of(segments) if segments else start
            if max_records > 0 and max_bytes > 0:
                ends[partition] = max(at, ends[partition])  # no more records, only holes
            else:
                more = more or at < ends[partition]
                ends[partition] = at
        return ReadBatch(topic.name, topic.format, batch, more, starts, ends)

    def starts(
        self, topic: "TopicInfo", start: "int | Mapping[int, int]", partition: int | None
    ) -> dict[int, int]:
        """Turns `start=` and `partition=` of an inspection into partition → offset.

        0 stands for the oldest record that is still there.
        """
        if isinstance(start, Mapping):
            return {check_partition(topic, p): offset for p, offset in start.items()}
        if partition is None and start != 0 and len(topic.partitions) > 1:
            raise ValueError(
                "an offset belongs to one partition: pass partition= with start=, or a dict "
                "of partition to offset, as batch.ends is one"
            )
        chosen = chosen_partitions(topic, partition)
        if start == 0 and type(start) is int:
            return {p: self.bounds(topic.partitions[p])[0] for p in chosen}
        return dict.fromkeys(chosen, start)


def younger(info: "TableInfo | TopicInfo", step: int) -> SnapshotTooOld:
    """Makes the error for a name that was created after a snapshot's step. Whether another topic or table had it
    before is not kept."""
    return SnapshotTooOld(
        f"{info.name!r} was created in step {info.step}, after this snapshot of step {step}: begin again "
        "with a new one"
    )


def check_partition(topic: "TopicInfo", partition: int) -> int:
    count = len(topic.partitions)
    is_number = isinstance(partition, int) and not isinstance(partition, bool)
    if not is_number or not 0 <= partition < count:
        raise ValueError(
            f"topic {topic.name!r} has partitions 0 to {count - 1}, not {brief(partition)}"
        )
    return partition


def chosen_partitions(topic: "TopicInfo", partition: int | None) -> Sequence[int]:
    """Returns the one partition that was asked for, or all of the topic."""
    if partition is None:
        return range(len(topic.partitions))
    return (check_partition(topic, partition),)


def end_of(segments: list[Segment]) -> int:
    """Returns the offset after the last record; some offsets before it may have no record."""
    last = segments[-1]
    return last.offset + last.hi - last.lo


def below(segments: list[Segment], end: int) -> list[Segment]:
    """Cuts segments to records below an offset: with holes, a number of records may reach further."""
    while segments and end_of(segments) > end:
        last = segments.pop()
        if last.offset < end:
            segments.append(last._replace(hi=last.lo + end - last.offset))
    return segments


def check_limits(max_records: int, max_bytes: int) -> None:
    whole("max_records", max_records, 1)
    whole("max_bytes", max_bytes, 1)


def look_limit(max_records: int | None, max_bytes: int) -> int:
    """Returns the checked number of records to look at; None is no limit."""
    most = INT_MAX if max_records is None else max_records
    check_limits(most, max_bytes)
    return most
