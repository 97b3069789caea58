"""Holds what the workloads share: transactions that are recorded as they go, schedules, a follower.

    WorkerRun   one worker's transactions, one after the other: rows of the trace, latencies
    Follower    a follower in a thread of its own: arrival times of records, and which records came in which poll

Work stays due at its scheduled time, even if the work before it is late.

Next: reshard.py, which uses these.
"""

import math
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ...judges.trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    INDIVIDUAL,
    PRODUCE,
    TOPIC,
    UNDETERMINED,
    Batch,
    Operation,
    Transaction,
    identities,
)
from ..measure import Latencies, schedule
from ..systems.base import Cancelled, Certificate, Chunk, Impossible, Moments, Unknown, Work
from .base import Run

LEAD_NS = 100_000_000
"""Time between the start of the threads and the first due time."""
_LAST_SECONDS = 10.0
"""Seconds that a follower waits for missing records once the work is done."""
_POLL_SECONDS = 0.25


# transactions ------------------------------------------------------------------------------


@dataclass(slots=True)
class Attempt:
    """A transaction under way, or its end, for the trace.

    `record_counts` has the numbers of records that `WorkerRun.write` wrote, by topic and partition. `batches` go to
    the trace with the commit; one that was not durable before is written with its reply.
    """

    tx: int
    work: Work
    begin: int
    staged: int | None = None
    proposed: int | None = None
    operations: list[Operation] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    record_counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    certificate: Certificate = field(default_factory=Certificate)
    outcome: str = UNDETERMINED
    reply: int = 0
    cause: str | None = None


class WorkerRun:
    """One worker's transactions. It belongs to one thread; its rows are complete after `settle`.

    The costs of a transaction, and when it became visible, are known a moment after its reply. So its row is
    written when the worker's next transaction ends. `prefix` is put before the names of its latencies. `causes`
    counts cancelled transactions.
    """

    def __init__(
        self, run: Run, name: str, consumer: str = "none", number: int = 0, prefix: str = ""
    ) -> None:
        self.run, self.name, self.consumer, self.number = run, name, consumer, number
        self._begin = run.system.worker(name, consumer, number)
        self._last: Attempt | None = None
        self.count_under(prefix)

    def count_under(self, prefix: str) -> None:
        self.committed, self.causes = 0, Counter[str]()
        self._commit = self.run.latency(prefix + "commit_ms")
        self._visible = self.run.visible_of.setdefault(prefix + "visible_ms", [])

    def begin(self) -> Attempt:
        tx, start = self.run.trace.next_tx(), self.run.now()
        try:
            return Attempt(tx, self._begin(), start)
        except Cancelled as error:
            self.causes[error.cause] += 1
            raise

    def transact(self, body: Callable[[Attempt], object]) -> Attempt | None:
        """Runs `body` in a transaction and commits it.

        Returns None, without a row in the trace, if it neither read nor wrote. Cancelled and Unknown are recorded
        and raised.
        """
        attempt = self.begin()
        try:
            body(attempt)
            if not (attempt.operations or attempt.record_counts):
                attempt.work.rollback()
                return None
            self.commit(attempt)
        except Cancelled as error:
            if attempt.proposed is None:
                self.rollback(attempt, error.cause)
            raise
        return attempt

    def read(self, attempt: Attempt, topic: str, partition: int, count: int) -> Chunk:
        """Reads the next records for the worker's consumer."""
        chunk = attempt.work.read(topic, partition, count)
        if chunk.values:
            key = INDIVIDUAL if self.run.system.individual else ""
            lane = self.run.trace.lane(CONSUMER, f"{topic}/{self.consumer}", partition, key)
            operation = Operation(attempt.tx, CONSUME, lane, chunk.begin, chunk.end)
            attempt.operations.append(operation)
        return chunk

    def write(
        self,
        attempt: Attempt,
        topic: str,
        values: Sequence[bytes],
        partition: int,
        keys: Sequence[bytes | None] | None = None,
    ) -> None:
        """Writes to one partition. The trace counts its records there, since others may write between them."""
        attempt.work.write(topic, values, keys, partition)
        attempt.record_counts[topic, partition] += len(values)

    def add_batch(
        self, attempt: Attempt, source: tuple[str, int], chunk: Chunk, due: int, flush: bool
    ) -> None:
        """Records that what was taken from a topic's partition is written; `flush` makes it durable if it can.

        A system that sends by itself is left to do so: then it is durable with the commit.
        """
        flushes = flush and not self.run.system.sends_itself
        written = self.run.now() if flushes and self.flush(attempt) else None
        lane, values = self.run.trace.lane(TOPIC, *source), chunk.values
        size = sum(map(len, values))
        attempt.batches.append(
            Batch(attempt.tx, self.name, lane, chunk.begin, len(values), size, due, written)
        )

    def flush(self, attempt: Attempt) -> bool:
        """Flushes. Returns True if the records written so far are durable now."""
        try:
            attempt.work.flush()
        except Impossible:
            return False
        attempt.staged = self.run.now()
        return True

    def commit(self, attempt: Attempt) -> None:
        """Commits; Cancelled and Unknown are recorded and raised."""
        attempt.proposed = self.run.now()
        try:
            certificate = attempt.certificate = attempt.work.commit()
        except Cancelled as error:
            self._abort(attempt, error.cause)
            raise
        except Unknown:
            self._end(attempt, UNDETERMINED)
            raise
        self._end(attempt, COMMITTED)
        self._commit.add(attempt.reply - attempt.proposed)
        self.committed += 1
        trace = self.run.trace
        trace.batches.extend(
            row if row.written is not None else row._replace(written=attempt.reply)
            for row in attempt.batches
        )
        placed = certificate.step is not None
        for (topic, partition), (begin, end) in certificate.published.items():
            # Without places a span may hold others' records too.
            known = end - begin if placed and not attempt.record_counts else 0
            records = attempt.record_counts.get((topic, partition), known)
            if (
                records
            ):  # else not known; or a changelog's: state, which no verifier reads as records
                lane = trace.lane(TOPIC, topic, partition)
                span = (begin, end) if placed else (-1, -1)
                attempt.operations.append(Operation(attempt.tx, PRODUCE, lane, *span, records))

    def rollback(self, attempt: Attempt, cause: str = "rollback") -> None:
        attempt.work.rollback()
        self._abort(attempt, cause)

    def _abort(self, attempt: Attempt, cause: str) -> None:
        self.causes[cause] += 1
        attempt.cause = cause
        self._end(attempt, ABORTED)

    def _end(self, attempt: Attempt, outcome: str) -> None:
        attempt.outcome, attempt.reply = outcome, self.run.now()
        self.settle()
        self._last = attempt

    def settle(self) -> None:
        """Writes the last transaction's row, if any, a moment after its end."""
        if self._last is None:
            return
        attempt, self._last = self._last, None
        run, system, certificate = self.run, self.run.system, attempt.certificate
        moments = system.moments(attempt.work.id) if attempt.outcome != ABORTED else Moments()
        costs = system.costs(attempt.work.id)
        # Partitions and the keeper of positions, for a system that does not report participants.
        consumed = any(operation.op == CONSUME for operation in attempt.operations)
        if attempt.outcome == COMMITTED:
            self._visible.append(attempt.tx)
        run.trace.operations.extend(attempt.operations)
        run.trace.transactions.append(
            Transaction(
                attempt.tx,
                attempt.work.id,
                self.name,
                attempt.outcome,
                certificate.step,
                certificate.n,
                certificate.epoch,
                costs.participants or consumed + len(certificate.published),
                attempt.begin,
                attempt.staged,
                attempt.proposed,
                run.since(moments.planned),
                run.since(moments.decided),
                run.since(moments.visible),
                attempt.reply,
                attempt.cause,
                *costs[1:],
            )
        )


def settle(run: Run, workers: Iterable[WorkerRun]) -> None:
    """Completes the workers' rows, and adds up their transactions."""
    for worker in workers:
        worker.settle()
        run.transactions += worker.committed
        run.cancelled += worker.causes.total()


def due_times(run: Run, first: int, interval: float, count: int) -> Iterator[tuple[int, int]]:
    """Yields (number, due time since the run's zero) of `count` pieces of work, until the run is stopped.

    Each comes when it is due, `interval` seconds after the one before. Without an interval it comes at once, while
    the run's duration lasts.
    """
    if interval:
        lag = run.latency("generator_lag_ms")
        for number, moment in schedule(first + run.zero, interval, count, lag):
            if run.stop.is_set():
                return
            yield number, moment - run.zero
    else:
        until = first + int(run.shape.duration * 1e9)
        for number in range(count):
            now = run.now()
            if now >= until or run.stop.is_set():
                return
            yield number, now


def threads(run: Run, works: Iterable[Callable[[], Any]]) -> None:
    """Runs `works` in parallel to their ends; raises the first error."""
    failures: list[BaseException] = []

    def guard(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            run.stop.set()

    running = [
        threading.Thread(target=guard, args=(work,), name=f"bench-{n}", daemon=True)
        for n, work in enumerate(works)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


# following -----------------------------------------------------------------------------------


class Arrivals:
    """Records by (source, ordinal): when each was due, and when its output arrived."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.due = [array("q", bytes(8 * count)) for count in counts]
        self.arrived_at = [array("q", bytes(8 * count)) for count in counts]

    def is_due(self, source: int, begin: int, count: int, due: int) -> None:
        self.due[source][begin : begin + count] = array("q", [due]) * count

    def arrive(self, values: Sequence[bytes], now: int) -> None:
        sources, ordinals, _ = identities(values)
        for source, ordinal in zip(sources, ordinals, strict=True):
            self.arrived_at[source][ordinal] = now

    def last(self, source: int, begin: int, count: int) -> int | None:
        """Returns when the last of these records arrived; None when one has not."""
        times = self.arrived_at[source][begin : begin + count].tolist()
        return max(times) if times and 0 not in times else None

    def end_to_end(
        self, sources: Iterable[int] | None = None, begin: float = -math.inf, end: float = math.inf
    ) -> Latencies:
        """Returns the latencies of records of `sources`, or all, that were due in [begin, end)."""
        latencies = Latencies()
        for source in range(len(self.due)) if sources is None else sources:
            for due, arrived_at in zip(self.due[source], self.arrived_at[source], strict=True):
                if arrived_at and begin <= due < end:
                    latencies.add(arrived_at - due)
        return latencies


class Follower:
    """Follows a topic in a thread of its own until all `expected` records came, or seconds after the work is done.

    `with` starts and ends it. A caller that learns only later how many records to expect sets `expected` within.
    """

    def __init__(
        self, run: Run, topic: str, arrivals: Arrivals | None, expected: int | None = None
    ) -> None:
        self._run, self._topic, self._arrivals = run, topic, arrivals
        self.expected, self._count = expected, 0
        self._poll = run.system.follower(topic)
        self._done = threading.Event()
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> "Follower":
        self._following = self._thread.submit(self._follow)
        return self

    def _follow(self) -> None:
        polls, deadline = 0, None
        while self.expected is None or self._count < self.expected:
            if self._done.is_set():
                now = self._run.now()
                deadline = deadline or now + int(_LAST_SECONDS * 1e9)
                if now > deadline or self.expected is None or self._run.stop.is_set():
                    return
            results = self._poll(_POLL_SECONDS)
            now = self._run.now()
            for partition, offsets, values in results:
                self._count += len(values)
                lane = self._run.trace.lane(TOPIC, self._topic, partition)
                self._run.trace.seen.add(lane, offsets, values, polls, now)
                if self._arrivals is not None:
                    self._arrivals.arrive(values, now)
            polls += bool(results)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._run.stop.set()
        self._done.set()
        self._thread.shutdown()
        if kind is None:
            self._following.result()
            if self.expected is not None:
                self._run.unread += max(0, self.expected - self._count)


def write_latencies(
    batches: Iterable[Batch], begin: float = -math.inf, end: float = math.inf
) -> Latencies:
    """Returns the latencies of writing of batches that were due in [begin, end)."""
    latencies = Latencies()
    for batch in batches:
        if batch.written is not None and begin <= batch.intended < end:
            latencies.add(batch.written - batch.intended)
    return latencies


def add_latencies(run: Run, arrivals: Arrivals, writes: Iterable[Batch]) -> None:
    """Adds the latencies of these writes, and all end-to-end latencies.

    Each batch of the trace gets the times when it was published and read.
    """
    run.latency("write_ms").values.extend(write_latencies(writes).values)
    run.latency("end_to_end_ms").values.extend(arrivals.end_to_end().values)
    visible = {row.tx: row.visible for row in run.trace.transactions}
    batches = run.trace.batches
    for n, batch in enumerate(batches):
        lane = run.trace.lanes[batch.lane]
        batches[n] = batch._replace(
            published=visible.get(batch.tx),
            read=arrivals.last(lane.partition, batch.begin, batch.records),
        )
