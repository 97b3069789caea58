"""Measures the cost of a commit interval: the same bytes as plain writes, and in transactions.

    plain ─ 10 ms ─ 100 ms ─ 500 ms ─ plain      one part after the other, as fast as it goes, all workers

Both do the same: batches of up to RECORDS, each acknowledged before the next is begun. In a transaction an
acknowledged batch is staged, or in place (flush). Without such a flush it waits in memory for the commit, which
then takes longer than the interval: between_commits_ms. Nothing is consumed.

Each part reports its throughput relative to the mean of both plain parts; Confluent published 3 % less at 100 ms
with records of 1 KB. Each worker writes to a partition of its own; reshard measures what a transaction costs for
each partition. Figures that are not in `extra` are of FIRST, or of the shortest interval if there was no time for
FIRST: a part takes MIN_COMMITS intervals at least.

Next: chain.py.
"""

from functools import partial
from typing import Any

from .base import Run, Verdict, Workload
from .driving import WorkerRun, threads
from .inputs import Maker
from .meter import Meter
from .verifying import verify_whole

OUT = "out"
INTERVALS_MS = (10, 100, 500)
FIRST = 100
PUBLISHED_LOSS_PERCENT_AT_100_MS = 3.0
MIN_COMMITS = 2
RECORDS, _BATCH_BYTES_MAX = 100, 1 << 20
"""Records of a batch; batches of large records have fewer."""
_SHARES = {0: 0.15, 10: 0.2, 100: 0.2, 500: 0.3}
"""Shares of the time by interval; plain writes, 0, run twice."""
_BYTES_PER_SECOND_MAX = 250_000_000
"""Limit of a part's average rate, so that the disk does not fill up: at the limit a part ends early."""


class Interval(Workload):
    name = "interval"
    about = "commits every 10, 100 and 500 ms at full rate, beside plain writes of the same bytes"

    def prepare(self, run: Run) -> None:
        run.system.prepare({OUT: run.shape.workers})

    def run(self, run: Run) -> None:
        shape = run.shape
        size = shape.record_size or 1024
        makers = [Maker(run, n, size, f"worker-{n}") for n in range(shape.workers)]
        run.state["makers"] = makers
        plain = [_Part(run, makers, 0)]
        parts = {
            interval: _Part(run, makers, interval)
            for interval in INTERVALS_MS
            if shape.duration * _SHARES[interval] * 1000 >= MIN_COMMITS * interval
        }
        plain.append(_Part(run, makers, 0))
        mean = sum(part.mb_s for part in plain) / 2
        run.extra |= {
            "plain_mb_s": round(mean, 2),
            "plain_parts_mb_s": [round(part.mb_s, 2) for part in plain],
            "published_loss_percent_at_100_ms": PUBLISHED_LOSS_PERCENT_AT_100_MS,
        }
        for interval in INTERVALS_MS:
            if interval in parts:
                run.extra[str(interval)] = parts[interval].figures(mean)
            else:
                needed = MIN_COMMITS * interval / _SHARES[interval] / 1000
                run.extra[str(interval)] = {
                    "left_out": f"too short: it takes a duration of {needed:.2g} s"
                }
        main = parts.get(FIRST) or parts.get(INTERVALS_MS[0]) or plain[0]
        run.transactions, run.payload = main.transactions, main.bytes
        run.seconds, run.measured, run.cpu_s = (
            main.meter.seconds,
            main.meter.counters,
            main.meter.cpu_s,
        )
        run.latencies["commit_ms"] = main.commit

    def verify(self, run: Run) -> Verdict:
        counts = [maker.count for maker in run.state["makers"]]
        return verify_whole(run, OUT, counts, run.shape.workers)


class _Part:
    """One interval, or 0 for plain writes: its bytes, transactions and time.

    A cancelled transaction fails the run: nothing is consumed, so nothing conflicts.
    """

    def __init__(self, run: Run, makers: list[Maker], interval: int) -> None:
        self._run, self._makers, self._interval = run, makers, interval
        prefix = f"interval_{interval}_"
        workers = [
            WorkerRun(run, f"worker-{maker.source}", number=maker.source, prefix=prefix)
            for maker in makers
            if interval
        ]
        written = sum(maker.bytes for maker in makers)
        seconds = run.shape.duration * _SHARES[interval]
        self._limit = int(_BYTES_PER_SECOND_MAX * seconds / len(makers))
        self.meter = Meter(run)
        self._until = run.now() + int(seconds * 1e9)
        if interval:
            pairs = zip(workers, makers, strict=True)
            threads(run, [partial(self._transact, worker, maker) for worker, maker in pairs])
        else:
            threads(run, [partial(self._write, maker) for maker in makers])
        self.meter.stop()
        for worker in workers:
            worker.settle()
        self.transactions = sum(worker.committed for worker in workers)
        self.commit = run.latency(prefix + "commit_ms")
        self.bytes = sum(maker.bytes for maker in makers) - written

    @property
    def mb_s(self) -> float:
        return self.bytes / 1e6 / self.meter.seconds

    def figures(self, plain: float) -> dict[str, Any]:
        """Returns the part's figures; `plain`: MB/s of plain writes."""
        costs = self.meter.of_one(self.transactions, "syncs", "appends")
        between_ms = len(self._makers) * self.meter.seconds * 1000 / max(1, self.transactions)
        return {
            "mb_s": round(self.mb_s, 2),
            "relative_to_plain": round(self.mb_s / plain, 4) if plain else None,
            "transactions": self.transactions,
            "between_commits_ms": round(between_ms, 1),
            "seconds": round(self.meter.seconds, 3),
            "commit_ms": self.commit.summary(),
            **{f"{name}_per_transaction": cost for name, cost in costs.items()},
        }

    def _goes_on(self, maker: Maker, until: int, end: int) -> bool:
        run = self._run
        return run.now() < until and maker.bytes < end and not run.stop.is_set()

    def _write(self, maker: Maker) -> None:
        run, records = self._run, _records(maker)
        write, end = run.system.writer(OUT), maker.bytes + self._limit
        while self._goes_on(maker, self._until, end):
            due = run.now()
            write(maker.make(records), None, maker.source)
            run.trace.batches.append(maker.batch(records, due, run.now()))

    def _transact(self, worker: WorkerRun, maker: Maker) -> None:
        run, records = self._run, _records(maker)
        end = maker.bytes + self._limit
        while self._goes_on(maker, self._until, end):
            attempt, last = worker.begin(), min(run.now() + self._interval * 1_000_000, self._until)
            while not attempt.batches or self._goes_on(maker, last, end):
                due = run.now()
                worker.write(attempt, OUT, maker.make(records, attempt.tx), maker.source)
                written = run.now() if worker.flush(attempt) else None
                attempt.batches.append(maker.batch(records, due, written, attempt.tx))
            worker.commit(attempt)


def _records(maker: Maker) -> int:
    """Returns the number of records of a batch."""
    return max(1, min(RECORDS, _BATCH_BYTES_MAX // maker.size))
