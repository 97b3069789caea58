"""Holds one transaction open while quick ones write to the same partitions.

    held    begin ─ write to every partition ───────────── open for 5 s ───────────── commit
    quick   begin ─ write ─ commit, RATE a second each, open loop      ─ a follower measures end to end ─

Where data lies in the log before it is committed, readers stop at the first record of an open transaction. They get
later commits only when it has ended. `extra` has the quick ones' end to end before, while and after it was held.
`staged` tells whether the held one's records were at their partitions meanwhile, or in its client's memory.

Next: plain_beside.py.
"""

from functools import partial

from .base import Run, Verdict, Workload
from .driving import (
    LEAD_NS,
    Arrivals,
    Attempt,
    Follower,
    WorkerRun,
    add_latencies,
    due_times,
    settle,
    threads,
    write_latencies,
)
from .inputs import Maker
from .retrying import Retrier
from .verifying import verify_whole

OUT = "out"
PARTITIONS = 4
RATE = 20
"""Quick transactions a second of each worker."""
HELD_S, _HELD_SHARE, _BEFORE_SHARE = 5.0, 0.6, 0.2
_RECORD_BYTES = 100
_GRACE_NS = 60_000_000_000
"""Time for a quick transaction on a slow machine: records that come later count as missing."""


class HeldOpen(Workload):
    name = "held-open"
    about = "one transaction stays open for up to 5 s beside quick ones, whose readers may wait"

    def prepare(self, run: Run) -> None:
        run.system.prepare({OUT: PARTITIONS})

    def run(self, run: Run) -> None:
        shape, workers = run.shape, range(run.shape.workers)
        count = max(1, int(RATE * shape.duration))
        counts = run.state["counts"] = [count] * shape.workers + [PARTITIONS]
        arrivals = Arrivals(counts)
        held_s = min(HELD_S, shape.duration * _HELD_SHARE)
        quick = [Retrier(run, f"quick-{n}", number=n) for n in workers]
        holder = WorkerRun(run, "held", number=shape.workers, prefix="held_")
        follower = Follower(run, OUT, arrivals, sum(counts))
        begin = run.now() + LEAD_NS
        opens = begin + int(_BEFORE_SHARE * shape.duration * 1e9)
        closes = opens + int(held_s * 1e9)
        works = [partial(_write, retrier, begin, count, arrivals) for retrier in quick]
        with follower:
            threads(run, [*works, partial(_hold, holder, opens, closes, arrivals)])
        settle(run, [*quick, holder])
        batches = run.trace.batches
        run.payload = sum(batch.bytes for batch in batches)
        replies = [row.reply or 0 for row in run.trace.transactions if row.worker != holder.name]
        run.seconds = (max(replies) - begin) / 1e9
        run.offered = RATE * shape.workers * _RECORD_BYTES / 1e6
        add_latencies(run, arrivals, batches)
        run.extra |= {
            "held_s": round(held_s, 3),
            "held_committed": bool(holder.committed),
            "staged": run.state["staged"],
            "before": arrivals.end_to_end(workers, end=opens).summary(),
            "while_held": arrivals.end_to_end(workers, opens, closes).summary(),
            "after": arrivals.end_to_end(workers, closes).summary(),
            "commit_ms_while_held": write_latencies(batches, opens, closes).summary(),
        }

    def verify(self, run: Run) -> Verdict:
        return verify_whole(run, OUT, run.state["counts"], PARTITIONS)


def _write(retrier: Retrier, begin: int, count: int, arrivals: Arrivals) -> None:
    run, source = retrier.run, retrier.number
    maker = Maker(run, source, _RECORD_BYTES, retrier.name)
    first = begin + source * 1_000_000_000 // (RATE * run.shape.workers)
    for n, due in due_times(run, first, 1 / RATE, count):
        arrivals.is_due(source, n, 1, due)

        def body(attempt: Attempt, n: int = n) -> None:
            values = maker.make(1, attempt.tx)
            retrier.write(attempt, OUT, values, (source + n) % PARTITIONS)

        if not retrier.repeat(body, max(run.now(), due) + _GRACE_NS):
            return
        run.trace.batches.append(maker.batch(1, due, run.now()))


def _hold(holder: WorkerRun, opens: int, closes: int, arrivals: Arrivals) -> None:
    run = holder.run
    if run.stop.wait(max(0, opens - run.now()) / 1e9):
        return
    attempt = holder.begin()
    maker = Maker(run, holder.number, _RECORD_BYTES, holder.name)
    arrivals.is_due(maker.source, 0, PARTITIONS, closes)  # when it was meant to be read
    for partition, value in enumerate(maker.make(PARTITIONS, attempt.tx)):
        holder.write(attempt, OUT, [value], partition)
    run.state["staged"] = holder.flush(attempt)
    if run.stop.wait(max(0, closes - run.now()) / 1e9):
        holder.rollback(attempt)
    else:
        holder.commit(attempt)
