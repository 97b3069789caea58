"""Values in LMDB, each with the sum of what it is and of the key that it lies under.

    value (msgpack) · crc32 over key and value (4 bytes, little endian)

LMDB's engine 0.9 has no checksums of its own: a bit that flipped in a page would be read as if it had been written.
The key is in the sum, so that what lies under another's key is noticed as well; one that flipped still stands
where it stood, so whoever finds nothing at a place, or goes through a range, looks at both sides. What no sum of
single values can show, an older page in place of the newer one, `planstep verify` finds by the tablets' digests.

Next: ../log/extents.py.
"""

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import msgpack

from ...errors import Corruption
from ..dump import describe_key

SEAL_BYTES = 4
LARGE_BYTES = 64 << 10
_LARGE_MAX = 10_000
FOREIGN = (TypeError, ValueError)
"""What reading bytes that nobody wrote raises, msgpack's own errors included."""


def seal(key: bytes, value: Any) -> bytes:
    data: bytes = msgpack.packb(value, use_bin_type=True)
    return data + crc32(data, crc32(key)).to_bytes(SEAL_BYTES, "little")


def check_seal(key: bytes, sealed: bytes) -> bytes:
    """The value's bytes; Corruption names what is damaged."""
    data = sealed[:-SEAL_BYTES]
    if crc32(data, crc32(key)).to_bytes(SEAL_BYTES, "little") != sealed[-SEAL_BYTES:]:
        raise Corruption(
            f"the tables are damaged: {entry_text(bytes(key))} is not what was written"
        )
    return data


class Beside:
    """Checks entries beside a place where something was not found. A large one is summed up once: whoever makes
    many rows next to it would do nothing else. What has its key, length and seal is that entry, so a
    key that flipped into it is noticed all the same. Invariant: `large` are few, and were whole."""

    def __init__(self) -> None:
        self.large: dict[bytes, tuple[int, bytes]] = {}

    def check(self, cursor: Any) -> None:
        """Corruption where the entry at `cursor` is not what was written."""
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


def look_up(txn: Any, key: bytes, beside: Beside | None = None) -> Any:
    """The value under an LMDB key, None where there is none.

    LMDB halves: one flipped key leads it astray only to that key's own side.
    """
    data = txn.get(key)
    if data is not None:
        return unseal(key, data)
    beside = beside or Beside()
    with txn.cursor() as cursor:
        found = cursor.set_range(key)
        if found:
            beside.check(cursor)
        if cursor.prev() if found else cursor.last():
            beside.check(cursor)
    return None


def between(
    cursor: Any, first: bytes, last: bytes, beside: Beside | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Entries with first <= key < last, to be unsealed. Those beside them are checked too: one may have been
    among them."""
    beside = beside or Beside()
    found = _seek(cursor, first, beside)
    while found and cursor.key() < last:
        yield cursor.item()
        found = cursor.next()
    if found:
        beside.check(cursor)


def backwards(
    cursor: Any, first: bytes, last: bytes, beside: Beside
) -> Iterator[tuple[bytes, bytes]]:
    """As `between`, the last one first."""
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


def _seek(cursor: Any, key: bytes, beside: Beside) -> bool:
    """At the first entry from `key` on, if there is one; the one before it is checked."""
    if not cursor.set_range(key):
        if cursor.last():
            beside.check(cursor)
        return False
    if cursor.prev():
        beside.check(cursor)
        return bool(cursor.next())
    return bool(cursor.first())


def unseal(key: bytes, sealed: bytes) -> Any:
    """The value; Corruption names what is damaged."""
    data = check_seal(key, sealed)
    try:
        return msgpack.unpackb(data, use_list=False)
    except FOREIGN as error:
        raise Corruption(
            f"the tables are damaged: {entry_text(key)} is not readable: {error}"
        ) from error


def entry_text(key: bytes) -> str:
    return describe_key(key[1:]) if key[:1] == b"k" else f"entry {key.hex(' ')}"
