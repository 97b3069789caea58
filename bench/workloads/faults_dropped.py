"""A worker's session dropped, with neither rollback nor leave: how long do others have to do with it?

    dropped   begin ─ read [0, n) ─ write ─ flush ┆  its thread ends, and nothing more comes of it
    other                                         ┆ begin ─ read [0, n) ─ write ─ commit ─▶ goes on
    reader                                        ┆ ···························· all of that ─▶ readable
    at the very end: the dropped one's commit comes after all, and must be refused

The other one takes the same input, and writes to every partition that the dropped one wrote to. Where a worker's
name stands for one producer this is done twice, under another name and under the same. UNDISTURBED is the
same with nobody dropped.

Next: faults_killed.py.
"""

import threading
from collections.abc import Sequence
from statistics import median
from typing import Any

from ..systems.base import Cancelled, Unknown
from ..trace import IDENTITY_BYTES, TOPIC, identities, identity
from .base import Run
from .driving import Attempt, Doing

IN, OUT, CONSUMER = "in", "out", "faulty"
NOTHING, TIME_OUT, SAME_NAME = "nothing to end", "time-out", "re-initialisation"
"""What ends that which was left open."""
UNDISTURBED = "undisturbed"
ROUNDS = 5
"""Of a way that does not wait for a time-out: that is done once."""
_PATIENCE_S = 15.0
"""More than the time-out, then the run fails."""


def ways(run: Run) -> tuple[str, ...]:
    return (TIME_OUT, SAME_NAME) if run.system.fences else (NOTHING,)


def counts(run: Run, partitions: int) -> list[int]:
    """Records of each input partition: each round takes some of one."""
    return [partitions * ROUNDS * (len(ways(run)) + 1)] * partitions


def patience(run: Run) -> int:
    """Nanoseconds after which what does not come will not."""
    return int((run.options.transaction_timeout_ms / 1e3 + _PATIENCE_S) * 1e9)


def drop(run: Run, partitions: int) -> dict[str, Any]:
    """{way: {"goes_on_ms", "readable_ms", "comes_late"}}: medians, and what a late commit is told.

    ValueError where work does not go on at all."""
    reader = _Reader(run)
    left: list[tuple[str, Doing, Attempt]] = []  # held, so that no collector rolls them back
    found: dict[str, Any] = {}
    turn = 0
    for way in (UNDISTURBED, *ways(run)):
        times = []
        for n in range(1 if way == TIME_OUT else ROUNDS):
            partition, turn = turn % partitions, turn + 1
            name = f"{way}-{n}"
            since = run.now()
            if way != UNDISTURBED:
                doing, attempt, since = _dropped(run, name, partition, partitions)
                left.append((way, doing, attempt))
            until = since + patience(run)
            other = Doing(run, name if way == SAME_NAME else f"{name}-other", CONSUMER)
            done = _go_on(other, partition, partitions, until)
            goes_on = run.now()
            readable = reader.until(done.tx, partitions, until)
            times.append(((goes_on - since) / 1e6, (readable - since) / 1e6))
            other.settle()
            run.transactions += other.committed
            run.cancelled += other.cancelled
        found[way] = {
            "goes_on_ms": round(median(goes_on for goes_on, _ in times), 3),
            "readable_ms": round(median(readable for _, readable in times), 3),
        }
    for way, doing, attempt in left:
        found[way]["comes_late"] = _come_late(doing, attempt)
        run.cancelled += doing.cancelled
    return found


def _dropped(run: Run, name: str, partition: int, partitions: int) -> tuple[Doing, Attempt, int]:
    """…, and when it did the last that it did."""
    made: list[tuple[Doing, Attempt, int]] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            doing = Doing(run, name, CONSUMER)
            attempt = doing.begin()
            _pass_on(doing, attempt, partition, partitions)
            doing.flush(attempt)
            made.append((doing, attempt, run.now()))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="bench-dropped", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _pass_on(doing: Doing, attempt: Attempt, partition: int, partitions: int) -> None:
    """A record of the input to each partition of the output."""
    taken = attempt.work.read(IN, partition, partitions)
    doing.consumed(attempt, IN, partition, taken.begin, taken.end)
    values = marked(taken.values, attempt.tx)
    for target, (value, key) in enumerate(zip(values, taken.keys, strict=True)):
        attempt.work.write(OUT, [value], [key], target)


def marked(values: Sequence[bytes], tx: int) -> list[bytes]:
    """Records as the transaction's own."""
    sources, ordinals, _ = identities(values)
    return [
        identity(source, ordinal, tx) + value[IDENTITY_BYTES:]
        for source, ordinal, value in zip(sources, ordinals, values, strict=True)
    ]


def _go_on(doing: Doing, partition: int, partitions: int, until: int) -> Attempt:
    """The transaction that committed."""
    while True:
        attempt = doing.begin()
        try:
            _pass_on(doing, attempt, partition, partitions)
            doing.commit(attempt)
            return attempt
        except Cancelled as error:
            if attempt.proposed is None:
                doing.rollback(attempt, error.cause)
            if not error.retryable or doing.run.now() > until:
                raise ValueError(
                    f"work does not go on behind a dropped session: {error}"
                ) from error


def _come_late(doing: Doing, attempt: Attempt) -> str:
    """The cause of its refusal. One that is not refused shows in the output: its records are there twice."""
    try:
        doing.commit(attempt)
    except Cancelled as error:
        return error.cause
    except Unknown:
        return "unknown"
    finally:
        doing.settle()
    return "committed"


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
