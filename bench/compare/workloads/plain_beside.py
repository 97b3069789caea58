"""Runs plain writes and transactions on the same topic: what each costs the other.

    plain writer     batch of up to RECORDS, RATE a second, open loop      ALONE of the time by itself, then both
    transactions     a batch as often, into the same partitions, acknowledged at once where that can be,
                     a commit each interval                          the rest of the time

Where data lies in the log before it is committed, a plain write after it can be read only when the transaction has
ended. write_ms and end_to_end_ms are the plain writes', with transactions; commit_ms is the transactions'. `extra`
has the plain writes' latencies of both parts, and the transactions' from due to acknowledged and to read.

Next: interval.py.
"""

from collections.abc import Iterator
from functools import partial

from .base import Run, Verdict, Workload
from .driving import (
    LEAD_NS,
    Arrivals,
    Follower,
    WorkerRun,
    due_times,
    settle,
    threads,
    write_latencies,
)
from .inputs import Maker
from .verifying import verify_whole

OUT = "out"
PARTITIONS = 4
RATE, RECORDS, _BATCH_BYTES_MAX = 50, 10, 1 << 16
"""Batches a second of each writer and worker, and records of each batch; batches of large records have fewer."""
_ALONE = 0.3


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
        paired = max(1, int(RATE * shape.duration * (1 - _ALONE)))
        records = max(1, min(RECORDS, _BATCH_BYTES_MAX // size))
        counts = [batches * records] * plain + [paired * records] * workers
        run.state["counts"] = counts
        arrivals = Arrivals(counts)
        runs = [WorkerRun(run, f"worker-{n}", number=n) for n in range(workers)]
        follower = Follower(run, OUT, arrivals, sum(counts))
        begin = run.now() + LEAD_NS
        joined = begin + int((batches - paired) / RATE * 1e9)
        makers = [Maker(run, n, size, f"writer-{n}") for n in range(len(counts))]
        works = [partial(_write, run, maker, records, begin, arrivals) for maker in makers[:plain]]
        works += [
            partial(_transact, one, maker, records, joined, arrivals)
            for one, maker in zip(runs, makers[plain:], strict=True)
        ]
        with follower:
            threads(run, works)
        settle(run, runs)
        rows = run.trace.batches
        ended = max(batch.written or 0 for batch in rows)
        run.payload, run.seconds = sum(batch.bytes for batch in rows), (ended - begin) / 1e9
        run.offered = sum(counts) * size / 1e6 / (batches / RATE)
        writes, writers = [batch for batch in rows if batch.tx < 0], range(plain)
        write = write_latencies(writes, joined)
        end_to_end = arrivals.end_to_end(writers, joined)
        run.latencies |= {"write_ms": write, "end_to_end_ms": end_to_end}
        transactional = arrivals.end_to_end(range(plain, len(counts)), joined)
        run.extra |= {
            "plain_writers": plain,
            "workers": workers,
            "plain_alone": {
                "write_ms": write_latencies(writes, end=joined).summary(),
                "end_to_end_ms": arrivals.end_to_end(writers, end=joined).summary(),
            },
            "plain_beside": {
                "write_ms": write.summary(),
                "end_to_end_ms": end_to_end.summary(),
            },
            "transactions": {
                "write_ms": write_latencies(batch for batch in rows if batch.tx >= 0).summary(),
                "end_to_end_ms": transactional.summary(),
            },
        }

    def verify(self, run: Run) -> Verdict:
        return verify_whole(run, OUT, run.state["counts"], PARTITIONS)


def _due(
    run: Run, maker: Maker, records: int, begin: int, arrivals: Arrivals
) -> Iterator[tuple[int, int]]:
    """Yields (due time, partition) of each of the maker's batches, when it is due."""
    count = len(arrivals.due[maker.source]) // records
    for n, due in due_times(run, begin, 1 / RATE, count):
        arrivals.is_due(maker.source, n * records, records, due)
        yield due, (maker.source + n) % PARTITIONS


def _write(run: Run, maker: Maker, records: int, begin: int, arrivals: Arrivals) -> None:
    write = run.system.writer(OUT)
    for due, partition in _due(run, maker, records, begin, arrivals):
        write(maker.make(records), None, partition)
        run.trace.batches.append(maker.batch(records, due, run.now()))


def _transact(
    worker: WorkerRun, maker: Maker, records: int, begin: int, arrivals: Arrivals
) -> None:
    """Writes each batch in one transaction only: a cancelled transaction fails the run."""
    run, attempt = worker.run, None
    per_commit = max(1, round(run.shape.commit_interval * RATE))
    for due, partition in _due(run, maker, records, begin, arrivals):
        attempt = attempt or worker.begin()
        worker.write(attempt, OUT, maker.make(records, attempt.tx), partition)
        staged = run.now() if worker.flush(attempt) else None
        attempt.batches.append(maker.batch(records, due, staged, attempt.tx))
        if len(attempt.batches) == per_commit:
            worker.commit(attempt)
            attempt = None
    if attempt is not None and run.stop.is_set():
        worker.rollback(attempt)
    elif attempt is not None:
        worker.commit(attempt)
