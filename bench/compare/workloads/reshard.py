"""Runs the talk's model task: records partitioned by writer become records partitioned by user, exactly once.

    "in", loaded before ─▶ worker w has partitions w, w + W, …
       each piece when it is due: read ─▶ write by key, to all partitions of "out" ─▶ flush
       each commit interval: commit ─▶ the next transaction              a follower reads "out"

The offered rate is an open loop: a piece is due at its time whether or not the one before is done, and its records'
latencies count from then. At maximum rate nothing is due, and only the commit's latency means anything.

Next: plain.py.
"""

from collections.abc import Iterator
from typing import ClassVar

from ...judges.trace import Batch
from ..measure import Schedule
from ..systems.base import Cancelled
from .base import Run, Verdict, Workload
from .driving import (
    DEMO_BYTES,
    Arrivals,
    Attempt,
    Doing,
    Input,
    Watching,
    load,
    piece,
    read_by,
    threads,
)
from .verifying import passed_on

IN, OUT, CONSUMER = "in", "out", "resharder"
PIECES = 10
"""The number of pieces in a commit interval, about."""
_PIECE_SECONDS_MIN = 0.005
_MAX_BYTES = 400_000_000
"""Input of a run at maximum rate, which ends when that is used up, or after `duration`."""
_MAX_PIECE_BYTES = 1 << 20
_LEAD_NS = 100_000_000
_IN_VAIN_MAX = 200
_GIVEN_UP, _GRACE_NS = 1.5, 1_000_000_000
"""After the first times `duration`, a worker that is behind by more than the second stops."""


class Plan:
    """The schedule of the work: pieces of `records` every `interval` seconds, `pieces` for each worker."""

    def __init__(self, run: Run) -> None:
        shape = run.shape
        size = shape.record_size or DEMO_BYTES
        self.workers = min(shape.workers, shape.partitions)
        if shape.rate is None:
            self.records = max(1, min(10_000, _MAX_PIECE_BYTES // size))
            self.interval = 0.0
            # Input for any system: each takes what it can in the time.
            self.pieces = max(1, _MAX_BYTES // (self.records * size * self.workers))
            self.per_commit = 0
            return
        wanted = max(_PIECE_SECONDS_MIN, min(shape.commit_interval, shape.commit_interval / PIECES))
        a_second = shape.rate * 1e6 / size / self.workers
        self.records = max(1, round(a_second * wanted))
        self.interval = self.records / a_second
        self.pieces = max(1, int(shape.duration / self.interval))
        self.per_commit = max(1, round(shape.commit_interval / self.interval))

    def offered(self, size: int) -> float:
        """Returns MB/s, where all input comes to `size` bytes."""
        return size / 1e6 / (self.pieces * self.interval)

    def counts(self, partitions: int) -> list[int]:
        """Returns the records of each input partition that its worker takes in turn."""
        found = []
        for partition in range(partitions):
            worker = partition % self.workers
            mine = len(range(worker, partitions, self.workers))
            nth = partition // self.workers
            found.append(len(range(nth, self.pieces, mine)) * self.records)
        return found


class Reshard(Workload):
    name = "reshard"
    about = "the talk's model task: from partitions by writer to partitions by user, exactly once"
    feeds: ClassVar = {OUT: f"{IN}/{CONSUMER}"}

    def prepare(self, run: Run) -> None:
        partitions = run.shape.partitions
        run.system.prepare({IN: partitions, OUT: partitions})
        counts = Plan(run).counts(partitions)
        run.kept["input"] = load(run, IN, counts, Input(run.shape))
        run.kept["counts"] = counts

    def run(self, run: Run) -> None:
        plan = Plan(run)
        shape = run.shape
        counts = run.kept["counts"]
        arrivals = Arrivals(counts)
        doing = [Doing(run, f"resharder-{w}", CONSUMER, w) for w in range(plan.workers)]
        paced = shape.rate is not None
        begin = run.now() + (_LEAD_NS if paced else 0)
        watching = Watching(run, OUT, arrivals if paced else None)
        with watching:
            threads(
                run,
                [
                    _Resharder(run, plan, one, w, arrivals, begin).work
                    for w, one in enumerate(doing)
                ],
            )
            if paced:
                watching.expected = sum(batch.records for batch in run.trace.batches)
        for one in doing:
            one.settle()
        run.transactions = sum(one.committed for one in doing)
        run.cancelled = sum(one.cancelled for one in doing)
        run.payload = sum(batch.bytes for batch in run.trace.batches)
        ended = max((row.reply or 0 for row in run.trace.transactions), default=begin)
        run.seconds = (ended - begin) / 1e9
        if paced:
            run.offered = plan.offered(run.kept["input"])
            run.lag_limit_ms = 100 * shape.commit_interval
            write = run.latency("write_ms")
            for batch in run.trace.batches:
                if batch.written is not None:
                    write.add(batch.written - batch.intended)
            read_by(run, arrivals)

    def verify(self, run: Run) -> Verdict:
        return passed_on(run, IN, OUT, CONSUMER, run.kept["counts"], by_key=True)


class _Resharder:
    """One worker. `pieces` are those taken up and not committed yet, each with its due time."""

    def __init__(
        self, run: Run, plan: Plan, doing: Doing, number: int, arrivals: Arrivals, begin: int
    ) -> None:
        self._run, self._plan, self._doing, self._number = run, plan, doing, number
        self._arrivals, self._begin = arrivals, begin
        self._mine = range(number, run.shape.partitions, plan.workers)
        self._lag = run.latency("generator_lag_ms")
        self._pieces: list[tuple[int, int]] = []
        self._coming = self._paced() if plan.interval else self._unpaced()

    def work(self) -> None:
        # The first transactions are of different lengths, so that commits are spread over the interval.
        skipped = self._number * self._plan.per_commit // self._plan.workers
        in_vain = 0
        while (self._transact(skipped) or self._pieces) and not self._run.stop.is_set():
            skipped = 0
            in_vain = in_vain + 1 if self._pieces else 0
            if in_vain > _IN_VAIN_MAX:
                raise Cancelled(f"{in_vain} transactions in a row were cancelled", retryable=False)

    def _paced(self) -> Iterator[tuple[int, int]]:
        run, plan = self._run, self._plan
        ahead = int(self._number * plan.interval / plan.workers * 1e9)  # workers are staggered
        first = self._begin + run.zero + ahead
        given_up = first + int(_GIVEN_UP * run.shape.duration * 1e9)
        for n, moment in Schedule(first, plan.interval, plan.pieces, self._lag):
            if moment < given_up - _GRACE_NS and run.zero + run.now() > given_up:
                return  # the rate is not sustained: further pieces would show nothing new
            yield n, moment - run.zero

    def _unpaced(self) -> Iterator[tuple[int, int]]:
        until = self._begin + int(self._run.shape.duration * 1e9)
        for n in range(self._plan.pieces):
            if self._run.now() >= until:
                return
            yield n, self._run.now()

    def _transact(self, skipped: int) -> bool:
        """Runs one transaction, shorter by `skipped` pieces; returns False when there are no more pieces."""
        run, doing = self._run, self._doing
        attempt = doing.begin()
        try:
            batches, more = self._fill(attempt, skipped)
            if not batches:
                attempt.work.rollback()  # it has no effects, and so no row in the trace
                return more
            doing.commit(attempt)
        except Cancelled as error:
            if attempt.proposed is None:
                doing.rollback(attempt, error.cause)
            if not error.retryable:
                raise
            return True
        replied = run.now()
        run.trace.batches.extend(
            batch if batch.written is not None else batch._replace(written=replied)
            for batch in batches
        )
        self._pieces.clear()
        return more

    def _fill(self, attempt: Attempt, skipped: int) -> tuple[list[Batch], bool]:
        """Processes pieces that an earlier transaction failed to commit, then new ones until it is full.

        Returns (batches, True if more pieces come).
        """
        opened, more = self._run.now(), True
        batches = [self._pass_on(attempt, *piece) for piece in self._pieces]
        while not _is_full(self._run, self._plan, len(self._pieces) + skipped, opened):
            following = next(self._coming, None)
            if following is None:
                more = False
                break
            self._pieces.append(following)
            batches.append(self._pass_on(attempt, *following))
        return [batch for batch in batches if batch is not None], more

    def _pass_on(self, attempt: Attempt, n: int, moment: int) -> Batch | None:
        run, plan, doing = self._run, self._plan, self._doing
        partition = self._mine[n % len(self._mine)]
        taken = attempt.work.read(IN, partition, plan.records)
        if not taken.values:
            return None
        attempt.work.write(OUT, taken.values, taken.keys)
        doing.consumed(attempt, IN, partition, taken.begin, taken.end)
        if plan.interval:
            self._arrivals.is_due(partition, taken.begin, len(taken.values), moment)
        durable = run.now() if plan.interval and doing.flush(attempt) else None
        source = (IN, partition)
        return piece(run, attempt, doing.name, source, taken, due=moment, written=durable)


def _is_full(run: Run, plan: Plan, pieces: int, opened: int) -> bool:
    if plan.interval:
        return pieces >= plan.per_commit
    return pieces > 0 and run.now() - opened >= run.shape.commit_interval * 1e9


WORKLOAD = Reshard()
