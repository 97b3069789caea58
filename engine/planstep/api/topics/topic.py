"""Implements Topic, the handle of one topic: each method runs in a transaction or snapshot of its own.

    db.topic("clicks").write(b"…", key="u1")        db.topic("clicks").consumer("resharder").lag

For several statements that belong together use `db.transaction()` or `db.snapshot()` instead.

Next: description.py and writer.py, which this uses.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...errors import AlreadyExists, NotSupported, OffsetOutOfRange, SnapshotTooOld, UnknownName
from ...proto.keys import check_name
from ..arguments import brief, seconds
from ..columns.batch import ReadBatch
from ..context import Context, Handle, in_transaction, of_now
from ..limits import CREATE_TRIES, LOOK_BYTES
from ..snapshot import SnapshotView
from ..transaction.snapshot_reader import look_limit
from ..transaction.topic_writes import Headers
from ..transaction.transaction import Transaction
from .description import (
    UNCHANGED,
    ConsumerDescription,
    Kind,
    PartitionBounds,
    Start,
    TopicDescription,
    Unchanged,
    Written,
    offsets_of,
    retention_options,
)
from .writer import LINGER_BYTES, LINGER_RECORDS, Partitioner, Writer

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.outcome import Commit

_TRIES = 9
"""Further tries of a read, when retention trims records between finding the start and reading there."""


class Topic(Handle):
    """A topic by name."""

    _writer_kind = Writer

    def _info(self) -> "TopicInfo":
        self._context.look()
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
        with self._context.open_view() as view:
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
        before: dict[int, int] | None = None
        while True:
            batch, ends = read_now(
                self._context, self.name, start, partition, max_records, max_bytes
            )
            remaining = deadline - time.monotonic()
            if batch or remaining <= 0:
                return batch
            if ends == before:  # else they may have moved behind the read: it looks once more
                self._context.runtime.wait_published(ends, ends, remaining)
            before = ends

    def write(
        self,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Written:
        """Writes one record in a transaction of its own; returns its partition, offset and place."""
        info = self._info()
        with self._begin() as tx:
            tx.write(self.name, value, key, headers, partition)
            done = tx.commit()
        return written(info, done)

    write_batch = in_transaction(Transaction.write_batch)

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

    to_arrow = of_now(SnapshotView.to_arrow)
    to_pandas = of_now(SnapshotView.to_pandas)
    iter_batches = of_now(SnapshotView.iter_batches)
    iter_arrow = of_now(SnapshotView.iter_arrow)

    # consumers -----------------------------------------------------------------------------

    def create_consumer(
        self,
        name: str,
        kind: Kind = "cumulative",
        start: Start = "earliest",
        exist_ok: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Creates a consumer that begins at `start`; its kind cannot be changed.

        kind      "cumulative": it consumes the records after its position; "individual": any records, in
                  any order, at most 10,000 ranges beyond the position (TooManyGaps)
        start     "earliest", "latest", an offset (of the only partition), a datetime, or a dict
        exist_ok  accept an existing consumer of that name and kind, wherever it is
        exclusive mode "pulsar": it has one reader at a time, and a second one is a PulsarError, ConsumerBusy; the
                  workers of one `process` are one reader

        A cumulative consumer that begins at the oldest record needs none of this: its first commit creates it.
        """
        self._context.check_writable()
        info = self._info()
        check_name(name)
        if isinstance(kind, str) and str(kind) == "key_shared":  # str: no Kind, to mypy
            raise NotSupported(
                'kind="key_shared": Pulsar\'s Key_Shared is not supported; kind="individual" gives each record to '
                "one of many readers, as Shared does, and keeps no order by key"
            )
        if kind not in ("cumulative", "individual"):
            raise ValueError(f'kind={brief(kind)}: choose "cumulative" or "individual"')
        if exclusive:
            self._context.runtime.hooks.check_exclusive()
        with self._context.runtime.schema.creating:
            for left in reversed(range(CREATE_TRIES)):
                known = self._kind_of(name)
                if known is not None:
                    break
                with self._context.reading() as reading:
                    offsets = offsets_of(reading, info, start)
                try:
                    individual = kind == "individual"
                    create = self._context.runtime.schema.create_consumer
                    create(info, name, individual, offsets, bool(exclusive))
                    return
                except AlreadyExists:  # by another process, which may have dropped it by now
                    if not left:
                        raise
        if not exist_ok:
            raise AlreadyExists(
                f"topic {self.name!r} has a consumer {name!r} already; pass exist_ok=True to accept "
                "that, or seek() to move it"
            )
        is_exclusive = name in self._info().exclusive
        if (known, is_exclusive) != (kind, bool(exclusive)):
            had, asked = (" and exclusive" * alone for alone in (is_exclusive, exclusive))
            raise AlreadyExists(f"consumer {name!r} exists and is {known}{had}, not {kind}{asked}")

    def _kind_of(self, consumer: str) -> str | None:
        runtime = self._context.runtime
        info = self._info()
        if runtime.names.consumers.get(info.id, {}).get(consumer):
            return "individual"
        return "cumulative" if consumer in self._context.consumers(info) else None

    def consumers(self) -> dict[str, ConsumerDescription]:
        """Returns all consumers that were created or have committed a position, by name."""
        return {name: self.consumer(name) for name in sorted(self._context.consumers(self._info()))}

    def consumer(self, name: str) -> ConsumerDescription:
        """Returns positions, lag and missed records of a consumer, as of one step."""
        with self._context.open_view() as view:
            return view.consumer(self.name, name)

    def drop_consumer(self, name: str) -> None:
        """Removes a consumer and its positions.

        A transaction that has read by it then conflicts. In mode "pulsar" that is a retryable PulsarError;
        in mode "kafka" it commits, and makes the consumer anew.
        """
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

    position = of_now(SnapshotView.position)

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


def written(info: "TopicInfo", done: "Commit") -> Written:
    """Returns where the one record of a commit is."""
    ((tablet, published),) = done.details.items()
    offset = -1 if published is None else published[0]
    return Written(info.partitions.index(tablet), offset, done.place)


def read_now(
    context: Context,
    name: str,
    start: int | Mapping[int, int],
    partition: int | None,
    max_records: int | None,
    max_bytes: int,
) -> tuple[ReadBatch, dict[int, int]]:
    """Reads a topic once, without waiting: threads and asyncio wait between reads.

    Returns (the batch, {}), or if it is empty (the batch, tablet → end of the partitions that were read).
    """
    context.look()
    info = context.topic(name)
    most = look_limit(max_records, max_bytes)
    tries = 0
    while True:
        try:
            with context.reading() as reading:
                starts = reading.starts(info, start, partition)
                batch = reading.inspect(info, starts, most, max_bytes)
                tablets = [info.partitions[p] for p in starts]
                return batch, {} if batch else {t: reading.bounds(t)[1] for t in tablets}
        except (SnapshotTooOld, OffsetOutOfRange) as error:
            # Trimmed between looking where it starts and reading there, unless its offset was given.
            tries += 1
            oldest = type(start) is int and start == 0
            if tries > _TRIES or (type(error) is OffsetOutOfRange and not oldest):
                raise
