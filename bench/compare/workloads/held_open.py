"""Holds one transaction open while quick ones write to the same partitions.

    held    begin ─ write to every partition ───────────── open for 5 s ───────────── commit
    quick   begin ─ write ─ commit, RATE a second each, open loop      ─ a follower measures end to end ─

Where data lies in the log before it is committed, readers stop at the first record of an open transaction. They get
later commits only when it has ended. `extra` has the quick ones' end to end before, while and after it was held.
`staged` tells whether the held one's records were at their partitions meanwhile, or in its client's memory.

Next: plain_beside.py.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..measure import Latencies, Schedule
from .base import Run, Verdict, Workload
from .driving import Arrivals, Attempt, Doing, Watching, read_by, threads
from .made import Maker, between
from .retrying import Trying
from .verifying import written_whole

OUT = "out"
PARTITIONS = 4
RATE = 20
"""Quick transactions a second of each worker."""
HELD_S, _HELD_SHARE, _BEFORE_SHARE = 5.0, 0.6, 0.2
_RECORD_BYTES = 100
_LEAD_NS = 50_000_000
_GRACE_NS = 10_000_000_000


class HeldOpen(Workload):
    name = "held-open"
    about = "one transaction stays open for up to 5 s beside quick ones: what readers of the quick ones wait"

    def prepare(self, run: Run) -> None:
        run.system.prepare({OUT: PARTITIONS})

    def run(self, run: Run) -> None:
        shape = run.shape
        counts = [_each(run)] * shape.workers + [PARTITIONS]
        run.kept["counts"] = counts
        arrivals = Arrivals(counts)
        held_s = min(HELD_S, shape.duration * _HELD_SHARE)
        begin = run.now() + _LEAD_NS
        opens = begin + int(_BEFORE_SHARE * shape.duration * 1e9)
        closes = opens + int(held_s * 1e9)
        makers = [Maker(run, n, _RECORD_BYTES, f"quick-{n}") for n in range(shape.workers)]
        trying = [Trying(Doing(run, f"quick-{n}", "none", n), n) for n in range(shape.workers)]
        holder = Doing(run, "held", "none", shape.workers, "held_")
        held = _Held(opens, closes, Latencies())
        with Watching(run, OUT, arrivals, sum(counts)):
            threads(
                run,
                [
                    *(
                        _quick(run, one, maker, begin, arrivals, held)
                        for one, maker in zip(trying, makers, strict=True)
                    ),
                    _hold(run, holder, opens, closes, arrivals),
                ],
            )
        for doing in (*(one.doing for one in trying), holder):
            doing.settle()
        committed = sum(one.tries.successes for one in trying)
        run.transactions = committed + holder.committed
        run.cancelled = sum(one.tries.cancelled for one in trying) + holder.cancelled
        run.payload = sum(maker.bytes for maker in makers)
        replies = [row.reply or 0 for row in run.trace.transactions if row.worker != "held"]
        run.seconds = (max(replies) - begin) / 1e9
        run.offered = RATE * shape.workers * _RECORD_BYTES / 1e6
        run.lag_limit_ms = 100 * shape.commit_interval
        read_by(run, arrivals)
        quick, ended = range(shape.workers), run.now()
        run.extra |= {
            "held_s": round(held_s, 3),
            "held_committed": bool(holder.committed),
            "staged": run.kept["staged"],
            "before": between(arrivals, quick, 0, opens).summary(),
            "while_held": between(arrivals, quick, opens, closes).summary(),
            "after": between(arrivals, quick, closes, ended).summary(),
            "commit_ms_while_held": held.commits.summary(),
        }

    def verify(self, run: Run) -> Verdict:
        return written_whole(run, OUT, run.kept["counts"], PARTITIONS)


class _Held(NamedTuple):
    """The span [opens, closes) of the held transaction, and commit times of quick ones that were due in it."""

    opens: int
    closes: int
    commits: Latencies


def _each(run: Run) -> int:
    """Returns the number of quick transactions of a worker."""
    return max(1, int(RATE * run.shape.duration))


def _quick(
    run: Run, trying: Trying, maker: Maker, begin: int, arrivals: Arrivals, held: _Held
) -> Callable[[], None]:
    lag, write = run.latency("generator_lag_ms"), run.latency("write_ms")
    first = begin + run.zero + maker.source * 1_000_000_000 // (RATE * run.shape.workers)

    def work() -> None:
        for n, moment in Schedule(first, 1 / RATE, _each(run), lag):
            due = moment - run.zero
            arrivals.is_due(maker.source, n, 1, due)

            def body(attempt: Attempt, n: int = n) -> None:
                values = maker.make(1, attempt.tx)
                trying.doing.write(attempt, OUT, values, (maker.source + n) % PARTITIONS)

            until = max(run.now(), due) + _GRACE_NS
            if trying.run(body, until) is None:
                return
            now = run.now()
            run.trace.batches.append(maker.wrote(1, due, now))
            write.add(now - due)
            if held.opens <= due < held.closes:
                held.commits.add(now - due)

    return work


def _hold(
    run: Run, doing: Doing, opens: int, closes: int, arrivals: Arrivals
) -> Callable[[], None]:
    def work() -> None:
        if run.stop.wait(max(0, opens - run.now()) / 1e9):
            return
        attempt = doing.begin()
        maker = Maker(run, run.shape.workers, _RECORD_BYTES, doing.name)
        arrivals.is_due(maker.source, 0, PARTITIONS, closes)  # when it was meant to be read
        for partition, value in enumerate(maker.make(PARTITIONS, attempt.tx)):
            doing.write(attempt, OUT, [value], partition)
        run.kept["staged"] = doing.flush(attempt)
        if run.stop.wait(max(0, closes - run.now()) / 1e9):
            doing.rollback(attempt)
            return
        doing.commit(attempt)

    return work


WORKLOAD = HeldOpen()
