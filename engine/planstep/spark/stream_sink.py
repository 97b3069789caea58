"""Writes a stream to a topic or table: `writeStream.format("planstep")`. Each batch counts once.

    task ─ stages its records, and names query and batch ─▶ commit(messages, batch) ─▶ commit.py: all, and the fence

The fence's key has the query's id, which Spark keeps in the checkpoint; only tasks can ask for it. So a new
checkpoint is a new query, whose batches begin with 0 again. Each task has a folder of its own: a process that
outlived its driver may commit the same batch meanwhile, and then removes the folders of that batch.

Left out: output mode complete, as nothing here replaces a table's rows; and update, which Spark allows to no sink
written in Python. In foreachBatch both can be had.

Next: commit.py.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..errors import NotSupported
from .commit import commit
from .fence import Mark
from .options import WriteOptions
from .plain_errors import plainly
from .sink import Target
from .staging import Job

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class StreamStaged(WriterCommitMessage):
    """A task's message: the file that it staged, "" if it had no rows, the query, and the target it encoded for."""

    partition: int
    query: str
    file: str
    rows: int
    target: Target


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a query's batches. Pickled into its tasks; Spark makes another one for each commit."""

    def __init__(
        self, options: WriteOptions, schema: StructType, filled: tuple[str, ...] = ()
    ) -> None:
        """`options` have no batch, and a query only if the user named one."""
        self._options = options
        self._schema = schema
        self._filled = filled
        self._target: Target | None = None

    @plainly
    def __getstate__(self) -> dict[str, Any]:
        """Looks up the target before pickling, so the driver refuses wrong columns; a commit does not need it."""
        if self._target is None:
            self._target = Target(self._options, self._schema, self._filled)
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> StreamStaged:
        """Stages the rows of a task; called in the task."""
        context, target = TaskContext.get(), self._target
        assert context is not None and target is not None
        query = self._options.query or context.getLocalProperty(_QUERY)
        batch = context.getLocalProperty(_BATCH)
        if not query or batch is None:
            raise NotSupported(
                "this Spark names neither query nor batch to its tasks: write in foreachBatch, with the options "
                "queryId and batchId"
            )
        job = Job.begin(self._options.of_batch(query, int(batch)))
        file, rows = target.stage(job, iterator)
        if not rows:
            job.end()
        path = os.path.join(job.folder, file) if rows else ""
        return StreamStaged(context.partitionId(), query, path, rows, target)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits what the tasks staged, once, on the driver. A batch without rows commits nothing."""
        told = [m for m in messages if isinstance(m, StreamStaged)]
        staged = sorted((m for m in told if m.rows), key=attrgetter("partition"))
        if staged:
            options = self._options.of_batch(staged[0].query, batchId)
            files = tuple((task.file, task.rows) for task in staged)
            write = staged[0].target.staged(batchId, "", files)
            mark = Mark((staged[0].query, options.kind, options.name), batchId)
            commit(options.path, options.wait, mark, [write])
        self._tidy(told, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Removes what the tasks staged, as far as they told."""
        self._tidy([m for m in messages if isinstance(m, StreamStaged)], batchId)

    def _tidy(self, told: list[StreamStaged], batch: int) -> None:
        for query in sorted({m.query for m in told}):
            job = Job.of(self._options.path, "", self._options.of_batch(query, batch).mark())
            job.tidy()
            job.end()
