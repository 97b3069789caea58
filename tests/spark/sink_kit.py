"""Runs a write job without a Spark: its driver's and tasks' steps, in the order that a test chooses."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

import planstep


class Job:
    """Writes Arrow tables, one for each task."""

    def __init__(self, elsewhere: Callable[..., Any], path: str, tables: Any, options: Any) -> None:
        self.call = elsewhere
        texts = {"path": path, **{name: str(value) for name, value in options.items()}}
        self.number = elsewhere("begin", texts, from_arrow_schema(tables[0].schema))
        for partition, table in enumerate(tables):
            self.task(partition, table)

    def task(self, partition: int, table: Any) -> None:
        out = io.BytesIO()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
        self.call("task", self.number, partition, out.getvalue() if len(table) else b"")

    def commit(self) -> None:
        self.call("commit", self.number)


Begin = Callable[..., Job]


class _Optioned:
    """Plays what a reader and a writer of Spark's have in common."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def format(self, name: str) -> Self:
        assert name == "planstep"
        return self

    def option(self, name: str, value: Any) -> Self:
        return self.options(**{name: value})

    def options(self, **options: Any) -> Self:
        self._options |= options
        return self


class Frame(_Optioned):
    """Plays a DataFrame of which each Arrow table is a partition, and its writer."""

    def __init__(self, begin: Begin, *tables: Any) -> None:
        super().__init__()
        self._begin, self._tables = begin, tables

    @property
    def write(self) -> Self:
        return self

    def mode(self, name: str) -> Self:
        assert name == "append"
        return self

    def save(self) -> None:
        del self._options["path"]
        self._begin(*self._tables, **self._options).commit()


class Session(_Optioned):
    """Plays a session, and the reader of its DataFrames, which are Arrow tables."""

    def __init__(self, read: Callable[..., Any]) -> None:
        super().__init__()
        self._read = read

    @property
    def read(self) -> "Session":
        return Session(self._read)

    def load(self) -> Any:
        del self._options["path"]
        return self._read(**self._options)


def topic(path: str, name: str = "t", **settings: Any) -> None:
    """Creates a topic of a store that is open nowhere else."""
    with planstep.open(path) as db:
        db.create_topic(name, **settings)


def staged(path: str) -> list[str]:
    folder = Path(path, "spark")
    return sorted(os.listdir(folder)) if folder.exists() else []
