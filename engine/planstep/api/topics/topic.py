"""Implements Topic, whose methods are single statements, each a transaction or a snapshot of its own.

    db.topic("clicks").write(b"…", key="u1")        db.topic("clicks").consumer("resharder").lag

For several statements that belong together use `db.transaction()` or `db.snapshot()` instead.

Next: consumer.py, writer.py.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...errors import AlreadyExists, UnknownName
from ...proto.ids import Place
from ...proto.keys import check_name
from ..arguments import seconds, shown
from ..columns.batch import ReadBatch
from ..columns.span import BATCH_ROWS, Offsets
from ..limits import LOOK_BYTES, READ_BYTES
from ..transaction.topic_writes import Headers
from .consumer import ConsumerDescription, Kind, Start, offsets_of
from .description import (
    UNCHANGED,
    PartitionBounds,
    TopicDescription,
    Unchanged,
    Written,
    retention_options,
)
from .topic_read import read_now
from .writer import LINGER_BYTES, LINGER_RECORDS, Partitioner, Writer

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ..context import Context


class Topic:
    """A topic by name."""

    _writer_kind = Writer

    def __init__(self, context: "Context", name: str) -> None:
        self._context = context
        self.name = name

    def _info(self) -> "TopicInfo":
        self._context.check()
        return self._context.topic(self.name)

    @property
    def format(self) -> str:
        return self._info().format

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self._info().partitions)

    def describe(self) -> TopicDescription:
        """Returns name, format, retention and each partition's bounds, as of one step."""
        info = self._info()
        with self._context.look() as view:
            bounds = view.bounds(self.name)
        parts = tuple(PartitionBounds(p, start, end) for p, (start, end) in bounds.items())
        seconds = None if info.retention_ms is None else info.retention_ms / 1000
        return TopicDescription(self.name, info.format, parts, seconds, info.retention_bytes)

    def read(
        self,
        start: int | Mapping[int, int] = 0,
        partition: int | None = None,
        max_records: int | None = None,
        max_bytes: int = LOOK_BYTES,
        timeout: float = 0.0,
    ) -> ReadBatch:
        """Reads records without a consumer, so no position moves.

        It returns all records up to `max_bytes` and `max_records`; `batch.more` tells whether these cut it short.
        iter_batches goes through a large topic. `start` is an offset of `partition` (or of the only one), 0 for the
        oldest record that was not trimmed, or a dict of partition to offset. `topic.read(batch.ends)` reads on from
        where a batch ended, in all its partitions. OffsetOutOfRange outside the log.

        If there are none it waits up to `timeout` seconds for a record in any of these partitions. Meanwhile an
        engine that was opened read-only moves on to a newer step, for all its reads, once it has no open snapshot.
        """
        deadline = time.monotonic() + seconds("timeout", timeout)
        seen: dict[int, int] | None = None
        while True:
            batch, ends = read_now(
                self._context, self.name, start, partition, max_records, max_bytes
            )
            left = deadline - time.monotonic()
            if batch or left <= 0:
                return batch
            if ends == seen:  # else they may have moved behind the read: it looks once more
                self._context.runtime.wait_published(ends, ends, left)
            seen = ends

    def write(
        self,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Written:
        """Writes one record in a transaction of its own; returns its partition, offset and place."""
        info = self._info()
        with self._context.statement() as tx:
            tx.write(self.name, value, key, headers, partition)
            done = tx.commit()
        ((tablet, published),) = done.details.items()
        return Written(info.partitions.index(tablet), published[0], done.place)

    def write_batch(
        self,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | Sequence[int] | None = None,
        *,
        key: str | None = None,
        value: str | None = None,
    ) -> Place:
        """Writes many records, or a table of columns, in one transaction of their own."""
        with self._context.statement() as tx:
            tx.write_batch(self.name, values, keys, headers, partition, key=key, value=value)
            return tx.commit().place

    def writer(
        self,
        producer: str | bytes | None = None,
        dedupe: bool = True,
        linger_records: int = LINGER_RECORDS,
        linger_bytes: int = LINGER_BYTES,
        linger: float | None = None,
        partitioner: Partitioner | None = None,
    ) -> Writer:
        """Opens a buffered writer that numbers its records, so that repeats are published once.

        A producer has one open writer at a time: of two that number their records themselves, the
        later flush is a Conflict.

        producer        a name under which numbers go on after a restart; None: a fresh one
        dedupe          True: a repeated number is silently skipped; False: it is a Conflict
        linger_records  buffered records at which the writer flushes by itself
        linger_bytes    buffered bytes at which it flushes
        linger          seconds after which it flushes, on a thread of the engine; None: never by time. A
                        flush that fails is tried again, and the writer's next call raises the error
        partitioner     a function of (key, number of partitions) that chooses a record's partition; None: by
                        the key's hash, records without key in turn
        """
        self._context.check_writable()
        self._info()
        return self._writer_kind(
            self._context,
            self.name,
            producer,
            dedupe=dedupe,
            linger_records=linger_records,
            linger_bytes=linger_bytes,
            linger=linger,
            partitioner=partitioner,
        )

    # as columns ----------------------------------------------------------------------------

    def to_arrow(
        self,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        max_records: int | None = None,
        decode: bool = True,
        value_type: Any = None,
    ) -> Any:
        """Returns the topic as a pyarrow Table, as of one step; see ReadBatch.to_arrow for its columns.

        `start` and `end` are offsets of `partition` (or of the only one), or dicts of partition to
        offset; without `end`, up to the log's end. All of it is in memory; for larger topics use iter_arrow.
        """
        with self._context.look() as view:
            return view.to_arrow(
                self.name,
                start,
                end,
                partition,
                max_records=max_records,
                decode=decode,
                value_type=value_type,
            )

    def to_pandas(
        self,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        max_records: int | None = None,
    ) -> Any:
        """Returns the topic as a pandas DataFrame, as of one step; values of json and msgpack stay objects."""
        with self._context.look() as view:
            return view.to_pandas(self.name, start, end, partition, max_records=max_records)

    def iter_batches(
        self,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int = READ_BYTES,
    ) -> Iterator[ReadBatch]:
        """Goes through a large topic in batches of at most `max_records`, and of about `max_bytes`.

        `start`, `end` and `partition` are as in to_arrow; it shows the step at the call. `batch.ends` tells where
        each batch ends, to go on later.
        """
        with self._context.look() as view:
            return view.iter_batches(
                self.name, start, end, partition, max_records=max_records, max_bytes=max_bytes
            )

    def iter_arrow(
        self,
        batch_rows: int = BATCH_ROWS,
        start: Offsets = 0,
        end: Offsets | None = None,
        partition: int | None = None,
        *,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """Goes through the topic in pyarrow RecordBatches of at most `batch_rows`, and of about 64 MiB at most.

        It shows the step at the call. All batches have the schema of the first, headers included. NoCommonType
        when later values do not fit it: pass `value_type`, or decode=False.
        """
        with self._context.look() as view:
            return view.iter_arrow(
                self.name, batch_rows, start, end, partition, decode=decode, value_type=value_type
            )

    # consumers -----------------------------------------------------------------------------

    def create_consumer(
        self,
        name: str,
        kind: Kind = "cumulative",
        start: Start = "earliest",
        exist_ok: bool = False,
    ) -> None:
        """Creates a consumer that begins at `start`; its kind cannot be changed.

        kind      "cumulative": it consumes the records after its position; "individual": any records, in
                  any order, at most 10,000 ranges beyond the position (TooManyGaps)
        start     "earliest", "latest", an offset (of the only partition), a datetime, or a dict
        exist_ok  accept an existing consumer of that name and kind, wherever it is

        A cumulative consumer that begins at the oldest record needs none of this: its first commit creates it.
        """
        self._context.check_writable()
        info = self._info()
        check_name(name)
        if kind not in ("cumulative", "individual"):
            raise ValueError(f'kind={shown(kind)}: choose "cumulative" or "individual"')
        known = self._kind_of(name)
        if known is None:
            with self._context.reading() as reading:
                offsets = offsets_of(reading, info, start)
            schema = self._context.runtime.schema
            try:
                schema.create_consumer(info, name, kind == "individual", offsets)
                return
            except AlreadyExists:
                known = self._kind_of(name)
        if not exist_ok:
            raise AlreadyExists(
                f"topic {self.name!r} has a consumer {name!r} already; pass exist_ok=True to accept "
                "that, or seek() to move it"
            )
        if known != kind:
            raise AlreadyExists(f"consumer {name!r} exists and is {known}, not {kind}")

    def _kind_of(self, consumer: str) -> str | None:
        runtime = self._context.runtime
        info = self._info()
        known = runtime.names.consumers.get(info.id, {}).get(consumer)
        if known is not None:
            return "individual" if known else "cumulative"
        used = any(consumer in runtime.views.consumers(tablet) for tablet in info.partitions)
        return "cumulative" if used else None

    def consumers(self) -> dict[str, ConsumerDescription]:
        """Returns all consumers that were created or have committed a position, by name."""
        runtime, info = self._context.runtime, self._info()
        names = set(runtime.names.consumers.get(info.id, {}))
        for tablet in info.partitions:
            names.update(runtime.views.consumers(tablet))
        return {name: self.consumer(name) for name in sorted(names)}

    def consumer(self, name: str) -> ConsumerDescription:
        """Returns positions, lag and missed records of a consumer, as of one step."""
        with self._context.look() as view:
            return view.consumer(self.name, name)

    def drop_consumer(self, name: str) -> None:
        """Removes a consumer and its positions."""
        self._context.check_writable()
        check_name(name)
        if self._kind_of(name) is None:
            raise UnknownName("consumer", name)
        self._context.runtime.schema.drop_consumer(self._info(), name)

    def seek(self, consumer: str, to: Start, partition: int | None = None) -> dict[int, int]:
        """Moves a consumer back or forth, in all partitions or one; returns its new positions.

        A transaction of that consumer that has read before the move conflicts. An individual consumer forgets
        which records beyond the new position it has consumed.
        """
        self._context.check_writable()
        info = self._info()
        check_name(consumer)
        with self._context.reading() as reading:
            offsets = offsets_of(reading, info, to, partition)
        if offsets:
            self._context.runtime.schema.seek(info, consumer, offsets)
        return offsets

    def position(self, consumer: str) -> dict[int, int]:
        """Returns partition → the offset where the consumer goes on."""
        with self._context.look() as view:
            return view.position(self.name, consumer)

    def lag(self, consumer: str) -> int:
        """Counts the records that the consumer has not consumed yet."""
        return self.consumer(consumer).lag

    # changes -------------------------------------------------------------------------------

    def alter(
        self,
        retention: timedelta | float | None | Unchanged = UNCHANGED,
        retention_bytes: int | None | Unchanged = UNCHANGED,
    ) -> None:
        """Changes the settings that are given; None removes a limit.

        `retention` is in seconds or a timedelta; `retention_bytes` is a limit for each partition.
        """
        self._context.check_writable()
        info = self._info()
        options = retention_options(info.options, retention, retention_bytes)
        self._context.runtime.schema.alter_topic(info, options)
        self._context.runtime.maintenance.wake()

    def trim(self, before: Start, partition: int | None = None) -> int:
        """Removes the records before a place, given as `start` of create_consumer is; returns how many.

        Consumers that have not consumed them go on after them; the records that they missed are counted.
        """
        self._context.check_writable()
        info = self._info()
        with self._context.reading() as reading:
            offsets = offsets_of(reading, info, before, partition)
            bounds = {p: reading.bounds(tablet) for p, tablet in enumerate(info.partitions)}
        for number, offset in offsets.items():
            self._context.runtime.maintenance.trim(info.partitions[number], offset)
        return sum(max(0, offset - bounds[number][0]) for number, offset in offsets.items())

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}>"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()
