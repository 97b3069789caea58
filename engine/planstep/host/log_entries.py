"""Walks through or searches a partition's log as its store has it: entries by their first offset.

    b<first offset> ─▶ (address, length, records, step, n), or mode kafka's row of a batch or marker
    offset ─▶ the entry at or before it ─▶ the entries after it, ROWS at a time

The callers know which entries are shown, and to whom.

Next: ../runtime/snapshot_reads.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ..proto.ids import tablet_prefix
from ..tablets.participant import DROPPED
from ..tablets.partition import EMPTY, META, Bounds, Entry

ROWS = 500
"""The number of a partition's entries that are read at once."""


def entries_between(store: Any, tablet: int, offset: int, end: int) -> Iterator[tuple[int, Any]]:
    """Yields (first offset, row) of the entries, of any mode, that overlap [offset, end)."""
    if offset >= end:
        return  # else the look-up below finds the entry at `end`, which may be open
    prefix = tablet_prefix(tablet) + b"b"
    at = prefix + offset.to_bytes(8, "big")
    rows = store.scan(prefix, at + b"\x00", reverse=True, limit=1)
    rows = [(key, row) for key, row in rows if _first_offset(key) + row[2] > offset]
    last = prefix + end.to_bytes(8, "big")
    while True:
        for key, row in rows:
            yield _first_offset(key), row
            at = key + b"\x00"
        rows = store.scan(at, last, limit=ROWS)
        if not rows:
            return


def first_behind(
    store: Any, tablet: int, low: int, high: int, is_before: Callable[[Entry], bool]
) -> int:
    """Returns the offset in [low, high] after the entries for which `is_before` is true; they come first."""
    prefix = tablet_prefix(tablet) + b"b"
    while low < high:
        at = prefix + ((low + high) // 2).to_bytes(8, "big") + b"\x00"
        ((key, row),) = store.scan(prefix, at, reverse=True, limit=1)
        begin, entry = _first_offset(key), Entry._make(row)
        if is_before(entry):
            low = begin + entry.records
        else:
            high = max(begin, low)
    return low


def published_at(store: Any, tablet: int, step: int, n: int) -> tuple[int, int] | None:
    """Returns the offsets [begin, end) that the transaction at a place has published, by bisecting the log.

    None where there are none: the partition was dropped, or a producer had published them before. None too if the
    log begins there by now: nobody knows whether earlier ones of the transaction were trimmed.
    """
    prefix = tablet_prefix(tablet)
    if store.get(prefix + DROPPED) is not None:
        return None  # its entries are deleted piece by piece
    row = store.get(prefix + META)
    bounds = EMPTY if row is None else Bounds._make(row)
    begin = first_behind(store, tablet, bounds.start, bounds.end, lambda e: e[3:] < (step, n))
    end = first_behind(store, tablet, begin, bounds.end, lambda e: e[3:] <= (step, n))
    is_whole = begin > bounds.start or not bounds.start
    return (begin, end) if begin < end and is_whole else None


def _first_offset(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")
