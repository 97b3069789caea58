"""Estimates how long a judge on Spark takes, and tells it with each job.

    Spark: delivery, about 9 s left      shares of the jobs, and how fast those were that have ended

Next: ../spark_process.py, which passes the lines on.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...compare.progress import in_minutes

_SHARES = {
    "rows of all tables": 15,
    "stores": 10,
    "delivery": 35,
    "certificate: places": 2,
    "certificate: real time": 4,
    "certificate: reads": 9,
    "certificate: positions": 4,
    "certificate: offsets": 7,
    "reads": 3,
    "reader": 12,
    "logs": 12,
    "percentiles": 5,
    "agreement with Python": 1,
}
"""Shares of the time, as measured on comparisons and on a million transactions."""
_FIXED_S, _ROW_S, START_S = 12.0, 5e-6, 5.0
"""Seconds of compiling and planning; of each row; of Spark's start."""


def expected_s(rows: int) -> float:
    """Returns the seconds that a judge takes for that many rows, from the start of Spark on, on two cores."""
    return START_S + _FIXED_S + rows * _ROW_S


class Progress:
    """Tells the jobs of one judge; a job that it leaves out makes the estimate longer than the rest is."""

    def __init__(self, tell: Callable[[str], None], rows: int) -> None:
        self._tell = tell
        self._total_s = expected_s(rows) - START_S
        self._began = time.monotonic()
        self._ended = 0

    @contextmanager
    def job(self, name: str) -> Iterator[None]:
        """Tells that a job begins, and how long the rest takes."""
        self._tell(f"Spark: {name}, about {in_minutes(self._left_s())} left")
        yield
        self._ended += _SHARES[name]

    def _left_s(self) -> float:
        if not self._ended:
            return self._total_s
        spent_s = time.monotonic() - self._began
        return spent_s / self._ended * (sum(_SHARES.values()) - self._ended)
