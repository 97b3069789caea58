"""Encodes a batch of records in columns, for the API's writers and readers; it is stored and sent as it is.

    header   magic 4 | version 2 | flags 2 | count 4 | length 4 | base timestamp ms 8 | zero 4 | crc32 4
    columns  keys, values, headers; each:
               present  8-byte aligned bitmap, least bit first; left out when all or none are there
               offsets  int32 × (count + 1), from 0, 8-byte aligned
               data     8-byte aligned

All little endian: each column is Arrow's variable-size binary, which `Batch.buffers` reads without a copy. The
flags have two bits a column: 0 every record has it, 1 some do (bitmap), 2 none (nothing stored). The crc covers
the header up to itself, and the columns.

Next: ../engine/planstep/api/transaction/topic_writes.py, which makes batches for the API.
"""

import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from struct import Struct
from struct import error as struct_error
from typing import Any

import msgpack

from ..crc import crc32
from ..errors import Corruption

_HEADER = Struct("<4sHHIIqI")
_CRC = Struct("<I")
_MAGIC = b"PSB1"
_SIZE = HEADER_BYTES = _HEADER.size + 4
_ALL, _SOME, _NONE = 0, 1, 2


_ONE_OFFSETS = Struct("<ii")
_ONLY_VALUES = _NONE | _ALL << 2 | _NONE << 4
_PADDING = tuple(bytes(-size % 8) for size in range(8))  # indexed by size % 8


def _column(
    items: Sequence[bytes | None], ends: Sequence[int] | None = None
) -> tuple[int, list[bytes]]:
    state = _ALL
    pieces: list[bytes] = []
    present: Sequence[Any] = items  # only bytes, once absent items are replaced by b""
    try:
        ends = ends or [0, *accumulate(map(len, present))]
    except TypeError:  # an absent item has no length
        state = _SOME
        bits = bytearray((len(items) + 7) // 8)
        for i, item in enumerate(items):
            if item is not None:
                bits[i >> 3] |= 1 << (i & 7)
        pieces += [bytes(bits), _PADDING[len(bits) % 8]]
        present = [b"" if item is None else item for item in items]
        ends = [0, *accumulate(map(len, present))]
    offsets = array("i", ends)
    if sys.byteorder == "big":
        offsets.byteswap()
    raw = offsets.tobytes()
    data = b"".join(present)
    pieces += [raw, _PADDING[len(raw) % 8], data, _PADDING[len(data) % 8]]
    return state, pieces


def encode_batch(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Mapping[str, bytes] | bytes | None] | None = None,
    timestamp_ms: int = 0,
    ends: Sequence[int] | None = None,
) -> bytes:
    """Encodes a batch. `headers` are mappings, or bytes that `encode_headers` made.

    `ends`: where values end, from 0, if the caller knows it.
    """
    count = len(values)
    if (keys is not None and len(keys) != count) or (headers is not None and len(headers) != count):
        raise ValueError("values, keys and headers must have the same length")
    packed: Sequence[bytes | None] | None = None
    if headers is not None:
        packed = [
            item if item is None or isinstance(item, bytes) else encode_headers(item)
            for item in headers
        ]
    if count == 1 and keys is None and packed is None and (value := values[0]) is not None:
        # As below, in one step: most transactions write one record.
        one = [_ONE_OFFSETS.pack(0, len(value)), value, _PADDING[len(value) % 8]]
        return _assembled(_ONLY_VALUES, 1, timestamp_ms, one)
    flags = 0
    pieces: list[bytes] = []
    for i, column in enumerate((keys, values, packed)):
        if column is None:
            flags |= _NONE << 2 * i
        else:
            state, parts = _column(column, ends if i == 1 else None)
            flags |= state << 2 * i
            pieces += parts
    return _assembled(flags, count, timestamp_ms, pieces)


Buffers = tuple[memoryview | None, memoryview, memoryview]
"""A column as stored: bitmap, or None if all are there; offsets; data."""


def encode_buffers(count: int, columns: Sequence[Buffers | None], timestamp_ms: int = 0) -> bytes:
    """Encodes a batch from keys, values and headers that are columns already; None: not stored.

    Offsets are little endian int32, begin with 0, and cover all of the data.
    """
    flags = 0
    pieces: list[bytes | memoryview] = []
    for i, column in enumerate(columns):
        if column is None:
            flags |= _NONE << 2 * i
            continue
        bitmap, offsets, data = column
        flags |= (_ALL if bitmap is None else _SOME) << 2 * i
        for piece in (bitmap, offsets, data):
            if piece is not None:
                pieces += [piece, _PADDING[len(piece) % 8]]
    return _assembled(flags, count, timestamp_ms, pieces)


def _assembled(
    flags: int, count: int, timestamp_ms: int, pieces: Sequence[bytes | memoryview]
) -> bytes:
    length = sum(map(len, pieces))
    head = _HEADER.pack(_MAGIC, 1, flags, count, length, timestamp_ms, 0)
    crc = crc32(head)
    for piece in pieces:
        crc = crc32(piece, crc)
    return b"".join([head, _CRC.pack(crc), *pieces])


def timestamp_of(header: bytes) -> int:
    """Returns the base timestamp, ms, from a batch's first HEADER_BYTES bytes."""
    magic, version, _, _, _, timestamp, _ = _HEADER.unpack_from(header)
    if magic != _MAGIC or version != 1:
        raise Corruption("bytes that should be a batch are not one")
    return int(timestamp)


def encode_headers(headers: Mapping[str, bytes | str]) -> bytes:
    """Encodes one record's headers as msgpack; call it once if many records share them."""
    data: bytes = msgpack.packb(dict(headers), use_bin_type=True)
    return data


def decode_headers(data: bytes | None) -> dict[str, Any]:
    """Decodes one record's headers. Raises Corruption for bytes that `encode_headers` did not make."""
    if data is None:
        return {}
    try:
        headers = msgpack.unpackb(data)
    except (TypeError, ValueError) as error:  # msgpack's errors are subclasses of these
        raise Corruption(f"a record's headers are not readable: {error}") from error
    if not isinstance(headers, dict):
        raise Corruption("a record's headers are none")
    return headers


class Batch:
    """Reads an encoded batch. `keys`, `values`, `header_bytes` are lists, built at each call."""

    __slots__ = ("count", "data", "timestamp_ms")

    def __init__(self, data: bytes, count: int, timestamp_ms: int) -> None:
        self.data = data
        self.count = count
        self.timestamp_ms = timestamp_ms

    @classmethod
    def decode(cls, data: bytes, verify: bool = True) -> "Batch":
        """Opens encoded bytes. Raises Corruption if they are not a batch, or not the one that was written."""
        if len(data) < _SIZE:
            raise Corruption("a batch is cut off")
        magic, version, _, count, length, timestamp, _ = _HEADER.unpack_from(data)
        if magic != _MAGIC or version != 1 or len(data) != _SIZE + length:
            raise Corruption("bytes that should be a batch are not one")
        # Each record needs an offset: a false count must not size a list.
        if 4 * (count + 1) > length:
            raise Corruption("a batch claims more records than it holds")
        if verify:
            view = memoryview(data)
            crc = crc32(view[_SIZE:], crc32(view[: _HEADER.size]))
            if crc != _CRC.unpack_from(data, _HEADER.size)[0]:
                raise Corruption("a batch's checksum does not match")
        return cls(data, count, timestamp)

    def holds(self, column: int) -> bool:
        """Returns whether any record has an item in a column: keys 0, values 1, headers 2."""
        flags: int = _HEADER.unpack_from(self.data)[2]
        return flags >> 2 * column & 3 != _NONE

    def _find(self, column: int) -> tuple[int, int, int, int] | None:
        """Returns where a column's bitmap (0: it has none), offsets and data begin, and where the data ends."""
        flags = _HEADER.unpack_from(self.data)[2]
        at = _SIZE
        for i in range(column + 1):
            state = flags >> 2 * i & 3
            if state == _NONE:
                continue
            bitmap = 0
            if state == _SOME:
                bitmap = at
                size = (self.count + 7) // 8
                at += size + -size % 8
            offsets = at
            (size,) = _CRC.unpack_from(self.data, at + 4 * self.count)
            begin = at + 4 * (self.count + 1)
            begin += -begin % 8  # columns begin at multiples of 8
            if i == column:
                return bitmap, offsets, begin, begin + size
            at = begin + size + -size % 8
        return None

    def buffers(self, column: int) -> Buffers | None:
        """Returns (bitmap or None, offsets, data) of keys 0, values 1 or headers 2; None if not stored."""
        found = self._find(column)
        if found is None:
            return None
        bitmap, offsets, begin, end = found
        view = memoryview(self.data)
        bits = view[bitmap : bitmap + (self.count + 7) // 8] if bitmap else None
        return bits, view[offsets : offsets + 4 * (self.count + 1)], view[begin:end]

    def part(self, column: int, lo: int, hi: int) -> list[bytes | None]:
        """Returns items lo..hi (hi excluded) of keys 0, values 1 or headers 2, reading nothing else."""
        try:
            return self._part(column, lo, hi)
        except (struct_error, IndexError, ValueError) as error:
            raise Corruption(f"a batch's columns are not where it says: {error}") from error

    def _part(self, column: int, lo: int, hi: int) -> list[bytes | None]:
        place = self._find(column)
        if place is None:
            return [None] * (hi - lo)
        bitmap, at, first, last = place
        raw = self.data[at + 4 * lo : at + 4 * (hi + 1)]
        if len(raw) < 4 * (hi - lo + 1):
            raise Corruption("a batch's column is cut off")
        offsets = array("i", raw)
        if sys.byteorder == "big":
            offsets.byteswap()
        base = offsets[0]
        if not 0 <= base <= offsets[-1] <= min(last, len(self.data)) - first:
            raise Corruption("a batch's column points beyond its bytes")
        data = self.data[first + base : first + offsets[-1]]
        if base:
            offsets = array("i", [offset - base for offset in offsets])
        begin = 0
        items: list[bytes | None] = [data[begin : (begin := end)] for end in offsets[1:]]
        if bitmap:
            bits = self.data[bitmap : bitmap + (self.count + 7) // 8]
            for i in range(lo, hi):
                if not bits[i >> 3] >> (i & 7) & 1:
                    items[i - lo] = None
        return items

    @property
    def keys(self) -> list[bytes | None]:
        return self.part(0, 0, self.count)

    @property
    def values(self) -> list[bytes | None]:
        return self.part(1, 0, self.count)

    @property
    def header_bytes(self) -> list[bytes | None]:
        return self.part(2, 0, self.count)

    @property
    def headers(self) -> list[dict[str, Any]]:
        return [decode_headers(item) for item in self.header_bytes]
