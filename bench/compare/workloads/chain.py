"""Runs three chained stages, each with transactions of its own, to measure how commit intervals add up.

    plain writer ─▶ "a" ─ stage 0 ─▶ "b" ─ stage 1 ─▶ "c" ─ stage 2 ─▶ "d" ─ follower
    open loop            each, at the end of each interval: read all there is ─ pass it on ─ commit

The next stage sees a record once its transaction has been committed. So a record waits an interval at most at
each stage, and half of one on average. Stages must not commit in step: each draws its intervals, by seed, up to
JITTER shorter, alike for every system. `run.extra` compares the latency from end to end with STAGES × interval.

A stage reads at the end of its interval, and no sooner. Where a transaction sees topics as of its first read (mode
deterministic), later records would wait for the next transaction; elsewhere it makes no difference.

The writer stops early enough for its last records to come through in the run's time.

Next: ../../judges/python/__init__.py, which checks the traces of all workloads.
"""

import random
from functools import partial
from typing import ClassVar

from ..systems.base import Cancelled
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
)
from .inputs import Maker
from .verifying import verify_passed_on, verify_whole

TOPICS = ("a", "b", "c", "d")
STAGES = len(TOPICS) - 1
PARTITIONS = 4
RATE_MB_S = 1.0
"""The highest rate; the run's shape may ask for less."""
JITTER = 0.3
_PIECE_S = 0.02
"""Seconds between pieces; more where a single record is more than the rate allows."""
_READ_MAX = 10_000
_GRACE_NS = 60_000_000_000
"""Time for the last records on a slow machine: those that come later count as missing."""


class Chain(Workload):
    name = "chain"
    about = "three stages, one behind the other: end to end against three commit intervals"
    feeds: ClassVar = {TOPICS[n + 1]: f"{TOPICS[n]}/stage-{n}" for n in range(STAGES)}
    shares_rate: ClassVar = True

    def prepare(self, run: Run) -> None:
        run.system.prepare({topic: PARTITIONS for topic in TOPICS})

    def run(self, run: Run) -> None:
        shape = run.shape
        size = shape.record_size or 100
        rate = min(shape.rate or RATE_MB_S, RATE_MB_S) * 1e6 / size
        records = max(1, round(rate * _PIECE_S))
        piece_s = max(_PIECE_S, records / rate)
        through = STAGES * shape.commit_interval
        count = max(PARTITIONS, int(max(shape.duration - through, shape.duration / 3) / piece_s))
        counts = run.state["counts"] = [
            len(range(n, count, PARTITIONS)) * records for n in range(PARTITIONS)
        ]
        arrivals = Arrivals(counts)
        stages = [_Stage(run, n) for n in range(STAGES)]
        follower = Follower(run, TOPICS[-1], arrivals, sum(counts))
        begin = run.now() + LEAD_NS
        last = begin + int(count * piece_s * 1e9)
        until = last + int(through * 1e9) + _GRACE_NS
        makers = [Maker(run, n, size, "writer") for n in range(PARTITIONS)]

        def write() -> None:
            system_write = run.system.writer(TOPICS[0])
            for n, due in due_times(run, begin, piece_s, count):
                maker = makers[n % PARTITIONS]
                arrivals.is_due(maker.source, maker.count, records, due)
                system_write(maker.make(records), None, maker.source)
                run.trace.batches.append(maker.batch(records, due, run.now()))

        with follower:
            threads(run, [write, *(partial(one.work, sum(counts), until) for one in stages)])
        settle(run, stages)
        run.payload = sum(maker.bytes for maker in makers)
        run.seconds = (last - begin) / 1e9
        run.offered = records * size / piece_s / 1e6
        add_latencies(run, arrivals, [batch for batch in run.trace.batches if batch.tx < 0])
        bound = 1000 * through
        times = run.latency("end_to_end_ms").summary()
        run.extra |= {
            "stages": STAGES,
            "bound_ms": bound,
            "end_to_end_over_bound": times
            and {name: round(ms / bound, 3) for name, ms in times.items()},
        }

    def verify(self, run: Run) -> Verdict:
        counts = run.state["counts"]
        verdict = verify_whole(run, TOPICS[0], counts, PARTITIONS)
        for n in range(STAGES):
            source, target = TOPICS[n : n + 2]
            stage = verify_passed_on(run, source, target, f"stage-{n}", counts)
            verdict.records = 0  # it counts those that came through
            verdict.add(stage)
        missing = sum(counts) - verdict.records
        if missing > 0:  # the stages had time for all of them, and more
            verdict.missing += missing
            verdict.problems.append(f"{missing} of {sum(counts)} records did not come through")
        return verdict


class _Stage(WorkerRun):
    """Passes on all records of its topic at the end of each interval."""

    def __init__(self, run: Run, number: int) -> None:
        super().__init__(run, f"stage-{number}", f"stage-{number}", number)
        self._source, self._target = TOPICS[number : number + 2]
        self._draw = random.Random(run.shape.seed * STAGES + number)

    def work(self, expected: int, until: int) -> None:
        """Runs until it has passed on the expected number of records, or the time is `until`."""
        run, interval, passed = self.run, self.run.shape.commit_interval, 0
        due = run.now() + int(self._draw.random() * interval * 1e9)
        while passed < expected and run.now() < until:
            if run.stop.wait(max(0, due - run.now()) / 1e9):
                return
            try:
                attempt = self.transact(self._pass_on)
                passed += sum(row.records for row in attempt.batches) if attempt else 0
            except Cancelled as error:
                if not error.retryable:
                    raise
            due += int(self._draw.uniform(1 - JITTER, 1) * interval * 1e9)

    def _pass_on(self, attempt: Attempt) -> None:
        for partition in range(PARTITIONS):
            due = self.run.now()
            chunk = self.read(attempt, self._source, partition, _READ_MAX)
            if chunk.values:
                self.write(attempt, self._target, chunk.values, partition, chunk.keys)
                self.add_batch(attempt, (self._source, partition), chunk, due, flush=False)
