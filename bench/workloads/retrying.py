"""Closed loops: a worker that runs a transaction until it counts, then the next one.

    begin ─ body ─ commit ─▶ done
      ▲         └ cancelled ┘
      └ pause ─────┘            as db.run: 1 to 100 ms, about twice as long each time, jittered

Next: transfer.py.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..measure import Latencies
from ..systems.base import Cancelled, Certificate, Counters
from .driving import Attempt, Doing

_PAUSE_S, _PAUSE_MAX_S = 0.001, 0.1


@dataclass
class Tries:
    """What one worker's transactions took, nanoseconds. `done`: from first begin to the reply that it counts."""

    successes: int = 0
    cancelled: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    paused: int = 0
    done: Latencies = field(default_factory=Latencies)


class Trying:
    """One worker. `draw` is its own, seeded: pauses come out alike in each run."""

    def __init__(self, doing: Doing, seed: int) -> None:
        self.doing, self.tries, self.draw = doing, Tries(), random.Random(seed)

    def run(self, body: Callable[[Attempt], Any], until: int) -> Certificate | None:
        """Until it counts. None when the run is stopped, or `until` is over, before it does; raises what is
        not worth another try."""
        doing, tries = self.doing, self.tries
        run = doing.run
        first, pause = run.now(), _PAUSE_S
        while not run.stop.is_set() and run.now() < until:
            begun, attempt = run.now(), None
            try:
                attempt = doing.begin()
                body(attempt)
                done = doing.commit(attempt)
            except Cancelled as error:
                if attempt is not None and attempt.proposed is None:
                    doing.rollback(attempt, error.cause)
                tries.cancelled += 1
                tries.causes[error.cause] = tries.causes.get(error.cause, 0) + 1
                tries.lost += run.now() - begun
                if not error.retryable:
                    raise
                resting = self.draw.uniform(0.5, 1.0) * min(pause, _PAUSE_MAX_S)
                pause *= 2
                time.sleep(resting)
                tries.paused += int(resting * 1e9)
                continue
            tries.successes += 1
            tries.done.add(run.now() - first)
            return done
        return None


def told(tries: list[Tries], seconds: float) -> dict[str, Any]:
    """Of all workers together, in `seconds`."""
    successes = sum(one.successes for one in tries)
    cancelled = sum(one.cancelled for one in tries)
    done, causes = Latencies(), dict[str, int]()
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
        "per_second": round(successes / seconds, 1) if seconds else None,
        "done_ms": done.summary(),
        "lost_percent": round(share * sum(one.lost for one in tries), 1),
        "paused_percent": round(share * sum(one.paused for one in tries), 1),
    }


def spent(before: Counters, after: Counters, transactions: int) -> dict[str, float | None]:
    """What the system counted for each of so many transactions."""
    found: dict[str, float | None] = {}
    for name in ("syncs", "appends"):
        now, then = getattr(after, name), getattr(before, name)
        known = now is not None and then is not None and transactions
        found[f"{name}_per_transaction"] = round((now - then) / transactions, 3) if known else None
    return found
