"""Tests the write jobs that are refused before any of their data is staged."""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from sink_kit import Begin, staged, topic

import planstep
from planstep.api.columns.codecs import Format
from planstep.errors import NotSupported, RecordTooLarge, UnknownName

TEXT = pa.array(["x"])
NUMBER = pa.array([1])
OBJECT_KEYS = pa.map_(pa.struct([("x", pa.int64())]), pa.int64())
WHEN = pa.array([0], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    "target, columns, message",
    [
        ("bytes", {"value": TEXT}, 'has format="bytes": make a column value of type binary'),
        ("utf8", {"a": TEXT}, 'has format="utf8": make a column value of type string'),
        (
            "json",
            {"value": TEXT, "offset": NUMBER},
            "'offset' cannot be written together with a column value",
        ),
        ("json", {"a": WHEN}, "column 'a' has timestamp.* cannot represent; cast it to string"),
        ("json", {"a": pa.array([[0]], pa.list_(pa.date32()))}, "column 'a' has date32"),
        (
            "json",
            {"a": pa.array([{"x": [b"y"]}])},
            "column 'a' has binary, which json cannot represent",
        ),
        (
            "json",
            {"a": pa.array([[({"x": 1}, 2)]], OBJECT_KEYS)},
            "has keys of maps that are struct",
        ),
        ("rows", {"key": TEXT, "a": pa.array([[({"x": 1}, 2)]], OBJECT_KEYS)}, "has keys of maps"),
        ("json", {"key": TEXT}, "there is no column value, and none to make one of"),
        ("json", {"key": NUMBER, "a": TEXT}, "keys of its records are string, and column key is"),
        ("json", {"partition": TEXT, "a": TEXT}, "column partition is an int"),
        ("json", {"headers": TEXT, "a": TEXT}, "column headers is map<string, binary>"),
        ("rows", {"value": TEXT}, "name the column of keys key"),
        ("rows", {"key": WHEN, "value": TEXT}, "no row has a key of timestamp"),
    ],
)
def test_columns_that_do_not_fit(
    path: str, begin: Begin, target: str, columns: dict[str, Any], message: str
) -> None:
    with planstep.open(path) as db:
        forms: tuple[Format, ...] = ("bytes", "utf8", "json")
        for form in forms:
            db.create_topic(form, format=form)
        db.create_table("rows")
    kind = "table" if target == "rows" else "topic"
    with pytest.raises((TypeError, ValueError), match=message):
        begin(pa.table(columns), **{kind: target})
    assert staged(path) == []


def test_values_that_do_not_fit(path: str, begin: Begin) -> None:
    with planstep.open(path) as db:
        db.create_topic("j", format="json")
        db.create_topic("u", format="utf8")
        db.create_table("rows")
        db.create_table("raw", format="bytes")
    for table, options, error, message in (
        ({"value": [float("nan")]}, {"topic": "j"}, TypeError, "topic 'j' has format=\"json\""),
        ({"value": ["x", None]}, {"topic": "u"}, TypeError, "column value is null"),
        (
            {"key": ["a", None], "value": [1, 2]},
            {"table": "rows"},
            ValueError,
            "column key is null",
        ),
        ({"value": ["x" * (17 << 20)]}, {"topic": "j"}, RecordTooLarge, "more than 16,777,216"),
        (
            {"a": [1], "partition": [1 << 40]},
            {"topic": "j"},
            ValueError,
            "mend the column partition",
        ),
        (
            {"key": ["a"], "value": [b"x" * (17 << 20)]},
            {"table": "raw"},
            RecordTooLarge,
            "table 'raw': a value has more than 16,777,216",
        ),
    ):
        with pytest.raises(error, match=re.escape(message)):
            begin(pa.table(table), **options)


def test_other_ways_of_writing(path: str, elsewhere: Callable[..., Any]) -> None:
    topic(path, "clicks")
    schema = from_arrow_schema(pa.table({"value": [b"x"]}).schema)
    with pytest.raises(NotSupported, match=re.escape('use .mode("append")')):
        elsewhere("begin", {"path": path, "topic": "clicks"}, schema, True)
    with pytest.raises(UnknownName, match="did you mean 'clicks'"):
        elsewhere("begin", {"path": path, "topic": "click"}, schema)
    with pytest.raises(FileNotFoundError, match="there is no store at"):
        elsewhere("begin", {"path": path + "x" * 40, "topic": "clicks"}, schema)
