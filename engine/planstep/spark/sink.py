"""Writes a DataFrame to a topic or table: tasks stage records in files, the driver commits all of them once.

    task ─ encode ─▶ staged file ─┐
    task ─ encode ─▶ staged file ─┼─ commit() ─▶ ONE transaction: all records or rows, and the fence
    task ─ fails, runs again ─────┘

The fence is a row of the table `planstep.spark`: (query, target) → the last batch that was committed. The
transaction of the data reads and writes it, so a second commit of a batch finds the batch done. Spark repeats
the batch of a killed driver, and a sink's process may outlive its driver. Both ids come as options, never
from the session: two writes in one foreachBatch to one target would be taken for one.

What it leaves out: overwriting; streams without foreachBatch; stores that another process owns.
Next: encoding.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import planstep

from ..api import optional_packages
from ..api.arguments import items_of
from ..api.transaction.routing import key_of
from ..api.transaction.topic_writes import Outbox
from ..errors import NotSupported, PlanstepError, StoreInUse, TransactionTooLarge
from ..proto.messages import PUT
from ..runtime.catalog import TableInfo, TopicInfo
from .encoding import Columns
from .options import WriteOptions, check_visible
from .picture import store_id
from .staging import SCHEMA, Job

if TYPE_CHECKING:
    from ..api.engine import Engine
    from ..api.transaction.transaction import Transaction

pa = optional_packages.pyarrow()
pc = pa.compute

FENCES = "planstep.spark"


@dataclass
class Staged(WriterCommitMessage):
    """A task's message to the driver: the file it staged, None if it had no rows."""

    partition: int
    file: str | None
    rows: int


class Writer(DataSourceArrowWriter):
    """One write job. Made on the driver, pickled into its tasks and into the process that commits it."""

    def __init__(
        self, options: WriteOptions, schema: StructType, filled: tuple[str, ...] = ()
    ) -> None:
        self._options = options
        check_visible(options.path, "driver")
        with planstep.open(options.path, create=False, read_only=True, switch_interval=None) as db:
            info = _target(db, options)
            self._target = store_id(db), info.id
            if options.query is not None and not db.context.runtime.hooks.has_tables:
                raise NotSupported(
                    f"leave queryId and batchId out: mode {db.mode} has no tables, hence no fence in the same "
                    "transaction; a batch that Spark repeats is written twice there"
                )
        self._columns = Columns(options.kind, options.name, info.format, schema, filled)
        self._job = Job.begin(options)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stages the rows of a task; called in the task."""
        context = TaskContext.get()
        assert context is not None
        partition, rows = context.partitionId(), 0
        name = f"{partition}-{context.taskAttemptId()}.arrow"
        check_visible(self._options.path, "task")
        with self._job.create(name) as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            for batch in iterator:
                writer.write_batch(self._columns.encode(batch))
                rows += batch.num_rows
        return Staged(partition, name if rows else None, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the staged records, once, on the driver, unless the fence says that it is done."""
        staged = sorted((m for m in messages if m is not None), key=lambda m: int(m.partition))
        options = self._options
        try:
            with planstep.open(options.path, create=False, wait=options.wait) as db:
                if db.context.runtime.hooks.has_tables:
                    db.create_table(FENCES, exist_ok=True)
                db.run(lambda tx: self._write(db, tx, staged))
        except StoreInUse as error:
            error.args = (
                f"process {error.pid} owns {options.path}, and has for the {options.wait:g} s of the "
                "option wait: close the store there while Spark writes, or write from that process, as in "
                "for batch in df.toLocalIterator()",
            )
            raise
        except TransactionTooLarge as error:
            raise TransactionTooLarge(
                f"write in several batches, each with a batchId of its own: {error}"
            ) from error
        self._job.tidy()
        self._job.end()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._job.end()

    def _write(self, db: "Engine", tx: "Transaction", staged: list[Staged]) -> None:
        if db.context.runtime.hooks.has_tables and not self._pass(tx):
            return
        options = self._options
        info = _target(db, options)
        if (store_id(db), info.id) != self._target:
            raise PlanstepError(
                f"{options.kind} {options.name!r} is another one than when this write began: it was dropped, "
                "or the store was replaced; write again"
            )
        if isinstance(info, TableInfo):
            for task in staged:
                for batch in self._job.read(task.file, task.rows).to_batches() if task.file else ():
                    pairs = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
                    for key, value in pairs:
                        tx.contents.write_row(info, key_of(key), PUT, value)
            return
        outbox = _Encoded(replace(info, format="bytes"), 0)
        for keyless, records in self._joined(staged, len(info.partitions)):
            outbox.keyless = keyless
            for partition, part in _by_partition(records):
                _write_records(tx, outbox, part, partition)

    def _joined(self, staged: list[Staged], partitions: int) -> Iterator[tuple[int, Any]]:
        """Yields (partition of records without key, records); neighbouring tasks with the same routing are joined.

        Otherwise each task would make a batch in each partition, and many tasks more than a transaction may have.
        """
        options = self._options
        tables: list[tuple[Any, Any]] = []
        first = int(self._job.id, 16) if options.batch is None else options.batch
        for task in staged:
            if task.file is not None:
                records = self._job.read(task.file, task.rows)
                # Without a column key a task's records share a partition; tasks and jobs take turns at partitions.
                turn = 0 if "key" in self._columns.beside else len(tables)
                nulls = records["partition"].null_count
                mixed = len(tables) + 1 if 0 < nulls < task.rows else 0
                tables.append((((first + turn) % partitions, nulls == 0, mixed), records))
        for (keyless, _, _), group in groupby(tables, itemgetter(0)):
            yield keyless, pa.concat_tables([records for _, records in group])

    def _pass(self, tx: "Transaction") -> bool:
        """Returns whether this job is not committed yet, and notes in the fence that it is."""
        options, job = self._options, self._job
        key = (options.query or "", options.kind, options.name)
        done = tx.get(FENCES, key)
        if options.batch is None:
            tx.put(FENCES, key, job.id)
            return bool(done != job.id)
        if done is not None and options.batch <= done:
            return False
        tx.put(FENCES, key, options.batch)
        return True


def _target(db: "Engine", options: WriteOptions) -> TopicInfo | TableInfo:
    topic = options.kind == "topic"
    return db.context.topic(options.name) if topic else db.context.table(options.name)


class _Encoded(Outbox):
    """An outbox for records that tasks have encoded already: it keeps them as they are."""

    __slots__ = ()

    def encode(
        self, values: Iterable[Any], keys: Iterable[Any] | None, headers: Iterable[Any] | None
    ) -> tuple[Sequence[bytes], Sequence[bytes | None] | None, list[bytes | None] | None, int]:
        raw = items_of(self.where, "values", values)
        raw_keys = None if keys is None else items_of(self.where, "keys", keys)
        packed = None if headers is None else list(headers)
        return raw, raw_keys, packed, self._measure(raw, raw_keys, packed)


def _by_partition(records: Any) -> Iterator[tuple[int | None, Any]]:
    """Yields (partition, records) for each partition that records name, and (None, the others)."""
    column = records["partition"]
    if column.null_count == len(column):
        yield None, records
        return
    for partition in sorted(pc.unique(column).drop_null().to_pylist()):
        yield partition, records.filter(pc.equal(column, partition))
    if column.null_count:
        yield None, records.filter(pc.is_null(column))


def _write_records(tx: "Transaction", outbox: Outbox, records: Any, partition: int | None) -> None:
    if partition is not None and not 0 <= partition < len(outbox.topic.partitions):
        raise ValueError(
            f"{outbox.where} has partitions 0 to {len(outbox.topic.partitions) - 1}, not {partition}: "
            "mend the column partition"
        )
    topic = outbox.topic.name
    tx.contents.outboxes[topic] = outbox
    if records["headers"].null_count == records.num_rows:
        frame = records.select(["key", "value"])
        tx.write_batch(topic, frame, partition=partition, key="key", value="value")
        return
    for batch in records.to_batches():
        values, keys, headers = (batch[c].to_pylist() for c in ("value", "key", "headers"))
        tx.write_batch(topic, values, keys, headers, partition)
