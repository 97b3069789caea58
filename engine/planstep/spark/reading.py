"""Divides a picture into Spark's partitions, and reads each of them in a task.

    spans [start, end) ─ about equal numbers of records, few and large ─▶ tasks
    a table's file     ─ about equal numbers of rows ──────────────────▶ tasks

A task opens the store read_only, at whatever step it is by then, and reads up to the ends in the picture.
Each task costs some 65 ms plus its records: for 1,000,000 of 1 KB two tasks on two cores took 1.1 s, four 1.3 s.

Next: sink.py.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..api.transaction.snapshot_reader import below, end_of
from ..errors import PlanstepError, SnapshotTooOld
from ..proto.batch import HEADER_BYTES, Batch, timestamp_of
from ..runtime.snapshot_reads import Load, whole_batch
from . import tables
from .options import check_visible
from .picture import Picture, Span, opened_view, store_id
from .rows import Records, misread
from .values import Decoder

if TYPE_CHECKING:
    from ..api.engine import Engine

PARALLELISM = "PLANSTEP_SPARK_PARALLELISM"
"""An environment variable of the driver, set before Java starts: Spark's default parallelism."""
_TASK_RECORDS = 50_000
"""So many records are worth a task of their own."""
_PIECE_BYTES = 4 << 20
"""Roughly how many stored bytes a task reads at once."""
_INDEX_RECORDS = 200_000
"""How many records a task reads at once where it reads the index only."""


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
            snap = view.pinned.reading().snap
            limits = _limits(self._schema.names)
            for partition, tablet, offset, end in spans:
                while offset < end:
                    try:
                        segments = db.context.runtime.views.read_segments(
                            snap,
                            tablet,
                            partition,
                            offset,
                            min(end - offset, limits.records),
                            limits.bytes,
                            load=limits.load,
                        )
                    except PlanstepError as error:
                        where = f"{picture.what}, partition {partition}"
                        raise type(error)(f"{where}: {error}") from error
                    segments = below(segments, end)
                    if not segments:  # mode kafka: only markers and aborted records up to the end
                        break
                    offset = end_of(segments)
                    yield from records.batches(segments, options.rows)

    def _rows(self, begin: int, end: int) -> Iterator[Any]:
        picture, options = self._picture, self._picture.options
        if not os.path.exists(picture.file):
            check_visible(options.path, "task")
            raise SnapshotTooOld(
                f"{picture.what}: its rows are gone from {picture.file}, for their snapshot was closed, "
                "or this host does not see it; load the DataFrame anew"
            )
        bounds, schema, decoder = tables.key_range(options), self._arrow(), self._decoder()
        try:
            for batch in tables.read_rows(picture.file, begin, end, bounds, schema, decoder):
                for at in range(0, batch.num_rows, options.rows):
                    yield batch if batch.num_rows <= options.rows else batch.slice(at, options.rows)
        except tables.RowMisfit as error:
            where = f"the {error.what} of {picture.what}, row {error.key!r}"
            raise misread(where, error.kind, error.error) from error


class _Limits(NamedTuple):
    """What a task reads at once: numbers of records and bytes, and how much of each stored batch."""

    records: int
    bytes: int
    load: Load


def _limits(columns: list[str]) -> _Limits:
    if {"key", "value", "headers"} & set(columns):
        return _Limits(sys.maxsize, _PIECE_BYTES, whole_batch)
    return _Limits(_INDEX_RECORDS, sys.maxsize, _dated if "timestamp" in columns else _counted)


def _counted(_store: Any, _address: int, _length: int, records: int) -> Batch:
    """Makes a batch that tells its number of records: the index has it, so no payload is read."""
    return Batch(b"", records, 0)


def _dated(store: Any, address: int, _length: int, records: int) -> Batch:
    """Makes a batch that tells its number of records and its time, which its header has."""
    return Batch(b"", records, timestamp_of(store.read_payload(address, HEADER_BYTES)))


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
