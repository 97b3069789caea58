"""Encodes and reads the log's records; checksums and the position keep garbage from passing as a turn.

    segment   log-<generation 8>-<number 8>   preallocated, zeros behind the last record
    record    header 88 | changes | dropped | payload | crc32 of all before

    header    magic 4 | kind 4 | changes, dropped, payload bytes 4+4+4 | generation 4 | store id 16
              turn 8 | address of the first payload byte 8 | synced 8 | position in the file 8
              crc of the record before 4 | header crc 4

A file's first record identifies the file: store id, kind, generation, and, in place of a previous record's
crc, the file's number + 1 (0 in files from before this rule).

Kinds: START opens a segment and names in `turn` the end of history: turns beyond it in earlier segments are
void for ever. TURN is one turn. CLOSE ends a clean close. `synced` is the last turn whose sync had returned
when the record was written: a valid record proves those turns were acknowledged.
DATA is an extent of payload in a data file (compaction.py): no part of history.

changes: msgpack [key, value, …], nil for deleted. dropped: msgpack [address, length, …].

Next: ../recovery.py.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any

import msgpack

from ...crc import crc32

START, TURN, CLOSE, DATA = 1, 2, 3, 4
_MAGIC = b"PSL1"
_HEADER = Struct("<4sIIIII16sQQQQI")
_CRC = Struct("<I")
HEADER_SIZE = _HEADER.size + 4
OVERHEAD = HEADER_SIZE + 4
CLOSE_SIZE = OVERHEAD
RECORD_BYTES_MAX = (1 << 32) - 1
MISPLACED = "of another store, or of another place in this one"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read; `offset` and `size` are its place in the segment."""

    kind: int
    generation: int
    turn: int
    address: int
    synced: int
    crc: int
    offset: int
    size: int
    changes: bytes
    dropped: bytes
    payload_offset: int
    payload_length: int


def encode_record(
    kind: int,
    store_id: bytes,
    generation: int,
    turn: int,
    address: int,
    synced: int,
    *,
    position: int,
    previous: int,
    changes: bytes = b"",
    dropped: bytes = b"",
    payloads: list[bytes] | None = None,
) -> tuple[list[bytes], int, int]:
    """Encodes one record to be written at `position`; returns (buffers, size, crc)."""
    payloads = payloads or []
    length = sum(map(len, payloads))
    sizes = len(changes), len(dropped), length
    head = encode_head(
        kind,
        store_id,
        generation,
        turn,
        address,
        synced,
        position=position,
        previous=previous,
        sizes=sizes,
    )
    crc = crc32(dropped, crc32(changes, crc32(head)))
    for payload in payloads:
        crc = crc32(payload, crc)
    size = OVERHEAD + len(changes) + len(dropped) + length
    return [head, changes, dropped, *payloads, _CRC.pack(crc)], size, crc


def encode_head(
    kind: int,
    store_id: bytes,
    generation: int,
    turn: int,
    address: int,
    synced: int,
    *,
    position: int,
    previous: int,
    sizes: tuple[int, int, int],
) -> bytes:
    """Encodes a record's header; `sizes`: bytes of changes, dropped and payload, which follow it."""
    head = _HEADER.pack(
        _MAGIC, kind, *sizes, generation, store_id, turn, address, synced, position, previous
    )
    return head + _CRC.pack(crc32(head))


def encode_crc(crc: int) -> bytes:
    """Encodes the checksum that ends a record or a header."""
    return _CRC.pack(crc)


def before_first(number: int) -> int:
    """Returns the value that a file's first record holds as the crc of the record before it."""
    return number + 1


def encode_pairs(pairs: list[tuple[int, int]]) -> bytes:
    if not pairs:
        return b""
    data: bytes = msgpack.packb([number for pair in pairs for number in pair])
    return data


def decode_pairs(data: bytes) -> list[tuple[int, int]]:
    if not data:
        return []
    flat: list[Any] = msgpack.unpackb(data)
    return list(zip(flat[::2], flat[1::2], strict=True))


def read_record(
    data: bytes,
    offset: int,
    store_id: bytes,
    generation: int,
    previous: int | None,
    begin: int = 0,
) -> Record | None:
    """Reads the record at `offset` of a segment's bytes; None if there is no valid one.

    The bytes begin at byte `begin` of the segment. Valid means whole, of this store and generation, written for
    this very position and, unless `previous` is None, behind the record with that crc.
    """
    head = data[offset : offset + HEADER_SIZE]
    if len(head) < HEADER_SIZE or head[:4] != _MAGIC:
        return None
    if crc32(head[:-4]) != _CRC.unpack_from(head, HEADER_SIZE - 4)[0]:
        return None
    _, kind, changes, dropped, payload, gen, sid, turn, address, synced, position, before = (
        _HEADER.unpack_from(head)
    )
    if sid != store_id or gen != generation or position != begin + offset:
        return None
    if previous is not None and before != previous:
        return None
    size = OVERHEAD + changes + dropped + payload
    end = offset + size
    if end > len(data):
        return None
    (crc,) = _CRC.unpack_from(data, end - 4)
    if crc32(memoryview(data)[offset : end - 4]) != crc:
        return None
    at = offset + HEADER_SIZE
    return Record(
        kind,
        gen,
        turn,
        address,
        synced,
        crc,
        position,
        size,
        data[at : at + changes],
        data[at + changes : at + changes + dropped],
        begin + at + changes + dropped,
        payload,
    )


def size_at(data: bytes, offset: int) -> int:
    """Returns the bytes of the record at `offset`, or of a header if there is not a whole one; 0 for no record."""
    head = data[offset : offset + HEADER_SIZE]
    if len(head) < HEADER_SIZE:
        return HEADER_SIZE
    if head[:4] != _MAGIC or crc32(head[:-4]) != _CRC.unpack_from(head, HEADER_SIZE - 4)[0]:
        return 0
    _, _, changes, dropped, payload, *_ = _HEADER.unpack_from(head)
    return OVERHEAD + int(changes) + int(dropped) + int(payload)


def crc_before(data: bytes, offset: int) -> int:
    """Returns the crc that the record at `offset` names as that of the record before it."""
    before: int = _HEADER.unpack_from(data, offset)[-1]
    return before


def is_misplaced(data: bytes, store_id: bytes, kind: int, generation: int, number: int) -> bool:
    """Returns whether a file begins with a valid record of another file. `kind`: of the file's first record.

    A damaged record proves nothing: the rest of the file has checksums of its own.
    """
    head = data[:HEADER_SIZE]
    if len(head) < HEADER_SIZE or head[:4] != _MAGIC:
        return False
    if crc32(head[:-4]) != _CRC.unpack_from(head, HEADER_SIZE - 4)[0]:
        return False
    _, begun, *_, gen, sid, _, _, _, position, before = _HEADER.unpack_from(head)
    if (begun, gen, sid, position) != (kind, generation, store_id, 0):
        return True
    return before not in (0, before_first(number))


def later_records(data: bytes, offset: int, store_id: bytes, generation: int) -> list[Record]:
    """Lists valid records anywhere behind `offset`: they distinguish corruption from a torn tail."""
    found = []
    at = data.find(_MAGIC, offset)
    while at >= 0:
        record = read_record(data, at, store_id, generation, None)
        if record is not None:
            found.append(record)
            at += record.size - 1
        at = data.find(_MAGIC, at + 1)
    return found
