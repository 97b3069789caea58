"""Drops a worker's session, without rollback or leave: how long does that hold others up?

    dropped   begin ─ read [0, n) ─ write ─ flush ┆  its thread ends, and nothing more comes of it
    other                                         ┆ begin ─ read [0, n) ─ write ─ commit ─▶ goes on
    reader                                        ┆ ···························· all of that ─▶ readable
    at the very end: the dropped one's commit comes after all, and must be refused

The other worker takes the same input, and writes to every partition that the dropped one wrote to. Where a worker's
name stands for one producer this is done twice, under another name and under the same. Where workers share rows it
is also done with a row that both read and replace, since a read may lock. UNDISTURBED is a round without a drop.

Next: faults_killed.py.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

from ...judges.trace import (
    IDENTITY_BYTES,
    READ,
    ROW,
    TOPIC,
    WRITE,
    Operation,
    identities,
    identity,
)
from ..systems.base import SAME_NAME, SHARED_ROWS, TABLES, TIME_OUT, Cancelled, Unknown
from .base import Run
from .driving import Attempt, WorkerRun, settle

IN, OUT, CONSUMER = "in", "out", "faulty"
TABLE, KEY = "rows", "shared"
NOTHING = "nothing to end"
"""The way of systems where nothing has to end an open transaction."""
ROW_READ = "nothing to end, a row read"
UNDISTURBED = "undisturbed"
ROUNDS = 5
"""Rounds of each way, except the time-out, which is done once."""
PACE_S = 0.002
"""Seconds between the begins of an owner's transactions at least, so that enough input can be loaded."""
HELD_S = 1.0
"""Seconds that others wait for a row that was read; then the dropped transaction is rolled back for them."""
_PATIENCE_S = 120.0
"""Seconds beyond the time-out after which the run fails: a server starts in them, or Python on a busy machine."""


def endings(run: Run) -> tuple[str, ...]:
    return run.system.ended_by or (NOTHING,)


def tables(run: Run) -> tuple[str, ...]:
    return () if {TABLES, SHARED_ROWS} & set(run.system.missing) else (TABLE,)


def patience(run: Run) -> int:
    """Returns the nanoseconds after which an event counts as not coming."""
    return int((run.options.transaction_timeout_ms / 1e3 + _PATIENCE_S) * 1e9)


def drop(run: Run, partitions: int) -> dict[str, Any]:
    """Returns {way: {"goes_on_ms", "readable_ms", "comes_late"}}: medians, and the reply to a late commit.

    Where others did not go on these are None, with "not_within_ms". ValueError where work never goes on.
    """
    dropping = _Dropping(run, partitions)
    results: dict[str, Any] = {}
    for ending in (UNDISTURBED, *endings(run), *([ROW_READ] if tables(run) else [])):
        times = []
        for n in range(1 if ending == TIME_OUT else ROUNDS):
            goes_on, readable = dropping.drop_one(ending, f"{ending}-{n}")
            if goes_on is None:
                results[ending] = {
                    "goes_on_ms": None,
                    "readable_ms": None,
                    "not_within_ms": round(HELD_S * 1e3),
                }
                break
            times.append((goes_on / 1e6, readable / 1e6))
        else:
            medians = [round(median(column), 3) for column in zip(*times, strict=True)]
            results[ending] = dict(zip(("goes_on_ms", "readable_ms"), medians, strict=True))
    for ending, cause in dropping.come_late():
        results[ending]["comes_late"] = cause
    return results


class _Dropping:
    """Drops sessions. `_left` holds what was dropped, so that no garbage collector rolls it back."""

    def __init__(self, run: Run, partitions: int) -> None:
        self._run, self._partitions = run, partitions
        self._poll, self._polls = run.system.follower(OUT), 0
        self._left: list[tuple[str, WorkerRun, Attempt]] = []
        self._turn = 0

    def drop_one(self, ending: str, name: str) -> tuple[int | None, int]:
        """Returns the nanoseconds from the drop until another worker's commit, and until that is readable.

        The first is None if the other one could commit only after the dropped one was rolled back for it.
        """
        run, partition = self._run, self._turn % self._partitions
        self._turn += 1
        since = run.now()
        if ending != UNDISTURBED:
            with ThreadPoolExecutor(1) as thread:  # which ends here
                since = thread.submit(self._drop, ending, name, partition).result()
        until = since + patience(run)
        other = WorkerRun(run, name if ending == SAME_NAME else f"{name}-other", CONSUMER)
        helped = False
        with ThreadPoolExecutor(1) as thread:
            going_on = thread.submit(self._go_on, other, ending, partition, until)
            try:
                next_attempt = going_on.result(HELD_S if ending == ROW_READ else None)
            except TimeoutError:
                helped = True
                _, worker, attempt = self._left.pop()
                worker.rollback(attempt, "helped")
                settle(run, [worker])
                next_attempt = going_on.result()
        readable = self._wait_readable(next_attempt.tx, until)
        settle(run, [other])
        if ending == ROW_READ:
            run.state["row"] = next_attempt.tx
        return None if helped else next_attempt.reply - since, readable - since

    def _drop(self, ending: str, name: str, partition: int) -> int:
        """Works up to the flush and abandons the transaction; returns when it was flushed.

        On a busy machine a time-out may end the transaction before; then another one is begun.
        """
        run, worker = self._run, WorkerRun(self._run, name, CONSUMER)
        until = run.now() + patience(run)
        while True:
            attempt = worker.begin()
            try:
                self._pass_on(attempt, worker, ending, partition)
                worker.flush(attempt)
            except Cancelled as error:
                worker.rollback(attempt, error.cause)
                if not error.retryable or run.now() > until:
                    raise
                continue
            self._left.append((ending, worker, attempt))
            return run.now()

    def _pass_on(self, attempt: Attempt, worker: WorkerRun, ending: str, partition: int) -> None:
        """Passes one input record to each partition of the output."""
        work = attempt.work
        chunk = worker.read(attempt, IN, partition, self._partitions)
        values = mark(chunk.values, attempt.tx)
        for target, (value, key) in enumerate(zip(values, chunk.keys, strict=True)):
            work.write(OUT, [value], [key], target)
        if ending == ROW_READ:
            value_read = work.get(TABLE, KEY)
            work.put(TABLE, KEY, attempt.tx)
            lane = self._run.trace.lane(ROW, TABLE, -1, KEY)
            version = -1 if value_read is None else value_read
            attempt.operations.append(Operation(attempt.tx, READ, lane, version=version))
            attempt.operations.append(Operation(attempt.tx, WRITE, lane))

    def _go_on(self, worker: WorkerRun, ending: str, partition: int, until: int) -> Attempt:
        """Retries until a transaction commits, and returns it."""
        body = partial(self._pass_on, worker=worker, ending=ending, partition=partition)
        while True:
            try:
                attempt = worker.transact(body)
                assert attempt is not None, "there is input for each round"
                return attempt
            except Cancelled as error:
                if not error.retryable or self._run.now() > until:
                    raise ValueError(
                        f"no work goes on behind a dropped session: {error}"
                    ) from error

    def _wait_readable(self, tx: int, until: int) -> int:
        """Waits for the transaction's record in each partition; returns when the last was read."""
        trace, count = self._run.trace, self._partitions
        while count > 0:
            results = self._poll(0.25)
            now = self._run.now()
            for partition, offsets, values in results:
                trace.seen.add(trace.lane(TOPIC, OUT, partition), offsets, values, self._polls, now)
                count -= identities(values)[2].count(tx)
            self._polls += bool(results)
            if now > until:
                raise ValueError("readers do not get past what a dropped session left")
        return now

    def come_late(self) -> list[tuple[str, str]]:
        """Tries to commit each dropped transaction; returns [(way, cause of the refusal)].

        A commit that is not refused shows in the output: its records are there twice.
        """
        causes = []
        for ending, worker, attempt in self._left:
            try:
                worker.commit(attempt)
                cause = "committed"
            except Cancelled as error:
                cause = error.cause
            except Unknown:
                cause = "unknown"
            settle(self._run, [worker])
            causes.append((ending, cause))
        return causes


def mark(values: Sequence[bytes], tx: int) -> list[bytes]:
    """Marks records as the transaction's own."""
    sources, ordinals, _ = identities(values)
    return [
        identity(source, ordinal, tx) + value[IDENTITY_BYTES:]
        for source, ordinal, value in zip(sources, ordinals, values, strict=True)
    ]
