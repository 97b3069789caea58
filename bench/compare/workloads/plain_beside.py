"""Runs plain writes and transactions on the same topic: what each costs the other.

    plain writer     batch of up to RECORDS, RATE a second, open loop      ALONE of the time by itself, then both
    transactions     a batch as often, into the same partitions, acknowledged at once where that can be,
                     a commit each interval                          the rest of the time

Where data lies in the log before it is committed, a plain write after it can be read only when the transaction has
ended. write_ms and end_to_end_ms are the plain writes', with transactions; commit_ms is the transactions'. `extra`
has the plain writes' latencies of both parts, and the transactions' from due to acknowledged and to read.

Next: interval.py.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..measure import Latencies, Schedule
from .base import Run, Verdict, Workload
from .driving import Arrivals, Doing, Watching, threads
from .made import Maker, between
from .verifying import written_whole

OUT = "out"
PARTITIONS = 4
RATE, RECORDS, _BATCH_BYTES_MAX = 50, 10, 1 << 16
"""Batches a second of each writer and worker, and records of each batch; batches of large records have fewer."""
_ALONE = 0.3
_LEAD_NS = 50_000_000


class PlainBeside(Workload):
    name = "plain-beside"
    about = "plain writes beside transactions on the same topic: latency of both"

    def prepare(self, run: Run) -> None:
        run.system.prepare({OUT: PARTITIONS})

    def run(self, run: Run) -> None:
        shape = run.shape
        size = shape.record_size or 100
        plain = max(1, shape.workers // 2)
        workers = max(1, shape.workers - plain)
        batches = max(1, int(RATE * shape.duration))
        beside = max(1, int(RATE * shape.duration * (1 - _ALONE)))
        records = max(1, min(RECORDS, _BATCH_BYTES_MAX // size))
        counts = [batches * records] * plain + [beside * records] * workers
        run.kept["counts"] = counts
        arrivals = Arrivals(counts)
        begin = run.now() + _LEAD_NS
        joined = begin + int((batches - beside) / RATE * 1e9)
        makers = [Maker(run, n, size, f"writer-{n}") for n in range(len(counts))]
        doing = [Doing(run, f"worker-{n}", "none", n) for n in range(workers)]
        alone, transactional = Latencies(), Latencies()
        beside_due = _Due(records, beside, joined)
        with Watching(run, OUT, arrivals, sum(counts)):
            threads(
                run,
                [
                    *(
                        _write(run, maker, _Due(records, batches, begin), joined, arrivals, alone)
                        for maker in makers[:plain]
                    ),
                    *(
                        _transact(run, one, maker, beside_due, arrivals, transactional)
                        for one, maker in zip(doing, makers[plain:], strict=True)
                    ),
                ],
            )
        for one in doing:
            one.settle()
        run.transactions = sum(one.committed for one in doing)
        run.cancelled = sum(one.cancelled for one in doing)
        ended = max(batch.written or 0 for batch in run.trace.batches)
        run.payload, run.seconds = sum(maker.bytes for maker in makers), (ended - begin) / 1e9
        run.offered = sum(counts) * size / 1e6 / (batches / RATE)
        run.lag_limit_ms = 100 * shape.commit_interval
        writers, ended = range(plain), run.now()
        after = between(arrivals, writers, joined, ended)
        run.latency("end_to_end_ms").values.extend(after.values)
        run.extra |= {
            "plain_writers": plain,
            "workers": workers,
            "plain_alone": {
                "write_ms": alone.summary(),
                "end_to_end_ms": between(arrivals, writers, 0, joined).summary(),
            },
            "plain_beside": {
                "write_ms": run.latency("write_ms").summary(),
                "end_to_end_ms": after.summary(),
            },
            "transactions": {
                "write_ms": transactional.summary(),
                "end_to_end_ms": between(
                    arrivals, range(plain, len(counts)), joined, ended
                ).summary(),
            },
        }

    def verify(self, run: Run) -> Verdict:
        return written_whole(run, OUT, run.kept["counts"], PARTITIONS)


class _Due(NamedTuple):
    """`batches` of `records` each, RATE a second, from `begin` on."""

    records: int
    batches: int
    begin: int


def _write(
    run: Run, maker: Maker, plan: _Due, joined: int, arrivals: Arrivals, alone: Latencies
) -> Callable[[], None]:
    lag, beside = run.latency("generator_lag_ms"), run.latency("write_ms")

    def work() -> None:
        writer = run.system.writer(OUT)
        for n, moment in Schedule(plan.begin + run.zero, 1 / RATE, plan.batches, lag):
            if run.stop.is_set():
                return
            due = moment - run.zero
            arrivals.is_due(maker.source, n * plan.records, plan.records, due)
            writer.write(maker.make(plan.records), None, (maker.source + n) % PARTITIONS)
            now = run.now()
            run.trace.batches.append(maker.wrote(plan.records, due, now))
            (alone if due < joined else beside).add(now - due)

    return work


def _transact(
    run: Run, doing: Doing, maker: Maker, plan: _Due, arrivals: Arrivals, write: Latencies
) -> Callable[[], None]:
    """Writes each batch in one transaction only: a cancelled transaction fails the run."""
    lag = run.latency("generator_lag_ms")
    per_commit = max(1, round(run.shape.commit_interval * RATE))

    def work() -> None:
        attempt = None
        rows = []
        for n, moment in Schedule(plan.begin + run.zero, 1 / RATE, plan.batches, lag):
            if run.stop.is_set():
                break
            due = moment - run.zero
            arrivals.is_due(maker.source, n * plan.records, plan.records, due)
            attempt = attempt or doing.begin()
            values = maker.make(plan.records, attempt.tx)
            doing.write(attempt, OUT, values, (maker.source + n) % PARTITIONS)
            written = run.now() if doing.flush(attempt) else None
            rows.append(maker.wrote(plan.records, due, written, attempt.tx))
            if len(rows) == per_commit or n == plan.batches - 1:
                doing.commit(attempt)
                replied = run.now()
                for row in rows:
                    done = row if row.written is not None else row._replace(written=replied)
                    run.trace.batches.append(done)
                    write.add((done.written or replied) - done.intended)
                attempt, rows = None, []
        if attempt is not None:
            doing.rollback(attempt)

    return work


WORKLOAD = PlainBeside()
