"""Tests that each of Spark's types comes back as it was written, or is refused before any task runs."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.linalg import VectorUDT  # a type of a user's
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

import planstep
from planstep.errors import NoCommonType


def struct(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(*field) for field in fields])


_deep = struct(("l", ArrayType(struct(("m", MapType(StringType(), ArrayType(LongType())))))))
BOTH: list[tuple[DataType, Any]] = [
    (LongType(), -(2**63)),
    (IntegerType(), 2**31 - 1),
    (ShortType(), -(2**15)),
    (ByteType(), 127),
    (DoubleType(), 0.1),
    (DoubleType(), -0.0),
    (DoubleType(), 5e-324),
    (FloatType(), 0.10000000149011612),
    (StringType(), "é\U0001f600\0"),
    (NullType(), None),
    (ArrayType(ArrayType(LongType())), [[1, None], [], None]),
    (MapType(StringType(), StringType()), [("", None), ("é", "x")]),
    (_deep, {"l": [{"m": [("a", [1, 2]), ("b", None)]}, None]}),
]
MSGPACK: list[tuple[DataType, Any]] = [
    (BinaryType(), b"\xff\0"),
    (DoubleType(), float("inf")),
    (MapType(LongType(), StringType()), [(-1, "a"), (2**62, None)]),
    (MapType(BinaryType(), DoubleType()), [(b"\xff", 1.5)]),
    (ArrayType(MapType(DoubleType(), BinaryType())), [[(0.5, b"x")]]),
]
NEVER: list[tuple[DataType, str]] = [
    (VariantType(), "variant"),
    (ArrayType(VariantType()), "variant"),
    (VectorUDT(), "vector, which no format has"),
    (struct(("p", VectorUDT())), "which no format has"),
    (YearMonthIntervalType(), "which no format has; (declare|cast it to) string"),
    (CalendarIntervalType(), "which no format has; (declare|cast it to) string"),
    (VarcharType(3), "which no format has; (declare|cast it to) string"),
    (TimestampType(), "timestamp"),
    (TimestampNTZType(), "timestamp"),
    (DateType(), "date32"),
    (ArrayType(DayTimeIntervalType()), "duration"),
    (MapType(struct(("a", LongType())), LongType()), "keys of maps that are struct"),
    (MapType(ArrayType(LongType()), LongType()), "keys of maps that are list"),
    (struct(("a", LongType()), ("a", StringType())), "two fields 'a' in one object"),
]
NOT_JSON: list[tuple[DataType, str]] = [
    (BinaryType(), "binary"),
    (MapType(LongType(), StringType()), "keys of maps that are int64"),
    (MapType(StringType(), ArrayType(BinaryType())), "binary"),
]
FORMS = [("json", case) for case in BOTH] + [("msgpack", case) for case in BOTH + MSGPACK]


@pytest.fixture
def store(path: str) -> str:
    with planstep.open(path) as db:
        for form in ("json", "msgpack"):
            db.create_topic(f"t-{form}", format=form)
            db.create_table(f"r-{form}", format=form)
    return path


@pytest.mark.parametrize("form, case", FORMS, ids=str)
def test_a_value_comes_back(store: str, write: Any, read: Any, form: str, case: Any) -> None:
    kind, value = case
    rows = pa.table({"key": ["k"], "value": pa.array([value], to_arrow_type(kind))})
    schema = struct(("key", StringType()), ("value", kind))
    for target in ({"topic": f"t-{form}"}, {"table": f"r-{form}"}):
        write(rows, **target)
        (row,) = read(schema, **target).to_pylist()
        assert repr(row) == repr({"key": "k", "value": value})


@pytest.mark.parametrize(
    "kind, value",
    [
        (StringType(), "é"),
        (BinaryType(), b"\xff"),
        (LongType(), -(2**63)),
        (DoubleType(), 0.5),
        (struct(("0", StringType()), ("1", LongType())), {"0": "a", "1": 7}),
    ],
    ids=str,
)
def test_a_key_of_a_row_comes_back(
    store: str, write: Any, read: Any, kind: DataType, value: Any
) -> None:
    write(pa.table({"key": pa.array([value], to_arrow_type(kind)), "value": [1]}), table="r-json")
    for schema in (None, struct(("key", kind), ("value", LongType()))):
        assert repr(read(schema, table="r-json")["key"].to_pylist()) == repr([value])


FORMS_OF_TYPES = [("json", case) for case in NEVER + NOT_JSON] + [("msgpack", c) for c in NEVER]


@pytest.mark.parametrize("form, case", FORMS_OF_TYPES, ids=str)
def test_a_type_is_refused_before_any_task(
    store: str, elsewhere: Any, load: Any, form: str, case: Any
) -> None:
    """Reading says so at the first action, writing when the job begins."""
    kind, message = case
    schema = struct(("value", kind))
    for target in ({"topic": f"t-{form}"}, {"table": f"r-{form}"}):
        loaded = load(schema, **target)
        with pytest.raises(TypeError, match=message):
            loaded.read()
        with pytest.raises(TypeError, match=message):
            elsewhere(
                "begin", {"path": store, **target}, struct(("key", StringType()), *_pairs(schema))
            )


def _pairs(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema.fields]


def test_decimals_are_read_exactly_from_json_and_written_nowhere(
    store: str, elsewhere: Any, read: Any
) -> None:
    with planstep.open(store) as db:
        db.create_topic("prices")
        for text in (b"19.99", b"-1e2", b"12345678901234567.25"):
            db.topic("prices").write(b'{"price": %s, "other": 0.1}' % text)
        db.topic("t-msgpack").write({"price": 19})
        db.topic("t-msgpack").write({"price": 19.99})
    price = struct(("price", DecimalType(19, 2)), ("other", DoubleType()))
    got = read(struct(("value", price)), topic="prices", format="json")["value"].to_pylist()
    assert [row["price"] for row in got] == [
        *(Decimal("19.99"), Decimal("-100.00"), Decimal("12345678901234567.25")),
    ]
    assert {row["other"] for row in got} == {0.1}
    got = read(struct(("value", price)), topic="t-msgpack", mode="PERMISSIVE")["value"].to_pylist()
    assert got == [{"price": Decimal("19.00"), "other": None}, None]  # a float has no exact decimal
    for form in ("json", "msgpack"):
        with pytest.raises(TypeError, match=r"decimal128\(19, 2\).*cast it to string or to a num"):
            elsewhere("begin", {"path": store, "topic": f"t-{form}"}, struct(("value", price)))


def test_null_where_none_may_be(store: str, read: Any) -> None:
    """Spark would read 0."""
    with planstep.open(store) as db:
        db.topic("t-json").write_batch([{"a": 1}, {"a": None}, {}])
    value = StructType([StructField("a", LongType(), nullable=False)])
    with pytest.raises(
        NoCommonType, match=r"offset 1.*a is null or not there, and is declared NOT"
    ):
        read(struct(("value", value)), topic="t-json")
    got = read(struct(("value", value)), topic="t-json", mode="PERMISSIVE")["value"].to_pylist()
    assert got == [{"a": 1}, None, None]
    inner = struct(("value", MapType(StringType(), LongType(), valueContainsNull=False)))
    with pytest.raises(NoCommonType, match="offset 1"):
        read(inner, topic="t-json")
    with pytest.raises(ValueError, match="column value may be null: declare it without NOT NULL"):
        read(StructType([StructField("value", value, nullable=False)]), topic="t-json")
    with pytest.raises(ValueError, match="without NOT NULL"):
        read(StructType([StructField("key", StringType(), nullable=False)]), topic="t-json")


@pytest.mark.parametrize("kind", [IntegerType(), DateType(), DecimalType(), ArrayType(LongType())])
def test_keys_that_no_row_has(store: str, read: Any, kind: DataType) -> None:
    with pytest.raises(TypeError, match="no key of a row is"):
        read(struct(("key", kind)), table="r-json")


@pytest.mark.parametrize("text", ["1e400", "-1e400", '{"a": [1e400]}'])
def test_numbers_that_no_double_holds(db: planstep.Engine, read: Any, text: str) -> None:
    """Python's reader takes them for infinite."""
    topic = db.create_topic("t")
    topic.write_batch([text.encode()] * 3)
    with pytest.raises(NoCommonType, match=r"offset 0.*1e400 is too large for a double"):
        read(topic="t", format="json")
    got = read(topic="t", format="json", mode="PERMISSIVE")["value"].to_pylist()
    assert got == [None] * 3


def test_text_is_no_bytes(db: planstep.Engine, read: Any) -> None:
    topic = db.create_topic("t", format="msgpack")
    topic.write_batch(["text", b"bytes", dt.datetime.min.isoformat()])
    for kind, wanted in ((StringType(), [0, 2]), (BinaryType(), [1])):
        got = read(struct(("value", kind)), topic="t", mode="PERMISSIVE")["value"]
        assert [i for i, value in enumerate(got) if value.is_valid] == wanted
