"""Drives SQLite as a good user would: topics and tables in one file.

    worker ─ reads: a connection of its own; writes: gathered in memory ─ commit ─┐
    worker ─ …                                                          ─ commit ─┤
                                                                                  ▼
    one connection that writes:  BEGIN IMMEDIATE, check that positions are those that were read,
                                 INSERT, UPDATE, COMMIT ─▶ wakes followers and readers that wait

A transaction that is open for half a second must not hold the only write lock that long, so its writes go to SQLite
at its commit. A `get` is different, since later writes depend on it: from then on the transaction holds the lock
to its end, as SQLite's manual advises. Others wait, and nothing can invalidate the value that it read.

With `per_commit` above 1 a thread takes up to that many waiting transactions into one COMMIT. Such a transaction
cannot hold the lock, so the commit compares the values that its `get` saw.

    durability "full"  WAL, synchronous=FULL: each COMMIT syncs the WAL
    durability "os"    WAL, synchronous=NORMAL: COMMIT leaves it to the operating system; a power cut costs
                       the newest transactions and no more, as elsewhere with "os". OFF promises less: checkpoints
                       are not synced either, and a power cut may damage the file.

Pages of 4 KB and a checkpoint each 1,000 pages are SQLite's defaults: sixteen times that writes a tenth less and
stops commits for six times as long.

Counted: syncs of COMMITs (Python cannot see those of checkpoints); bytes that this process passed to write calls,
or, where the platform does not report them, the growth of the files.

Left out: other processes that write (they could not wake followers), retention, a limit on waiting changes' memory.

Next: sqlite_store.py.
"""

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from .base import (
    STAGING,
    Certificate,
    Chunk,
    Costs,
    Counters,
    Moments,
    Options,
    Poll,
    PollResult,
    Setting,
    System,
    Work,
    Write,
)
from .gathered import GatheredWork, Place, Row, Topic
from .sqlite_store import Answer, Store, WaitingChange

CHUNK = 1000
"""Records that one read of a partition takes."""
_END = "end"
"""The id of the last change, an empty one."""


class SqliteSystem(System):
    """Topics and tables in one file in `folder`."""

    def __init__(self, folder: Path, options: Options, per_commit: int) -> None:
        self.name = "sqlite" if per_commit == 1 else f"sqlite-{per_commit}"
        self.missing: Mapping[str, str] = {
            STAGING: "SQLite has one writer: what is not committed waits in the client's memory"
        }
        self._options, self._per_commit = options, per_commit
        folder.mkdir(parents=True, exist_ok=True)
        full = options.durability == "full"
        self.store = Store(folder / "store.sqlite", full, options.read_only)
        self._verifying = self.store.connect()
        merges = per_commit > 1 and not options.read_only
        self.merger = _Merger(self.store, per_commit) if merges else None

    def commit(self, change: WaitingChange, holds_lock: bool = False) -> Certificate:
        """Commits a change; `holds_lock` says that its owner holds the write lock. Raises Cancelled or Unknown."""
        if self.merger is not None:
            answer = self.merger.commit(change)
        else:
            if not holds_lock:
                self.store.begin()
            (answer,) = self.store.commit([change])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def prepare(self, topics: Mapping[str, int], tables: Iterable[str] = ()) -> None:
        self.store.prepare(topics, tables)

    def worker(self, name: str, consumer: str, number: int = 0) -> Callable[[], Work]:
        connection, numbers = self.store.connect(), count(1)

        def begin() -> Work:
            change = WaitingChange(f"{name}/{number}/{next(numbers)}", consumer)
            return _Work(self, connection, change, number)

        return begin

    def writer(self, topic: str) -> Write:
        """Returns a writer that commits each batch in a transaction of its own."""
        numbers, target = count(), self.store.topic(topic)

        def write(
            values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None
        ) -> None:
            change = WaitingChange("plain")
            change.write(target, values, keys, partition, next(numbers))
            self.commit(change)

        return write

    def follower(self, topic: str) -> Poll:
        store, connection = self.store, self.store.connect()
        behind = store.follow(topic)
        places = [(topic, n) for n in range(store.topic(topic).partitions)]
        ends = [store.end(connection, place) for place in places]

        def poll(timeout: float) -> list[PollResult]:
            results = []
            for partition in store.wait_behind(behind, timeout):
                chunk = store.take(connection, places[partition], ends[partition], -1)
                if chunk.values:
                    ends[partition] = chunk.end
                    results.append(PollResult(partition, chunk.offsets, chunk.values))
            return results

        return poll

    def counters(self) -> Counters:
        return Counters(
            transactions=self.store.transactions,
            syncs=self.store.commits if self._options.durability == "full" else 0,
            disk_bytes=self.store.bytes_written(),
        )

    def moments(self, tx: str) -> Moments:
        at, _ = self.store.moment(tx)
        return Moments(decided=at, visible=at)

    def costs(self, tx: str) -> Costs:
        _, share = self.store.moment(tx)
        if share is None or self._options.durability != "full":
            return Costs(syncs=share and 0.0)
        return Costs(syncs=share, hops=1, hops_visible=1)

    def settings(self) -> list[Setting]:
        level = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
        pragma = self.store.pragma
        return [
            Setting("sqlite_version", sqlite3.sqlite_version),
            Setting("journal_mode", pragma("journal_mode")),
            Setting("synchronous", level[pragma("synchronous")]),
            Setting("page_size", pragma("page_size")),
            Setting("wal_autocheckpoint", pragma("wal_autocheckpoint")),
            Setting("transactions_per_commit_max", self._per_commit),
        ]

    def records(self, topic: str, partition: int) -> Iterator[Chunk]:
        offset = 0
        while (chunk := self.store.take(self._verifying, (topic, partition), offset, CHUNK)).values:
            yield chunk
            offset = chunk.end

    def rows(self, table: str) -> dict[str, Any]:
        return self.store.rows(self._verifying, table)

    def position(self, topic: str, consumer: str, partition: int) -> int:
        return self.store.position(self._verifying, (topic, partition), consumer)

    def close(self) -> None:
        if self.merger is not None:
            self.merger.close()
        self.store.close()


class _Merger:
    """A thread that commits up to `most` waiting changes in one COMMIT, then answers each."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._waiting: queue.SimpleQueue[WaitingChange] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sqlite-commits", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Counts changes that it has not taken yet."""
        return self._waiting.qsize()

    def commit(self, change: WaitingChange) -> Answer | Exception:
        self._waiting.put(change)
        return change.answer.get()

    def _run(self) -> None:
        ended = False
        while not ended:
            changes = [self._waiting.get()]
            answers: Sequence[Answer | Exception]
            try:
                self._store.begin()  # changes that arrive while this waits join the COMMIT
                while len(changes) < self._most and not self._waiting.empty():
                    changes.append(self._waiting.get())
                answers = self._store.commit(changes)
            except Exception as error:
                answers = [error] * len(changes)
            for change, answer in zip(changes, answers, strict=True):
                change.answer.put(answer)
            ended = any(change.id == _END for change in changes)

    def close(self) -> None:
        self.commit(WaitingChange(_END))
        self._thread.join()


class _Work(GatheredWork):
    change: WaitingChange

    def __init__(
        self,
        system: SqliteSystem,
        connection: sqlite3.Connection,
        change: WaitingChange,
        number: int,
    ) -> None:
        super().__init__(change, number)
        self.staging = system.missing[STAGING]
        self._system, self._store, self._connection = system, system.store, connection
        self._holds_lock = False

    def topic(self, name: str) -> Topic:
        return self._store.topic(name)

    def take(self, place: Place, at: int | None, most: int) -> Chunk:
        if at is None:
            at = self._store.position(self._connection, place, self.change.consumer)
        return self._store.take(self._connection, place, at, most)

    def value(self, row: Row) -> Any:
        if self._system.merger is not None:
            return self.change.reads.setdefault(row, self._store.value(self._connection, row))
        if not self._holds_lock:
            self._store.begin()
            self._holds_lock = True
        return self._store.value(None, row)

    def commit(self) -> Certificate:
        held, self._holds_lock = self._holds_lock, False
        if not (held or self.change):
            return Certificate()
        return self._system.commit(self.change, held)

    def rollback(self) -> None:
        if self._holds_lock:
            self._holds_lock = False
            self._store.rollback()
