"""Writes a DataFrame to a topic or table: tasks stage records in files, the driver commits all of them once.

    task ─ encode ─▶ staged file ─┐
    task ─ encode ─▶ staged file ─┼─ commit() ─▶ commit.py, or write.json, for the transaction that it is part of
    task ─ fails, runs again ─────┘

The fence (fence.py) makes a batch count once: Spark repeats the batch of a killed driver, and a sink's process may
outlive its driver. Both ids come as options, never from the session: two writes in one foreachBatch to one target
would be taken for one.

What it leaves out: overwriting; stores that another process owns.
Next: encoding.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import planstep

from ..api import optional_packages
from ..api.transaction.row_writes import pack_number
from .commit import commit, target
from .encoding import Columns
from .fence import Mark
from .options import WriteOptions, check_visible
from .picture import store_id
from .staging import SCHEMA, Job, StagedWrite

pa = optional_packages.pyarrow()


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
            info = target(db, options.kind, options.name)
            self._target = store_id(db), info.id
        self._columns = Columns(options.kind, options.name, info.format, schema, filled)
        if options.add:
            self._columns.check_numbers()
            if options.kind == "table":
                pack_number(options.name, info.format, 0)
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
        options, job = self._options, self._job
        staged = sorted((m for m in messages if m is not None), key=lambda m: int(m.partition))
        value = job.id if options.batch is None else options.batch
        write = StagedWrite(
            options.kind,
            options.name,
            *self._target,
            "key" in self._columns.beside,
            options.add,
            int(value, 16) if isinstance(value, str) else value,
            job.folder,
            tuple((task.file, task.rows) for task in staged if task.file is not None),
        )
        if options.transaction is not None:
            job.keep(write)
            return
        mark = Mark((options.query or "", options.kind, options.name), value)
        commit(options.path, options.wait, mark, [write])
        job.tidy()
        job.end()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._job.end()
