"""Writes a DataFrame to a topic or table: tasks stage records in files, the driver commits all of them once.

    task ─ encode ─▶ staged file ─┐
    task ─ encode ─▶ staged file ─┼─ commit() ─▶ commit.py, or write.json, for the transaction that it is part of
    task ─ fails, runs again ─────┘

The fence (fence.py) makes a batch count once: Spark repeats the batch of a killed driver, and a sink's process may
outlive its driver. Both ids come as options, never from the session: two writes in one foreachBatch to one target
would be taken for one.

What it leaves out: overwriting; stores that another process owns. Streams: stream_sink.py.
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


class Target:
    """The topic or table of a write as it was when the write began, and the columns that its records come from."""

    def __init__(
        self, options: WriteOptions, schema: StructType, filled: tuple[str, ...] = ()
    ) -> None:
        self._options = options
        check_visible(options.path, "driver")
        with planstep.open(options.path, create=False, read_only=True, switch_interval=None) as db:
            info = target(db, options.kind, options.name)
            self.identity = store_id(db), info.id
        self._columns = Columns(options.kind, options.name, info.format, schema, filled)
        if options.add:
            self._columns.check_numbers()
            if options.kind == "table":
                pack_number(options.name, info.format, 0)

    def stage(self, job: Job, iterator: Iterator[Any]) -> tuple[str, int]:
        """Stages a task's rows, in the task; returns (file in the job's folder, rows)."""
        context = TaskContext.get()
        assert context is not None
        rows = 0
        name = f"{context.partitionId()}-{context.taskAttemptId()}.arrow"
        check_visible(self._options.path, "task")
        with job.create(name) as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            for batch in iterator:
                writer.write_batch(self._columns.encode(batch))
                rows += batch.num_rows
        return name, rows

    def staged(self, turn: int, folder: str, files: tuple[tuple[str, int], ...]) -> StagedWrite:
        """Returns the write whose tasks have staged these (file, rows)."""
        options, keyed = self._options, "key" in self._columns.beside
        return StagedWrite(
            options.kind, options.name, *self.identity, keyed, options.add, turn, folder, files
        )


class Writer(DataSourceArrowWriter):
    """One write job. Made on the driver, pickled into its tasks and into the process that commits it."""

    def __init__(
        self, options: WriteOptions, schema: StructType, filled: tuple[str, ...] = ()
    ) -> None:
        self._options = options
        self._target = Target(options, schema, filled)
        self._job = Job.begin(options)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stages the rows of a task; called in the task."""
        context = TaskContext.get()
        assert context is not None
        name, rows = self._target.stage(self._job, iterator)
        return Staged(context.partitionId(), name if rows else None, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the staged records, once, on the driver, unless the fence says that it is done."""
        options, job = self._options, self._job
        staged = sorted((m for m in messages if m is not None), key=lambda m: int(m.partition))
        value = job.id if options.batch is None else options.batch
        files = tuple((task.file, task.rows) for task in staged if task.file is not None)
        turn = int(value, 16) if isinstance(value, str) else value
        write = self._target.staged(turn, job.folder, files)
        if options.transaction is not None:
            job.keep(write)
            return
        mark = Mark((options.query or "", options.kind, options.name), value)
        commit(options.path, options.wait, mark, [write])
        job.tidy()
        job.end()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._job.end()
