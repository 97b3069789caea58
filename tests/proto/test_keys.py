"""Tests that the order of keys' bytes is the documented order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planstep.errors import InvalidKey, InvalidName, KeyTooLong
from planstep.proto.keys import check_name, decode_key, encode_key, key_range, prefix_range

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | text
    | st.binary(max_size=12)
)
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
RANK = {type(None): 0, bool: 1, int: 2, float: 3, str: 4, bytes: 5, tuple: 6}


def order(key: Any) -> Any:
    """Returns the documented order of a key, as a value that Python compares."""
    rank = RANK[type(key)]
    if rank == 0:
        return (rank,)
    if rank == 6:
        return (rank, tuple(map(order, key)))
    return (rank, [ord(c) for c in key] if rank == 4 else key)


@given(keys, keys)
def test_bytes_order_as_keys_do(a: Any, b: Any) -> None:
    assert (encode_key(a) < encode_key(b)) == (order(a) < order(b))
    assert (encode_key(a) == encode_key(b)) == (order(a) == order(b))


@given(keys)
def test_decoding_gives_the_key_back(key: Any) -> None:
    again = decode_key(encode_key(key))
    assert again == key and order(again) == order(key)


@given(keys, keys)
def test_no_encoding_is_a_prefix_of_another(a: Any, b: Any) -> None:
    if order(a) != order(b):
        assert not encode_key(b).startswith(encode_key(a))


@given(st.lists(scalars, max_size=3).map(tuple), st.lists(scalars, max_size=3).map(tuple))
def test_a_prefix_range_holds_exactly_its_tuples(prefix: Any, key: Any) -> None:
    first, last = prefix_range(prefix)
    inside = list(map(order, key[: len(prefix)])) == list(map(order, prefix))
    assert (first <= encode_key(key) < last) == inside


@given(keys, keys, keys)
def test_a_range_is_half_open(begin: Any, end: Any, key: Any) -> None:
    first, last = key_range(begin, end)
    low = begin is None or order(begin) <= order(key)
    high = end is None or order(key) < order(end)
    assert (first <= encode_key(key) < last) == (low and high)


def test_one_float_and_true_are_three_keys() -> None:
    assert len({encode_key(1), encode_key(1.0), encode_key(True)}) == 3
    assert encode_key(-0.0) == encode_key(0.0)


@pytest.mark.parametrize("bad", [float("nan"), "\ud800", [1], {}, object(), (1, [2])])
def test_what_is_no_key_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidKey):
        encode_key(bad)


def test_a_long_key_is_refused_with_its_length() -> None:
    encode_key(b"x" * 477)
    with pytest.raises(KeyTooLong) as error:
        encode_key(b"x" * 478)
    assert error.value.length == 481 and error.value.limit == 480


@given(st.binary(max_size=20))
def test_foreign_bytes_never_do_more_than_raise(data: bytes) -> None:
    try:
        key = decode_key(data)
    except ValueError:
        return
    assert order(key) is not None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "x" * 201, "ä", " "])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)


def test_an_encoded_key_nests_no_deeper_than_keys_do() -> None:
    assert decode_key(b"\x08" * 32 + b"\0" * 32) is not None
    for depth in (33, 100_000):
        with pytest.raises(ValueError, match="deep"):
            decode_key(b"\x08" * depth + b"\0" * depth)


def test_what_cannot_be_shown_is_no_name_either() -> None:
    no_name: Any = 10**5000
    with pytest.raises(InvalidName, match="not int"):
        check_name(no_name)
