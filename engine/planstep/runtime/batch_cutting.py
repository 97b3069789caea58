"""Cuts large batches of records to at most batch_bytes, for clients outside of turns.

    1 MiB, as the API makes them ─▶ 16 KiB │ 16 KiB │ …      a larger record is a batch of its own

Next: client_transactions.py, which calls this.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Any

from ..proto.batch import Batch, encode_batch

_COLUMNS = range(3)
_OVERHEAD = 128
"""At least the bytes of a header, and of each column's extra offset, rest of a bitmap, and alignment."""
Pieces = tuple[tuple[bytes, int], ...]


def bounded(batches: dict[int, Pieces], size_max: int) -> dict[int, Pieces]:
    """Returns the same records in the same order; by tablet (data, records)…"""
    return {
        tablet: tuple(piece for batch in pieces for piece in _cut(*batch, size_max))
        for tablet, pieces in batches.items()
    }


def _cut(data: bytes, count: int, size_max: int) -> Pieces:
    if len(data) <= size_max or count == 1:
        return ((data, count),)
    batch = Batch.decode(data, verify=False)
    stored: list[Any] = [batch.part(n, 0, count) if batch.holds(n) else None for n in _COLUMNS]
    keys, values, headers = stored
    held = [column for column in stored if column is not None]
    lengths = [[len(item) if item else 0 for item in column] for column in held]
    per_record = 5 * len(held)  # an offset of four bytes, and at most one byte of the bitmap
    sizes = [size + per_record for size in map(sum, zip(*lengths, strict=True))]
    behind = list(accumulate(sizes, initial=0))
    pieces, at = [], 0
    while at < count:
        end = bisect_right(behind, behind[at] + size_max - _OVERHEAD) - 1
        end = min(count, max(end, at + 1))
        part = slice(at, end)
        piece = encode_batch(
            values[part], keys and keys[part], headers and headers[part], batch.timestamp_ms
        )
        pieces.append((piece, end - at))
        at = end
    return tuple(pieces)
