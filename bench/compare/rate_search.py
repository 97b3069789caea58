"""Searches the highest rate that a system sustains, in a few short runs.

    as fast as it goes ─▶ T: no rate above that is tried
    the first rate, sustained? ├──── low ──── ? ──── high ────▶ MB/s
    each further run halves the range between, by ratio: low · √(high / low)

A run is sustained when all but 2 % of the offered rate got through and no worker began late (workloads/base.py).
Left out: whether the rate lasts for hours; a run takes four seconds.

Next: harness.py.
"""

import math
from dataclasses import dataclass, field
from typing import Any

RUNS_MAX = 6
SEARCH_S = 4.0
"""Seconds of a run."""
CLOSE = 1.1
"""Ratio of two rates that count as equal."""


@dataclass
class Search:
    """The search for one system, in MB/s: rate `low` was sustained, `high` was not.

    `begin` is the first rate; `sustained` is the result of an earlier run at it, None without one.
    """

    begin: float
    sustained: bool | None = None
    low: float | None = None
    high: float | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.sustained is not None:
            self._learn(self.begin, self.sustained)

    def next(self) -> float | None:
        """Returns the next rate, math.inf for as fast as it goes; None when it is found, or after RUNS_MAX runs."""
        if len(self.runs) >= RUNS_MAX:
            return None
        if not self.runs:
            return math.inf
        if self.low is None:
            return self.begin if self.high is None else _round(self.high / 2)
        if self.high is None:
            return _round(self.low * 1.5)
        if self.high / self.low <= CLOSE:
            return None
        return _round(math.sqrt(self.low * self.high))

    def tell(
        self,
        rate: float,
        verified: bool,
        sustained: bool | None,
        throughput: float | None,
        problem: str | None = None,
        **latencies: dict[str, float] | None,
    ) -> None:
        """Records the result of a run at `rate`; `problem` says why it did not verify."""
        self.runs.append(
            {
                "rate_mb_s": None if math.isinf(rate) else rate,
                "verified": verified,
                "sustained": sustained if verified else False,
                "throughput_mb_s": throughput,
                "problem": None if verified else problem,
                **{name: latencies.get(name) for name in ("write_ms", "end_to_end_ms")},
            }
        )
        if not math.isinf(rate):
            self._learn(rate, verified and bool(sustained))
        elif verified and throughput:
            if self.low is None or throughput > self.low:
                self._learn(throughput, False)

    def _learn(self, rate: float, sustained: bool) -> None:
        if sustained:
            self.low = max(rate, self.low or rate)
        else:
            self.high = min(rate, self.high or rate)


def _round(rate: float) -> float:
    """Rounds a rate as the results show it, so that the run at the highest rate can be found there."""
    return float(f"{rate:.4g}")
