"""Tests, without a Spark, that a catalog's table keeps the options of its CREATE TABLE in its columns' metadata."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import planstep
from planstep.errors import NoCommonType


def _created(load: Any, **options: str) -> StructType:
    """Plays CREATE TABLE: returns the columns that the catalog keeps."""
    texts = {f"option.{name}": text for name, text in options.items()}
    spark = {"provider": "planstep", "owner": "me", "comment": "c", "location": "x", "a": "b"}
    schema: StructType = load(**options, **texts, **spark).schema
    return schema


@pytest.fixture
def table(elsewhere: Any, local: Any) -> Any:
    def table(schema: StructType, **options: str) -> Any:
        number, _ = elsewhere("load", str(local), schema, options)
        return pa.ipc.open_stream(elsewhere("read", number)).read_all()

    return table


def test_the_options_are_kept(db: planstep.Engine, load: Any, table: Any) -> None:
    topic = db.create_topic("t", partitions=2, format="json")
    topic.write({"a": 1}, partition=1)
    columns = _created(load, topic="t", partitions="1", columns="offset,value")
    assert columns.names == ["offset", "value"]
    topic.write({"a": 2}, partition=0)
    step = topic.write({"a": 3}, partition=1).place.step
    topic.write({"a": 4}, partition=1)
    assert table(columns)["value"].to_pylist() == [{"a": 1}, {"a": 3}, {"a": 4}]
    assert table(columns, asofstep=str(step)).num_rows == 2
    assert table(columns, partitions="0").num_rows == 1  # the query's own option
    topic.write({"a": 5, "new": 6})
    with pytest.raises(NoCommonType, match="does not fit"):  # no field is dropped silently
        table(columns, partitions="0,1")
    declared = StructType([StructField("value", columns["value"].dataType)])
    with pytest.raises(ValueError, match=r"no options of a catalog's table.* nor of .* AS SELECT"):
        table(declared)


def _altered(columns: StructType, name: str, new: str, kind: Any = None) -> StructType:
    """Plays ALTER TABLE … RENAME COLUMN, or ADD COLUMNS with a type: the catalog keeps other columns."""
    if kind is not None:
        return StructType([*columns.fields, StructField(new, kind)])
    return StructType(
        [
            StructField(new if f.name == name else f.name, f.dataType, True, f.metadata)
            for f in columns
        ]
    )


def test_altered_columns_are_refused(
    db: planstep.Engine, load: Any, table: Any, elsewhere: Any
) -> None:
    """A new column of text would otherwise show the text of `value`."""
    db.create_topic("t", format="json").write({"a": 1})
    db.create_table("rows").put("k", 1)
    kept, rows = _created(load, topic="t"), _created(load, table="rows")
    for columns, name, new, kind in (
        (rows, "", "z", StringType()),
        (kept, "", "x", IntegerType()),
        (kept, "value", "val", None),
        (kept, "value", "offset", None),
    ):
        altered = _altered(columns, name, new, kind)
        if new == "offset":
            altered = StructType([f for f in altered if f.dataType != LongType()])
        with pytest.raises(ValueError, match=rf"{new}.*ALTER TABLE does not apply.*CREATE TABLE"):
            table(altered)
        if columns is kept:
            number, _ = elsewhere("stream", {}, altered)
            with pytest.raises(ValueError, match="ALTER TABLE does not apply"):
                elsewhere("ask", number, "initialOffset")
    dropped = StructType([f for f in kept if f.name in ("value", "offset")])
    assert table(dropped).to_pylist() == [{"offset": 0, "value": {"a": 1}}]


@pytest.mark.parametrize("option", ["colums", "queryid"])
def test_other_options_are_refused(db: planstep.Engine, load: Any, option: str) -> None:
    db.create_topic("t")
    with pytest.raises(ValueError, match=f"no option '{option}'"):
        _created(load, topic="t", **{option: "1"})


def test_what_the_store_gives_is_null(path: str, elsewhere: Any, load: Any, table: Any) -> None:
    """INSERT INTO t (value) VALUES …: Spark puts null into all other columns."""
    with planstep.open(path) as db:
        db.create_topic("t", format="json").write({"a": 1})
    columns = _created(load, topic="t", asOfStep="2")
    schema = to_arrow_schema(columns, timezone="UTC")
    for offset in (None, 1):
        job = elsewhere("begin", {}, columns)
        rows = pa.Table.from_pylist([{"value": {"a": 2}, "key": "k", "offset": offset}], schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(rows)
        data = sink.getvalue().to_pybytes()
        if offset is None:
            elsewhere("task", job, 0, data)
            elsewhere("commit", job)
        else:
            with pytest.raises(ValueError, match="leave out the column offset"):
                elsewhere("task", job, 0, data)
            elsewhere("abort", job)
    with planstep.open(path) as db:
        assert list(db.topic("t").read().values) == [{"a": 1}, {"a": 2}]
