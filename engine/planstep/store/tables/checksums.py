"""Adds a checksum to each value in LMDB, over its key and its bytes, and checks it on reading.

    value (msgpack) · crc32 over key and value (4 bytes, little endian)

LMDB 0.9 has no checksums of its own: a flipped bit in a page would be read as if it had been written.
The sum includes the key, so a value under another's key is detected too. A key that flipped still lies where
it was, so a lookup that finds nothing, and a range scan, check the entries on both sides. Sums of single
values cannot show an older page in place of the newer one; `planstep verify` finds that by the tablets' digests.

Next: ../log/extents.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from ...crc import crc32
from ...errors import Corruption
from ..dump import describe_key

SEAL_BYTES = 4
LARGE_BYTES = 64 << 10
_LARGE_MAX = 10_000
FOREIGN = (TypeError, ValueError)
"""Errors raised by decoding foreign bytes, msgpack's own errors included."""


def seal(key: bytes, value: Any, pack: Callable[[Any], bytes] = msgpack.packb) -> bytes:
    data = pack(value)
    return data + crc32(data, crc32(key)).to_bytes(SEAL_BYTES, "little")


def check_seal(key: bytes, sealed: bytes) -> bytes:
    """Checks a sealed value; returns its bytes. Corruption names the damaged entry."""
    data = sealed[:-SEAL_BYTES]
    if crc32(data, crc32(key)).to_bytes(SEAL_BYTES, "little") != sealed[-SEAL_BYTES:]:
        raise Corruption(
            f"the tables are damaged: {entry_text(bytes(key))} is not what was written"
        )
    return data


class NeighbourCheck:
    """Checks the neighbours of a place where a lookup found nothing.

    Checksums of large neighbours are cached by key, length and seal; otherwise inserting many rows next to one
    would re-hash it each time. A key that flipped into such an entry is still detected. Invariant: `large` is
    bounded, and its entries were whole.
    """

    def __init__(self) -> None:
        self.large: dict[bytes, tuple[int, bytes]] = {}

    def check(self, cursor: Any) -> None:
        """Raises Corruption if the entry at `cursor` is not as written."""
        key, sealed = cursor.item()
        if len(sealed) < LARGE_BYTES:
            check_seal(key, sealed)
            return
        name, entry = bytes(key), (len(sealed), bytes(sealed[-SEAL_BYTES:]))
        if self.large.get(name) != entry:
            check_seal(key, sealed)
            if len(self.large) >= _LARGE_MAX:
                self.large.clear()
            self.large[name] = entry

    def around(self, cursor: Any, key: bytes) -> bytes:
        """Checks the neighbours of a key that is absent; returns the next key, or one behind all."""
        found = cursor.set_range(key)
        after = b"\xff"
        if found:
            self.check(cursor)
            after = bytes(cursor.key())
        if cursor.prev() if found else cursor.last():
            self.check(cursor)
        return after


def look_up(txn: Any, key: bytes, beside: NeighbourCheck | None = None) -> Any:
    """Returns the value under an LMDB key, None if there is none.

    LMDB bisects: one flipped key misleads it only to that key's own side.
    """
    data = txn.get(key)
    if data is not None:
        return unseal(key, data)
    with txn.cursor() as cursor:
        (beside or NeighbourCheck()).around(cursor, key)
    return None


def between(
    cursor: Any, first: bytes, last: bytes, beside: NeighbourCheck | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Yields entries with first <= key < last, still sealed. The entries on both sides are checked too: a flipped
    key may have moved one out of the range.
    """
    beside = beside or NeighbourCheck()
    found = _seek(cursor, first, beside)
    while found and cursor.key() < last:
        yield cursor.item()
        found = cursor.next()
    if found:
        beside.check(cursor)


def backwards(
    cursor: Any, first: bytes, last: bytes, beside: NeighbourCheck
) -> Iterator[tuple[bytes, bytes]]:
    """Yields entries like `between`, in reverse order."""
    if cursor.set_range(last):
        beside.check(cursor)
        found = cursor.prev()
    else:
        found = cursor.last()
    while found and cursor.key() >= first:
        yield cursor.item()
        found = cursor.prev()
    if found:
        beside.check(cursor)


def _seek(cursor: Any, key: bytes, beside: NeighbourCheck) -> bool:
    """Moves to the first entry from `key` on; returns False if there is none. Checks the entry before it."""
    if not cursor.set_range(key):
        if cursor.last():
            beside.check(cursor)
        return False
    if cursor.prev():
        beside.check(cursor)
        return bool(cursor.next())
    return bool(cursor.first())


def unseal(key: bytes, sealed: bytes) -> Any:
    """Decodes a sealed value; Corruption names the damaged entry."""
    data = check_seal(key, sealed)
    try:
        return msgpack.unpackb(data, use_list=False)
    except FOREIGN as error:
        raise Corruption(
            f"the tables are damaged: {entry_text(key)} is not readable: {error}"
        ) from error


def entry_text(key: bytes) -> str:
    return describe_key(key[1:]) if key[:1] in (b"k", b"p") else f"entry {key.hex(' ')}"
