"""Writes a topic or a table to a Parquet file, as of one step: streaming, and completely or not at all.

    json, msgpack, tables   read once to find the type that holds all ─▶ schema
    everything              read again ─▶ .NAME.PID.partial ─ sync ─ all files complete? rename ─▶ NAME

A row group has at most 65,536 rows and about 64 MiB. Memory is needed for a few of them only, however large the
topic is. The file's metadata name its step.

Next: engine/planstep/cli/export.py.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import NoCommonType
from ..snapshot import SnapshotView
from . import arrow
from .span import BATCH_ROWS, Span, row_tables

Progress = Callable[[str, int], object]
"""Called with a phase, "types" or "write", and how many rows of it are done."""


class Source:
    """A topic or table to export; read twice where the types are not known beforehand."""

    def __init__(self, view: SnapshotView, kind: str, name: str, decode: bool) -> None:
        self.kind, self.name = kind, name
        self.what = f"{'values' if kind == 'topic' else 'rows'} of {kind} {name!r}"
        self._read: Callable[[Any], Iterator[Any]]
        self.rows: int | None = None
        self.schema: Any = None
        if kind == "topic":
            span = Span(view.context, view.pinned.reading(), view.pinned.topic(name), 0, None, None)
            self.rows = sum(span.ends[p] - start for p, start in span.starts.items())
            self._read = lambda value_type: span.tables(BATCH_ROWS, decode, value_type)
            if not (decode and span.info.format in ("json", "msgpack")):
                self.schema = arrow.topic_table(name, span.info.format, (), decode, True).schema
        else:
            info = view.pinned.table(name)
            bounds = (b"", b"\xff")
            self._read = lambda kind: row_tables(
                view.pinned.reading, info, bounds, BATCH_ROWS, decode=decode, value_type=kind
            )
        self.metadata = {f"planstep.{kind}": name, "planstep.step": str(view.step)}

    def find_schema(self, progress: Progress) -> None:
        if self.schema is None:
            tables = _counted(self._read(None), "types", progress)
            self.schema = arrow.schema_of(tables, self.what)

    def tables(self, progress: Progress) -> Iterator[Any]:
        """Yields tables of `schema`."""
        value_type = self.schema.field("value").type
        for table in _counted(self._read(value_type), "write", progress):
            yield arrow.conform(table, self.schema, self.what)


def _counted(tables: Iterator[Any], phase: str, progress: Progress) -> Iterator[Any]:
    done = 0
    for table in tables:
        yield table
        done += len(table)
        progress(phase, done)


def partial_of(path: Path) -> Path:
    """Returns the path of a file while it is not complete."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def write(source: Source, path: Path, progress: Progress) -> int:
    """Writes `partial_of(path)` durably, for the caller to rename; returns the rows. Leaves no file on an error."""
    import pyarrow.parquet

    source.find_schema(progress)
    if source.schema is None:
        source.schema = arrow.rows_table(source.what, [], []).schema
    schema = source.schema.with_metadata(source.metadata)
    partial = partial_of(path)
    rows = 0
    try:
        with partial.open("wb") as file:
            try:
                with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
                    for table in source.tables(progress):
                        writer.write_table(table.replace_schema_metadata(source.metadata))
                        rows += len(table)
            except pyarrow.ArrowNotImplementedError as error:  # a type that Parquet lacks
                raise NoCommonType(
                    f"{source.what} cannot be in a Parquet file ({error}); export them as stored"
                ) from error
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return rows
