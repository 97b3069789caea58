"""Measures conflicts: how many transactions are cancelled, and how long others wait, for the same rows or records.

    hot rows       every worker: get a row of HOT ─▶ put n + 1        must come to the number of successes
    hot consumer   every worker: read the next records of one partition ─▶ write them, for one consumer

A cancelled transaction runs again after a pause. All workers of the hot consumer share one name: where a name
fences (a transactional id) this makes the work exactly-once, elsewhere it makes no difference.

`extra` has both parts: successes, cancelled by cause, attempts per success, their 99th percentile and maximum;
done_ms from the first begin until the commit; get_ms, which shows waits for a lock; and the share of the workers'
time in cancelled attempts, and in pauses. Figures that are not in `extra` are of the hot consumer, which every
system can run.

Next: held_open.py.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from ...judges.trace import READ, ROW, WRITE, Operation, identity
from ..measure import Latencies
from ..systems.base import SHARED_ROWS
from .base import Run, Verdict, Workload
from .driving import Attempt, Doing, threads
from .retrying import Line, Trying, told
from .verifying import passed_on

ROWS, IN, OUT, CONSUMER = "hot-rows", "hot-in", "hot-out", "hot"
HOT = 4
"""Number of hot rows."""
_TAKE = 5
"""Records that a transaction of the hot consumer takes."""
_SECONDLY = 20_000
"""Records loaded for each second."""
_LOADED = 50_000
"""Records in one load."""


class Contention(Workload):
    name = "contention"
    about = "hot rows by read-modify-write, a hot consumer: cancelled against waiting"
    feeds: ClassVar = {OUT: f"{IN}/{CONSUMER}"}
    without_tables = "the hot consumer only: rows that several workers update are not possible"

    def prepare(self, run: Run) -> None:
        run.system.prepare({IN: 1, OUT: 1}, () if _no_rows(run) else (ROWS,))
        count = run.kept["count"] = int(_SECONDLY * run.shape.duration) + 10
        for begin in range(0, count, _LOADED):  # one transaction cannot hold minutes of input
            numbers = range(begin, min(count, begin + _LOADED))
            run.system.load(IN, 0, [identity(0, n) + b"h" * 76 for n in numbers], None)

    def run(self, run: Run) -> None:
        impossible = _no_rows(run)
        seconds = run.shape.duration * (1.0 if impossible else 0.5)
        if impossible:
            run.extra["hot_rows"] = {"impossible": impossible}
        else:
            run.extra["hot_rows"] = self._part(run, "rows-{}", seconds, _rows, "rows_")
            run.kept["successes"] = run.extra["hot_rows"]["successes"]
        run.extra["hot_consumer"] = self._part(run, "hot", seconds, _consumer)

    def _part(
        self,
        run: Run,
        name: str,
        seconds: float,
        make: Callable[[Run, Trying, Latencies], Callable[[Attempt], None]],
        prefix: str = "",
    ) -> dict[str, Any]:
        before = run.system.counters()
        line = Line()
        trying = [
            Trying(Doing(run, name.format(n), CONSUMER, n, prefix), run.shape.seed + n, line)
            for n in range(run.shape.workers)
        ]
        waited = Latencies()
        started = run.now()
        until = started + int(seconds * 1e9)

        def loop(one: Trying) -> Callable[[], None]:
            body = make(run, one, waited)

            def work() -> None:
                try:
                    while one.run(body, until) is not None:
                        pass
                except _UsedUp:
                    pass

            return work

        threads(run, [loop(one) for one in trying])
        took = (run.now() - started) / 1e9
        for one in trying:
            one.doing.settle()
        found = told([one.tries for one in trying], took)
        if not prefix:
            run.transactions, run.cancelled = found["successes"], found["cancelled"]
            run.seconds, run.measured = took, (before, run.system.counters())
        if waited.values:
            found["get_ms"] = waited.summary()
        return {"workers": len(trying), **found}

    def verify(self, run: Run) -> Verdict:
        verdict = passed_on(run, IN, OUT, CONSUMER, [run.kept["count"]], 1)
        if "successes" in run.kept:
            found = sum(n for n, _ in run.system.rows(ROWS).values())
            lost = abs(run.kept["successes"] - found)
            verdict.violations["lost updates"] = lost
            if lost:
                verdict.problems.append(
                    f"rows come to {found}, {run.kept['successes']} updates counted"
                )
        return verdict


def _rows(run: Run, trying: Trying, waited: Latencies) -> Callable[[Attempt], None]:
    def body(attempt: Attempt) -> None:
        key = f"k{trying.draw.randrange(HOT)}"
        lane = run.trace.lane(ROW, ROWS, -1, key)
        asked = run.now()
        n, version = attempt.work.get(ROWS, key) or (0, -1)
        waited.add(run.now() - asked)
        attempt.operations.append(Operation(attempt.tx, READ, lane, version=version))
        attempt.work.put(ROWS, key, [n + 1, attempt.tx])
        attempt.operations.append(Operation(attempt.tx, WRITE, lane))

    return body


def _consumer(run: Run, trying: Trying, waited: Latencies) -> Callable[[Attempt], None]:
    def body(attempt: Attempt) -> None:
        taken = attempt.work.read(IN, 0, _TAKE)
        if not taken.values:
            attempt.work.rollback()
            raise _UsedUp
        trying.doing.write(attempt, OUT, taken.values, 0)
        trying.doing.consumed(attempt, IN, 0, taken.begin, taken.end)

    return body


def _no_rows(run: Run) -> str | None:
    return run.system.missing.get(SHARED_ROWS)


class _UsedUp(Exception):
    """No record is left."""


WORKLOAD = Contention()
