"""Runs closed loops: a worker repeats a transaction until it is committed, then begins the next one.

    begin ─ body ─ commit ─▶ done
      ▲         └ cancelled ┘
      └ pause ─────┘            as db.run: the length of an attempt, once for each older transaction that waits,
                                doubled in each round without a winner, 250 ms at most, jittered

Next: transfer.py.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..measure import Latencies, percentile
from ..systems.base import Cancelled, Certificate, Counters
from .driving import Attempt, Doing

_TOOK_MIN_NS, _PAUSE_MAX_NS = 1e6, 250e6


class Line:
    """Workers with a cancelled transaction that will run again, by when it began.

    `rank` returns the number of older ones, and the rounds of cancellations since one of them was committed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: set[tuple[int, int]] = set()
        self._cancelled = 0

    def rank(self, begun: tuple[int, int]) -> tuple[int, int]:
        with self._lock:
            self._begun.add(begun)
            rounds = self._cancelled // len(self._begun)
            self._cancelled += 1
            return sum(other < begun for other in self._begun), rounds

    def leave(self, begun: tuple[int, int], won: bool) -> None:
        with self._lock:
            if begun in self._begun:
                self._begun.remove(begun)
                self._cancelled *= not won


@dataclass
class Tries:
    """One worker's counts and times, in nanoseconds.

    `done` has the times from a transaction's first begin to its successful reply, `attempts` their numbers of
    attempts.
    """

    successes: int = 0
    cancelled: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    paused: int = 0
    done: Latencies = field(default_factory=Latencies)
    attempts: list[int] = field(default_factory=list)


class Trying:
    """One worker that retries. `draw` is its own seeded generator; `line` is shared by workers in conflict."""

    def __init__(self, doing: Doing, seed: int, line: Line | None = None) -> None:
        self.doing, self.tries, self.draw = doing, Tries(), random.Random(seed)
        self._line, self._seed = line or Line(), seed

    def run(self, body: Callable[[Attempt], Any], until: int) -> Certificate | None:
        """Runs a transaction until it is committed.

        Returns None when the run is stopped, or `until` is over, before that; raises an error that is not
        retryable.
        """
        first = self.doing.run.now()
        done = None
        try:
            done = self._until_done(body, first, until)
        finally:
            self._line.leave((first, self._seed), done is not None)
        return done

    def _until_done(
        self, body: Callable[[Attempt], Any], first: int, until: int
    ) -> Certificate | None:
        doing, tries = self.doing, self.tries
        run = doing.run
        count = 0
        while not run.stop.is_set() and run.now() < until:
            begun, attempt = run.now(), None
            count += 1
            try:
                attempt = doing.begin()
                body(attempt)
                done = doing.commit(attempt)
            except Cancelled as error:
                if attempt is not None and attempt.proposed is None:
                    doing.rollback(attempt, error.cause)
                tries.cancelled += 1
                tries.causes[error.cause] = tries.causes.get(error.cause, 0) + 1
                took = run.now() - begun
                tries.lost += took
                if not error.retryable:
                    raise
                older, rounds = self._line.rank((first, self._seed))
                grown = max(_TOOK_MIN_NS, took) * ((1 + older) * 2.0 ** min(rounds, 10) - 1)
                resting = self.draw.uniform(0.5, 1.0) * min(grown, _PAUSE_MAX_NS)
                time.sleep(resting / 1e9)
                tries.paused += int(resting)
                continue
            tries.successes += 1
            tries.done.add(run.now() - first)
            tries.attempts.append(count)
            return done
        return None


def told(tries: list[Tries], seconds: float) -> dict[str, Any]:
    """Returns the totals of all workers together, in `seconds`."""
    successes = sum(one.successes for one in tries)
    cancelled = sum(one.cancelled for one in tries)
    done, causes = Latencies(), dict[str, int]()
    attempts = sorted(count for one in tries for count in one.attempts)
    for one in tries:
        done.values.extend(one.done.values)
        for cause, times in one.causes.items():
            causes[cause] = causes.get(cause, 0) + times
    share = 100 / (seconds * 1e9 * len(tries)) if seconds else 0.0
    return {
        "successes": successes,
        "cancelled": cancelled,
        "causes": causes,
        "attempts_per_success": round((successes + cancelled) / successes, 3)
        if successes
        else None,
        "attempts_p99": percentile(attempts, 0.99) if attempts else None,
        "attempts_max": attempts[-1] if attempts else None,
        "per_second": round(successes / seconds, 1) if seconds else None,
        "done_ms": done.summary(),
        "lost_percent": round(share * sum(one.lost for one in tries), 1),
        "paused_percent": round(share * sum(one.paused for one in tries), 1),
    }


def spent(before: Counters, after: Counters, transactions: int) -> dict[str, float | None]:
    """Returns the system's syncs and appends for each of `transactions`."""
    found: dict[str, float | None] = {}
    for name in ("syncs", "appends"):
        now, then = getattr(after, name), getattr(before, name)
        known = now is not None and then is not None and transactions
        found[f"{name}_per_transaction"] = round((now - then) / transactions, 3) if known else None
    return found
