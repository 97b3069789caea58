"""What a range read saw, in two numbers: how many rows, and a hash over their keys and versions.

    rows (key, step, n), in the order of the scan ──▶ (count, crc32 chain)

The face computes it over the rows that it gave to the caller, the shard again over those that are
there at execution: equal means that the range is unchanged. Rows enter with their length, so that
no two sequences of rows share their bytes. A crc finds accidents, not forgers: both sides are ours.

Next: tablets/shard.py, which compares.
"""

import struct
import zlib
from collections.abc import Iterable

_ROW = struct.Struct(">HQI")
RANGE_ROWS_MAX = 10_000
"""Rows that a writing transaction may read by ranges: they are read again when it executes."""


def range_digest(rows: Iterable[tuple[bytes, int, int]]) -> tuple[int, int]:
    """(count, hash) of rows (key, step, n): pure, equal for equal sequences."""
    crc32, pack = zlib.crc32, _ROW.pack
    count = digest = 0
    for key, step, n in rows:
        digest = crc32(key, crc32(pack(len(key), step, n), digest))
        count += 1
    return count, digest
