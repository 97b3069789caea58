"""A partition's log as its store has it: entries by their first offset, walked through or searched.

    b<first offset> ─▶ (address, length, records, step, n), or what mode kafka keeps of a batch or marker
    offset ─▶ the entry at or before it ─▶ those behind it, ROWS at a time

What is shown of it, and to whom, the callers know.

Next: snapshot_reads.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ..proto.ids import tablet_prefix
from ..tablets.partition import Entry

ROWS = 500
"""Of a partition's entries, looked up at once."""


def entries_between(store: Any, tablet: int, offset: int, end: int) -> Iterator[tuple[int, Any]]:
    """(first offset, row) of the entries, of either mode, that overlap [offset, end)."""
    prefix = tablet_prefix(tablet) + b"b"
    at = prefix + offset.to_bytes(8, "big")
    rows = store.scan(prefix, at + b"\x00", reverse=True, limit=1)
    rows = [(key, row) for key, row in rows if _end_offset(key, row) > offset]
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
    """The offset in [low, high] behind all entries that are before something, which come first in the log."""
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


def _first_offset(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


def _end_offset(key: bytes, row: Any) -> int:
    _, _, records, *_ = row  # of either mode
    return _first_offset(key) + int(records)
