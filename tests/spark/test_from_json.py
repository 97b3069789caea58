"""Compares declared types with Spark's own `from_json`, by values and schemas that hypothesis draws.

    text, schema ─┬─ the data source ─▶ a value, or a refusal ┐
                  └─ from_json       ─▶ a value, or a refusal ┴─▶ the same, or a difference that has a name

Spark answers for all cases in one query. A record that its mode FAILFAST refuses is one that PERMISSIVE notes as
corrupt; the accepted ones are read again in FAILFAST.
"""

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from planstep.spark import decimals, json_columns, values
from planstep.spark.values import Decoder, Misfit

SCHEMAS, VALUES = 12, 20
LEAVES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.bool_(), pa.decimal128(10, 2), pa.decimal128(38, 10)),
)
ODD = (
    *("19.99", "-0.5", "19.0", "1e2", "127", "128", "200", "300", "-129", "32768", "2147483648"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "16777217", "0.1"),
    *("1e39", "1e300", "1e400", "-1e400", "NaN", "Infinity", "123456789.12", "12345678.125"),
    *('"19.99"', '"NaN"', '"text"', '""', '"\\ud800"', "true", "false", "null", "-0.0", "1e-400"),
    *(
        "1234567890123456789.0",
        "9007199254740993.0",
        "4.9999999999999999999",
        "1152921504606846976",
    ),
    *("{}", "[]", "[1, 2.5]", '{"a": 1.5}', '{"a": 1, "a": 2}', "[[19.99]]", '{"x": {"y": 1}}'),
)


class Case(NamedTuple):
    """Texts of objects with one field, `f`, of the type."""

    kind: Any
    texts: list[str]


def kinds(depth: int) -> st.SearchStrategy[Any]:
    leaf = st.sampled_from(LEAVES)
    if not depth:
        return leaf
    inner = kinds(depth - 1)
    struct = st.lists(inner, min_size=1, max_size=3).map(
        lambda some: pa.struct([(name, kind) for name, kind in zip("abc", some, strict=False)])
    )
    maps = inner.map(lambda kind: pa.map_(pa.string(), kind))
    return st.one_of(leaf, inner.map(pa.list_), struct, maps)


def texts(kind: Any) -> st.SearchStrategy[str]:
    """Makes texts, most of which fit the type."""
    t = pa.types
    if t.is_struct(kind):
        parts = [texts(f.type).map(lambda text, n=f.name: f'"{n}": {text}') for f in kind]
        fits = st.tuples(*parts).map(lambda some: "{" + ", ".join(some) + "}")
    elif t.is_list(kind):
        fits = st.lists(texts(kind.value_type), max_size=3).map(lambda s: f"[{', '.join(s)}]")
    elif t.is_map(kind):
        fits = st.lists(texts(kind.item_type), max_size=2).map(
            lambda s: "{" + ", ".join(f'"k{n}": {text}' for n, text in enumerate(s)) + "}"
        )
    elif t.is_integer(kind):
        bits = kind.bit_width - 1
        fits = st.integers(-(1 << bits), (1 << bits) - 1).map(str)
    elif t.is_decimal(kind):
        whole = 10 ** (kind.precision - kind.scale) - 1
        fits = st.decimals(-whole, whole, places=kind.scale).map(lambda d: f"{d:f}")
    elif t.is_floating(kind):
        fits = st.floats(width=kind.bit_width, allow_nan=False, allow_infinity=False).map(
            json.dumps
        )
    elif t.is_boolean(kind):
        fits = st.sampled_from(("true", "false"))
    else:
        fits = st.text(max_size=5).map(json.dumps)
    return st.integers(0, 9).flatmap(lambda n: st.sampled_from(ODD) if n == 0 else fits)


def cases() -> list[Case]:
    drawn: list[Case] = [Case(kind, list(ODD)) for kind in dict.fromkeys(LEAVES)]

    @settings(
        max_examples=SCHEMAS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        kinds(2).flatmap(
            lambda kind: st.lists(texts(kind), min_size=1, max_size=VALUES).map(
                lambda some: Case(kind, some)
            )
        )
    )
    def draw(case: Case) -> None:
        drawn.append(case)

    draw()
    return [Case(kind, [f'{{"f": {text}}}' for text in some]) for kind, some in drawn]


class Refused:
    def __repr__(self) -> str:
        return "REFUSED"


REFUSED = Refused()
DIFFERENCES = {
    "19.0 is the bigint 19 for us",
    *("1e300 is an infinite float for Spark", "1e400 is infinite for Spark"),
    *("200 is the tinyint -56 for Spark", "a decimal is rounded for Spark"),
    "a whole number is rounded to a double or float for Spark",
    *("NaN may be text for Spark", "a decimal may be text for Spark"),
    *("any value is text for Spark", "a lone surrogate is a ? for Spark"),
}
"""Who gives a value where the other refuses."""


class Answers(NamedTuple):
    """Spark's answers: a value or REFUSED for each text of each case."""

    cases: list[Case]
    given: list[list[Any]]


@pytest.fixture(scope="module")
def answers(spark: Any) -> Answers:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    drawn = cases()
    rows = [(n, m, text) for n, case in enumerate(drawn) for m, text in enumerate(case.texts)]
    frame = spark.createDataFrame(rows, "n int, m int, text string").coalesce(1)
    fields = [StructField("f", from_arrow_type(case.kind)) for case in drawn]

    def ask(frame: Any, corrupt: list[Any], mode: str) -> Any:
        parsed = [
            F.when(F.col("n") == n, F.from_json("text", StructType([f, *corrupt]), {"mode": mode}))
            for n, f in enumerate(fields)
        ]
        return frame.select("n", "m", *(p.alias(f"_{n}") for n, p in enumerate(parsed))).collect()

    found: list[list[Any]] = [[REFUSED] * len(case.texts) for case in drawn]
    bad = [StructField("_corrupt_record", StringType())]
    good = []
    for n, m, *parsed in ask(frame, bad, "PERMISSIVE"):
        if parsed[n]["_corrupt_record"] is None:
            good.append((n, m, drawn[n].texts[m]))
    frame = spark.createDataFrame(good, "n int, m int, text string").coalesce(1)
    for n, m, *parsed in ask(frame, [], "FAILFAST"):
        found[n][m] = parsed[n].asDict(recursive=True)["f"]
    return Answers(drawn, found)


def ours(kind: Any, text: str) -> Any:
    decoder = Decoder("json", pa.struct([("f", kind)]), inferred=False, permissive=False)
    try:
        (value,) = decoder.array([text.encode()]).to_pylist()
    except Misfit:
        return REFUSED
    return _plain(value["f"], kind)


def _plain(value: Any, kind: Any) -> Any:
    """Makes dicts of maps."""
    t = pa.types
    if value is None:
        return None
    if t.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if t.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if t.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    return value


class Number(str):
    """A number of json, as it was written."""


def names(kind: Any, text: str) -> set[str]:
    """Names what the two may take differently in a text."""
    value = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)
    return set(_names(value["f"], kind))


def _names(value: Any, kind: Any) -> Iterator[str]:
    t = pa.types
    if isinstance(value, str) and "\ud800" in value:
        yield "a lone surrogate is a ? for Spark"
    if t.is_string(kind) and (not isinstance(value, str) or type(value) is Number):
        yield "any value is text for Spark"
    for item, inner in _inner(value, kind):
        yield from _names(item, inner)
    if type(value) is Number:
        yield from _of_number(value, kind)
    elif isinstance(value, str) and t.is_decimal(kind):
        yield "a decimal may be text for Spark"
    elif isinstance(value, str) and t.is_floating(kind):
        yield "NaN may be text for Spark"


def _inner(value: Any, kind: Any) -> list[tuple[Any, Any]]:
    """Returns the values within a value, each with its type."""
    t = pa.types
    if t.is_list(kind) and isinstance(value, list):
        return [(item, kind.value_type) for item in value]
    if t.is_map(kind) and isinstance(value, dict):
        return [(item, kind.item_type) for item in value.values()]
    if t.is_struct(kind) and isinstance(value, dict):
        return [(value.get(field.name), field.type) for field in kind]
    return []


def _of_number(text: str, kind: Any) -> Iterator[str]:
    t = pa.types
    number = float(text)
    whole = text.lstrip("-").isdigit()
    if t.is_integer(kind):
        if not whole and number.is_integer():
            yield "19.0 is the bigint 19 for us"
        if kind == pa.int8() and whole and 127 < number < 256:
            yield "200 is the tinyint -56 for Spark"
    elif t.is_decimal(kind) and math.isfinite(number):
        if -int(Decimal(text).as_tuple().exponent) > kind.scale:
            yield "a decimal is rounded for Spark"
    elif t.is_floating(kind):
        if math.isinf(number) and "nf" not in text:
            yield "1e400 is infinite for Spark"
        if t.is_float32(kind) and 3.4028234663852886e38 < abs(number) < math.inf:
            yield "1e300 is an infinite float for Spark"
        bits = 24 if t.is_float32(kind) else 53
        if whole and abs(int(text)) > 1 << bits:
            yield "a whole number is rounded to a double or float for Spark"


def differences(answers: Answers) -> tuple[list[str], set[str]]:
    """Returns the differences that have no name, as texts, and the names of the others."""
    nameless, named = [], set()
    for case, spark in zip(answers.cases, answers.given, strict=True):
        for text, theirs in zip(case.texts, spark, strict=True):
            mine = ours(case.kind, text)
            if mine is theirs or repr(mine) == repr(theirs):
                continue
            who = "Spark" if mine is REFUSED else "us" if theirs is REFUSED else "nobody"
            known = {name for name in names(case.kind, text) if name.endswith(f"for {who}")}
            named |= known
            if not known:
                nameless.append(f"{text} as {case.kind}: {mine!r}, from_json {theirs!r}")
    return nameless, named


@pytest.mark.parametrize("few", [1, 16], ids=["in columns", "one by one"])
def test_a_value_is_that_of_from_json_or_the_difference_has_a_name(
    answers: Answers, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_columns, "_FEW", few)
    nameless, named = differences(answers)
    assert not nameless
    assert named == DIFFERENCES


def test_what_is_corrupt_is_refused_by_failfast(spark: Any) -> None:
    query = """SELECT from_json('{"f": 19.99}', 'f bigint', map('mode', 'FAILFAST'))"""
    with pytest.raises(Exception, match="malformedRecordsDetected"):
        spark.sql(query).collect()


def test_a_check_that_lets_all_pass_is_seen(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """19.99 as bigint is 19 again: the control of the test above."""
    monkeypatch.setattr(values, "checking", lambda *_: None)
    nameless, _ = differences(answers)
    assert '{"f": 19.99} as int64: 19, from_json REFUSED' in nameless


def test_decimals_by_way_of_floats_are_seen(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's reader makes 19.99 a float, which is not 19.99."""
    monkeypatch.setattr(decimals, "_exact", lambda text: Decimal(float(text)))
    nameless, _ = differences(answers)
    assert any("19.99} as decimal" in case for case in nameless)
