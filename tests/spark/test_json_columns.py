"""Compares two ways to decode JSON: in columns, and one by one. The first answers as the second, or not at all."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planstep.spark import json_columns
from planstep.spark.values import Decoder, Misfit

NAMES = ("a", "b", "Ä", "date")
LEAVES = (pa.int64(), pa.int32(), pa.int8(), pa.float64(), pa.string(), pa.bool_())
OTHERS = (pa.float32(), pa.decimal128(10, 2), pa.binary(), pa.map_(pa.string(), pa.int64()))
LITERALS = (
    *(
        "0",
        "-0",
        "1.0",
        "19.99",
        "1e2",
        "-0.0",
        "0.0",
        "1e400",
        "-1e400",
        "1e-400",
        "1E5",
        "01",
        "1.",
        ".5",
    ),
    *(
        "9007199254740991",
        "9007199254740993",
        "9223372036854775808",
        "-9223372036854775809",
        "1" * 400,
    ),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        "false",
        "null",
        "True",
        "nul",
        "128",
        "2147483648",
        "300",
    ),
    *(
        '""',
        '"text"',
        '"5"',
        '"2024-01-01"',
        '"2024-01-01T00:00:00Z"',
        '"\\ud800"',
        '"\\udc00"',
        '"\\u0000"',
    ),
    *(
        '"\\ud83d\\ude00"',
        '"ÄÖ"',
        '"\\u00e4"',
        '"a\tb"',
        '"\\x"',
        '"}\\n{"',
        "'a'",
        "{}",
        "[]",
        "[null]",
        "[1,]",
    ),
    *(
        "{,}",
        '{"a":1}',
        '{"a":1,"a":2}',
        '{"a":null,"a":2}',
        '[1,"a"]',
        "[[1],[2.5]]",
        "/**/1",
        '"a" "b"',
    ),
    *(
        "1234567890123456789.0",
        "9007199254740993.0",
        "4.9999999999999999999",
        "1152921504606846976",
    ),
    *("0.1", "123456.789e-3", "[" * 60 + "]" * 60, "[" * 1200 + "]" * 1200),
)


def kinds(depth: int) -> st.SearchStrategy[Any]:
    leaf = st.sampled_from(LEAVES + LEAVES + OTHERS)
    if not depth:
        return leaf
    return leaf | st.builds(pa.list_, kinds(depth - 1)) | structs(depth - 1)


def structs(depth: int) -> st.SearchStrategy[Any]:
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
    return names.flatmap(
        lambda some: st.tuples(*(kinds(depth) for _ in some)).map(
            lambda types: pa.struct(list(zip(some, types, strict=True)))
        )
    )


def texts(kind: Any, odd: bool) -> st.SearchStrategy[str]:
    """Makes JSON texts that mostly fit a type; if odd, any others as well."""
    t = pa.types
    if t.is_struct(kind):
        fields = [st.none() | texts(field.type, odd).map(_named(field.name)) for field in kind]
        more = [st.none() | literals.map(_named("other"))] if odd else []
        parts = st.tuples(*fields, *more).map(lambda some: [part for part in some if part])
        fits = parts.flatmap(st.permutations).map(lambda some: "{" + ",".join(some) + "}")
    elif t.is_list(kind):
        items = st.lists(texts(kind.value_type, odd), max_size=3)
        fits = items.map(lambda some: "[" + ", ".join(some) + "]")
    elif t.is_floating(kind) or t.is_decimal(kind):
        fits = st.floats(-1e6, 1e6).map(json.dumps) | st.integers(1, 999).map(str)
    elif t.is_integer(kind):
        fits = st.integers(-100, 100).map(str)
    elif t.is_boolean(kind):
        fits = st.sampled_from(("true", "false"))
    elif t.is_map(kind):
        fits = st.just('{"k":1}')
    else:
        fits = st.text(max_size=5).map(json.dumps)
    fits = fits | st.just("null")
    return st.integers(0, 19).flatmap(lambda n: literals if not n else fits) if odd else fits


def _named(name: str) -> Callable[[str], str]:
    return lambda text: f"{json.dumps(name, ensure_ascii=len(text) % 2 == 0)}:{text}"


literals = st.sampled_from(LITERALS)
batches = st.tuples(structs(2), st.booleans()).flatmap(
    lambda drawn: st.tuples(
        st.just(drawn[0]), st.lists(texts(*drawn).map(str.encode), min_size=1, max_size=20)
    )
)
BREAKS = (
    b"",
    b"{",
    b"}",
    b'{"a":',
    b"}\n{",
    b"{}{}",
    b"\n",
    b" ",
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"{}\n{}",
)


def one_by_one(raw: list[Any], kind: Any, inferred: bool) -> Any:
    decoder = Decoder("json", kind, inferred, False)
    decoder._in_columns = False
    return decoder.array(raw)


@pytest.fixture(autouse=True)
def _any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_columns, "_FEW", 1)


def same(raw: list[Any], kind: Any, inferred: bool) -> bool:
    """Compares both; returns whether the columns were read."""
    if not json_columns.is_readable(kind):
        return False
    if inferred and ("int32" in str(kind) or "int8" in str(kind)):
        return False  # no type of these is inferred
    array = json_columns.read(raw, kind, inferred)
    if array is None:
        return False
    array.validate(full=True)
    expected = one_by_one(
        raw, kind, inferred
    )  # raises Misfit where the columns should not have been read
    assert array.type == expected.type == kind
    assert repr(array.to_pylist()) == repr(expected.to_pylist())  # tells -0.0 from 0.0
    return True


@settings(max_examples=300, deadline=None)
@given(batches, st.booleans(), st.sampled_from(BREAKS), st.integers(0, 19), st.booleans())
def test_the_columns_are_those_of_one_by_one_or_none(
    batch: tuple[Any, list[bytes]], inferred: bool, odd: bytes, at: int, breaks: bool
) -> None:
    kind, raw = batch
    if breaks:
        at %= len(raw)
        raw = [*raw[:at], odd, *raw[at:]]
    same(raw, kind, inferred)


@pytest.mark.parametrize("inferred", [False, True])
@pytest.mark.parametrize("text", LITERALS)
def test_every_literal_for_every_type(text: str, inferred: bool) -> None:
    for kind in LEAVES:
        for wrap in (lambda k: k, pa.list_, lambda k: pa.struct([("a", k)])):
            whole = pa.struct([("a", wrap(kind)), ("b", pa.int64())])
            for value in (text, f"[{text}]", f'{{"a":{text}}}'):
                raw = [b'{"a":null,"b":1}', f'{{"a":{value},"b":2}}'.encode(), b'{"b":3}']
                same(raw, whole, inferred)


@pytest.mark.parametrize(
    "raw",
    [
        [b'{"a":', b'{"a":1}}', b'{"a":1}{"a":2}'],
        [b'{"a":1}\n{"a":2}', b'{"a":', b"3}"],
        [b'{"a":1}{"a":2}', b" "],
        [b'{"a":1}{"a":2}', b'{"a":3}\0{}', b'{"a":4}'],
        [b'{"a":1}', b"", b'{"a":1}{"a":1}'],
        [b'{"a":"}', b'{"}'],
        [b'{"a":1}\n', b'{"a":1}'],
        [b'{"a":1}', b"null"],
        [b'{"a":1}', b"5", b"[]"],
        [b'{"a":1}', None],
        [b'\xef\xbb\xbf{"a":1}', b'{"a":1}'],
        ['{"a":1}'.encode("utf-16-le"), b'{"a":1}'],
        [b'{"a":1,"z":"\xff"}', b'{"a":1}'],
        [b'{"a":1,"z":' + b"[" * 3000 + b"]" * 3000 + b"}", b'{"a":1}'],
        [b'{"a":1,"a":2}', b'{"a":1}'],
    ],
)
def test_what_may_be_taken_for_other_records_goes_back(raw: list[Any]) -> None:
    assert json_columns.read(raw, pa.struct([("a", pa.int64())]), False) is None


def test_plain_records_are_read_in_columns() -> None:
    kind = pa.struct(
        [("a", pa.int64()), ("s", pa.string()), ("d", pa.float64()), ("l", pa.list_(pa.bool_()))]
    )
    rows = [{"a": n, "s": f"Ä{n}", "d": n / 7, "l": [True] * (n % 3), "z": {}} for n in range(50)]
    raw = [json.dumps(row, ensure_ascii=bool(row["a"] % 2)).encode() for row in rows]
    assert same([*raw, b"{}"], kind, inferred=False)
    assert json_columns.read(raw, kind, True) is None  # z is not known
    with pytest.raises(Misfit):
        one_by_one(raw, kind, inferred=True)
