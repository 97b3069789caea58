"""Reads topics and tables as columns, for the Arrow and pandas methods of Topic, Table and SnapshotView.

    to_arrow, to_pandas        all at once, in memory
    iter_arrow, scan_arrow     RecordBatches one after the other: for more than fits into memory

A topic as of a step is its partitions up to the ends that they had then. Records below these ends never change,
so each piece is read through a fresh snapshot, and a long export keeps none open. Rows do change, so a scan keeps
its snapshot. It raises SnapshotTooOld when too many rows were overwritten meanwhile (see host/versions.py).

Nothing here imports pyarrow before it is used. Next: ../tables/bulk_load.py.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import OffsetOutOfRange, SnapshotTooOld
from ...proto.keys import decode_key
from ...runtime.snapshot_reads import Segment
from ..arguments import INT_MAX, brief, integer, whole
from ..transaction.snapshot_reader import below, check_partition, end_of
from .batch import ReadBatch, behind
from .codecs import decode_values

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo, TopicInfo
    from ..context import Context
    from ..transaction.snapshot_reader import Reading

Offsets = int | Mapping[int, int]
Prefix = str | bytes | tuple[Any, ...] | None
BATCH_ROWS = 65_536
LOAD_ROWS = 10_000
PIECE_BYTES = 64 << 20
"""About how many stored bytes become one RecordBatch at most."""


class Span:
    """The records of a topic between offsets, as of one step."""

    def __init__(
        self,
        context: "Context",
        reading: "Reading",
        info: "TopicInfo",
        start: Offsets,
        end: Offsets | None,
        partition: int | None,
    ) -> None:
        self.context = context
        self.info = info
        self.starts = reading.starts(self.info, start, partition)
        self.ends = _ends(reading, self.info, self.starts, end)

    def pieces(self, rows: int, size: int = PIECE_BYTES) -> Iterator[list[Segment]]:
        """Yields pieces of at most `rows` records, and of about `size` stored bytes."""
        piece: list[Segment] = []
        rows_left, room = rows, size
        for partition, offset in self.starts.items():
            end = self.ends[partition]
            while offset < end:
                segments, used = self._read(partition, offset, min(rows_left, end - offset), room)
                segments = below(segments, end)
                if not segments:  # only markers or aborted records up to the end
                    break
                piece += segments
                offset = end_of(segments)
                rows_left -= sum(segment.hi - segment.lo for segment in segments)
                room -= used
                if rows_left <= 0 or room <= 0:
                    yield piece
                    piece, rows_left, room = [], rows, size
        if piece:
            yield piece

    def _read(self, partition: int, offset: int, rows: int, size: int) -> tuple[list[Segment], int]:
        with self.context.reading() as reading:
            segments, used = reading.segments(self.info, partition, offset, rows, size)
        log_end = self.context.runtime.views.whole_log(self.info.partitions[partition])[1]
        if not segments and log_end < self.ends[partition]:
            raise SnapshotTooOld(f"topic {self.info.name!r} was dropped while it was read")
        return segments, used

    def batches(self, rows: int, size: int) -> Iterator[ReadBatch]:
        """Yields batches of at most `rows` records, and of about `size` stored bytes.

        It reads one batch ahead, so that each can tell whether it is the last.
        """
        name, form = self.info.name, self.info.format
        pieces = self.pieces(rows, size)
        starts, piece = self.starts, next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            ends = self.ends if following is None else behind(starts, piece)
            yield ReadBatch(name, form, piece, following is not None, starts, ends)
            starts, piece = ends, following

    def batch(self, max_records: int | None) -> ReadBatch:
        """Reads all records, or the first `max_records`, as one batch."""
        rows = INT_MAX if max_records is None else whole("max_records", max_records, 1)
        return ReadBatch(self.info.name, self.info.format, next(self.pieces(rows, 1 << 62), []))

    def tables(self, rows: int, decode: bool, value_type: Any) -> Iterator[Any]:
        from . import arrow

        name, form = self.info.name, self.info.format
        for piece in self.pieces(rows):
            yield arrow.topic_table(name, form, piece, decode, True, value_type)


def _ends(
    reading: "Reading", topic: "TopicInfo", starts: dict[int, int], end: Offsets | None
) -> dict[int, int]:
    """Returns the checked end in each partition. OffsetOutOfRange, ValueError, TypeError."""
    stops = end if isinstance(end, Mapping) else {} if end is None else dict.fromkeys(starts, end)
    if end is not None and not isinstance(end, Mapping) and len(starts) > 1:
        raise ValueError("an offset belongs to one partition: pass partition= with end=, or a dict")
    for partition in stops:
        check_partition(topic, partition)
    ends = {}
    for partition, start in starts.items():
        low, high = reading.bounds(topic.partitions[partition])
        stop = stops.get(partition, high)
        for offset in (start, stop):
            integer("an offset", offset)
        if not low <= start <= stop <= high:
            raise OffsetOutOfRange(
                f"topic {topic.name!r}, partition {partition}: [{start}, {stop}) is outside the log "
                f"[{low}, {high})"
            )
        ends[partition] = stop
    return ends


def row_tables(
    reading: Callable[[], "Reading"],
    info: "TableInfo",
    bounds: tuple[bytes, bytes],
    rows: int,
    *,
    decode: bool,
    value_type: Any,
) -> Iterator[Any]:
    """Yields Arrow tables of the rows between encoded keys, of at most `rows` each."""
    from . import arrow

    where = f"table {info.name!r}"
    first, last = bounds
    while first < last:
        page = reading().rows(info, first, last, rows)
        if not page:
            return
        keys = [decode_key(row.key) for row in page]
        raw = [row.value for row in page]
        if decode or info.format == "utf8":
            yield arrow.rows_table(where, keys, decode_values(info.format, raw), value_type)
        else:
            yield arrow.rows_table(where, keys, raw, arrow.stored_type(info.format))
        if len(page) < rows:
            return
        first = page[-1].key + b"\x00"


def check_rows(batch_rows: int) -> None:
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows < 1:
        raise ValueError(f"batch_rows is at least 1, not {brief(batch_rows)}")
