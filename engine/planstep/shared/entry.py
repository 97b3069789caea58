"""Encodes the entries of a shared log: one turn of a store each, chained to the entry before.

    entry    header | changes | dropped | payload | crc32 of all before, but for the header crc
    header   magic 4 | kind 4 | changes, dropped, payload bytes 4+4+4 | store id 16 | term 8 | nonce 16
             turn 8 | address of the first payload byte 8 | chain of the entry before 16 | header crc 4
    chain    blake2b, 16 bytes, over the whole entry: so each names all entries before it

The last crc leaves the header's out because a crc over bytes and their own crc is a constant: it would not depend
on the header any more.

The three parts are those of the local log's record of the same turn (store/log/records.py). An entry is sealed
once; whoever sends it again sends the same bytes.

A BEGIN opens a term: it is a turn like any other, and its owner's nonce is new.

Next: shared_log.py.
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from ..crc import crc32
from ..errors import Corruption

BEGIN, TURN = 1, 2
NO_CHAIN = bytes(16)
"""The chain before the first entry."""
MAGIC = b"PSE1"
_HEADER = Struct("<4sIIII16sQ16sQQ16s")
_CRC = Struct("<I")
HEADER_SIZE = _HEADER.size + _CRC.size
OVERHEAD = HEADER_SIZE + _CRC.size


class Owner(NamedTuple):
    """An ownership of a store: its term, which grows, and the nonce of the one opening that began it."""

    term: int
    nonce: bytes


class Entry(NamedTuple):
    """An entry as it was sealed or read. `data` has all its bytes, of which the other fields are a part.

    `mark`: what the log that it was read from keeps about its place, b"" for nothing.
    """

    kind: int
    store_id: bytes
    owner: Owner
    turn: int
    before: bytes
    address: int
    changes: bytes
    dropped: bytes
    payload: bytes
    data: bytes
    mark: bytes = b""

    @property
    def chain(self) -> bytes:
        """The chain of this entry, which the next one names."""
        return chain_of(self.data)


def chain_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def seal(
    kind: int,
    store_id: bytes,
    owner: Owner,
    turn: int,
    before: bytes,
    address: int,
    *,
    changes: bytes = b"",
    dropped: bytes = b"",
    payloads: Sequence[bytes] = (),
) -> Entry:
    """Encodes an entry."""
    assert kind in (BEGIN, TURN)
    assert len(store_id) == len(owner.nonce) == len(before) == 16  # others would be padded, or cut
    payload = b"".join(payloads)
    head = _HEADER.pack(
        *(MAGIC, kind, len(changes), len(dropped), len(payload), store_id),
        *(owner.term, owner.nonce, turn, address, before),
    )
    begun = crc32(head)
    crc = crc32(payload, crc32(dropped, crc32(changes, begun)))
    data = b"".join((head, _CRC.pack(begun), changes, dropped, payload, _CRC.pack(crc)))
    return Entry(kind, store_id, owner, turn, before, address, changes, dropped, payload, data)


def read_entry(data: bytes, where: str) -> Entry:
    """Decodes an entry. Corruption, which names `where` it was, if its bytes are not those of one."""
    if len(data) < OVERHEAD or data[:4] != MAGIC:
        raise Corruption(f"{where} is no entry of a shared log")
    (begun,) = _CRC.unpack_from(data, _HEADER.size)
    if crc32(data[: _HEADER.size]) != begun:
        raise Corruption(f"{where}: the header of the entry is damaged")
    _, kind, changes, dropped, payload, store_id, term, nonce, turn, address, before = (
        _HEADER.unpack_from(data)
    )
    if len(data) != OVERHEAD + changes + dropped + payload:
        raise Corruption(f"{where}: the entry of turn {turn} is cut off, or has bytes behind it")
    (crc,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    if crc32(memoryview(data)[HEADER_SIZE : -_CRC.size], begun) != crc:
        raise Corruption(f"{where}: the entry of turn {turn} is damaged")
    if kind not in (BEGIN, TURN):
        raise Corruption(f"{where}: the entry of turn {turn} is of an unknown kind, {kind}")
    at = HEADER_SIZE
    parts = (
        data[at : at + changes],
        data[at + changes : at + changes + dropped],
        data[at + changes + dropped : -_CRC.size],
    )
    return Entry(kind, store_id, Owner(term, nonce), turn, before, address, *parts, data)
