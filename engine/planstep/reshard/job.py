"""Loads and reshards events; every step is one transaction, so that a kill at any moment loses nothing.

    load      chunk ─▶ events + rejected + progress row       the row says which line comes next
    reshard   batch of one partition ─▶ events-by-user + counts in totals + position

Its durable state is in rows of tables. Modes "kafka" and "pulsar" have none, so changelogs hold it: a topic by
name, one record a change. A count is then state of one partition, so users are counted after the resharding,
when all events of a user are in one partition:

    count     batch of one partition of events-by-user ─▶ counts in the changelog totals + position

Mode "kafka" answers a commit before its records can be read. A worker that finds nothing more is done, so a stage
begins once all that the stage before it committed can be read.

A worker takes its share of the partitions by their numbers; another engine with the same consumer would get a
Conflict and rewind. Running a finished job again changes nothing.

A store remembers the job it was made for. Another job, or a store with topics of other programs, is refused
before anything is changed.

Next: verify.py.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import planstep

from .events import Chunk, Source

EVENTS, BY_USER, REJECTED = "events", "events-by-user", "rejected"
TOTALS, PROGRESS, JOB = "totals", "progress", "job"
CONSUMER, COUNTER = "resharder", "counter"
LOADER = "loader"
ORIGIN = "origin"

Progress = Callable[[str, int, "int | None"], None]
"""Called with (phase, records done so far, records in all if known), by several workers at the same time."""


@dataclass(slots=True)
class Done:
    """The figures of a run; `changed` is False when the job was finished before it."""

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


class _Tables:
    def __init__(self, db: planstep.Engine) -> None:
        self._db = db

    def has(self, name: str) -> bool:
        return name in self._db.tables()

    def make(self, name: str, partitions: int = 1) -> None:
        self._db.create_table(name, exist_ok=True)

    def peek(self, name: str, key: Any) -> Any:
        """Returns the committed value, None when there is none."""
        return self._db.table(name).get(key)

    def get(self, tx: planstep.Transaction, name: str, key: Any) -> Any:
        return tx.get(name, key)

    def put(self, tx: planstep.Transaction, name: str, key: Any, value: Any) -> None:
        tx.put(name, key, value)


class _Changelogs:
    """The state of one worker, in changelogs of one partition each."""

    def __init__(self, db: planstep.Engine, worker: str) -> None:
        self._db, self._worker = db, worker
        self._opened: dict[str, planstep.Changelog] = {}

    def _log(self, name: str) -> planstep.Changelog:
        if name not in self._opened:
            self._opened[name] = self._db.changelog(name, worker=self._worker)
        return self._opened[name]

    def has(self, name: str) -> bool:
        return name in self._db.topics()

    def make(self, name: str, partitions: int = 1) -> None:
        self._db.create_topic(name, partitions=partitions, format="msgpack", exist_ok=True)

    def peek(self, name: str, key: Any) -> Any:
        return dict(self._log(name).items()).get(str(key))

    def get(self, tx: planstep.Transaction, name: str, key: Any) -> Any:
        return self._log(name).get(tx, str(key))

    def put(self, tx: planstep.Transaction, name: str, key: Any, value: Any) -> None:
        self._log(name).put(tx, str(key), value)


WorkerState = _Tables | _Changelogs
"""Durable values by name and key, which change in the transactions that they belong to."""


def kept_in(db: planstep.Engine, worker: str) -> WorkerState:
    return _Tables(db) if db.context.runtime.hooks.has_tables else _Changelogs(db, worker)


def headers_of(file_number: int, ordinals: list[int]) -> list[dict[str, bytes]]:
    """Makes each event's header: its file and ordinal, by which the verifier recognizes it."""
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
    _end_left_open(db)
    loader = _claim(db, source, partitions)
    for topic in (EVENTS, BY_USER):
        db.create_topic(topic, partitions=partitions, exist_ok=True)
    db.create_topic(REJECTED, partitions=1, exist_ok=True)
    loader.make(TOTALS, partitions)
    loader.make(PROGRESS)
    before = db.stats()
    job = _Job(db, source, partitions, batch, progress, report)
    done = job.done
    for number, file in enumerate(source.files):
        _load(job, loader, number, file)
    done.resharded = _Resharding(job).run(workers)
    if not db.context.runtime.hooks.has_tables:
        _Counting(job).run(workers)
        _wait_until_read(db, TOTALS)
    after = db.stats()
    done.conflicts = after["transactions"]["conflicts"] - before["transactions"]["conflicts"]
    done.store = {name: n - before["store"][name] for name, n in after["store"].items()}
    done.seconds = time.perf_counter() - started
    return done


def _end_left_open(db: planstep.Engine) -> None:
    """Ends what a killed run, perhaps of more workers, left open: it would hold this one up until its time-out."""
    hooks = db.context.runtime.hooks
    if hooks.by_txn_id:
        db.abort_left_open()
    elif hooks.by_name is not None:
        for name in [identity.name for identity in db.transactional_ids(only_open=True)]:
            if name is not None and name.rpartition("-")[0] in (CONSUMER, COUNTER):
                hooks.ready(name)


def _wait_until_read(db: planstep.Engine, topic: str) -> None:
    """Waits until everything committed in a topic can be read."""
    for tablet in db.context.topic(topic).partitions:
        db.context.runtime.hooks.wait_stable(tablet)


def _claim(db: planstep.Engine, source: Source, partitions: int) -> WorkerState:
    mine: dict[str, Any] = {**source.identity(), "partitions": partitions}
    known = [*db.topics(), *db.tables()]
    loader = kept_in(db, LOADER)
    stored = loader.peek(JOB, "job") if loader.has(JOB) else None
    if not isinstance(stored, dict) or "files" not in stored:
        ours = (EVENTS, BY_USER, REJECTED, TOTALS, PROGRESS, *([] if stored is None else [JOB]))
        others = [name for name in ours if name in known]
        if others:
            what = f"{others[0]!r} already, and not from a resharding"
            raise planstep.PlanstepError(f"this store holds {what}; name another STORE")
        loader.make(JOB)
        loader.peek(JOB, "job")  # a changelog is opened before its worker's transaction
        db.run(lambda tx: loader.put(tx, JOB, "job", mine), worker=LOADER)
        return loader
    stored["files"] = list(stored["files"])
    differing = [k for k in mine if stored.get(k) != mine[k]]
    if differing:
        text = "; ".join(f"{k}: stored {stored.get(k)!r}, asked {mine[k]!r}" for k in differing)
        raise planstep.PlanstepError(
            f"this store holds another resharding ({text}); name another STORE for this one"
        )
    return loader


@dataclass(slots=True)
class _Job:
    """A run of the job: what its stages share, and its figures so far."""

    db: planstep.Engine
    source: Source
    partitions: int
    batch: int
    progress: Progress
    report: Callable[[str], None]
    done: Done = field(default_factory=Done)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, fn: Callable[[planstep.Transaction], int], worker: str) -> int:
        """Runs `fn` in a transaction, and counts it unless `fn` returns 0, the number of records it wrote."""
        attempts = 0

        def counted(tx: planstep.Transaction) -> int:
            nonlocal attempts
            attempts += 1
            return fn(tx)

        value = self.db.run(counted, deadline=300.0, worker=worker)
        with self.lock:
            self.done.committed += value > 0
            self.done.retries += attempts - 1
        return value


# loading -----------------------------------------------------------------------------------

_FRESH = {"next": 0, "records": 0, "rejected": 0, "end": False}


def _load(job: _Job, loader: WorkerState, number: int, file: str) -> None:
    state = loader.peek(PROGRESS, number) or _FRESH
    if not state["end"]:
        for chunk in job.source.chunks(file, state["next"], job.batch):
            for ordinal, line, reason in chunk.rejected:
                where = f"{file}:{job.source.line_number(ordinal)}"
                job.report(f"{where}: rejected, {reason}: {line[:80]!r}")
            load = partial(_load_chunk, loader=loader, number=number, chunk=chunk)
            job.done.loaded += job.run(load, LOADER)
            job.progress("load", chunk.end, job.source.total)
        job.run(partial(_load_end, loader=loader, number=number), LOADER)
        state = loader.peek(PROGRESS, number) or state
    job.done.records += state["records"]
    job.done.rejected += state["rejected"]


def _load_chunk(tx: planstep.Transaction, loader: WorkerState, number: int, chunk: Chunk) -> int:
    state = loader.get(tx, PROGRESS, number) or _FRESH
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
    loader.put(tx, PROGRESS, number, after)
    return chunk.end - chunk.begin


def _load_end(tx: planstep.Transaction, loader: WorkerState, number: int) -> int:
    state = loader.get(tx, PROGRESS, number) or _FRESH
    loader.put(tx, PROGRESS, number, {**state, "end": True})
    return 1


# resharding --------------------------------------------------------------------------------


class _Stage(ABC):
    """Workers that process their partitions to the end; the first failure, or an interrupt, stops all of them."""

    phase = ""
    topic = ""
    consumer = ""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        _wait_until_read(job.db, self.topic)
        topic = job.db.topic(self.topic)
        self._total = sum(part.end for part in topic.describe().partitions)
        self._moved = sum(topic.position(self.consumer).values())

    def run(self, workers: int) -> int:
        """Returns the number of records processed."""
        before, partitions = self._moved, self._job.partitions
        threads = [
            threading.Thread(target=self._work, args=(w, range(w, partitions, workers)))
            for w in range(min(workers, partitions))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:  # the engine is closed next: no worker may still run
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._failures:
            raise self._failures[0]
        return self._moved - before

    def _work(self, number: int, partitions: range) -> None:
        worker = f"{self.consumer}-{number}"
        try:
            for partition in partitions:
                move = self._mover(partition, worker)
                while not self._stop.is_set() and (moved := self._job.run(move, worker)):
                    with self._job.lock:
                        self._moved += moved
                        so_far = self._moved
                    self._job.progress(self.phase, so_far, self._total)
        except BaseException as error:
            self._failures.append(error)
            self._stop.set()

    @abstractmethod
    def _mover(self, partition: int, worker: str) -> Callable[[planstep.Transaction], int]:
        """Returns the function of a transaction: it processes a partition's next records and counts them."""

    def _read(self, tx: planstep.Transaction, partition: int) -> planstep.ReadBatch:
        return tx.read(
            self.topic,
            self.consumer,
            max_records=self._job.batch,
            max_bytes=64 << 20,
            partition=partition,
        )


class _Resharding(_Stage):
    phase, topic, consumer = "reshard", EVENTS, CONSUMER

    def _mover(self, partition: int, worker: str) -> Callable[[planstep.Transaction], int]:
        has_tables = self._job.db.context.runtime.hooks.has_tables
        parse = self._job.source.parse

        def move(tx: planstep.Transaction) -> int:
            records = self._read(tx, partition)
            if values := records.values:
                users = [pair[1] for pair in map(parse, values) if pair is not None]
                tx.write_batch(BY_USER, values, keys=users, headers=records.headers)
                if has_tables:
                    for user, count in Counter(users).items():
                        tx.add(TOTALS, user, count)
            return len(values)

        return move


class _Counting(_Stage):
    """Counts events by user, as Kafka Streams does after a repartitioning: each partition has its users' counts."""

    phase, topic, consumer = "count", BY_USER, COUNTER

    def _mover(self, partition: int, worker: str) -> Callable[[planstep.Transaction], int]:
        totals = self._job.db.changelog(TOTALS, partition, worker=worker)

        def count(tx: planstep.Transaction) -> int:
            records = self._read(tx, partition)
            for user, n in Counter(records.keys).items():
                assert user is not None
                totals.add(tx, user.decode(), n)
            return len(records)

        return count
