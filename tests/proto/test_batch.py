"""Tests batches: decoding returns the encoded records, and no flipped bit goes unnoticed."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planstep.errors import Corruption
from planstep.proto.batch import Batch, decode_headers, encode_batch, encode_buffers

cells = st.none() | st.binary(max_size=20)
rows = st.lists(
    st.tuples(
        cells, cells, st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5))
    ),
    max_size=20,
)


@given(rows, st.integers(0, 1 << 60))
def test_round_trip(
    records: list[tuple[bytes | None, bytes | None, dict[str, bytes] | None]], ms: int
) -> None:
    values = [value for value, _, _ in records]
    keys = [key for _, key, _ in records]
    headers = [header for _, _, header in records]
    batch = Batch.decode(encode_batch(values, keys, headers, ms))
    assert batch.count == len(records) and batch.timestamp_ms == ms
    assert batch.values == values and batch.keys == keys
    assert batch.headers == [header or {} for header in headers]


@given(st.binary(max_size=40), st.integers(0, 1 << 40))
def test_one_value_is_encoded_as_columns_are(value: bytes, ms: int) -> None:
    offsets = memoryview(bytes(4) + len(value).to_bytes(4, "little"))
    columns = encode_buffers(1, [None, (None, offsets, memoryview(value)), None], ms)
    assert encode_batch([value], timestamp_ms=ms) == columns


def test_columns_that_are_not_given_take_nothing() -> None:
    alone = encode_batch([b"x"])
    assert Batch.decode(alone).keys == [None] and Batch.decode(alone).headers == [{}]
    assert len(alone) < len(encode_batch([b"x"], [b"k"]))


def test_buffers_are_aligned_and_start_at_zero() -> None:
    batch = Batch.decode(encode_batch([b"abc", b"d"], [b"k", None]))
    for column in (0, 1):
        buffers = batch.buffers(column)
        assert buffers is not None
        _, offsets, data = buffers
        base = memoryview(batch.data)
        for view in (offsets, data):
            assert bytes(base).index(bytes(view)) % 8 == 0
        assert offsets[:4] == b"\0\0\0\0"


def test_every_flipped_byte_is_noticed() -> None:
    data = encode_batch([b"abc", b""], [b"k", None], [None, {"h": b"v"}], 5)
    for i in range(len(data)):
        for mask in (1, 0x80):
            bad = bytearray(data)
            bad[i] ^= mask
            with pytest.raises(Corruption):
                Batch.decode(bytes(bad))
    for i in range(len(data)):
        with pytest.raises(Corruption):
            Batch.decode(data[:i])


def resealed(data: bytes, at: int, new: bytes) -> bytes:
    """Replaces bytes at a place and fixes the checksum, as a wrong writer would."""
    changed = data[:at] + new + data[at + len(new) :]
    crc = zlib.crc32(changed[32:], zlib.crc32(changed[:28]))
    return changed[:28] + crc.to_bytes(4, "little") + changed[32:]


@pytest.mark.parametrize(
    ("at", "new"),
    [
        (8, b"\xff\xff\xff\xff"),  # this count of records would take 32 GB
        (8, b"\x09\0\0\0"),
        (6, b"\x15\0"),  # bitmaps that are missing
        (32, b"\xff" * 8),
        (40, b"\0\0\0\x80"),
    ],
)
def test_what_a_batch_claims_is_not_believed(at: int, new: bytes) -> None:
    data = resealed(encode_batch([b"a", b"bc"], None, [{"h": b"1"}, None]), at, new)
    with pytest.raises(Corruption):
        batch = Batch.decode(data)
        _ = batch.keys, batch.values, batch.headers


def test_headers_that_are_none() -> None:
    for raw in (b"\xc1", b"\x93\x01", b"\x01", b"\x91" * 2000 + b"\xc0", b"\xdf\xff\xff\xff\xff"):
        with pytest.raises(Corruption, match="headers"):
            decode_headers(raw)
