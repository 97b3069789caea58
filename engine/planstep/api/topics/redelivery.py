"""Remembers the batches of a partition that were handed back, or held too long, and when they are handed out again.

    nack ─▶ held for nack_redelivery_delay_ms ─▶ handed out again, as it was
    in hand for longer than ack_timeout_ms, or its reader has gone ─▶ handed out again at once

It is memory of a group: a new process counts from 0. So does a batch that is handed out in other parts. The group
locks; nothing here does.

Next: group_state.py.
"""

from bisect import insort
from math import inf
from typing import NamedTuple


class HandedBackRange(NamedTuple):
    """Offsets [begin, end) of a batch that was handed back so many times; nobody may have it before `due`."""

    begin: int
    end: int
    times: int
    due: float


class HandedBack:
    """The batches of one partition. Invariant: they are disjoint and sorted."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[HandedBackRange] = []

    def add(self, begin: int, end: int, due: float) -> None:
        """Adds a batch that ended without effect, until `due` by the group's clock."""
        times = self.count(begin, end) + 1
        self.ranges = [known for known in self.ranges if known.end <= begin or end <= known.begin]
        insort(self.ranges, HandedBackRange(begin, end, times, due))

    def count(self, begin: int, end: int) -> int:
        """Returns how often exactly this batch was handed back."""
        return next((known.times for known in self.ranges if known[:2] == (begin, end)), 0)

    def held(self, now: float) -> list[tuple[int, int]]:
        """Returns the ranges that nobody may have yet."""
        return [(known.begin, known.end) for known in self.ranges if known.due > now]

    def next_due(self, now: float) -> float:
        return min((known.due for known in self.ranges if known.due > now), default=inf)

    def forget(self, position: int) -> None:
        """Forgets batches that are consumed, or were trimmed."""
        self.ranges = [known for known in self.ranges if known.end > position]

    def cut(self, begin: int, end: int) -> int:
        """Cuts a range to one batch as it was handed back, or to what lies before one; returns its new end."""
        for known in self.ranges:
            if begin < known.end and known.begin < end:
                return min(end, known.end if known.begin <= begin else known.begin)
        return end

    def release(self, begin: int) -> None:
        """Lets the batch that begins there be handed out at once."""
        self.ranges = [
            known._replace(due=0.0) if known.begin == begin else known for known in self.ranges
        ]
