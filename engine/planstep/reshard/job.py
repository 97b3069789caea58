"""Load, reshard: every step one transaction, so that a kill at any moment costs nothing.

    load      chunk ─▶ events + rejected + progress row       the row says which line comes next
    reshard   batch of one partition ─▶ events-by-user + counts in totals + position

A worker leases its share of the partitions by number; another engine with the same consumer would
get a Conflict and rewind. What was finished stays finished: running again changes nothing.

A store remembers the job it was made for; another job, or someone else's topics, are refused before
anything is changed.

Next: verify.py.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import planstep

from .events import Chunk, Source

EVENTS, BY_USER, REJECTED = "events", "events-by-user", "rejected"
TOTALS, PROGRESS, JOB = "totals", "progress", "job"
CONSUMER = "resharder"
ORIGIN = "origin"

Progress = Callable[[str, int, "int | None"], None]
"""(phase, records done so far, records in all if known); workers call it at the same time."""


@dataclass(slots=True)
class Done:
    """What a run did; `changed` is False when all was there already."""

    records: int = 0
    rejected: int = 0
    loaded: int = 0
    resharded: int = 0
    committed: int = 0
    conflicts: int = 0
    retries: int = 0
    seconds: float = 0.0
    store: dict[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.loaded or self.resharded)


def headers_of(file_number: int, ordinals: list[int]) -> list[dict[str, bytes]]:
    """Each event's source and ordinal in one header, by which the verifier knows it again."""
    return [{ORIGIN: b"%d:%d" % (file_number, ordinal)} for ordinal in ordinals]


def run(
    db: planstep.Engine,
    source: Source,
    *,
    partitions: int = 16,
    workers: int = 1,
    batch: int = 10_000,
    progress: Progress = lambda phase, done, total: None,
    report: Callable[[str], None] = lambda line: None,
) -> Done:
    """Runs the job to its end. PlanstepError when the store belongs to another job."""
    started = time.perf_counter()
    _claim(db, source, partitions)
    for topic in (EVENTS, BY_USER):
        db.create_topic(topic, partitions=partitions, exist_ok=True)
    db.create_topic(REJECTED, partitions=1, exist_ok=True)
    for table in (TOTALS, PROGRESS):
        db.create_table(table, exist_ok=True)
    before = db.stats()
    done = Done()
    tries = _Tries()
    for number, file in enumerate(source.files):
        _load(db, source, number, file, batch, done, tries, progress, report)
    _Resharding(db, source, partitions, batch, done, tries, progress).run(workers)
    after = db.stats()
    done.committed, done.retries = tries.committed, tries.retries
    done.conflicts = after["transactions"]["conflicts"] - before["transactions"]["conflicts"]
    done.store = {name: n - before["store"][name] for name, n in after["store"].items()}
    done.seconds = time.perf_counter() - started
    return done


def _claim(db: planstep.Engine, source: Source, partitions: int) -> None:
    mine: dict[str, Any] = {**source.identity(), "partitions": partitions}
    known = [*db.topics(), *db.tables()]
    stored = db.table(JOB).get("job") if JOB in db.tables() else None
    if not isinstance(stored, dict) or "files" not in stored:
        ours = (EVENTS, BY_USER, REJECTED, TOTALS, PROGRESS, *([] if stored is None else [JOB]))
        taken = [name for name in ours if name in known]
        if taken:
            raise planstep.PlanstepError(
                f"this store holds {taken[0]!r} already, and not from a resharding; name another "
                "STORE"
            )
        db.create_table(JOB, exist_ok=True)
        db.table(JOB).put("job", mine)
        return
    stored["files"] = list(stored["files"])
    differing = [k for k in mine if stored.get(k) != mine[k]]
    if differing:
        text = "; ".join(f"{k}: stored {stored.get(k)!r}, asked {mine[k]!r}" for k in differing)
        raise planstep.PlanstepError(
            f"this store holds another resharding ({text}); name another STORE for this one"
        )


class _Tries:
    """Counts transactions that changed something, over all workers."""

    def __init__(self) -> None:
        self.committed = 0
        self.retries = 0
        self._lock = threading.Lock()

    def run(self, db: planstep.Engine, fn: Callable[[planstep.Transaction], int]) -> int:
        """`fn` says how many records it wrote; with 0 its transaction counts for nothing."""
        attempts = 0

        def counted(tx: planstep.Transaction) -> int:
            nonlocal attempts
            attempts += 1
            return fn(tx)

        value = db.run(counted, deadline=300.0)
        with self._lock:
            self.committed += value > 0
            self.retries += attempts - 1
        return value


# loading -----------------------------------------------------------------------------------

_FRESH = {"next": 0, "records": 0, "rejected": 0, "end": False}


def _load(
    db: planstep.Engine,
    source: Source,
    number: int,
    file: str,
    batch: int,
    done: Done,
    tries: _Tries,
    progress: Progress,
    report: Callable[[str], None],
) -> None:
    state = db.table(PROGRESS).get(number, _FRESH)
    if not state["end"]:
        for chunk in source.chunks(file, state["next"], batch):
            for ordinal, line, reason in chunk.rejected:
                where = f"{file}:{source.line_number(ordinal)}"
                report(f"{where}: rejected, {reason}: {line[:80]!r}")
            done.loaded += tries.run(db, partial(_load_chunk, number=number, chunk=chunk))
            progress("load", chunk.end, source.total)
        tries.run(db, partial(_load_end, number=number))
        state = db.table(PROGRESS).get(number, state)
    done.records += state["records"]
    done.rejected += state["rejected"]


def _load_chunk(tx: planstep.Transaction, number: int, chunk: Chunk) -> int:
    state = tx.get(PROGRESS, number, _FRESH)
    if state["next"] != chunk.begin:
        raise planstep.PlanstepError(
            f"another thread loads into this store: line {state['next']} is next, not {chunk.begin}"
        )
    headers = headers_of(number, chunk.ordinals)
    tx.write_batch(EVENTS, chunk.values, keys=chunk.writers, headers=headers)
    if chunk.rejected:
        ordinals, lines, _ = map(list, zip(*chunk.rejected, strict=True))
        tx.write_batch(REJECTED, lines, headers=headers_of(number, ordinals))
    after = {
        "next": chunk.end,
        "records": state["records"] + len(chunk.values),
        "rejected": state["rejected"] + len(chunk.rejected),
        "end": False,
    }
    tx.put(PROGRESS, number, after)
    return chunk.end - chunk.begin


def _load_end(tx: planstep.Transaction, number: int) -> int:
    tx.put(PROGRESS, number, {**tx.get(PROGRESS, number, _FRESH), "end": True})
    return 1


# resharding --------------------------------------------------------------------------------


class _Resharding:
    """Workers that empty their partitions; the first failure, or an interrupt, stops all of them."""

    def __init__(
        self,
        db: planstep.Engine,
        source: Source,
        partitions: int,
        batch: int,
        done: Done,
        tries: _Tries,
        progress: Progress,
    ) -> None:
        self._db, self._parse, self._partitions, self._batch = db, source.parse, partitions, batch
        self._done, self._tries, self._progress = done, tries, progress
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        with db._look() as view:
            self._total = sum(end for _, end in view.bounds(EVENTS).values())
            self._moved = sum(view.position(EVENTS, CONSUMER).values())

    def run(self, workers: int) -> None:
        threads = [
            threading.Thread(target=self._work, args=(range(w, self._partitions, workers),))
            for w in range(min(workers, self._partitions))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:  # the engine is closed next: nobody may still be at work
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._failures:
            raise self._failures[0]

    def _work(self, partitions: range) -> None:
        try:
            for partition in partitions:
                move = partial(self._move, partition=partition)
                while not self._stop.is_set() and (moved := self._tries.run(self._db, move)):
                    with self._lock:
                        self._done.resharded += moved
                        self._moved += moved
                        so_far = self._moved
                    self._progress("reshard", so_far, self._total)
        except BaseException as error:
            self._failures.append(error)
            self._stop.set()

    def _move(self, tx: planstep.Transaction, partition: int) -> int:
        records = tx.read(
            EVENTS, CONSUMER, max_records=self._batch, max_bytes=64 << 20, partition=partition
        )
        values = records.values
        if not values:
            return 0
        users = [pair[1] for pair in map(self._parse, values) if pair is not None]
        tx.write_batch(BY_USER, values, keys=users, headers=records.headers)
        for user, count in Counter(users).items():
            tx.add(TOTALS, user, count)
        return len(values)
