"""Searches the highest rate that a system sustains, and runs it at parts of that rate, for its curve.

    as fast as it goes ─▶ T: a bound for the rates to try; other runs may have told it
    search   the first rate, sustained? ├──── low ──── ? ──── high ────▶ MB/s
             a wide range: what an overloaded run got through, else high / √2; then by ratio, low · √(high / low)
    fill     0.5, 0.25, 0.9, 0.1 and 0.75 of the rate found, where no run was near

A run is sustained when all but 2 % of the offered rate got through and no worker began late (workloads/base.py).
A machine that stalls for a moment can fail a rate that is sustained at other times. So the first
rate, and in the end the lowest one that failed, or T, are tried once more. A rate that was sustained once counts as
sustained, and so do those below it.

Left out: whether the rate lasts for hours; a run takes seconds.

Next: curves.py, what becomes of the runs; harness.py.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CLOSE = 1.1
"""Ratio of two rates that count as equal."""
SHARES = (0.5, 0.25, 0.9, 0.1, 0.75)
"""Shares of the highest rate at which a curve has points, the most important first."""
NEAR = 0.07
"""A run within this share of the highest rate from such a point stands for it."""
COSTS = (
    *("cpu_cores", "cpu_ms_per_transaction"),
    *("disk_bytes_per_payload_byte", "syncs_per_transaction"),
)
FIGURES = ("write_ms", "commit_ms", "end_to_end_ms", *COSTS)
"""Figures of a run that its curve has, or that the report shows."""
_WIDE = 2.0
_BELOW = 0.95
"""Share of what an overloaded run got through, at which the next run is likely to be sustained."""


class Budget(NamedTuple):
    """Runs for each system, of `seconds` each. About `search` of them search; the others fill in the curve."""

    runs: int
    search: int
    seconds: float


USUAL, THOROUGH = Budget(6, 4, 2.5), Budget(14, 8, 4.0)


@dataclass
class Search:
    """The search for one system, in MB/s. `runs` has a dict for each run, in order: see docs/compare.md.

    `begin` is the first rate; `sustained` says whether an earlier run at it was, None without one. Rate `low` is
    the highest that was sustained, `high` the lowest above it that was not.
    """

    begin: float
    sustained: bool | None = None
    budget: Budget = USUAL
    low: float | None = None
    high: float | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)
    _failed: Counter[float] = field(default_factory=Counter)
    _given: int = 0
    _throughput: float | None = None
    """What the run at `high` got through, if that was less than offered."""

    def __post_init__(self) -> None:
        if self.sustained is not None:
            self._learn(self.begin, self.sustained, None)

    def know_reached(self, throughput: float | None) -> None:
        """Takes what other runs reached at full speed, so that none of the budget's has to; None: unknown."""
        if throughput is not None:
            self.tell(math.inf, True, None, throughput)
            self._given = 1

    @property
    def left(self) -> int:
        """Returns how many runs the budget still has."""
        return self.budget.runs + self._given - len(self.runs)

    def next(self) -> float | None:
        """Returns the next rate, math.inf for as fast as it goes; None at the end, or once the budget is spent."""
        if not self.left:
            return None
        if not self.runs:
            return math.inf
        rate = self._search()
        if rate is not None and (
            self._is_wide or len(self.runs) - self._given < self.budget.search
        ):
            return rate
        return self._fill() or rate

    def tell(
        self,
        rate: float,
        verified: bool,
        sustained: bool | None,
        throughput: float | None,
        problem: str | None = None,
        **figures: Any,
    ) -> None:
        """Records the result of a run at `rate`; `problem` says why it did not verify."""
        paced = not math.isinf(rate)
        self.runs.append(
            {
                "rate_mb_s": rate if paced else None,
                "verified": verified,
                "sustained": sustained if verified else False,
                "throughput_mb_s": throughput,
                "problem": None if verified else problem,
                **{name: figures.get(name) for name in FIGURES},
            }
        )
        if paced:
            self._learn(rate, verified and bool(sustained), throughput if verified else None)
        elif verified and throughput and (self.low is None or throughput > self.low):
            self._learn(_round(throughput), False, None)

    def _learn(self, rate: float, sustained: bool, throughput: float | None) -> None:
        if sustained:
            self.low = max(rate, self.low or rate)
            above = [failed for failed in self._failed if failed > self.low]
            if self.high not in above:
                self.high, self._throughput = min(above, default=None), None
            return
        self._failed[rate] += 1
        if (self.low is None or rate > self.low) and (self.high is None or rate <= self.high):
            self.high = rate
            self._throughput = throughput if throughput and throughput < rate else None

    def _search(self) -> float | None:
        """Returns the next rate of the search; None once the highest rate is known closely enough."""
        if self.high is None:
            return self.begin if self.low is None else _round(self.low * 1.5)
        low = self.low or 0.0
        if self.high == self.begin and self._failed[self.high] < 2:
            return self.high
        if self._is_wide:
            likely = _BELOW * (self._throughput or 0.0)
            return _round(likely if low < likely < self.high / CLOSE else self.high / math.sqrt(2))
        if self.high > low * CLOSE:
            return _round(math.sqrt(low * self.high))
        return self.high if self._failed[self.high] < 2 else None

    @property
    def _is_wide(self) -> bool:
        """Returns True if little is known of the highest rate."""
        return self.high is not None and self.high > (self.low or 0.0) * _WIDE

    def _fill(self) -> float | None:
        """Returns a rate for the curve that no run was near; None if there is none."""
        if self.low is None:
            return None
        rates = [run["rate_mb_s"] for run in self.runs if run["rate_mb_s"] is not None]
        if self.sustained is not None:
            rates.append(self.begin)
        for share in SHARES:
            wanted, near = share * self.low, NEAR * self.low
            if all(abs(rate - wanted) > near for rate in rates):
                return _round(wanted)
        return None


def _round(rate: float) -> float:
    """Rounds a rate as the results show it, so that the run at the highest rate can be found there."""
    return float(f"{rate:.4g}")
