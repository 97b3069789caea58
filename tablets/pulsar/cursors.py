"""Computes with cursors: what a subscription has acknowledged, over a log in which not every offset is shown.

    shown 0 1 . 3 . . 6      acknowledged 0, 1 ─▶ position 3       then 6 ─▶ (6, 7), and 3 ─▶ position 7

Pure functions, used by subscriptions.py. What is not shown (markers, aborted messages) is never handed out, so
what is acknowledged is widened over it.

Next: subscriptions.py.
"""

from bisect import bisect_right
from collections.abc import Callable

from ..intervals import Ranges, consumed, raised, unconsumed
from .rows import Cursor


def raised_to(cursor: Cursor, position: int) -> Cursor:
    """Returns the cursor with everything before `position` acknowledged."""
    at, ranges, _ = raised(cursor.position, cursor.ranges, position)
    return cursor._replace(position=at, ranges=ranges)


def applied(cursor: Cursor, begin: int, end: int, next_shown: Callable[[int], int]) -> Cursor:
    """Returns the cursor with [begin, end) acknowledged, and what is not shown beside it."""
    position, ranges = cursor.position, cursor.ranges
    for low, high in unconsumed(position, ranges, begin, end):
        before = _end_before(position, ranges, low)
        if before < low <= next_shown(before):
            low = before
        wide = max(high, next_shown(high))
        stop = unconsumed(position, ranges, low, wide)[0][1]  # not into what is acknowledged
        position, ranges = consumed(position, ranges, low, stop)
    return cursor._replace(position=position, ranges=ranges)


def _end_before(position: int, ranges: Ranges, at: int) -> int:
    """Returns where what is acknowledged before `at` ends."""
    number = bisect_right(ranges, (at, -1)) - 1
    return ranges[number][1] if number >= 0 else position
