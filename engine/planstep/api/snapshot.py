"""Shows the whole store as of one step: every read agrees with every other, and with no later commit.

    with db.snapshot() as view:
        view.get("totals", "u1"); view.scan("totals"); view.position("clicks", "resharder")

Close it: overwritten versions stay in memory while it is open. Beyond 60 s or 64 MiB of them, if `open` set no
other limits, its reads may raise SnapshotTooOld.

Next: columns/span.py.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..closing import Closing
from ..errors import TransactionClosed
from ..proto.keys import Key, check_name, encode_key
from .arguments import whole
from .columns.batch import ReadBatch, Rows
from .columns.codecs import decode_value
from .columns.span import BATCH_ROWS, Offsets, Prefix, Span, check_rows, row_tables
from .limits import LOOK_BYTES, READ_BYTES
from .topics.description import ConsumerDescription, describe_consumer
from .transaction.routing import key_of, scan_range
from .transaction.snapshot_reader import Reading, look_limit, younger

if TYPE_CHECKING:
    from ..runtime.catalog import TableInfo, TopicInfo
    from .context import Context

T = TypeVar("T")


class Pinned:
    """Holds one snapshot until it is closed or garbage collected."""

    def __init__(self, context: "Context", present: bool) -> None:
        self._context = context
        self._present = present
        self._reading: Reading | None = Reading(context.runtime, context.runtime.snapshot())
        self._confirmed = context.runtime.fresh is None
        self.step: int = self._reading.snap.step

    @property
    def closed(self) -> bool:
        return self._reading is None

    def reading(self) -> Reading:
        """Returns the open reading; TransactionClosed when it was closed. The first call confirms it, where the
        store is replicated: Runtime.confirm.
        """
        self._context.check()
        if self._reading is None:
            raise TransactionClosed("the snapshot was closed; open another with db.snapshot()")
        if not self._confirmed:
            self._context.runtime.confirm()
            self._confirmed = True
        return self._reading

    def topic(self, name: str) -> "TopicInfo":
        """Returns a topic's info. UnknownName; SnapshotTooOld for one that was created after the step."""
        info = self._context.topic(name)
        if info.step > self.step and not self._present:
            raise younger(info, self.step)
        return info

    def table(self, name: str) -> "TableInfo":
        """Returns a table's info, as `topic` does."""
        info = self._context.table(name)
        if info.step > self.step and not self._present:
            raise younger(info, self.step)
        return info

    def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.snap.close()

    def __del__(self) -> None:
        reading = getattr(self, "_reading", None)
        if reading is not None:
            reading.snap.close()  # needs no lock: the garbage collector may run anywhere


class SnapshotView(Closing):
    """Reads as of `step`. Invariant: its answers never change."""

    def __init__(self, context: "Context", present: bool = False) -> None:
        """`present`: for one statement, to which the topic or table is that of the moment of looking it up."""
        self.context = context
        self.pinned = Pinned(context, present)
        self.step = self.pinned.step

    @overload
    def get(self, table: str, key: Key, default: None = None) -> Any | None: ...
    @overload
    def get(self, table: str, key: Key, default: T) -> T: ...
    def get(self, table: str, key: Key, default: Any = None) -> Any:
        """Returns the row's value, `default` when there is none."""
        reading = self.pinned.reading()
        info = self.pinned.table(table)
        row = reading.row(info, encode_key(key))
        return default if row is None else decode_value(info.format, row[1])

    def scan(
        self,
        table: str,
        prefix: str | bytes | tuple[Any, ...] | None = None,
        begin: Key = None,
        end: Key = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Rows:
        """Returns (key, value) of all rows with this prefix, or begin <= key < end, in key order."""
        reading = self.pinned.reading()
        info = self.pinned.table(table)
        first, last = scan_range(prefix, begin, end)
        if limit is not None:
            whole("limit", limit)
        if limit == 0 or first >= last:
            return Rows()
        form = info.format
        rows = reading.rows(info, first, last, limit, reverse)
        return Rows((key_of(row.key), decode_value(form, row.value)) for row in rows)

    def count(self, table: str) -> int:
        """Returns the number of rows of the table."""
        return len(self.pinned.reading().rows(self.pinned.table(table), b"", b"\xff"))

    def consumer(self, topic: str, consumer: str) -> ConsumerDescription:
        """Returns positions, lag and missed records of a consumer, as of one step."""
        reading = self.pinned.reading()
        return describe_consumer(reading, self.pinned.topic(topic), check_name(consumer))

    def position(self, topic: str, consumer: str) -> dict[int, int]:
        """Returns, by partition, the offset where the consumer continues."""
        return self.pinned.reading().positions(self.pinned.topic(topic), check_name(consumer))

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Returns partition → (oldest offset still there, offset that the next record will get)."""
        reading = self.pinned.reading()
        tablets = self.pinned.topic(topic).partitions
        return {p: reading.bounds(tablet) for p, tablet in enumerate(tablets)}

    def read(
        self,
        topic: str,
        start: int | Mapping[int, int] = 0,
        partition: int | None = None,
        max_records: int | None = None,
        max_bytes: int = LOOK_BYTES,
    ) -> ReadBatch:
        """Reads records from `start` on, for no consumer: no position moves. See Topic.read."""
        reading = self.pinned.reading()
        info = self.pinned.topic(topic)
        most = look_limit(max_records, max_bytes)
        starts = reading.starts(info, start, partition)
        return reading.inspect(info, starts, most, max_bytes)

    # as columns ----------------------------------------------------------------------------

    def to_arrow(
        self,
        topic: str,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        max_records: int | None = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Any:
        """Returns a topic as a pyarrow Table, as of one step; see ReadBatch.to_arrow for its columns.

        `start` and `end` are offsets of `partition` (or of the only one), or dicts of partition to
        offset; without `end`, up to the log's end. All of it is in memory; for larger topics use iter_arrow.
        """
        span = Span(
            self.context, self.pinned.reading(), self.pinned.topic(topic), start, end, partition
        )
        return span.batch(max_records).to_arrow(decode, value_type)

    def to_pandas(
        self,
        topic: str,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        max_records: int | None = None,
    ) -> Any:
        """Returns a topic as a pandas DataFrame, as of one step; values of json and msgpack stay objects."""
        span = Span(
            self.context, self.pinned.reading(), self.pinned.topic(topic), start, end, partition
        )
        return span.batch(max_records).to_pandas()

    def iter_batches(
        self,
        topic: str,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int = READ_BYTES,
    ) -> Iterator[ReadBatch]:
        """Goes through a large topic in batches of at most `max_records`, and of about `max_bytes`.

        `start`, `end` and `partition` are as in to_arrow; it shows the step at the call, or the view's, which may
        be closed meanwhile. `batch.ends` tells where each batch ends, to go on later.
        """
        rows = look_limit(max_records, max_bytes)
        span = Span(
            self.context, self.pinned.reading(), self.pinned.topic(topic), start, end, partition
        )
        return span.batches(rows, max_bytes)

    def iter_arrow(
        self,
        topic: str,
        batch_rows: int = BATCH_ROWS,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """Goes through a topic in pyarrow RecordBatches of at most `batch_rows`, and of about 64 MiB at most.

        It shows the step at the call, or the view's, which may be closed meanwhile. All batches have the schema of
        the first, headers included. NoCommonType when later values do not fit it: pass `value_type`, or
        decode=False.
        """
        from .columns import arrow

        check_rows(batch_rows)
        span = Span(
            self.context, self.pinned.reading(), self.pinned.topic(topic), start, end, partition
        )
        tables = span.tables(batch_rows, decode, value_type)
        return arrow.record_batches(arrow.steady(tables, f"values of topic {topic!r}"))

    def scan_arrow(
        self,
        table: str,
        batch_rows: int = BATCH_ROWS,
        prefix: Prefix = None,
        begin: Key = None,
        end: Key = None,
        *,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """Yields a table's rows as pyarrow RecordBatches with the columns key and value."""
        from .columns import arrow

        check_rows(batch_rows)
        info = self.pinned.table(table)
        bounds = scan_range(prefix, begin, end)
        tables = row_tables(
            self.pinned.reading, info, bounds, batch_rows, decode=decode, value_type=value_type
        )
        return arrow.record_batches(arrow.steady(tables, f"rows of table {table!r}"))

    def close(self) -> None:
        """Unpins the step. A second close does nothing."""
        self.pinned.close()

    def __repr__(self) -> str:
        state = "closed" if self.pinned.closed else "open"
        return f"<SnapshotView at step {self.step}, {state}>"
