"""Condenses the rows of a range read into two numbers, to find later whether the range has changed.

    rows (key, step, n), in the order of the scan ──▶ (count, crc32 chain)

The face computes them over the rows that it returned, the shard again over the rows at execution. If they are
equal, the range is unchanged. Rows enter with their length, so that no two sequences of rows share their
bytes. A crc is no protection against forgery; none is needed, as both sides are the engine's.

Next: tablets/shard.py, which compares.
"""

import struct
import zlib
from collections.abc import Iterable

_ROW = struct.Struct(">HQI")
RANGE_ROWS_MAX = 10_000
"""The most rows that a writing transaction may read by ranges, since it reads them again when it executes."""


def range_digest(rows: Iterable[tuple[bytes, int, int]]) -> tuple[int, int]:
    """Returns (count, hash) of rows (key, step, n). Pure."""
    crc32, pack = zlib.crc32, _ROW.pack
    count = digest = 0
    for key, step, n in rows:
        digest = crc32(key, crc32(pack(len(key), step, n), digest))
        count += 1
    return count, digest
