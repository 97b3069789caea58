"""Writes the same bytes as reshard without transactions, as when nothing has to be atomic.

    writer w, each piece when it is due ─▶ written by key to all partitions ─▶ acknowledged

The system decides how it does a plain write: as a transaction of its own with a place, or as an idempotent
produce. Next: interval.py.
"""

from collections.abc import Callable

from ...judges.trace import TOPIC, Batch
from ..measure import Latencies, Schedule
from .base import Run, Verdict, Workload
from .driving import Arrivals, Input, Watching, read_by, threads
from .reshard import OUT, Plan
from .verifying import written_whole

_LEAD_NS = 100_000_000


class Plain(Workload):
    name = "plain"
    about = "the same bytes as reshard, written without transactions"

    def prepare(self, run: Run) -> None:
        run.system.prepare({OUT: run.shape.partitions})
        plan, made = Plan(run), Input(run.shape)
        if run.shape.rate is None:  # generated before the clock runs: the writers only write
            plan.pieces = min(plan.pieces, 100)
        run.kept["pieces"] = [
            [made.records(w, n * plan.records, plan.records) for n in range(plan.pieces)]
            for w in range(plan.workers)
        ]

    def run(self, run: Run) -> None:
        plan, shape = Plan(run), run.shape
        pieces = run.kept.pop("pieces")
        counts = [len(mine) * plan.records for mine in pieces]
        arrivals = Arrivals(counts)
        paced = shape.rate is not None
        begin = run.now() + (_LEAD_NS if paced else 0)
        with Watching(run, OUT, arrivals if paced else None, sum(counts) if paced else None):
            threads(
                run, [_write(run, plan, w, mine, arrivals, begin) for w, mine in enumerate(pieces)]
            )
        batches = run.trace.batches
        run.kept["written"] = written = [0] * len(pieces)
        for batch in batches:
            written[run.trace.lanes[batch.lane].partition] += batch.records
        run.payload = sum(batch.bytes for batch in batches)
        run.seconds = (max(batch.written or 0 for batch in batches) - begin) / 1e9
        write = run.latency("write_ms")
        if paced:
            size = sum(len(value) for mine in pieces for values, _ in mine for value in values)
            run.offered, run.lag_limit_ms = plan.offered(size), 100 * shape.commit_interval
            for batch in batches:
                write.add((batch.written or 0) - batch.intended)
            read_by(run, arrivals)

    def verify(self, run: Run) -> Verdict:
        return written_whole(run, OUT, run.kept["written"], by_key=True)


def _write(
    run: Run,
    plan: Plan,
    number: int,
    pieces: list[tuple[list[bytes], list[bytes]]],
    arrivals: Arrivals,
    begin: int,
) -> Callable[[], None]:
    lag = run.latency("generator_lag_ms") if plan.interval else Latencies()  # nothing is due then
    name = f"writer-{number}"
    lane = run.trace.lane(TOPIC, "made", number)

    def work() -> None:
        writer = run.system.writer(OUT)
        until = begin + int(run.shape.duration * 1e9)
        ahead = int(number * plan.interval / plan.workers * 1e9)
        due = Schedule(begin + run.zero + ahead, plan.interval, len(pieces), lag)
        for n, moment in due:
            if run.stop.is_set() or (not plan.interval and run.now() > until):
                return
            intended = moment - run.zero if plan.interval else run.now()
            values, keys = pieces[n]
            if plan.interval:
                arrivals.is_due(number, n * plan.records, len(values), intended)
            writer.write(values, keys, None)
            size = sum(map(len, values))
            run.trace.batches.append(
                Batch(-1, name, lane, n * plan.records, len(values), size, intended, run.now())
            )

    return work


WORKLOAD = Plain()
