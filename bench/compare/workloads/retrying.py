"""Runs closed loops: a worker repeats a transaction until it is committed, then begins the next one.

    begin ─ body ─ commit ─▶ done
      ▲         └ cancelled ┘
      └ pause ─────┘            as db.run: the length of an attempt, once for each older transaction that waits,
                                doubled in each round without a winner, 250 ms at most, jittered

Next: small.py.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..measure import Latencies, percentile
from ..systems.base import Cancelled
from .base import Run
from .driving import Attempt, WorkerRun, threads
from .meter import Meter

_TOOK_MIN_NS, _PAUSE_MAX_NS = 1e6, 250e6


class RetryQueue:
    """Workers with a cancelled transaction that will run again, by when it began.

    `rank` returns the number of older ones, and the rounds of cancellations since one of them was committed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ages: set[tuple[int, int]] = set()
        self._cancelled = 0

    def rank(self, age: tuple[int, int]) -> tuple[int, int]:
        with self._lock:
            self._ages.add(age)
            rounds = self._cancelled // len(self._ages)
            self._cancelled += 1
            return sum(other < age for other in self._ages), rounds

    def leave(self, age: tuple[int, int], won: bool) -> None:
        with self._lock:
            if age in self._ages:
                self._ages.remove(age)
                self._cancelled *= not won


class Retrier(WorkerRun):
    """A worker that retries. `draw` is its own seeded generator; workers in conflict share a `queue`.

    `lost` and `paused` are nanoseconds. `durations` has the times from a transaction's first begin to its
    successful reply, and `attempts` their numbers of attempts. `used_up`: its body had nothing to do.
    """

    def __init__(
        self, run: Run, name: str, consumer: str = "none", number: int = 0, prefix: str = ""
    ) -> None:
        super().__init__(run, name, consumer, number, prefix)
        self._seed = run.shape.seed + number
        self.queue, self.draw = RetryQueue(), random.Random(self._seed)
        self.begin_part(prefix)

    def begin_part(self, prefix: str) -> None:
        """Counts anew; from now on `prefix` is put before the names of its latencies."""
        self.settle()
        self.count_under(prefix)
        self.lost = self.paused = 0
        self.durations, self.attempts = Latencies(), list[int]()
        self.used_up = False

    def repeat(self, body: Callable[[Attempt], object], until: int) -> bool:
        """Runs a transaction until it is committed; raises an error that is not retryable.

        Returns False if before that the run is stopped, `until` is over, or the body has nothing to do.
        """
        first = self.run.now()
        committed = False
        try:
            committed = self._repeat(body, first, until)
        finally:
            self.queue.leave((first, self._seed), committed)
        return committed

    def _repeat(self, body: Callable[[Attempt], object], first: int, until: int) -> bool:
        run, count = self.run, 0
        while not run.stop.is_set() and run.now() < until:
            begin = run.now()
            count += 1
            try:
                if self.transact(body) is None:
                    self.used_up = True
                    return False
            except Cancelled as error:
                took = run.now() - begin
                self.lost += took
                if not error.retryable:
                    raise
                older, rounds = self.queue.rank((first, self._seed))
                grown = max(_TOOK_MIN_NS, took) * ((1 + older) * 2.0 ** min(rounds, 10) - 1)
                pause = self.draw.uniform(0.5, 1.0) * min(grown, _PAUSE_MAX_NS)
                time.sleep(pause / 1e9)
                self.paused += int(pause)
                continue
            self.durations.add(run.now() - first)
            self.attempts.append(count)
            return True
        return False


def closed_loop(
    run: Run,
    retriers: Sequence[Retrier],
    prefix: str,
    body: Callable[[Retrier, Attempt], object],
    seconds: float,
) -> tuple[dict[str, Any], Meter]:
    """Begins a part in which the workers repeat `body`, for `seconds` or until it is used up.

    Returns figures and costs; without a prefix they are the run's own, too.
    """
    for retrier in retriers:
        retrier.begin_part(prefix)
        retrier.queue = retriers[0].queue
    meter = Meter(run)
    until = run.now() + int(seconds * 1e9)

    def work(retrier: Retrier) -> None:
        while retrier.repeat(partial(body, retrier), until):
            pass

    threads(run, [partial(work, retrier) for retrier in retriers])
    meter.stop()
    for retrier in retriers:
        retrier.settle()
    figures = _figures(retriers, meter.seconds)
    if not prefix:
        run.transactions, run.cancelled = figures["successes"], figures["cancelled"]
        run.seconds, run.measured, run.cpu_s = meter.seconds, meter.counters, meter.cpu_s
    return figures, meter


def _figures(retriers: Sequence[Retrier], seconds: float) -> dict[str, Any]:
    """Returns the totals of all workers together, in `seconds`."""
    successes = sum(one.committed for one in retriers)
    durations, causes = Latencies(), Counter[str]()
    attempts = sorted(count for one in retriers for count in one.attempts)
    for one in retriers:
        durations.values.extend(one.durations.values)
        causes += one.causes
    cancelled = causes.total()
    share = 100 / (seconds * 1e9 * len(retriers)) if seconds else 0.0
    return {
        "successes": successes,
        "cancelled": cancelled,
        "causes": dict(causes),
        "attempts_per_success": round((successes + cancelled) / successes, 3)
        if successes
        else None,
        "attempts_p99": percentile(attempts, 0.99) if attempts else None,
        "attempts_max": attempts[-1] if attempts else None,
        "per_second": round(successes / seconds, 1) if seconds else None,
        "done_ms": durations.summary(),
        "lost_percent": round(share * sum(one.lost for one in retriers), 1),
        "paused_percent": round(share * sum(one.paused for one in retriers), 1),
    }
