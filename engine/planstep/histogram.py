"""Counts values by size, in fixed buckets: cheap enough for every turn.

    add(value) ─▶ one bisection, two additions         merged([…]) ─▶ one histogram of several hosts

Next: runtime/statistics.py.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BYTES = tuple(1 << power for power in range(8, 29, 2))


class Histogram:
    """Counts values in buckets; one thread adds at a time.

    `counts[i]` values were at most `bounds[i]` and above the bound before; the last count is of those above all.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def merged(histograms: Iterable[Histogram]) -> dict[str, Any]:
    """Adds up histograms of one kind: {"count", "sum", "buckets": {bound: how many were at most that}}."""
    several = list(histograms)
    total, below, buckets = 0, 0, {}
    for i, bound in enumerate(several[0].bounds):
        below += sum(h.counts[i] for h in several)
        buckets[bound] = below
    total = below + sum(h.counts[-1] for h in several)
    return {"count": total, "sum": sum(h.sum for h in several), "buckets": buckets}
