"""A worker's session dropped, with neither rollback nor leave: how long do others have to do with it?

    dropped   begin ─ read [0, n) ─ write ─ flush ┆  its thread ends, and nothing more comes of it
    other                                         ┆ begin ─ read [0, n) ─ write ─ commit ─▶ goes on
    reader                                        ┆ ···························· all of that ─▶ readable
    at the very end: the dropped one's commit comes after all, and must be refused

The other one takes the same input, and writes to every partition that the dropped one wrote to. Where a worker's
name stands for one producer this is done twice, under another name and under the same; where there are rows that
workers share, also with one that both read and replace, since a read may lock. UNDISTURBED is with nobody dropped.

Next: faults_killed.py.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
from .driving import Attempt, Doing

IN, OUT, CONSUMER = "in", "out", "faulty"
TABLE, KEY = "rows", "shared"
NOTHING = "nothing to end"
"""What ends that which was left open."""
ROW_READ = "nothing to end, a row read"
UNDISTURBED = "undisturbed"
ROUNDS = 5
"""Of a way that does not wait for a time-out: that is done once."""
HELD_S = 1.0
"""So long others wait for a row that was read; then the dropped one is rolled back for them."""
_PATIENCE_S = 15.0
"""More than the time-out, then the run fails."""


def ways(run: Run) -> tuple[str, ...]:
    return run.system.ended_by or (NOTHING,)


def tables(run: Run) -> tuple[str, ...]:
    return () if {TABLES, SHARED_ROWS} & set(run.system.missing) else (TABLE,)


def counts(run: Run, partitions: int) -> list[int]:
    """Records of each input partition: each round takes some of one."""
    return [partitions * ROUNDS * 4] * partitions


def patience(run: Run) -> int:
    """Nanoseconds after which what does not come will not."""
    return int((run.options.transaction_timeout_ms / 1e3 + _PATIENCE_S) * 1e9)


def drop(run: Run, partitions: int) -> dict[str, Any]:
    """{way: {"goes_on_ms", "readable_ms", "comes_late"}}: medians, and what a late commit is told. Where others did
    not go on, None, and "not_within_ms".

    ValueError where work goes on at no time."""
    dropping = _Dropping(run, partitions)
    found: dict[str, Any] = {}
    for way in (UNDISTURBED, *ways(run), *([ROW_READ] if tables(run) else [])):
        times = []
        for n in range(1 if way == TIME_OUT else ROUNDS):
            goes_on, readable = dropping.once(way, f"{way}-{n}")
            if goes_on is None:
                found[way] = {
                    "goes_on_ms": None,
                    "readable_ms": None,
                    "not_within_ms": round(HELD_S * 1e3),
                }
                break
            times.append((goes_on / 1e6, readable / 1e6))
        else:
            medians = [round(median(column), 3) for column in zip(*times, strict=True)]
            found[way] = dict(zip(("goes_on_ms", "readable_ms"), medians, strict=True))
    for way, cause in dropping.come_late():
        found[way]["comes_late"] = cause
    return found


class _Dropping:
    """`_left`: what was dropped is held here, so that no collector rolls it back."""

    def __init__(self, run: Run, partitions: int) -> None:
        self._run, self._partitions = run, partitions
        self._reader = _Reader(run)
        self._left: list[tuple[str, Doing, Attempt]] = []
        self._turn = 0

    def once(self, way: str, name: str) -> tuple[int | None, int]:
        """Nanoseconds from the drop until another one's commit, None where that had to be helped, and until it
        could be read."""
        run, partition = self._run, self._turn % self._partitions
        self._turn += 1
        since = run.now()
        if way != UNDISTURBED:
            with ThreadPoolExecutor(1) as thread:  # which ends here
                since = thread.submit(self._drop, way, name, partition).result()
        until = since + patience(run)
        other = Doing(run, name if way == SAME_NAME else f"{name}-other", CONSUMER)
        helped = False
        with ThreadPoolExecutor(1) as thread:
            going_on = thread.submit(self._go_on, other, way, partition, until)
            try:
                done, goes_on = going_on.result(HELD_S if way == ROW_READ else None)
            except TimeoutError:
                helped = True
                _, doing, attempt = self._left.pop()
                doing.rollback(attempt, "helped")
                doing.settle()
                run.cancelled += doing.cancelled
                done, goes_on = going_on.result()
        readable = self._reader.until(done.tx, self._partitions, until)
        other.settle()
        run.transactions += other.committed
        run.cancelled += other.cancelled
        if way == ROW_READ:
            run.kept["row"] = done.tx
        return None if helped else goes_on - since, readable - since

    def _drop(self, way: str, name: str, partition: int) -> int:
        """When it did the last that it did."""
        doing = Doing(self._run, name, CONSUMER)
        attempt = doing.begin()
        self._pass_on(doing, attempt, way, partition)
        doing.flush(attempt)
        self._left.append((way, doing, attempt))
        return self._run.now()

    def _pass_on(self, doing: Doing, attempt: Attempt, way: str, partition: int) -> None:
        """A record of the input to each partition of the output."""
        work, trace = attempt.work, self._run.trace
        taken = work.read(IN, partition, self._partitions)
        doing.consumed(attempt, IN, partition, taken.begin, taken.end)
        values = marked(taken.values, attempt.tx)
        for target, (value, key) in enumerate(zip(values, taken.keys, strict=True)):
            work.write(OUT, [value], [key], target)
        if way == ROW_READ:
            seen = work.get(TABLE, KEY)
            work.put(TABLE, KEY, attempt.tx)
            lane = trace.lane(ROW, TABLE, -1, KEY)
            version = -1 if seen is None else seen
            attempt.operations.append(Operation(attempt.tx, READ, lane, version=version))
            attempt.operations.append(Operation(attempt.tx, WRITE, lane))

    def _go_on(self, doing: Doing, way: str, partition: int, until: int) -> tuple[Attempt, int]:
        """The transaction that committed, and when."""
        while True:
            attempt = doing.begin()
            try:
                self._pass_on(doing, attempt, way, partition)
                doing.commit(attempt)
                return attempt, self._run.now()
            except Cancelled as error:
                if attempt.proposed is None:
                    doing.rollback(attempt, error.cause)
                if not error.retryable or self._run.now() > until:
                    raise ValueError(
                        f"no work goes on behind a dropped session: {error}"
                    ) from error

    def come_late(self) -> list[tuple[str, str]]:
        """(way, the cause of its refusal) of each dropped commit. One that is not refused shows in the output: its
        records are there twice."""
        found = []
        for way, doing, attempt in self._left:
            try:
                doing.commit(attempt)
                cause = "committed"
            except Cancelled as error:
                cause = error.cause
            except Unknown:
                cause = "unknown"
            doing.settle()
            self._run.cancelled += doing.cancelled
            found.append((way, cause))
        return found


def marked(values: Sequence[bytes], tx: int) -> list[bytes]:
    """Records as the transaction's own."""
    sources, ordinals, _ = identities(values)
    return [
        identity(source, ordinal, tx) + value[IDENTITY_BYTES:]
        for source, ordinal, value in zip(sources, ordinals, values, strict=True)
    ]


class _Reader:
    """Follows the output beside."""

    def __init__(self, run: Run) -> None:
        self._run, self._polls = run, 0
        self._follower = run.system.follower(OUT)

    def until(self, tx: int, count: int, until: int) -> int:
        """When it had so many records of the transaction."""
        trace = self._run.trace
        while count > 0:
            shown = self._follower.poll(0.25)
            now = self._run.now()
            for partition, offsets, values in shown:
                trace.seen.add(trace.lane(TOPIC, OUT, partition), offsets, values, self._polls, now)
                count -= identities(values)[2].count(tx)
            self._polls += bool(shown)
            if now > until:
                raise ValueError("readers do not get past what a dropped session left")
        return now
