"""Computes with the offsets an individual consumer has consumed: all below a position, and ranges beyond it.

    position 4    ranges ((6, 8), (11, 12))        consumed: 0 1 2 3 . . 6 7 . . . 11

Pure functions over tuples, used by partition.py. Invariant: ranges ascend; none touches another or the position.

Next: partition.py.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

RANGES_MAX = 10_000
"""The most ranges beyond the position that one consumer may have in one partition."""
Ranges = tuple[tuple[int, int], ...]


def overlap_end(position: int, ranges: Ranges, begin: int, end: int) -> int | None:
    """Returns the end of the first consumed range that overlaps [begin, end), or None."""
    if begin < position:
        return position
    at = bisect_right(ranges, (begin, 1 << 63)) - 1
    if at >= 0 and ranges[at][1] > begin:
        return ranges[at][1]
    if at + 1 < len(ranges) and ranges[at + 1][0] < end:
        return ranges[at + 1][1]
    return None


def unconsumed(position: int, ranges: Ranges, begin: int, end: int) -> list[tuple[int, int]]:
    """Returns the parts of [begin, end) that are not consumed, ascending."""
    parts, at = [], max(begin, position)
    first = max(0, bisect_right(ranges, (at, 1 << 63)) - 1)
    for low, high in ranges[first:]:
        if low >= end:
            break
        if low > at:
            parts.append((at, low))
        at = max(at, high)
    if at < end:
        parts.append((at, end))
    return parts


def consumed(position: int, ranges: Ranges, begin: int, end: int) -> tuple[int, Ranges]:
    """Returns (position, ranges) once [begin, end) is consumed too; none of it may be consumed before."""
    at = bisect_left(ranges, (begin, end))
    first, last = at, at
    if at > 0 and ranges[at - 1][1] == begin:
        first, begin = at - 1, ranges[at - 1][0]
    if at < len(ranges) and ranges[at][0] == end:
        last, end = at + 1, ranges[at][1]
    if begin == position:  # nothing lies between: the range is the first one
        return end, ranges[last:]
    return position, (*ranges[:first], (begin, end), *ranges[last:])


def joined(position: int, ranges: Iterable[tuple[int, int]]) -> tuple[int, Ranges]:
    """Returns (position, ranges) of ranges in any order, which may touch or overlap."""
    whole: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if begin <= position:
            position = max(position, end)
        elif whole and begin <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(end, whole[-1][1])
        else:
            whole.append((begin, end))
    return position, tuple(whole)


def raised(position: int, ranges: Ranges, floor: int) -> tuple[int, Ranges, int]:
    """Returns (position, ranges, records missed) once the log begins at `floor`.

    Missed records are those below `floor` that were not consumed.
    """
    if floor <= position:
        return position, ranges, 0
    missed, at = 0, position
    for begin, end in ranges:
        if begin >= floor:
            break
        missed += begin - at
        at = end
    missed += max(0, floor - at)
    position = max(floor, at)
    rest = tuple(r for r in ranges if r[1] > position)
    if rest and rest[0][0] <= position:
        position, rest = rest[0][1], rest[1:]
    return position, rest, missed


def free(position: int, ranges: Ranges, end: int) -> list[tuple[int, int]]:
    """Returns the unconsumed ranges below `end`, ascending."""
    gaps = []
    at = position
    for begin, stop in ranges:
        if begin >= end:
            break
        gaps.append((at, begin))
        at = stop
    if at < end:
        gaps.append((at, end))
    return gaps
