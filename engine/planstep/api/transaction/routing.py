"""Routes keys: to the shard of a row and the partition of a record; also encodes the bounds of scans.

    row      shard     = crc32 of the encoded key   mod shards       encoded as proto/keys.py says
    record   partition = crc32 of the stored key    mod partitions   a str and its UTF-8 bytes: the same one

Routes never change: the numbers of shards and partitions are fixed at creation.

Next: snapshot_reader.py, which uses this.
"""

import zlib
from collections.abc import Sequence
from typing import Any

from ...errors import Corruption
from ...proto.keys import (
    Key,
    decode_key,
    encode_key,
    key_range,
    partition_of,
    prefix_range,
)


def key_of(data: bytes) -> Any:
    """Decodes a stored key; Corruption for bytes that no key encodes to."""
    try:
        return decode_key(data)
    except ValueError as error:
        raise Corruption(f"a row's key is not readable: {error}") from error


def shard_of(key: bytes, shards: tuple[int, ...]) -> int:
    """Returns the tablet that holds the row with this encoded key."""
    return shards[partition_of(key, len(shards))]


def partitions_of(keys: Sequence[bytes | None], partitions: int, keyless: int | None) -> list[int]:
    """Returns the partition of each record; records without key go to `keyless`."""
    crc32 = zlib.crc32
    if keyless is None:
        return [crc32(key) % partitions for key in keys if key is not None]
    return [keyless if key is None else crc32(key) % partitions for key in keys]


def scan_range(
    prefix: str | bytes | tuple[Any, ...] | None, begin: Key, end: Key
) -> tuple[bytes, bytes]:
    """Returns the encoded [first, last) of a scan: all keys with this prefix, or begin <= key < end."""
    if prefix is None:
        return key_range(begin, end)
    if begin is not None or end is not None:
        raise ValueError("a scan takes either prefix= or begin= and end=, not both")
    if isinstance(prefix, tuple):
        return prefix_range(prefix)
    if not isinstance(prefix, (str, bytes)):
        raise TypeError(
            f"prefix= is the beginning of a str, bytes or tuple key, not {type(prefix).__name__}"
        )
    first = encode_key(prefix)[:-2]  # without the end mark, because longer texts continue here
    stripped = first.rstrip(b"\xff")  # never empty: the tag is below it
    return first, stripped[:-1] + bytes([stripped[-1] + 1])
