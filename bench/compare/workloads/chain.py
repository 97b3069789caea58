"""Chains three stages, each with transactions of its own: how commit intervals add up.

    plain writer ─▶ "a" ─ stage 0 ─▶ "b" ─ stage 1 ─▶ "c" ─ stage 2 ─▶ "d" ─ follower
    open loop            each, at the end of each interval: read all there is ─ pass it on ─ commit

The next stage sees a record once its transaction has been committed. So a record waits an interval at most at each
stage, and half of one on average. Stages must not commit in step: each draws its intervals, by seed, up to JITTER
shorter, alike for every system. `extra` has end to end against STAGES × interval.

A stage reads at the end of its interval, and no sooner. Where a transaction sees topics as of its first read (mode
deterministic), later records would wait for the next transaction; elsewhere it makes no difference.

The writer stops early enough for its last records to come through in the run's time.

Next: ../../judges/python/__init__.py.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

from ...judges.trace import Batch
from ..measure import Schedule
from ..systems.base import Cancelled
from .base import Run, Verdict, Workload
from .driving import Arrivals, Attempt, Doing, Watching, piece, read_by, threads
from .made import Maker
from .verifying import passed_on, written_whole

TOPICS = ("a", "b", "c", "d")
STAGES = len(TOPICS) - 1
PARTITIONS = 4
RATE_MB_S = 1.0
"""The highest rate; the run's shape may ask for less."""
JITTER = 0.3
_PIECE_S = 0.02
"""Seconds between pieces; more where a single record is more than the rate allows."""
_READ_MAX = 10_000
_LEAD_NS = 50_000_000
_GRACE_NS = 10_000_000_000


class Chain(Workload):
    name = "chain"
    about = "three stages, one behind the other: end to end against three commit intervals"
    feeds: ClassVar = {TOPICS[n + 1]: f"{TOPICS[n]}/stage-{n}" for n in range(STAGES)}

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
        counts = [0] * PARTITIONS
        for n in range(count):
            counts[n % PARTITIONS] += records
        run.kept["counts"] = counts
        arrivals = Arrivals(counts)
        doing = [Doing(run, f"stage-{n}", f"stage-{n}", n) for n in range(STAGES)]
        stages = [_Stage(run, one, n) for n, one in enumerate(doing)]
        begin = run.now() + _LEAD_NS
        pieces = _Pieces(records, count, piece_s, begin)
        last = begin + int(count * piece_s * 1e9)
        until = last + int(through * 1e9) + _GRACE_NS
        with Watching(run, TOPICS[-1], arrivals, sum(counts)):
            threads(
                run,
                [
                    _write(run, pieces, arrivals, size),
                    *(partial(stage.work, sum(counts), until) for stage in stages),
                ],
            )
        for one in doing:
            one.settle()
        run.transactions = sum(one.committed for one in doing)
        run.cancelled = sum(one.cancelled for one in doing)
        run.payload = sum(batch.bytes for batch in run.trace.batches if batch.tx < 0)
        run.seconds = (last - begin) / 1e9
        run.offered = records * size / piece_s / 1e6
        run.lag_limit_ms = 100 * shape.commit_interval
        read_by(run, arrivals)
        bound = 1000 * STAGES * shape.commit_interval
        found = run.latency("end_to_end_ms").summary()
        run.extra |= {
            "stages": STAGES,
            "bound_ms": bound,
            "end_to_end_over_bound": found
            and {name: round(ms / bound, 3) for name, ms in found.items()},
        }

    def verify(self, run: Run) -> Verdict:
        counts = run.kept["counts"]
        verdict = written_whole(run, TOPICS[0], counts, PARTITIONS)
        for n in range(STAGES):
            source, target = TOPICS[n : n + 2]
            stage = passed_on(run, source, target, f"stage-{n}", counts, PARTITIONS)
            verdict.missing += stage.missing
            verdict.duplicated += stage.duplicated
            verdict.out_of_order += stage.out_of_order
            for name, times in stage.violations.items():
                verdict.violations[name] = verdict.violations.get(name, 0) + times
            verdict.problems += stage.problems
            verdict.records = stage.records
        left = sum(counts) - verdict.records
        if left > 0:  # the stages had time for all of them, and more
            verdict.missing += left
            verdict.problems.append(f"{left} of {sum(counts)} records did not come through")
        return verdict


class _Pieces(NamedTuple):
    """`times` pieces of `records`, one every `seconds`, from `begin` on."""

    records: int
    times: int
    seconds: float
    begin: int


def _write(run: Run, pieces: _Pieces, arrivals: Arrivals, size: int) -> Callable[[], None]:
    lag, write = run.latency("generator_lag_ms"), run.latency("write_ms")
    makers = [Maker(run, n, size, "writer") for n in range(PARTITIONS)]

    def work() -> None:
        writer = run.system.writer(TOPICS[0])
        schedule = Schedule(pieces.begin + run.zero, pieces.seconds, pieces.times, lag)
        for n, moment in schedule:
            if run.stop.is_set():
                return
            maker, due = makers[n % PARTITIONS], moment - run.zero
            arrivals.is_due(maker.source, maker.count, pieces.records, due)
            writer.write(maker.make(pieces.records), None, maker.source)
            now = run.now()
            run.trace.batches.append(maker.wrote(pieces.records, due, now))
            write.add(now - due)

    return work


class _Stage:
    """Passes on all records of its topic at the end of each interval."""

    def __init__(self, run: Run, doing: Doing, number: int) -> None:
        self._run, self._doing = run, doing
        self._source, self._target = TOPICS[number : number + 2]
        self._draw = random.Random(run.shape.seed * STAGES + number)

    def work(self, expected: int, until: int) -> None:
        """Runs until it has passed on the expected number of records, or the time is `until`."""
        run, interval, passed = self._run, self._run.shape.commit_interval, 0
        at = run.now() + int(self._draw.random() * interval * 1e9)
        while passed < expected and run.now() < until:
            if run.stop.wait(max(0, at - run.now()) / 1e9):
                return
            passed += self._transact()
            at += int(self._draw.uniform(1 - JITTER, 1) * interval * 1e9)

    def _transact(self) -> int:
        """Runs one transaction; returns the number of records that it passed on."""
        run, doing = self._run, self._doing
        attempt = doing.begin()
        try:
            rows = self._pass_on(attempt)
            if not rows:
                attempt.work.rollback()  # it has no effects, and so no row in the trace
                return 0
            doing.commit(attempt)
        except Cancelled as error:
            if attempt.proposed is None:
                doing.rollback(attempt, error.cause)
            if not error.retryable:
                raise
            return 0
        replied = run.now()
        run.trace.batches.extend(row._replace(written=replied) for row in rows)
        return sum(row.records for row in rows)

    def _pass_on(self, attempt: Attempt) -> list[Batch]:
        run, doing, source = self._run, self._doing, self._source
        rows = []
        for partition in range(PARTITIONS):
            due = run.now()
            taken = attempt.work.read(source, partition, _READ_MAX)
            if taken.values:
                doing.write(attempt, self._target, taken.values, partition, taken.keys)
                doing.consumed(attempt, source, partition, taken.begin, taken.end)
                place = (source, partition)
                rows.append(piece(run, attempt, doing.name, place, taken, due=due))
        return rows


WORKLOAD = Chain()
