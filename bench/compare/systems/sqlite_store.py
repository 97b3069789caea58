"""Stores topics and tables in one SQLite file, written by one connection, and wakes readers that wait.

    topic_1_0  topic_1_1 …   at INTEGER PRIMARY KEY (the offset), key, value      a table for each partition
    table_1 …                key PRIMARY KEY, value                                WITHOUT ROWID: rows are small
    positions                (consumer, topic, partition) → at                     WITHOUT ROWID

Each partition has a table of its own because that is fastest. With rows of 1 KB in 100 partitions it writes
155 MB/s. One table for all partitions writes 89 MB/s, since pages split in the middle of its tree. A table by
(partition, offset) WITHOUT ROWID writes 34 MB/s, since such rows are too large for its pages.

A WaitingChange is applied at its commit, in one short BEGIN IMMEDIATE. SQLite allows one writer at
a time, so one connection writes, behind a lock of this process. Writers then need not sleep and retry as with
SQLite's busy handler, and the page cache stays warm.

Next: sqlite.py, which uses this.
"""

import os
import queue
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import msgpack

from .base import Cancelled, Certificate, Chunk, Impossible, Unknown
from .gathered import Change, Place, Row, Topic

BUSY_S = 30.0
"""Seconds that a transaction waits for the write lock."""
MOMENTS_MAX = 100_000
"""Transactions whose commit times are kept."""
CACHE_KB = 65_536
"""Page cache of the connection that writes: more than a transaction's pages."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS topics (id INTEGER PRIMARY KEY, name TEXT UNIQUE, partitions INTEGER);
CREATE TABLE IF NOT EXISTS tables (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS positions (consumer TEXT, topic INTEGER, partition INTEGER, at INTEGER,
  PRIMARY KEY (consumer, topic, partition)) WITHOUT ROWID;
"""

Answer = Certificate | Cancelled | Unknown


@dataclass
class WaitingChange(Change):
    """A change that waits. `reads`: values of rows read without the lock, a condition of the commit."""

    reads: dict[Row, Any] = field(default_factory=dict)
    answer: "queue.SimpleQueue[Answer | Exception]" = field(default_factory=queue.SimpleQueue)

    def __bool__(self) -> bool:
        return bool(self.reads) or super().__bool__()


class Store:
    """Topics and tables in one file. Threads share it; a connection serves one thread at a time.

    Invariant: only the holder of `_lock` uses `_writing`, and ends the transaction that it began there.
    """

    def __init__(self, path: Path, full: bool, read_only: bool) -> None:
        self._path, self._full, self._read_only = path, full, read_only
        self._connections: list[sqlite3.Connection] = []
        self._topics: dict[str, Topic] = {}
        self._tables: dict[str, str] = {}
        self._behind: list[tuple[str, set[int]]] = []
        self._published = threading.Condition()
        self._moments: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._writing = self.connect()
        self.commits = self.transactions = 0
        if not read_only:
            self._writing.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            self._writing.executescript(_SCHEMA)
        self._read_names()
        self._written_before = _bytes_written(path)

    def connect(self) -> sqlite3.Connection:
        """Opens one more connection, which is closed with the store."""
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={'ro' if self._read_only else 'rwc'}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            cached_statements=4096,
            check_same_thread=False,
        )
        self._connections.append(connection)
        if not self._read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._full else 'NORMAL'}")
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    # names -----------------------------------------------------------------------------------

    def prepare(self, topics: Mapping[str, int], tables: Iterable[str]) -> None:
        self.begin()
        try:
            execute = self._writing.execute
            for topic in topics.items():
                sql = "INSERT INTO topics (name, partitions) VALUES (?, ?) ON CONFLICT DO NOTHING"
                execute(sql, topic)
            for table in tables:
                execute("INSERT INTO tables (name) VALUES (?) ON CONFLICT DO NOTHING", (table,))
            self._read_names()
            for known in self._topics.values():
                for name in map(partial(_table, known), range(known.partitions)):
                    columns = "(at INTEGER PRIMARY KEY, key BLOB, value BLOB)"
                    execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")
            for name in self._tables.values():
                columns = "(key TEXT PRIMARY KEY, value) WITHOUT ROWID"
                execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")
            execute("COMMIT")
        finally:
            self.rollback()

    def _read_names(self) -> None:
        topics = self._writing.execute("SELECT id, name, partitions FROM topics").fetchall()
        self._topics = {row[1]: Topic(*row) for row in topics}
        tables = self._writing.execute("SELECT id, name FROM tables").fetchall()
        self._tables = {name: f"table_{n}" for n, name in tables}

    def topic(self, name: str) -> Topic:
        """Returns a topic. ValueError for a name that was not prepared."""
        if name not in self._topics:
            raise ValueError(f"no topic {name!r}: prepare() makes it")
        return self._topics[name]

    def table(self, name: str) -> str:
        """Returns the table's name in SQL. ValueError for a name that was not prepared."""
        if name not in self._tables:
            raise ValueError(f"no table {name!r}: prepare() makes it")
        return self._tables[name]

    # reading, by a connection of the reader's own -----------------------------------------------

    def take(self, by: sqlite3.Connection, place: Place, at: int, most: int) -> Chunk:
        """Reads records from `at` on; `most` -1 reads all."""
        name = _table(self.topic(place[0]), place[1])
        rows = by.execute(
            f"SELECT key, value FROM {name} WHERE at >= ? ORDER BY at LIMIT ?", (at, most)
        ).fetchall()
        end = at + len(rows)
        return Chunk([row[1] for row in rows], [row[0] for row in rows], at, end, range(at, end))

    def end(self, by: sqlite3.Connection, place: Place) -> int:
        name = _table(self.topic(place[0]), place[1])
        (last,) = by.execute(f"SELECT max(at) FROM {name}").fetchone()
        return 0 if last is None else int(last) + 1

    def position(self, by: sqlite3.Connection, place: Place, consumer: str) -> int:
        row = by.execute(
            "SELECT at FROM positions WHERE consumer = ? AND topic = ? AND partition = ?",
            (consumer, self.topic(place[0]).id, place[1]),
        ).fetchone()
        return row[0] if row else 0

    def value(self, by: sqlite3.Connection | None, row: Row) -> Any:
        """Returns a row's value, None if there is no such row. With `by` None the caller holds the write lock."""
        sql = f"SELECT value FROM {self.table(row[0])} WHERE key = ?"
        stored = (by or self._writing).execute(sql, (row[1],)).fetchone()
        return _unpack(stored[0]) if stored else None

    def rows(self, by: sqlite3.Connection, table: str) -> dict[str, Any]:
        rows = by.execute(f"SELECT key, value FROM {self.table(table)}").fetchall()
        return {key: _unpack(value) for key, value in rows}

    def follow(self, topic: str) -> set[int]:
        """Returns the partitions of a topic that were written to; `wait_behind` takes them."""
        behind: set[int] = set()
        with self._published:
            self._behind.append((topic, behind))
        return behind

    def wait_behind(self, behind: set[int], timeout: float) -> list[int]:
        with self._published:
            self._published.wait_for(lambda: behind, timeout)
            partitions = sorted(behind)
            behind.clear()
        return partitions

    # writing ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Takes the write lock. Cancelled after BUSY_S, or when SQLite refuses; Impossible in a read-only store."""
        if self._read_only:
            raise Impossible("opened to look only")
        if not self._lock.acquire(timeout=BUSY_S):
            raise Cancelled("Busy")
        try:
            self._writing.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._lock.release()
            raise Cancelled(_cause(error)) from error

    def rollback(self) -> None:
        """Rolls back an uncommitted transaction, if any, and releases the lock."""
        try:
            if self._writing.in_transaction:
                self._writing.execute("ROLLBACK")
        finally:
            self._lock.release()

    def commit(self, changes: Sequence[WaitingChange]) -> Sequence[Answer]:
        """Commits, in one COMMIT, all changes whose conditions hold; `begin` came before. Releases the lock."""
        committing = False
        try:
            answers = [self._apply(n, change) for n, change in enumerate(changes)]
            committing = True
            self._writing.execute("COMMIT")
            self._note_commit(changes, answers)
        except sqlite3.Error as error:
            nothing = not committing or error.sqlite_errorcode == sqlite3.SQLITE_FULL
            cause = _cause(error)
            failed = Cancelled(cause, retryable=False) if nothing else Unknown(cause)
            return [failed] * len(changes)
        finally:
            self.rollback()
        return answers

    def _apply(self, n: int, change: WaitingChange) -> Certificate | Cancelled:
        """Applies one change. Returns Cancelled, before any effect, if a condition does not hold."""
        by, execute = self._writing, self._writing.execute
        for place, (begin, _) in change.consumed.items():
            if self.position(by, place, change.consumer) != begin:
                return Cancelled("Conflict")
        if any(self.value(by, row) != read_value for row, read_value in change.reads.items()):
            return Cancelled("Conflict")
        for (topic, partition), (_, end) in change.consumed.items():
            execute(
                "INSERT INTO positions VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET at = excluded.at",
                (change.consumer, self.topic(topic).id, partition, end),
            )
        for (table, key), (replaces, value) in change.rows.items():
            execute(
                f"INSERT INTO {self.table(table)} VALUES (?, ?) ON CONFLICT DO UPDATE SET"
                f" value = {'' if replaces else 'value + '}excluded.value",
                (key, _pack(value)),
            )
        published = {}
        for place, records in change.records.items():
            begin = self.end(by, place)
            by.executemany(
                f"INSERT INTO {_table(self.topic(place[0]), place[1])} VALUES (?, ?, ?)",
                [(offset, key, value) for offset, (key, value) in enumerate(records, begin)],
            )
            published[place] = begin, begin + len(records)
        return Certificate(self.commits, n, None, published)

    def _note_commit(self, changes: Sequence[WaitingChange], answers: Sequence[Answer]) -> None:
        """Records the commit and wakes waiting readers, still under the write lock."""
        at = time.monotonic_ns()
        committed = [
            (change, answer)
            for change, answer in zip(changes, answers, strict=True)
            if isinstance(answer, Certificate)
        ]
        if not committed:
            return
        self.commits += 1
        self.transactions += len(committed)
        with self._published:
            for change, answer in committed:
                self._moments[change.id] = at, 1 / len(committed)
                for (topic, partition), (name, behind) in product(answer.published, self._behind):
                    if name == topic:
                        behind.add(partition)
            while len(self._moments) > MOMENTS_MAX:
                self._moments.popitem(last=False)
            self._published.notify_all()

    # statistics --------------------------------------------------------------------------------

    def moment(self, tx: str) -> tuple[int | None, float | None]:
        """Returns the time of a transaction's commit (time.monotonic_ns) and its share of the COMMIT."""
        return self._moments.get(tx, (None, None))

    def bytes_written(self) -> int:
        """Returns the bytes written since the store was opened."""
        return _bytes_written(self._path) - self._written_before

    def pragma(self, name: str) -> Any:
        with self._lock:
            return self._writing.execute(f"PRAGMA {name}").fetchone()[0]


def _table(topic: Topic, partition: int) -> str:
    """Returns the partition's table in SQL."""
    topic.check(partition)
    return f"topic_{topic.id}_{partition}"


def _pack(value: Any) -> Any:
    """Keeps integers, which SQL can add to; packs all other values."""
    return value if type(value) is int else msgpack.packb(value)


def _unpack(value: Any) -> Any:
    return value if type(value) is int else msgpack.unpackb(value)


def _cause(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", None) or type(error).__name__)


def _bytes_written(path: Path) -> int:
    """Returns the bytes that this process passed to write calls, or the files' sizes where that is not reported."""
    try:
        with open("/proc/self/io") as counts:
            return next(int(line.split()[1]) for line in counts if line.startswith("wchar:"))
    except (OSError, StopIteration):
        files = (path, path.with_name(path.name + "-wal"))
        return sum(os.path.getsize(file) for file in files if file.exists())
