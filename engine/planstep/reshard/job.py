"""Load, reshard: every step one transaction, so that a kill at any moment costs nothing.

    load      chunk ─▶ events + rejected + progress row       the row says which line comes next
    reshard   batch of one partition ─▶ events-by-user + counts in totals + position

A worker leases its share of the partitions by number; another process with the same consumer would
get a Conflict and rewind. What was finished stays finished: running again changes nothing.

Next: verify.py.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import planstep

from .events import Chunk, Source

EVENTS, BY_USER, REJECTED = "events", "events-by-user", "rejected"
TOTALS, PROGRESS, JOB = "totals", "progress", "job"
CONSUMER = "resharder"

Progress = Callable[[str, int], None]


@dataclass(slots=True)
class Done:
    """What a run did; `changed` is False when all was there already."""

    records: int = 0
    rejected: int = 0
    loaded: int = 0
    resharded: int = 0
    committed: int = 0
    retries: int = 0
    payload_bytes: int = 0
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        return bool(self.loaded or self.resharded)


def headers_of(file_number: int, ordinals: list[int]) -> list[dict[str, bytes]]:
    """Each event's source and ordinal, by which the verifier knows it again."""
    source = b"%d" % file_number
    return [{"source": source, "ordinal": b"%d" % ordinal} for ordinal in ordinals]


def run(
    db: "planstep.Engine",
    source: Source,
    *,
    partitions: int = 16,
    workers: int = 1,
    batch: int = 10_000,
    progress: Progress = lambda phase, records: None,
    report: Callable[[str], None] = lambda line: None,
) -> Done:
    """Runs the job to its end. PlanstepError when the store belongs to another job."""
    started = time.perf_counter()
    done = Done()
    for topic in (EVENTS, BY_USER):
        db.create_topic(topic, partitions=partitions, exist_ok=True)
    db.create_topic(REJECTED, partitions=1, exist_ok=True)
    for table in (TOTALS, PROGRESS, JOB):
        db.create_table(table, exist_ok=True)
    _claim(db, source, partitions)
    tries = _Tries()
    for number, file in enumerate(source.files):
        _load(db, source, number, file, batch, done, tries, progress, report)
    _reshard(db, source, partitions, workers, batch, done, tries, progress)
    done.committed, done.retries = tries.committed, tries.retries
    done.seconds = time.perf_counter() - started
    return done


def _claim(db: "planstep.Engine", source: Source, partitions: int) -> None:
    """The store remembers the job it was made for; another one is refused."""
    mine = {
        "input": source.name,
        "kind": source.kind,
        "partitions": partitions,
        "seed": source.seed,
        "count": source.count,
    }

    def claim(tx: planstep.Transaction) -> Any:
        stored = tx.get(JOB, "job")
        if stored is None:
            tx.put(JOB, "job", mine)
        return stored

    stored = db.run(claim)
    if stored is not None and stored != mine:
        differing = {k: (stored.get(k), mine[k]) for k in mine if stored.get(k) != mine[k]}
        text = ", ".join(f"{k}: stored {a!r}, asked {b!r}" for k, (a, b) in differing.items())
        raise planstep.PlanstepError(
            f"this store holds another resharding ({text}); name another STORE for this one"
        )


class _Tries:
    """Counts transactions over all workers."""

    def __init__(self) -> None:
        self.committed = 0
        self.retries = 0
        self._lock = threading.Lock()

    def run(self, db: "planstep.Engine", fn: Callable[[planstep.Transaction], int]) -> int:
        attempts = 0

        def counted(tx: planstep.Transaction) -> int:
            nonlocal attempts
            attempts += 1
            return fn(tx)

        value = db.run(counted, deadline=300.0)
        with self._lock:
            self.committed += 1
            self.retries += attempts - 1
        return value


def _load(
    db: "planstep.Engine",
    source: Source,
    number: int,
    file: str,
    batch: int,
    done: Done,
    tries: _Tries,
    progress: Progress,
    report: Callable[[str], None],
) -> None:
    state = db.table(PROGRESS).get(number) or {"next": 0, "records": 0, "rejected": 0, "end": False}
    if not state["end"]:
        for chunk in source.chunks(file, state["next"], batch):
            for ordinal, line, reason in chunk.rejected:
                report(f"{file}:{ordinal + 1}: rejected, {reason}: {line[:80]!r}")

            def step(tx: planstep.Transaction, chunk: Chunk = chunk) -> int:
                return _load_chunk(tx, number, chunk)

            done.loaded += tries.run(db, step)
            progress("load", len(chunk.values))

        def end(tx: planstep.Transaction) -> int:
            last = tx.get(PROGRESS, number) or state
            tx.put(PROGRESS, number, {**last, "end": True})
            return 0

        tries.run(db, end)
    state = db.table(PROGRESS).get(number)
    done.records += state["records"]
    done.rejected += state["rejected"]


def _load_chunk(tx: planstep.Transaction, number: int, chunk: Chunk) -> int:
    state = tx.get(PROGRESS, number) or {"next": 0, "records": 0, "rejected": 0, "end": False}
    if state["next"] != chunk.begin:
        raise planstep.PlanstepError(
            f"another process loads into this store: line {state['next']} is next, not {chunk.begin}"
        )
    headers = headers_of(number, chunk.ordinals)
    tx.write_batch(EVENTS, chunk.values, keys=chunk.writers, headers=headers)
    if chunk.rejected:
        tx.write_batch(
            REJECTED,
            [line for _, line, _ in chunk.rejected],
            headers=headers_of(number, [ordinal for ordinal, _, _ in chunk.rejected]),
        )
    tx.put(
        PROGRESS,
        number,
        {
            "next": chunk.end,
            "records": state["records"] + len(chunk.values),
            "rejected": state["rejected"] + len(chunk.rejected),
            "end": False,
        },
    )
    return len(chunk.values) + len(chunk.rejected)


def _reshard(
    db: "planstep.Engine",
    source: Source,
    partitions: int,
    workers: int,
    batch: int,
    done: Done,
    tries: _Tries,
    progress: Progress,
) -> None:
    parse = source.parse
    failures: list[BaseException] = []
    lock = threading.Lock()

    def move(tx: planstep.Transaction, partition: int) -> int:
        records = tx.read(
            EVENTS, CONSUMER, max_records=batch, max_bytes=64 << 20, partition=partition
        )
        values = records.values
        if not values:
            return 0
        users = [pair[1] if pair is not None else "" for pair in map(parse, values)]
        tx.write_batch(BY_USER, values, keys=users, headers=records.headers)
        for user, count in Counter(users).items():
            tx.add(TOTALS, user, count)
        return len(values)

    def work(worker: int) -> None:
        try:
            for partition in range(worker, partitions, workers):
                while not failures:
                    moved = tries.run(db, partial(move, partition=partition))
                    if not moved:
                        break
                    with lock:
                        done.resharded += moved
                    progress("reshard", moved)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
