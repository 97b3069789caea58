"""Runs writers and a reader while the disk fails, and records the result of each call.

    two writers ─▶ transactions: a record to each of two topics, a row    ─▶ acknowledged │ refused │ unknown
    a reader    ─▶ snapshots: both topics agree, always
    the main    ─▶ trims, checkpoints, and at the end: does it go on, or is it closed for good?

`check` compares a store's content afterwards: all acknowledged transactions, once; no refused one; and each
unknown one wholly or not at all, as `outcome` says.

    the day before ─▶ killed, or closed ─▶ opened below failing files ─ refused: an error that blames no bytes
                                                                     │    └ failed once: the next try opens
                                                                     └ open: goes on with the writers

Data that could not be read is not damaged. Corruption or FormatError is the wrong error, because a user may
react by throwing the store away; a store that opens with less data is wrong too.

Next: ../rows/ioerr.py.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ....api.engine import Engine
from ....errors import (
    Aborted,
    EngineClosed,
    HostStopped,
    IoError,
    Overloaded,
    PlanstepError,
    Undetermined,
)
from .contents import records
from .engines import LeftBehind, abandon, end_what_was_open, problems, stores_of, wait_stable
from .modes import mode_of

WRITERS = 2
EACH = 8
"""A writer's transactions before the checkpoint in the middle, and again after it."""
BEGIN = 2 * EACH
"""The number of the first transaction of the day after."""
BLAMING = ("Corruption", "FormatError")
DEFINITE = (Aborted, IoError, Overloaded)
"""A commit's errors that guarantee that it has no effect."""
PARTITIONS = 3
ENDS_WITHIN = 60.0


@dataclass
class Log:
    """Collects the results that callers got. Values are unique. `unknown`: value → id of its transaction; `read`:
    value → what its transaction has read; `errors`: how often each error came, by name; `words`: its last message.
    """

    acknowledged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    read: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    looks: int = 0
    failed_looks: int = 0
    closed: bool = False

    def error_of(
        self, call: Callable[[], object], may: tuple[type[Exception], ...] = (PlanstepError,)
    ) -> Exception | None:
        """Makes a call that may fail; returns and records its error, which is wrong unless it is one of `may`."""
        try:
            call()
        except Exception as error:
            if isinstance(error, HostStopped):
                self.wrong.append(f"the engine met a bug of its own: {error!r}")
            elif not isinstance(error, may):
                self.wrong.append(f"an error that it may not be: {error!r}")
            if isinstance(error, PlanstepError):
                name = type(error).__name__
                self.errors[name] = self.errors.get(name, 0) + 1
                self.words[name] = str(error)
            return error
        return None


class Load:
    """Runs the workload on one engine; `begin` is the first transaction's number."""

    def __init__(self, db: Engine, log: Log, begin: int = 0) -> None:
        self.db, self.log, self.begin = db, log, begin
        self.tables = db.context.runtime.hooks.has_tables
        self.reads = mode_of(db).reads
        self._done = threading.Event()

    def create(self) -> bool:
        """Creates topics and the table; returns False if the disk prevented it."""
        calls: list[Callable[[], object]] = [
            partial(self.db.create_topic, name, PARTITIONS, format="utf8", exist_ok=True)
            for name in ("a", "b", "t")
        ]
        if self.tables:
            calls.append(partial(self.db.create_table, "rows", 2, exist_ok=True))
        if self.reads:
            calls.append(self._create_consumer)
        return all(map(self._succeeds, calls))

    def _create_consumer(self) -> None:
        """Makes the first writer's consumer an individual one; the others' are cumulative."""
        self.db.topic("a").create_consumer("w0", "individual", exist_ok=True)

    def _succeeds(self, call: Callable[[], object]) -> bool:
        """Makes a call that may fail; returns whether it succeeded."""
        return self.log.error_of(call) is None

    def work(self) -> None:
        reader = _start(self._read)
        for half in (0, 1):
            begin = self.begin + half * EACH
            self._join([_start(self._write, number, begin) for number in range(WRITERS)])
            self._succeeds(self._make_dead)
            self.checkpoint()
        self._done.set()
        self._join([reader])

    def _join(self, threads: list[threading.Thread]) -> None:
        deadline = time.monotonic() + ENDS_WITHIN
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.log.wrong.append(f"a call has not ended after {ENDS_WITHIN:g} s")

    def checkpoint(self) -> None:
        for store in stores_of(self.db):
            self._succeeds(store.checkpoint)

    def _make_dead(self) -> None:
        """Writes and trims bytes, so that files are rewritten and removed."""
        topic = self.db.topic("t")
        for partition in range(PARTITIONS):
            topic.write("y" * 4000, partition=partition)
        topic.trim("latest")

    def _write(self, number: int, begin: int) -> None:
        for n in range(begin, begin + EACH):
            value = f"{number}-{n}:" + "x" * (n * 97 % 900)
            if not self.transaction(f"w{number}", value, n):
                return

    def transaction(self, worker: str, value: str, n: int) -> bool:
        """Commits one transaction; returns False if the engine is closed."""
        ids: list[str] = []

        def commit() -> None:
            with self.db.transaction(worker=worker) as tx:
                ids.append(tx.id)
                if self.reads:
                    batch = tx.read("a", worker, max_records=2, partition=n % PARTITIONS)
                    self.log.read[value] = list(map(str, batch.values))
                tx.write("a", value, partition=n % PARTITIONS)
                tx.write("b", value, partition=(n + 1) % PARTITIONS)
                if self.tables:
                    tx.put("rows", worker, value)

        error = self.log.error_of(commit, (*DEFINITE, Undetermined, EngineClosed))
        if error is None:
            self.log.acknowledged.append(value)
        elif isinstance(error, DEFINITE):
            self.log.refused.append(value)
        else:
            self.log.unknown[value] = ids[0] if ids else ""
        return not isinstance(error, EngineClosed)

    def _read(self) -> None:
        while not self._done.wait(0.003):
            error = self.log.error_of(self._compare)
            if isinstance(error, EngineClosed) or not isinstance(error, PlanstepError | None):
                return
            self.log.failed_looks += error is not None

    def _compare(self) -> None:
        a, b = self.read_both()
        self.log.looks += 1
        if self.tables and a != b:
            self.log.wrong.append(f"torn: {sorted(a ^ b)[:3]} is in one topic only")
        if visible := [value for value in self.log.refused if value in a or value in b]:
            self.log.wrong.append(f"refused, and visible: {visible[0]:.20}")

    def read_both(self) -> tuple[set[str], set[str]]:
        """Returns the values of both topics, from one snapshot if the mode has them."""
        with self.db.context.open_view() as view:
            a, b = (view.read(topic, max_records=10_000).values for topic in ("a", "b"))
        return set(map(str, a)), set(map(str, b))

    def ends(self) -> None:
        """Checks, with the disk healthy again, that the engine works, reads too, or reports at each call that it is
        closed.
        """
        for attempt in range(4):
            before = len(self.log.acknowledged)
            if self.create():
                self.log.closed = not self.transaction("end", f"end-{attempt}", attempt)
            else:
                self.log.closed = self._is_closed()
            if len(self.log.acknowledged) > before:
                if not self._succeeds(self.read_both):
                    self.log.wrong.append("the disk is well, and reads do not go on")
                return
            if self.log.closed:
                break
            self.checkpoint()
        if not self.log.closed:
            self.log.wrong.append("the disk is well, and the engine neither goes on nor is closed")
        elif not self._is_closed():
            self.log.wrong.append("closed, and not closed")

    def close(self) -> None:
        """Closes the engine; this may fail like any other call."""
        self._succeeds(self.db.close)

    def _is_closed(self) -> bool:
        return isinstance(Log().error_of(lambda: self.db.create_topic("z", 1)), EngineClosed)


def _start(work: Callable[..., None], *arguments: int) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def check(db: Engine, log: Log, path: Path) -> list[str]:
    """Lists what is wrong with the store's final content; closes the engine."""
    wrong: list[str] = []
    load = Load(db, Log())
    if not load.create():
        return [f"the store cannot be used: {load.log.errors} {load.log.wrong}"]
    writers = [f"w{number}" for number in range(WRITERS)]
    try:
        end_what_was_open(db, [*writers, "end"])
        wait_stable(db)
    except LeftBehind as what:
        wrong.append(str(what))
    if not load.tables:
        load.transaction("end", "after-end", 0)
        wait_stable(db)
    deadline = time.monotonic() + 5.0
    a, b = load.read_both()
    acknowledged = [*log.acknowledged, *load.log.acknowledged]
    wrong += [f"acknowledged and lost: {value:.20}" for value in acknowledged if value not in a & b]
    wrong += [f"refused and there: {value:.20}" for value in log.refused if value in a | b]
    wrong += [f"torn: {value:.20}" for value in sorted(a ^ b)]
    for topic in ("a", "b"):
        values = [str(value) for value in db.topic(topic).read(max_records=10_000).values]
        if len(values) != len(set(values)):
            wrong.append(f"topic {topic}: a record is there twice")
    for worker in writers if load.reads else ():
        wrong += _differing_consumed(db, worker, log.read, a)
    if load.tables:
        wrong += _differing_outcomes(db, log.unknown, a, deadline)
        rows = {str(value) for _, value in db.table("rows").scan()}
        wrong += [f"a row of a transaction that is not there: {row:.20}" for row in rows - a]
    wrong += load.log.wrong
    db.close()
    return wrong + problems(path)


def _differing_consumed(
    db: Engine, worker: str, read: dict[str, list[str]], there: set[str]
) -> Iterator[str]:
    """Yields what a worker's consumer has consumed, and none of its transactions that are there has, and the
    other way round; and what two of them have."""
    runtime: Any = db.context.runtime
    consumed: list[str] = []
    with db.context.open_view() as view, db.context.reading() as reading:
        for partition, tablet in enumerate(runtime.names.topics["a"].partitions):
            position, _, ranges, _ = reading.standing(tablet, worker)
            consumed += [
                str(record.value)
                for record in records(view, "a", partition)
                if record.offset < (position or 0)
                or any(begin <= record.offset < end for begin, end in ranges)
            ]
    of_worker = [n for n in read if n.startswith(f"{worker[1:]}-") and n in there]
    both = sorted(value for n in of_worker for value in read[n])
    if both != sorted(consumed):
        yield f"consumer {worker} has consumed {len(consumed)} records, its transactions {len(both)}"


def _differing_outcomes(
    db: Engine, unknown: dict[str, str], there: set[str], deadline: float
) -> Iterator[str]:
    """Yields the unknown transactions whose visible effect differs from their outcome."""
    for value, tx in unknown.items():
        if not tx:
            continue
        while (state := db.outcome(tx).state) == "planned" and time.monotonic() < deadline:
            time.sleep(0.01)  # decided, not applied everywhere
        if (state == "committed") != (value in there):
            yield f"{value:.20} is {'' if value in there else 'not '}there, but {state}"


# a store with existing data -------------------------------------------------------------------


def day_before(db: Engine, log: Log, killed: bool) -> None:
    """Fills a store on a healthy disk, then closes it or leaves it with its log ahead of its tables."""
    load = Load(db, log)
    if load.create():
        load.work()
    if log.refused or log.unknown or log.errors:
        log.wrong.append(f"the disk is well, and calls fail: {log.errors}")
    if killed:
        abandon(db)
    else:
        db.close()


def try_open(attempt: Callable[[], Engine], log: Log, once: bool) -> tuple[Engine | None, bool]:
    """Opens the store; returns (the engine, whether it was refused at first). `once`: the retry must succeed."""
    engines: list[Engine] = []
    for attempts in range(2 if once else 1):
        error = log.error_of(lambda: engines.append(attempt()))
        if error is None:
            return engines[0], attempts > 0
        if isinstance(error, HostStopped):
            return None, True
    if once:
        log.wrong.append(f"the disk failed once, and the store does not open: {log.errors}")
    return None, True


def damage_reports(log: Log) -> list[str]:
    """Lists failures that were reported as damage."""
    return [
        f"the disk failed, and {log.errors[name]} times it was told as {name}"
        for name in BLAMING
        if name in log.errors
    ]
