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
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..errors import Corruption, IoError, SnapshotTooOld
from . import tables
from .options import check_visible
from .picture import Picture, opened_view, store_id
from .rows import Records, misread
from .segments import Span, limits_for, pieces
from .session import PARALLELISM
from .values import Decoder

if TYPE_CHECKING:
    from ..api.engine import Engine

_TASK_RECORDS = 50_000
"""So many records are worth a task of their own."""


@dataclass
class Share(InputPartition):
    """A task's part: spans of a topic, or the batches [begin, end) of a table's file."""

    spans: tuple[Span, ...] = ()
    begin: int = 0
    end: int = 0

    def __repr__(self) -> str:
        return f"Share({self.spans or (self.begin, self.end)})"


class Reader(DataSourceReader):
    """Reads one DataFrame. Pickled into its tasks."""

    def __init__(self, picture: Picture, schema: StructType, inferred: bool) -> None:
        self._picture = picture
        self._schema = schema
        self._inferred = inferred
        self._decoder()  # refuses a type that no value can have

    def partitions(self) -> list[InputPartition]:
        picture = self._picture
        count = picture.options.num_partitions
        if picture.options.kind == "topic":
            total = sum(span.end - span.start for span in picture.spans)
            return [Share(part) for part in cut(picture.spans, count or _tasks(total))] or [Share()]
        batches = len(picture.counts)
        tasks = min(count or _tasks(sum(picture.counts)), max(1, batches))
        ends = [batches * i // tasks for i in range(tasks + 1)]
        return [Share((), a, b) for a, b in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Reads a task's share as pyarrow RecordBatches."""
        assert isinstance(partition, Share)
        if self._picture.options.kind == "topic":
            return self._records(partition.spans)
        return self._rows(partition.begin, partition.end)

    def _arrow(self) -> Any:
        return to_arrow_schema(self._schema, timezone="UTC")

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

    def _rows(self, begin: int, end: int) -> Iterator[Any]:
        picture, options = self._picture, self._picture.options
        if not os.path.exists(picture.file):
            check_visible(options.path, "task")
            raise SnapshotTooOld(
                f"{picture.what}: its rows are gone from {picture.file}, for their snapshot was closed, "
                "or this host does not see it; load the DataFrame anew"
            )
        part, schema, decoder = tables.wanted(options), self._arrow(), self._decoder()
        try:
            for batch in tables.read_rows(picture.file, begin, end, part, schema, decoder):
                for at in range(0, batch.num_rows, options.rows):
                    yield batch if batch.num_rows <= options.rows else batch.slice(at, options.rows)
        except tables.RowMisfit as error:
            where = f"the {error.what} of {picture.what}, row {error.key!r}"
            raise misread(where, error.kind, error.error) from error


def _check_same(picture: Picture, db: "Engine") -> None:
    info = db.context.runtime.names.topics.get(picture.options.name)
    if store_id(db) != picture.store or info is None or info.id != picture.id:
        raise SnapshotTooOld(
            f"{picture.what} is not there any more: it was dropped, or the store was replaced; load the "
            "DataFrame anew"
        )


def _tasks(records: int) -> int:
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


def cut(spans: tuple[Span, ...], tasks: int) -> list[tuple[Span, ...]]:
    """Divides the spans into at most `tasks` parts of about equally many records; no part is empty."""
    total = sum(span.end - span.start for span in spans)
    tasks = min(tasks, total)
    parts: list[tuple[Span, ...]] = []
    part: list[Span] = []
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
