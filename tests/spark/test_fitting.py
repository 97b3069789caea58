"""Tests that a declared type takes a value exactly or not at all: no number is cut, or rounded to infinity."""

import math
from decimal import Decimal
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import planstep
from planstep.errors import NoCommonType
from planstep.spark import json_columns
from planstep.spark.values import Decoder, Misfit

_price = pa.struct([("price", pa.int64()), ("name", pa.string())])
BENT: list[tuple[Any, Any]] = [
    (pa.int64(), 19.99),
    (pa.int32(), -0.5),
    (pa.int8(), 300),
    (pa.int64(), 2**63),
    (pa.int64(), True),
    (pa.int64(), 1e300),
    (pa.int64(), math.inf),
    (pa.float32(), 1e300),
    (pa.float32(), -1e39),
    (pa.float64(), True),
    (pa.float64(), 2**53 + 1),
    (pa.float64(), 2**63 - 1),
    (pa.float32(), 2**24 + 1),
    (pa.list_(pa.float64()), [2.0, -(2**60) - 1]),
    (pa.bool_(), 1),
    (pa.string(), 7),
    (pa.list_(pa.string()), "abc"),
    (pa.list_(pa.int64()), [1, 2.5]),
    (pa.list_(pa.int64()), {"1": 2}),
    (_price, {"price": 19.99}),
    (_price, {"price": 1, "name": 2}),
    (pa.list_(_price), [{"price": 1}, {"price": 1.5}]),
    (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": 1.5}),
    (pa.map_(pa.string(), pa.list_(pa.float32())), {"a": [1e39]}),
    (pa.struct([("deep", _price)]), {"deep": {"price": 0.1}}),
]
WHOLE: list[tuple[Any, Any]] = [
    (pa.int64(), 19),
    (pa.int64(), 19.0),
    (pa.int8(), -128),
    (pa.float32(), 0.5),
    (pa.float64(), 2**53),
    (pa.float64(), 2**53 + 2),
    (pa.float64(), 2**63),
    (pa.float64(), -(2**63)),
    (pa.float64(), 1e300),
    (pa.float32(), 2**60),
    (pa.list_(pa.float64()), [2**60, 0.5, None, -(2**54)]),
    (pa.struct([("n", pa.list_(pa.float32()))]), {"n": [2**25]}),
    (pa.map_(pa.string(), pa.float64()), {"a": 2**60}),
    (pa.bool_(), False),
    (_price, {"price": 19, "name": "x", "left out": 0.5}),
    (pa.list_(pa.int64()), [1, None, 2.0]),
    (pa.map_(pa.string(), pa.int64()), {"a": 1}),
]
REFUSED = "refused"
DIGITS: list[tuple[Any, str, Any]] = [
    (pa.int64(), "19.0", 19),
    (pa.int64(), "1e2", 100),
    (pa.int64(), "-0.0", 0),
    (pa.int64(), "1234567890123456789.0", 1234567890123456789),
    (pa.int64(), "9007199254740993.0", 9007199254740993),
    (pa.int64(), "-9223372036854775808.000", -(2**63)),
    (pa.int64(), "9223372036854775808.0", REFUSED),
    (pa.int64(), "4.9999999999999999999", REFUSED),
    (pa.int64(), "9007199254740992.5", REFUSED),
    (pa.int64(), "1e-400", REFUSED),
    (pa.int64(), "1e400", REFUSED),
    (pa.int64(), "1e99999999", REFUSED),
    (pa.int64(), "1e-99999999999999999999", REFUSED),
    (pa.int8(), "1.27e2", 127),
    (pa.int8(), "128.0", REFUSED),
    (pa.float64(), str(2**64), 2.0**64),
    (pa.float64(), "9" * 400, REFUSED),
    (pa.float64(), "9007199254740993.0", 2.0**53),
    (pa.float32(), "1" + "0" * 39, REFUSED),
    (pa.decimal128(10, 2), "1." + "0" * 100, Decimal("1.00")),
    (pa.decimal128(10, 2), "1e-400", REFUSED),
    (pa.decimal128(10, 2), "1e-99999999", REFUSED),
    (pa.decimal128(10, 2), "1e99999999", REFUSED),
]
"""Numbers as json has them."""


def _stored(form: str, value: Any) -> bytes:
    if form == "msgpack":
        packed: bytes = msgpack.packb(value)
        return packed
    import json

    return json.dumps(value).encode()


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize("kind, value", BENT, ids=str)
def test_a_value_that_does_not_fit_is_an_error_or_null(form: str, kind: Any, value: Any) -> None:
    if form == "msgpack" and value == 2**63:
        value = 2**64 - 1  # msgpack's largest
    if form == "json" and value == math.inf:
        value = 2.0**1000  # JSON has no infinity
    raw: list[bytes | None] = [None, *([_stored(form, None)] * 3), _stored(form, value)]
    with pytest.raises(Misfit) as refused:
        Decoder(form, kind, False, False).array(raw)
    assert refused.value.index == 4
    assert Decoder(form, kind, False, True).array(raw).to_pylist() == [None] * 5


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize("kind, value", WHOLE, ids=str)
def test_a_value_that_fits_is_the_same(form: str, kind: Any, value: Any) -> None:
    (got,) = Decoder(form, kind, False, False).array([_stored(form, value)]).to_pylist()
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if name != "left out"}
    assert (dict(got) if isinstance(value, dict) else got) == value


@pytest.mark.parametrize("few", [1, 16], ids=["in columns", "one by one"])
@pytest.mark.parametrize("kind, text, value", DIGITS, ids=lambda part: str(part)[:30])
def test_a_number_of_json_is_taken_by_its_digits(
    kind: Any, text: str, value: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_columns, "_FEW", few)
    places = {"a": (kind, text), "b": (pa.list_(kind), f"[0, {text}]")}
    places["c"] = (pa.struct([("m", pa.map_(pa.string(), kind))]), f'{{"m": {{"k": {text}}}}}')
    for name, (whole, inner) in places.items():
        decoder = Decoder("json", pa.struct([(name, whole)]), False, True)
        raw: list[bytes | None] = [b"{}", f'{{"{name}": {inner}, "left out": 1e400}}'.encode()]
        _, got = decoder.array(raw).to_pylist()
        if value is REFUSED:
            assert got is None
            continue
        found = {"a": lambda v: v, "b": lambda v: v[1], "c": lambda v: v["m"][0][1]}[name](
            got[name]
        )
        assert type(found) is type(value) and found == value


def test_a_price_in_a_whole_column(db: planstep.Engine, read: Any) -> None:
    """A user met this: 19.99 read with `price bigint` was 19."""
    prices = db.create_topic("prices", partitions=1, format="json")
    prices.write_batch([{"price": 5}, {"price": 19.99}, {"price": 7}])
    db.create_table("shelf", format="json").put("tea", {"price": 19.99})
    schema = StructType([StructField("value", StructType([StructField("price", LongType())]))])
    for options in ({"topic": "prices"}, {"table": "shelf"}):
        with pytest.raises(NoCommonType, match=r"does not fit.*19\.99"):
            read(schema, **options)
    got = read(schema, topic="prices", mode="PERMISSIVE")["value"].to_pylist()
    assert got == [{"price": 5}, None, {"price": 7}]
    assert read(schema, table="shelf", mode="PERMISSIVE")["value"].to_pylist() == [None]
