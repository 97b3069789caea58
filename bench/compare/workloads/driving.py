"""What workloads share: input to work on, transactions that are recorded as they go, a reader beside them.

    Input       generated or real events, each with its identity, loaded before the clock runs
    Doing       one worker's transactions, one after the other: rows of the trace, latencies
    Watching    a follower in a thread of its own: when each record came, what it was shown

What is due is due: nothing here waits for what it measures.

Next: reshard.py.
"""

import random
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...judges.trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    IDENTITY_BYTES,
    PRODUCE,
    TOPIC,
    UNDETERMINED,
    Batch,
    Operation,
    Transaction,
    identities,
    identity,
)
from ..systems.base import (
    Cancelled,
    Certificate,
    Impossible,
    Moments,
    Taken,
    Unknown,
    Work,
    Worker,
)
from .base import Run, Shape

USERS = 20_000
DEMO_BYTES = 115
"""Of a real event with its identity, on average."""
_LOAD_BYTES = 4 << 20
"""Below what goes ahead of its commit: a write by itself stays a plain one, and can be read once it returns."""
_LAST_SECONDS = 10.0
"""How long a reader waits for what is still missing when the work is done."""
_POLL_SECONDS = 0.25


# input -------------------------------------------------------------------------------------


class Input:
    """Records of one topic by partition: seeded, users by Zipf's law; or the demo's real events."""

    def __init__(self, shape: Shape, salt: int = 0) -> None:
        self._draw = random.Random(shape.seed * 1_000_003 + salt)
        self._size = shape.record_size
        self._users = [b"u%d" % n for n in range(USERS)]
        weights = [1 / rank for rank in range(1, USERS + 1)]
        total = 0.0
        self._weights = [total := total + weight for weight in weights]
        self._filler = self._draw.randbytes(max(1 << 16, 2 * (shape.record_size or 0)))
        self._events: Iterator[tuple[bytes, bytes]] | None = None
        if shape.demo:
            self._events = _demo_events()

    def records(self, partition: int, begin: int, count: int) -> tuple[list[bytes], list[bytes]]:
        """(values, keys) of the partition's records from ordinal `begin` on."""
        if self._events is not None:
            return self._real(partition, begin, count)
        size = max(IDENTITY_BYTES, self._size or 100) - IDENTITY_BYTES
        filler, last = self._filler, len(self._filler) - size
        starts = [at * 977 % last for at in range(begin, begin + count)]
        values = [
            identity(partition, begin + n) + filler[at : at + size] for n, at in enumerate(starts)
        ]
        keys = self._draw.choices(self._users, cum_weights=self._weights, k=count)
        return values, keys

    def _real(self, partition: int, begin: int, count: int) -> tuple[list[bytes], list[bytes]]:
        values, keys = [], []
        assert self._events is not None
        for ordinal in range(begin, begin + count):
            line, user = next(self._events)
            value = identity(partition, ordinal) + line
            values.append(
                value if self._size is None else value.ljust(self._size, b" ")[: self._size]
            )
            keys.append(user)
        return values, keys


def _demo_events() -> Iterator[tuple[bytes, bytes]]:
    """(line, user) of the flights, again and again."""
    from planstep.reshard.events import demo

    source = demo()
    while True:
        for chunk in source.chunks(source.files[0], 0, 10_000):
            for line, user in zip(chunk.values, chunk.users, strict=True):
                yield line, user.encode()


def load(run: Run, topic: str, counts: Sequence[int], made: Input) -> int:
    """Writes so many records into each partition; returns their bytes."""
    total = 0
    for partition, count in enumerate(counts):
        each = max(1, _LOAD_BYTES // (run.shape.record_size or DEMO_BYTES))
        for begin in range(0, count, each):
            values, keys = made.records(partition, begin, min(each, count - begin))
            run.system.load(topic, partition, values, keys)
            total += sum(map(len, values))
    return total


# transactions ------------------------------------------------------------------------------


class Attempt:
    """A transaction that is under way: what will be its row, and its operations."""

    __slots__ = ("begin", "operations", "proposed", "staged", "tx", "work", "wrote")

    def __init__(self, tx: int, work: Work, begin: int) -> None:
        self.tx, self.work, self.begin = tx, work, begin
        self.staged: int | None = None
        self.proposed: int | None = None
        self.operations: list[Operation] = []
        self.wrote: dict[tuple[str, int], int] = {}
        """Records by topic and partition, where `Doing.write` wrote them."""


class Doing:
    """One worker's transactions. Of one thread; its rows are complete after `settle`.

    What a transaction cost, and when it became visible, is known a moment behind its answer: the row is
    written when the worker has ended its next one. `prefix`: of its latencies' names.
    """

    def __init__(
        self, run: Run, name: str, consumer: str, number: int = 0, prefix: str = ""
    ) -> None:
        self.run, self.name, self.consumer = run, name, consumer
        self.worker: Worker = run.system.worker(name, consumer, number)
        self.committed = self.cancelled = 0
        self._last: tuple[Attempt, str, Certificate | None, int, str | None] | None = None
        self._commit = run.latency(prefix + "commit_ms")
        self._visible = run.visible_of.setdefault(prefix + "visible_ms", [])

    def begin(self) -> Attempt:
        tx = self.run.trace.begun()
        begun = self.run.now()
        return Attempt(tx, self.worker.begin(), begun)

    def consumed(self, attempt: Attempt, topic: str, partition: int, begin: int, end: int) -> None:
        lane = self.run.trace.lane(CONSUMER, f"{topic}/{self.consumer}", partition)
        attempt.operations.append(Operation(attempt.tx, CONSUME, lane, begin, end))

    def write(
        self,
        attempt: Attempt,
        topic: str,
        values: Sequence[bytes],
        partition: int,
        keys: Sequence[bytes | None] | None = None,
    ) -> None:
        """To one partition: the trace says how many of its own lie there, whoever else writes between them."""
        attempt.work.write(topic, values, keys, partition)
        place = topic, partition
        attempt.wrote[place] = attempt.wrote.get(place, 0) + len(values)

    def flush(self, attempt: Attempt) -> bool:
        """Whether what was written is durable already."""
        try:
            attempt.work.flush()
        except Impossible:
            return False
        attempt.staged = self.run.now()
        return True

    def commit(self, attempt: Attempt) -> Certificate:
        """Cancelled, or Unknown, are recorded and raised."""
        proposed = attempt.proposed = self.run.now()
        try:
            done = attempt.work.commit()
        except Cancelled as error:
            self.gave_up(attempt, error.cause)
            raise
        except Unknown:
            self._ended(attempt, UNDETERMINED, None, None)
            raise
        reply = self.run.now()
        self._commit.add(reply - proposed)
        self.committed += 1
        trace = self.run.trace
        for (topic, partition), (begin, end) in done.published.items():
            placed = done.step is not None
            known = (
                placed and not attempt.wrote
            )  # without places a span may hold others' records too
            records = attempt.wrote.get((topic, partition), end - begin if known else 0)
            if not records:
                continue  # not known; or a changelog's: state, which no verifier reads as records
            lane = trace.lane(TOPIC, topic, partition)
            told = (begin, end) if placed else (-1, -1)
            attempt.operations.append(Operation(attempt.tx, PRODUCE, lane, *told, records))
        self._ended(attempt, COMMITTED, done, None, reply)
        return done

    def gave_up(self, attempt: Attempt, cause: str) -> None:
        """It ended without effect."""
        self.cancelled += 1
        self._ended(attempt, ABORTED, None, cause)

    def rollback(self, attempt: Attempt, cause: str = "rollback") -> None:
        attempt.work.rollback()
        self.gave_up(attempt, cause)

    def _ended(
        self,
        attempt: Attempt,
        outcome: str,
        done: Certificate | None,
        cause: str | None,
        reply: int | None = None,
    ) -> None:
        self._record()
        self._last = attempt, outcome, done, self.run.now() if reply is None else reply, cause

    def _record(self) -> bool:
        """The row of the one before; False while it is not visible that is going to be."""
        if self._last is None:
            return True
        (attempt, outcome, done, reply, cause), self._last = self._last, None
        run, system = self.run, self.run.system
        moments = system.moments(attempt.work.id) if outcome != ABORTED else Moments()
        costs = system.costs(attempt.work.id)
        visible = run.since(moments.visible)
        if outcome == COMMITTED:
            self._visible.append(attempt.tx)
        run.trace.operations.extend(attempt.operations)
        run.trace.transactions.append(
            Transaction(
                attempt.tx,
                attempt.work.id,
                self.name,
                outcome,
                None if done is None else done.step,
                None if done is None else done.n,
                None if done is None else done.epoch,
                costs.participants or _participants(attempt, done),
                attempt.begin,
                attempt.staged,
                attempt.proposed,
                run.since(moments.planned),
                run.since(moments.decided),
                visible,
                reply,
                cause,
                *costs[1:],
            )
        )
        return visible is not None

    def settle(self) -> None:
        """Its last row; called a moment after the end of its last transaction."""
        self._record()
        self.worker.close()


def _participants(attempt: Attempt, done: Certificate | None) -> int:
    """Where the system does not tell: partitions written to, and whoever keeps the positions."""
    consumed = any(operation.op == CONSUME for operation in attempt.operations)
    return consumed + (0 if done is None else len(done.published))


def threads(run: Run, works: Sequence[Callable[[], Any]]) -> None:
    """Runs them side by side to their ends; the first error is raised."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            run.stop.set()

    running = [
        threading.Thread(target=guarded, args=(work,), name=f"bench-{n}", daemon=True)
        for n, work in enumerate(works)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


# reading beside ----------------------------------------------------------------------------


class Arrivals:
    """When each record of an input was due to be processed, and when its output had come, by (source, ordinal)."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.due = [array("q", bytes(8 * count)) for count in counts]
        self.came = [array("q", bytes(8 * count)) for count in counts]

    def is_due(self, source: int, begin: int, count: int, due: int) -> None:
        self.due[source][begin : begin + count] = array("q", [due]) * count

    def last(self, source: int, begin: int, count: int) -> int | None:
        """When the last of these had come; None when one has not."""
        times = self.came[source][begin : begin + count].tolist()
        return max(times) if times and 0 not in times else None

    def end_to_end(self) -> Iterator[int]:
        for due, came in zip(self.due, self.came, strict=True):
            for a, b in zip(due, came, strict=True):
                if b:
                    yield b - a


class Watching:
    """Follows a topic in a thread of its own, until all of `expected` records came or, once the work is done, for
    some seconds. `with` begins and ends it; who does not know before what will be written sets it within."""

    def __init__(
        self, run: Run, topic: str, arrivals: Arrivals | None, expected: int | None = None
    ) -> None:
        self._run, self._topic, self._arrivals = run, topic, arrivals
        self.expected = expected
        self._follower = run.system.follower(topic)
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="bench-follower", daemon=True)
        self.count = 0

    def __enter__(self) -> "Watching":
        self._thread.start()
        return self

    def _follow(self) -> None:
        try:
            polls, deadline = 0, None
            while self.expected is None or self.count < self.expected:
                if self._done.is_set():
                    now = self._run.now()
                    deadline = deadline or now + int(_LAST_SECONDS * 1e9)
                    if now > deadline or self.expected is None or self._run.stop.is_set():
                        return
                shown = self._follower.poll(_POLL_SECONDS)
                now = self._run.now()
                for partition, offsets, values in shown:
                    self._take(partition, offsets, values, polls, now)
                polls += bool(shown)
        except BaseException as error:
            self._failure = error

    def _take(
        self, partition: int, offsets: Sequence[int], values: list[bytes], poll: int, now: int
    ) -> None:
        self.count += len(values)
        lane = self._run.trace.lane(TOPIC, self._topic, partition)
        self._run.trace.seen.add(lane, offsets, values, poll, now)
        if self._arrivals is not None:
            came = self._arrivals.came
            sources, ordinals, _ = identities(values)
            for source, ordinal in zip(sources, ordinals, strict=True):
                came[source][ordinal] = now

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._run.stop.set()
        self._done.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure
        if self.expected is not None:
            self._run.unread += max(0, self.expected - self.count)


def read_by(run: Run, arrivals: Arrivals) -> None:
    """When each piece of work had been read, and from when to when it took: into the trace, and end_to_end_ms."""
    latency = run.latency("end_to_end_ms")
    for nanoseconds in arrivals.end_to_end():
        latency.add(nanoseconds)
    visible = {row.tx: row.visible for row in run.trace.transactions}
    batches = run.trace.batches
    for n, batch in enumerate(batches):
        lane = run.trace.lanes[batch.lane]
        batches[n] = batch._replace(
            published=visible.get(batch.tx),
            read=arrivals.last(lane.partition, batch.begin, batch.records),
        )


def piece(
    run: Run,
    attempt: Attempt,
    worker: str,
    source: tuple[str, int],
    taken: Taken,
    *,
    due: int,
    written: int | None = None,
) -> Batch:
    """A row of `batches`; `source`: topic and partition."""
    lane = run.trace.lane(TOPIC, *source)
    values = taken.values
    size = sum(map(len, values))
    return Batch(attempt.tx, worker, lane, taken.begin, len(values), size, due, written)
