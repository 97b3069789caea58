"""Topics and tables as columns: what Topic, Table and SnapshotView offer for Arrow and pandas.

    to_arrow, to_pandas        all at once, in memory
    iter_arrow, scan_arrow     RecordBatches one after the other: for what does not fit into memory

A topic as of a step is its partitions up to the ends that they had: records below never change, so
each piece is read through a fresh snapshot, and a long export keeps none open. Rows do change: a scan
keeps its snapshot, and is SnapshotTooOld when too many were overwritten meanwhile (see host/versions.py).

Nothing here imports pyarrow before it is used. Next: ../tables/bulk_load.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import OffsetOutOfRange, SnapshotTooOld
from ...proto.keys import Key, decode_key
from ..arguments import shown
from ..limits import READ_BYTES
from ..transaction.routing import scan_range
from ..transaction.snapshot_reader import check_partition, look_limit
from .batch import ReadBatch, Segment, behind
from .codecs import decode_values

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo, TopicInfo
    from ..engine import Engine
    from ..transaction.snapshot_reader import Reading

Offsets = int | Mapping[int, int]
Prefix = str | bytes | tuple[Any, ...] | None
BATCH_ROWS = 65_536
LOAD_ROWS = 10_000
PIECE_BYTES = 64 << 20
"""Stored bytes that become one RecordBatch at most, about."""


class Span:
    """The records of a topic between offsets, as of one step."""

    def __init__(
        self,
        engine: "Engine",
        reading: "Reading",
        name: str,
        start: Offsets,
        end: Offsets | None,
        partition: int | None,
    ) -> None:
        self.engine = engine
        self.info = engine._topic(name)
        self.starts = reading.starts(self.info, start, partition)
        self.ends = _ends(reading, self.info, self.starts, end)

    def pieces(self, rows: int, size: int = PIECE_BYTES) -> Iterator[list[Segment]]:
        """At most `rows` records, and about `size` stored bytes, at a time."""
        piece: list[Segment] = []
        left, room = rows, size
        for partition, offset in self.starts.items():
            end = self.ends[partition]
            while offset < end:
                found, used = self._read(partition, offset, min(left, end - offset), room)
                found = _before(end, found)
                if not found:  # nothing that is shown up to there: markers, or what was aborted
                    break
                piece += found
                offset = found[-1].offset + found[-1].hi - found[-1].lo
                left -= sum(segment.hi - segment.lo for segment in found)
                room -= used
                if left <= 0 or room <= 0:
                    yield piece
                    piece, left, room = [], rows, size
        if piece:
            yield piece

    def _read(self, partition: int, offset: int, rows: int, size: int) -> tuple[list[Segment], int]:
        with self.engine._look() as view:
            found, used = view._view().segments(self.info, partition, offset, rows, size)
        log_end = self.engine._runtime.views.whole_log(self.info.partitions[partition])[1]
        if not found and log_end < self.ends[partition]:
            raise SnapshotTooOld(f"topic {self.info.name!r} was dropped while it was read")
        return found, used

    def batches(self, rows: int, size: int) -> Iterator[ReadBatch]:
        """At most `rows` records, and about `size` stored bytes, at a time. One is read ahead, so that each
        knows whether it is the last."""
        name, form = self.info.name, self.info.format
        pieces = self.pieces(rows, size)
        starts, piece = self.starts, next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            last = following is None
            ends = self.ends if last else behind(starts, piece)
            yield ReadBatch(name, form, piece, not last, starts, ends)
            starts, piece = ends, following

    def batch(self, max_records: int | None) -> ReadBatch:
        """All of it, or the first `max_records`."""
        if max_records is not None and max_records < 1:
            raise ValueError("max_records is at least 1")
        rows = 1 << 62 if max_records is None else max_records
        segments = next(self.pieces(rows, 1 << 62), [])
        return ReadBatch(self.info.name, self.info.format, segments)

    def tables(self, rows: int, decode: bool, value_type: Any) -> Iterator[Any]:
        from . import arrow

        name, form = self.info.name, self.info.format
        for piece in self.pieces(rows):
            yield arrow.topic_table(name, form, piece, decode, True, value_type)


def _before(end: int, found: list[Segment]) -> list[Segment]:
    """The records below `end`."""
    kept = []
    for segment in found:
        if segment.offset < end:
            hi = min(segment.hi, segment.lo + end - segment.offset)
            kept.append(segment._replace(hi=hi))
    return kept


def _ends(
    reading: "Reading", topic: "TopicInfo", starts: dict[int, int], end: Offsets | None
) -> dict[int, int]:
    """Where to stop in each partition, checked."""
    given = end if isinstance(end, Mapping) else {} if end is None else dict.fromkeys(starts, end)
    if end is not None and not isinstance(end, Mapping) and len(starts) > 1:
        raise ValueError("an offset belongs to one partition: pass partition= with end=, or a dict")
    for partition in given:
        check_partition(topic, partition)
    found = {}
    for partition, start in starts.items():
        low, high = reading.bounds(topic.partitions[partition])
        stop = given.get(partition, high)
        for offset in (start, stop):
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise TypeError(f"an offset is an int, not {shown(offset)}")
        if not low <= start <= stop <= high:
            raise OffsetOutOfRange(
                f"topic {topic.name!r}, partition {partition}: [{start}, {stop}) is outside the log "
                f"[{low}, {high})"
            )
        found[partition] = stop
    return found


class TopicColumns:
    """What a Topic adds. It brings `_engine` and `name`."""

    _engine: "Engine"
    name: str

    def to_arrow(
        self,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        max_records: int | None = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Any:
        """The topic as a pyarrow Table, as of one step; see ReadBatch.to_arrow for its columns.

        `start` and `end` are offsets of `partition` (or of the only one), or dicts of partition to
        offset; without `end`, up to the log's end. It is all in memory: iter_arrow is for more.
        """
        with self._engine._look() as view:
            return view.to_arrow(self.name, start, end, partition, max_records, decode, value_type)

    def to_pandas(
        self,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        max_records: int | None = None,
    ) -> Any:
        """The same as a pandas DataFrame; values of format json and msgpack as Python objects."""
        with self._engine._look() as view:
            return view.to_pandas(self.name, start, end, partition, max_records)

    def iter_batches(
        self,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        max_records: int | None = None,
        max_bytes: int = READ_BYTES,
    ) -> Iterator[ReadBatch]:
        """The way through a large topic: batches of at most `max_records`, and of about `max_bytes`.

        `start`, `end` and `partition` as in to_arrow; as of the step at the call. `batch.ends` says where to go
        on behind each.
        """
        with self._engine._look() as view:
            return view.iter_batches(self.name, start, end, partition, max_records, max_bytes)

    def iter_arrow(
        self,
        batch_rows: int = BATCH_ROWS,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """pyarrow RecordBatches of at most `batch_rows`, and of about 64 MiB at most.

        As of the step at the call. All have the schema of the first, headers included; NoCommonType
        when later values do not fit into it: pass `value_type`, or decode=False.
        """
        with self._engine._look() as view:
            return view.iter_arrow(self.name, batch_rows, start, end, partition, decode, value_type)


class TableColumns:
    """What a Table adds. It brings `_engine` and `name`."""

    _engine: "Engine"
    name: str

    def scan_arrow(
        self,
        batch_rows: int = BATCH_ROWS,
        prefix: Prefix = None,
        begin: Key = None,
        end: Key = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """pyarrow RecordBatches of the rows that `scan` gives, as of the step at the first one."""
        with self._engine._look() as view:
            yield from view.scan_arrow(
                self.name, batch_rows, prefix, begin, end, decode, value_type
            )

    def load(
        self,
        rows: Any,
        key: str | Sequence[str] | None = None,
        value: str | None = None,
        batch_rows: int = LOAD_ROWS,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Puts many rows, in transactions of at most `batch_rows` and about 8 MiB; how many it put.

        rows        (key, value) pairs, a dict of them, dicts, a table of columns (of pyarrow, pandas,
                    or whoever speaks Arrow's C interface), or an iterable of such tables
        key         of dicts and columns: which is the key, or several, which make a tuple
        value       which is the value; None: a dict of all but the key
        progress    called after each transaction with the number of rows so far

        Each transaction is durable when the next one begins. After an error (its notes say how many
        rows are there) load again from the beginning: a put of the same row changes nothing.
        """
        from ..tables.bulk_load import load

        return load(self._engine, self.name, rows, key, value, batch_rows, progress)


class ViewColumns(ABC):
    """What a SnapshotView adds: the same by name, all as of its step."""

    _engine: "Engine"

    @abstractmethod
    def _view(self) -> "Reading":
        """Its step's; TransactionClosed when it was closed."""

    def to_arrow(
        self,
        topic: str,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        max_records: int | None = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Any:
        """A topic as a pyarrow Table; see Topic.to_arrow."""
        span = Span(self._engine, self._view(), topic, start, end, partition)
        return span.batch(max_records).to_arrow(decode, value_type)

    def to_pandas(
        self,
        topic: str,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        max_records: int | None = None,
    ) -> Any:
        """A topic as a pandas DataFrame; see Topic.to_pandas."""
        span = Span(self._engine, self._view(), topic, start, end, partition)
        return span.batch(max_records).to_pandas()

    def iter_batches(
        self,
        topic: str,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        max_records: int | None = None,
        max_bytes: int = READ_BYTES,
    ) -> Iterator[ReadBatch]:
        """A topic in batches; see Topic.iter_batches. The view may be closed meanwhile."""
        rows = look_limit(max_records, max_bytes)
        span = Span(self._engine, self._view(), topic, start, end, partition)
        return span.batches(rows, max_bytes)

    def iter_arrow(
        self,
        topic: str,
        batch_rows: int = BATCH_ROWS,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """A topic as pyarrow RecordBatches; see Topic.iter_arrow. The view may be closed meanwhile."""
        from . import arrow

        _check_rows(batch_rows)
        span = Span(self._engine, self._view(), topic, start, end, partition)
        tables = span.tables(batch_rows, decode, value_type)
        return arrow.record_batches(arrow.steady(tables, f"values of topic {topic!r}"))

    def scan_arrow(
        self,
        table: str,
        batch_rows: int = BATCH_ROWS,
        prefix: Prefix = None,
        begin: Key = None,
        end: Key = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """A table's rows as pyarrow RecordBatches with the columns key and value."""
        from . import arrow

        _check_rows(batch_rows)
        info = self._engine._table(table)
        bounds = scan_range(prefix, begin, end)
        tables = self._row_tables(info, bounds, batch_rows, decode, value_type)
        return arrow.record_batches(arrow.steady(tables, f"rows of table {table!r}"))

    def _row_tables(
        self,
        info: "TableInfo",
        bounds: tuple[bytes, bytes],
        rows: int,
        decode: bool,
        value_type: Any,
    ) -> Iterator[Any]:
        """The rows between encoded keys, at most `rows` at a time."""
        from . import arrow

        where = f"table {info.name!r}"
        for page in _pages(self, info, bounds, rows):
            keys = [decode_key(key) for key, _ in page]
            raw = [value for _, value in page]
            if decode or info.format == "utf8":
                yield arrow.rows_table(where, keys, decode_values(info.format, raw), value_type)
            else:
                yield arrow.rows_table(where, keys, raw, arrow.stored_type(info.format))


def _pages(
    view: ViewColumns, info: "TableInfo", bounds: tuple[bytes, bytes], rows: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    first, last = bounds
    while first < last:
        found = view._view().rows(info, first, last, rows)
        if found:
            yield [(row.key, row.value) for row in found]
        if len(found) < rows:
            return
        first = found[-1].key + b"\x00"


def _check_rows(batch_rows: int) -> None:
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows < 1:
        raise ValueError(f"batch_rows is at least 1, not {shown(batch_rows)}")
