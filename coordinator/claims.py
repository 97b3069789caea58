"""Gives ranges of an individual consumer's lane to the processes that ask for them, so that no two have one record.

    claim ─▶ the lowest ranges that are neither consumed nor claimed ─▶ at most a part of what is left
          └▶ nothing is left: remembered; served when another one's claim is freed

A process claims several batches at once and reads them without a message each. It gets no more than a part of what
is left, by its weight: so a short backlog of long jobs is not all one's. Claims end when they are freed, or with
their party. What a party frees is free for all: whether it was consumed, the store tells.

Next: lane_shares.py.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""Offsets [begin, end)."""

_RANGES_MAX, _RECORDS_MAX = 10_000, 1_000_000
"""The most ranges that a party's claims in a lane may have, and the most records of one claim."""


def without(ranges: Iterable[Range], taken: Sequence[Range]) -> list[Range]:
    """Returns the parts of ranges that no taken one overlaps; both are disjoint and ascending."""
    parts: list[Range] = []
    at = 0
    for begin, end in ranges:
        while at < len(taken) and taken[at][1] <= begin:
            at += 1
        behind = at
        while behind < len(taken) and taken[behind][0] < end:
            if begin < taken[behind][0]:
                parts.append((begin, taken[behind][0]))
            begin = taken[behind][1]
            behind += 1
        if begin < end:
            parts.append((begin, end))
    return parts


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Returns disjoint ranges that cover the same offsets, ascending."""
    whole: list[Range] = []
    for begin, end in sorted(ranges):
        if whole and begin <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(end, whole[-1][1])
        elif begin < end:
            whole.append((begin, end))
    return whole


def counted(ranges: Iterable[Range]) -> int:
    """Counts the offsets of disjoint ranges."""
    return sum(end - begin for begin, end in ranges)


class LaneClaims:
    """The claims in one lane. Invariant: those of two parties are disjoint; no party has an empty list."""

    def __init__(self) -> None:
        self.claims: dict[int, list[Range]] = {}
        self.waiting: dict[int, int] = {}
        """Parties that got nothing, with what they asked for, in the order in which they asked."""

    @property
    def taken(self) -> list[Range]:
        return merged(one for ranges in self.claims.values() for one in ranges)

    def bring(self, party: int, ranges: Iterable[Range]) -> list[Range]:
        """Notes what a party has from an owner before, or alone, and returns what is the party's: what another one
        has stays the other's."""
        mine = without(merged(ranges), self.taken)
        self._add(party, mine[: max(0, _RANGES_MAX - len(self.claims.get(party, ())))])
        return self.claims.get(party, [])

    def claim(
        self, party: int, records: int, part: tuple[int, int], free: Iterable[Range]
    ) -> list[Range]:
        """Gives a party at most so many records of `free`, the lane's ranges that are not consumed, ascending.

        `part`: its weight, and all parties' weight.
        """
        left = without(free, self.taken)
        weight, all_weight = part
        most = records = min(records, _RECORDS_MAX)
        if weight < all_weight:  # half of its part: the rest goes to whoever is ready first
            most = min(records, max(1, counted(left) * weight // (2 * all_weight)))
        given: list[Range] = []
        for begin, end in left:
            end = min(end, begin + most)
            if begin < end:
                given.append((begin, end))
                most -= end - begin
        if given:
            self.waiting.pop(party, None)
            self._add(party, given)
        else:
            self.waiting[party] = records
        return given

    def free(self, party: int, ranges: Iterable[Range]) -> None:
        """Frees ranges of a party's claims; what it has not claimed is left alone."""
        rest = without(self.claims.get(party, ()), merged(ranges))
        if not rest:
            self.claims.pop(party, None)
        elif len(rest) <= _RANGES_MAX:
            self.claims[party] = rest

    def leave(self, party: int) -> bool:
        """Frees all that a party has; returns whether it had something."""
        self.waiting.pop(party, None)
        return self.claims.pop(party, None) is not None

    def _add(self, party: int, ranges: list[Range]) -> None:
        if ranges:
            self.claims[party] = merged([*self.claims.get(party, ()), *ranges])
