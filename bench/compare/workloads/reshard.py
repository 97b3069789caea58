"""Runs the main workload: records partitioned by writer become records partitioned by user, exactly once.

    "in", loaded before ─▶ worker w has partitions w, w + W, …
       each piece when it is due: read ─▶ write by key, to all partitions of "out" ─▶ flush
       each commit interval: commit ─▶ the next transaction              a follower reads "out"

The offered rate is an open loop: a piece is due at its time whether or not the one before is done, and its
records' latencies count from then. At maximum rate nothing is due, so of the latencies only the commit's has a
meaning. The task is the model task of the talk in docs/acid.md.

Next: move.py, the same without a rate.
"""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from ..systems.base import Cancelled
from .base import Room, Run, Verdict, Workload
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
from .inputs import DEMO_BYTES, Input, load
from .verifying import verify_passed_on

IN, OUT, CONSUMER = "in", "out", "resharder"
PIECES = 10
"""The number of pieces in a commit interval, about."""
_PIECE_SECONDS_MIN = 0.005
INPUT_BYTES_MAX, RECORDS_PER_SECOND_MAX = 400_000_000, 200_000
"""Limits of the input of a run at maximum rate, which ends when that is used up, or after `duration`."""
_MAX_PIECE_BYTES = 1 << 20
_LOAD_BYTES = 4 << 20
"""A batch of loaded records stays below the size at which writes are staged before the commit. It is then a plain
write, readable once it returns."""
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
            most = min(INPUT_BYTES_MAX // size, int(shape.duration * RECORDS_PER_SECOND_MAX))
            self.pieces = max(1, most // (self.records * self.workers))
            self.per_commit = 0
            return
        wanted = max(_PIECE_SECONDS_MIN, shape.commit_interval / PIECES)
        a_second = shape.rate * 1e6 / size / self.workers
        self.records = max(1, round(a_second * wanted))
        self.interval = self.records / a_second
        self.pieces = max(1, int(shape.duration / self.interval))
        self.per_commit = max(1, round(shape.commit_interval / self.interval))

    def offered(self, size: int) -> float:
        """Returns MB/s, where all input comes to `size` bytes."""
        return size / 1e6 / (self.pieces * self.interval)

    def due_times(
        self, run: Run, begin: int, number: int, pieces: int
    ) -> Iterator[tuple[int, int]]:
        """Yields (number, due time) of a worker's pieces, as they become due; workers are staggered."""
        first = begin + int(number * self.interval / self.workers * 1e9)
        return due_times(run, first, self.interval, pieces)

    def counts(self, partitions: int) -> list[int]:
        """Returns the records of each input partition that its worker takes in turn."""
        counts = []
        for partition in range(partitions):
            nth, worker = divmod(partition, self.workers)
            shared_by = len(range(worker, partitions, self.workers))
            counts.append(len(range(nth, self.pieces, shared_by)) * self.records)
        return counts


class Reshard(Workload):
    name = "reshard"
    about = "the talk's model task: from partitions by writer to partitions by user, exactly once"
    feeds: ClassVar = {OUT: f"{IN}/{CONSUMER}"}
    shares_rate: ClassVar = True
    room: ClassVar[Room | None] = Room(3.0, 0.1)

    def prepare(self, run: Run) -> None:
        shape, partitions = run.shape, run.shape.partitions
        run.system.prepare({IN: partitions, OUT: partitions})
        counts = run.state["counts"] = Plan(run).counts(partitions)
        batch_size = max(1, _LOAD_BYTES // (shape.record_size or DEMO_BYTES))
        run.state["input"] = load(run, IN, counts, Input(shape).records, batch_size)

    def run(self, run: Run) -> None:
        plan, paced = Plan(run), run.shape.rate is not None
        arrivals = Arrivals(run.state["counts"]) if paced else None
        workers = [_Resharder(run, plan, w, arrivals) for w in range(plan.workers)]
        follower = Follower(run, OUT, arrivals)
        batches = run.trace.batches
        begin = run.now() + (LEAD_NS if paced else 0)
        with follower:
            threads(run, [partial(worker.work, begin) for worker in workers])
            if paced:
                follower.expected = sum(batch.records for batch in batches)
        settle(run, workers)
        run.payload = sum(batch.bytes for batch in batches)
        ended = max((row.reply or 0 for row in run.trace.transactions), default=begin)
        run.seconds = (ended - begin) / 1e9
        if arrivals is not None:
            run.offered = plan.offered(run.state["input"])
            add_latencies(run, arrivals, batches)

    def verify(self, run: Run) -> Verdict:
        return verify_passed_on(run, IN, OUT, CONSUMER, run.state["counts"], by_key=True)


class _Resharder(WorkerRun):
    """One worker. `_pieces` are those taken up and not committed yet, each with its due time."""

    def __init__(self, run: Run, plan: Plan, number: int, arrivals: Arrivals | None) -> None:
        super().__init__(run, f"resharder-{number}", CONSUMER, number)
        self._plan, self._arrivals = plan, arrivals
        self._partitions = range(number, run.shape.partitions, plan.workers)
        run.system.fetch_ahead(self.name, IN, self._partitions)
        self._pieces: list[tuple[int, int]] = []
        self._coming: Iterator[tuple[int, int]] = iter(())
        self._more = True
        # The first transactions are of different lengths, so that commits are spread over the interval.
        self._skipped = number * plan.per_commit // plan.workers

    def work(self, begin: int) -> None:
        self._coming, in_vain = self._due_times(begin), 0
        while (self._more or self._pieces) and not self.run.stop.is_set():
            try:
                if self.transact(self._fill) is not None:
                    self._pieces.clear()
            except Cancelled as error:
                if not error.retryable:
                    raise
            self._skipped = 0
            in_vain = in_vain + 1 if self._pieces else 0
            if in_vain > _IN_VAIN_MAX:
                raise Cancelled(f"{in_vain} transactions in a row were cancelled", retryable=False)

    def _due_times(self, begin: int) -> Iterator[tuple[int, int]]:
        run, plan = self.run, self._plan
        given_up = begin + int(_GIVEN_UP * run.shape.duration * 1e9)
        for n, due in plan.due_times(run, begin, self.number, plan.pieces):
            if due < given_up - _GRACE_NS and run.now() > given_up:
                return  # the rate is not sustained: further pieces would show nothing new
            yield n, due

    def _fill(self, attempt: Attempt) -> None:
        """Processes pieces that an earlier transaction failed to commit, then new ones until it is full."""
        opened = self.run.now()
        for piece in self._pieces:
            self._pass_on(attempt, *piece)
        while not self._is_full(opened):
            following = next(self._coming, None)
            if following is None:
                self._more = False
                return
            self._pieces.append(following)
            self._pass_on(attempt, *following)

    def _is_full(self, opened: int) -> bool:
        if self._plan.interval:
            return len(self._pieces) + self._skipped >= self._plan.per_commit
        took = self.run.now() - opened
        return bool(self._pieces) and took >= self.run.shape.commit_interval * 1e9

    def _pass_on(self, attempt: Attempt, n: int, due: int) -> None:
        partition = self._partitions[n % len(self._partitions)]
        chunk = self.read(attempt, IN, partition, self._plan.records)
        if not chunk.values:
            return
        attempt.work.write(OUT, chunk.values, chunk.keys)
        if self._arrivals is not None:
            self._arrivals.is_due(partition, chunk.begin, len(chunk.values), due)
        self.add_batch(attempt, (IN, partition), chunk, due, flush=bool(self._plan.interval))
