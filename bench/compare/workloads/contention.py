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

from typing import ClassVar

from ...judges.trace import READ, ROW, WRITE, Operation
from ..measure import Latencies
from ..systems.base import SHARED_ROWS
from .base import Run, Verdict, Workload
from .driving import Attempt
from .inputs import filler_records, load
from .retrying import Retrier, closed_loop
from .verifying import verify_passed_on

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
    about = "workers update the same rows, or consume the same records: cancelled against waiting"
    feeds: ClassVar = {OUT: f"{IN}/{CONSUMER}"}
    without_tables = "the hot consumer only: rows that several workers update are not possible"

    def prepare(self, run: Run) -> None:
        run.system.prepare({IN: 1, OUT: 1}, () if _no_rows(run) else (ROWS,))
        counts = run.state["counts"] = [int(_SECONDLY * run.shape.duration) + 10]
        load(run, IN, counts, filler_records(b"h" * 76), _LOADED)  # minutes of input need several

    def run(self, run: Run) -> None:
        impossible = _no_rows(run)
        seconds = run.shape.duration * (1.0 if impossible else 0.5)
        waited = Latencies()

        def update(worker: Retrier, attempt: Attempt) -> None:
            key = f"k{worker.draw.randrange(HOT)}"
            lane = run.trace.lane(ROW, ROWS, -1, key)
            begin = run.now()
            n, version = attempt.work.get(ROWS, key) or (0, -1)
            waited.add(run.now() - begin)
            attempt.operations.append(Operation(attempt.tx, READ, lane, version=version))
            attempt.work.put(ROWS, key, [n + 1, attempt.tx])
            attempt.operations.append(Operation(attempt.tx, WRITE, lane))

        workers = run.shape.workers
        if impossible:
            run.extra["hot_rows"] = {"impossible": impossible}
        else:
            updating = [Retrier(run, f"rows-{n}", CONSUMER, n, "rows_") for n in range(workers)]
            rows, _ = closed_loop(run, updating, "rows_", update, seconds)
            run.state["successes"] = rows["successes"]
            times = {"get_ms": waited.summary()} if waited.values else {}
            run.extra["hot_rows"] = {"workers": workers, **rows, **times}
        consuming = [Retrier(run, "hot", CONSUMER, n) for n in range(workers)]
        figures, _ = closed_loop(run, consuming, "", _pass_on, seconds)
        run.extra["hot_consumer"] = {"workers": workers, **figures}

    def verify(self, run: Run) -> Verdict:
        verdict = verify_passed_on(run, IN, OUT, CONSUMER, run.state["counts"])
        if "successes" in run.state:
            total = sum(n for n, _ in run.system.rows(ROWS).values())
            lost = verdict.violations["lost updates"] = abs(run.state["successes"] - total)
            if lost:
                verdict.problems.append(
                    f"rows come to {total}, {run.state['successes']} updates counted"
                )
        return verdict


def _pass_on(worker: Retrier, attempt: Attempt) -> None:
    chunk = worker.read(attempt, IN, 0, _TAKE)
    if chunk.values:
        worker.write(attempt, OUT, chunk.values, 0)


def _no_rows(run: Run) -> str | None:
    return run.system.missing.get(SHARED_ROWS)
