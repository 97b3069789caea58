"""Divides a picture into Spark's partitions, and reads each of them in a task.

    spans [start, end) ─ about equal numbers of records, few and large ─▶ tasks
    a table's file     ─ about equal numbers of rows ──────────────────▶ tasks

A task opens the store read_only, at whatever step it is by then, and reads up to the ends in the picture.
Each task costs some 65 ms plus its records: for 1,000,000 of 1 KB two tasks on two cores took 1.1 s, four 1.3 s.

Next: sink.py.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..errors import Corruption, IoError, SnapshotTooOld
from . import tables
from .kinds import check_row_keys, to_arrow
from .options import check_visible
from .picture import Picture, opened_view, store_id
from .rows import Records, misread
from .segments import Span, limits_for, pieces
from .session import PARALLELISM
from .values import Decoder

if TYPE_CHECKING:
    from ..api.engine import Engine

S = TypeVar("S", Span, tables.Slice)
_TASK_RECORDS = 50_000
"""So many records are worth a task of their own."""


@dataclass
class Share(InputPartition):
    """A task's part: spans of a topic, or rows of a table's file."""

    spans: tuple[Span, ...] = ()
    rows: tuple[tables.Slice, ...] = ()

    def __repr__(self) -> str:
        return f"Share({self.spans or self.rows})"


class Reader(DataSourceReader):
    """Reads one DataFrame. Pickled into its tasks."""

    def __init__(self, picture: Picture, schema: StructType, inferred: bool) -> None:
        self._picture = picture
        self._schema = schema
        self._inferred = inferred
        self._decoder()  # refuses a type that no value can have
        if picture.options.kind == "table" and "key" in schema.names:
            check_row_keys(self._arrow().field("key").type, picture.what)

    def partitions(self) -> list[InputPartition]:
        picture = self._picture
        count = picture.options.num_partitions
        if picture.options.kind == "topic":
            total = sum(span.end - span.start for span in picture.spans)
            return [Share(part) for part in cut(picture.spans, count or tasks_for(total))] or [
                Share()
            ]
        self._check_file("driver")
        rows = tables.find(picture.file, tables.wanted(picture.options).ranges)
        tasks = count or tasks_for(sum(part.end - part.start for part in rows))
        return [Share((), part) for part in cut(rows, tasks)] or [Share()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Reads a task's share as pyarrow RecordBatches."""
        assert isinstance(partition, Share)
        if self._picture.options.kind == "topic":
            return self._records(partition.spans)
        return self._rows(partition.rows)

    def _arrow(self) -> Any:
        return to_arrow(self._schema, "the schema", reading=True)

    def _decoder(self) -> Decoder | None:
        schema = self._arrow()
        if "value" not in schema.names:
            return None
        options, kind = self._picture.options, schema.field("value").type
        return Decoder(self._picture.format, kind, self._inferred, options.permissive)

    def _records(self, spans: tuple[Span, ...]) -> Iterator[Any]:
        picture, options = self._picture, self._picture.options
        if not spans:
            return
        check_visible(options.path, "task")
        records = Records(options.name, picture.stored, self._arrow(), self._decoder())
        with opened_view(options.path) as (db, view):
            _check_same(picture, db)
            views, snap = db.context.runtime.views, view.pinned.reading().snap
            limits = limits_for(self._schema.names)
            for span in spans:
                try:
                    for segments in pieces(views, snap, span, limits):
                        yield from records.batches(segments, options.rows)
                except (Corruption, IoError, SnapshotTooOld) as error:
                    where = f"{picture.what}, partition {span.partition}"
                    raise type(error)(f"{where}: {error}") from error

    def _rows(self, rows: tuple[tables.Slice, ...]) -> Iterator[Any]:
        self._check_file("task")
        picture, options = self._picture, self._picture.options
        schema, decoder = self._arrow(), self._decoder()
        try:
            yield from tables.read_rows(picture.file, rows, options.rows, schema, decoder)
        except tables.RowMisfit as error:
            where = f"the {error.what} of {picture.what}, row {error.key!r}"
            raise misread(where, error.kind, error.error) from error

    def _check_file(self, where: str) -> None:
        picture = self._picture
        if not os.path.exists(picture.file):
            check_visible(picture.options.path, where)
            raise SnapshotTooOld(
                f"{picture.what}: its rows are gone from {picture.file} on host {os.uname().nodename}: they were "
                "released, or their snapshot has ended; load the DataFrame anew. If this is not the driver's "
                "host, have them written where all hosts see them: pyspark_planstep.snapshot(path, "
                f"tables=[{picture.options.name!r}], folder=…)"
            )


def _check_same(picture: Picture, db: "Engine") -> None:
    info = db.context.runtime.names.topics.get(picture.options.name)
    if store_id(db) != picture.store or info is None or info.id != picture.id:
        raise SnapshotTooOld(
            f"{picture.what} is not there any more: it was dropped, or the store was replaced; load the "
            "DataFrame anew"
        )


def tasks_for(records: int) -> int:
    """Returns how many tasks are worth their cost for so many records."""
    return max(1, min(_parallelism(), -(-records // _TASK_RECORDS)))


def _parallelism() -> int:
    """Returns how many tasks run at once: as the session helper says, or else the cores of this machine.

    Spark tells its planning processes nothing of its own parallelism.
    """
    named = os.environ.get(PARALLELISM, "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cut(spans: tuple[S, ...], tasks: int) -> list[tuple[S, ...]]:
    """Divides spans or slices into at most `tasks` parts of about equally many records; no part is empty."""
    total = sum(span.end - span.start for span in spans)
    tasks = min(tasks, total)
    parts: list[tuple[S, ...]] = []
    part: list[S] = []
    done = 0
    for span in spans:
        start = span.start
        while start < span.end:
            room = -(-total * (len(parts) + 1) // tasks) - done
            end = min(span.end, start + room)
            part.append(span._replace(start=start, end=end))
            done += end - start
            start = end
            if done * tasks >= total * (len(parts) + 1):
                parts.append(tuple(part))
                part = []
    return parts
