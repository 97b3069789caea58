"""Tests the sink of streams, without a Spark: each batch counts once."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from sink_kit import staged, topic

import planstep
from planstep.errors import NotSupported

Elsewhere = Callable[..., Any]


class Sink:
    """A streaming query's sink."""

    def __init__(self, elsewhere: Elsewhere, path: str, query: str = "q1", **options: Any) -> None:
        self.call, self.query = elsewhere, query
        schema = pa.schema([("key", pa.string()), ("value", options.pop("type", pa.string()))])
        self.schema = schema
        texts = {"path": path, "checkpointLocation": "c", **options}
        self.number = elsewhere("stream_begin", texts, from_arrow_schema(schema))

    def stage(self, batch: int, *tasks: list[Any]) -> "Sink":
        for partition, values in enumerate(tasks):
            columns = [[str(value)[-1] for value in values], values]
            table = pa.table(columns, schema=self.schema)
            out = io.BytesIO()
            with pa.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table)
            self.call("stream_task", self.number, batch, self.query, partition, out.getvalue())
        return self

    def commit(self, batch: int) -> None:
        self.call("stream_end", self.number, batch, "commit")

    def abort(self, batch: int) -> None:
        self.call("stream_end", self.number, batch, "abort")


def values(path: str) -> list[str]:
    with planstep.open(path) as db:
        return sorted(db.topic("t").to_arrow()["value"].to_pylist())


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_a_batch_counts_once(elsewhere: Elsewhere, path: str, mode: Any) -> None:
    with planstep.open(path, mode=mode) as db:
        db.create_topic("t", partitions=2, format="utf8")
    sink = Sink(elsewhere, path, topic="t")
    sink.stage(0, ["a", "b"], ["c"]).commit(0)
    sink.stage(0, ["a", "b"], ["c"]).commit(0)  # of a driver that was killed
    sink.stage(1, ["d"], []).commit(1)
    assert values(path) == ["a", "b", "c", "d"]
    assert not staged(path)
    Sink(elsewhere, path, "q2", topic="t").stage(0, ["a new checkpoint"]).commit(0)
    assert len(values(path)) == 5


def test_a_query_id_of_ones_own(elsewhere: Elsewhere, path: str) -> None:
    topic(path, format="utf8")
    Sink(elsewhere, path, "q1", topic="t", queryId="mine").stage(0, ["a"]).commit(0)
    Sink(elsewhere, path, "q2", topic="t", queryId="mine").stage(0, ["a"]).commit(0)
    assert values(path) == ["a"]


def test_two_processes_commit_one_batch(elsewhere: Elsewhere, path: str) -> None:
    """A sink's process that outlived its driver commits while the next driver's tasks stage that batch."""
    topic(path, format="utf8")
    old, new = (Sink(elsewhere, path, topic="t") for _ in range(2))
    old.stage(0, ["a"], ["b"])
    new.stage(0, ["a"])
    old.commit(0)
    new.stage(0, ["b"]).commit(0)
    assert values(path) == ["a", "b"]
    new.stage(1, ["c"]).commit(1)
    assert values(path) == ["a", "b", "c"]
    assert not staged(path)


def test_rows_of_a_table(elsewhere: Elsewhere, path: str) -> None:
    with planstep.open(path) as db:
        db.create_table("n")
    put = Sink(elsewhere, path, table="n", type=pa.int64())
    for batch in range(2):
        put.stage(batch, [11, 21], [12]).commit(batch)
    add = Sink(elsewhere, path, "q2", table="n", add="true", type=pa.int64())
    for batch in (0, 0, 1):
        add.stage(batch, [11]).commit(batch)
    with planstep.open(path) as db:
        assert dict(db.table("n").scan()) == {"1": 43, "2": 12}


def test_a_batch_without_rows(elsewhere: Elsewhere, path: str) -> None:
    topic(path, format="utf8")
    sink = Sink(elsewhere, path, topic="t")
    with planstep.open(path):  # it needs no store of its own
        sink.stage(0, [], []).commit(0)
    sink.stage(1, ["a"]).commit(1)
    assert values(path) == ["a"]


def test_an_aborted_batch_leaves_nothing(elsewhere: Elsewhere, path: str) -> None:
    topic(path, format="utf8")
    sink = Sink(elsewhere, path, topic="t")
    sink.stage(0, ["a"]).stage(0, ["b"])
    assert len(staged(path)) == 2
    sink.abort(0)
    assert not Path(path, "spark").exists()
    assert values(path) == []


def test_what_is_refused(elsewhere: Elsewhere, path: str) -> None:
    topic(path, format="bytes")
    with pytest.raises(TypeError, match="make a column value of type binary"):
        Sink(elsewhere, path, topic="t").stage(0, ["a"])
    with pytest.raises(NotSupported, match="in foreachBatch"):
        Sink(elsewhere, path, "", topic="t", type=pa.binary()).stage(0, [b"a"])
