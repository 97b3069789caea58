"""Keeps topics and tables in a schema of PostgreSQL: one schema a run, one connection a worker.

    schema      made on a server for a folder, and dropped with what is in it: to drop a database instead would
                write all of its pages to the disk first
    Store       the names of topics and tables, and connections
    Session     a worker's connection: reads, locks a row, applies a Change

A small change is one statement, so one round trip. A large one is BEGIN with the offsets, COPY for each topic,
COMMIT. Every statement is prepared, and in binary.

Next: postgresql.py, which uses this.
"""

import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgpack
import psycopg
from psycopg.types.numeric import Int8BinaryDumper

from . import postgresql_schema as schema
from .base import Cancelled, Certificate, Chunk, Impossible, Unknown
from .gathered import Change, Place, Row, Topic
from .postgresql_server import POSTGRES

LOCK_S = 30
"""Seconds that a transaction waits for a lock."""
SMALL = 64
"""Records of a change that go with its one statement; more go by COPY."""
_RETRYABLE = ("40001", "40P01", "55P03", "57014", "25P03")
"""Serialization failure, deadlock, a lock's, a statement's and an idle transaction's time-out."""
_LOST = ("08", "57P")
"""Beginnings of codes that say that the connection is lost."""
FILE = "schema"
"""The file of a folder that keeps the name of its schema."""
_PACK = msgpack.packb
_Connection: TypeAlias = "psycopg.Connection[Any]"


class _Batch(NamedTuple):
    """Records of one partition, with their keys."""

    topic: Topic
    partition: int
    records: Sequence[tuple[bytes | None, bytes]]


def make_schema(address: str, folder: Path) -> None:
    """Makes a schema for a folder, whose file FILE keeps its name; OSError where that fails."""
    name = f"planstep_{secrets.token_hex(8)}"
    try:
        with psycopg.connect(address, dbname=POSTGRES) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
            connection.execute(f"SET LOCAL search_path = {name}")
            connection.execute(schema.BASE)
    except psycopg.Error as error:
        raise OSError(f"PostgreSQL cannot make a schema: {error}") from error
    (folder / FILE).write_text(name)


class Store:
    """Topics and tables in the folder's schema. Threads share it; a connection serves one thread at a time."""

    def __init__(
        self, address: str, folder: Path, full: bool, read_only: bool, time_out_ms: int
    ) -> None:
        file = folder / FILE
        if not file.exists():
            if read_only:
                raise OSError(f"{folder} has no schema of PostgreSQL to read")
            make_schema(address, folder)
        self._address, self.schema = address, file.read_text()
        self.settings = {
            "synchronous_commit": "on" if full else "off",
            "lock_timeout": f"{LOCK_S}s",
            "idle_in_transaction_session_timeout": f"{time_out_ms}ms",
            "plan_cache_mode": "force_generic_plan",
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "enable_sort": "off",
            "jit": "off",
        }
        self.read_only = read_only
        self._connections: list[_Connection] = []
        self._topics: dict[str, Topic] = {}
        self._tables: dict[str, int] = {}
        self._sessions: list[Session] = []
        self._lock = threading.Lock()
        try:
            self._own = self.connect()
        except Cancelled as error:
            raise OSError(f"PostgreSQL does not answer: {error}") from error
        try:
            self._read_names()
        except BaseException:
            self.close()
            raise

    def connect(self) -> _Connection:
        """Opens one more connection, which is closed with the store. Cancelled if the server does not answer."""
        settings = {**self.settings, "search_path": self.schema}
        words = [f"-c {name}={value}" for name, value in settings.items()]
        with errors():
            connection = psycopg.connect(
                self._address,
                dbname=POSTGRES,
                autocommit=True,
                prepare_threshold=0,
                options=" ".join(words),
                client_encoding="utf8",
                application_name="planstep",
            )
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        with self._lock:
            self._connections.append(connection)
        return connection

    def session(self) -> "Session":
        session = Session(self)
        self._sessions.append(session)
        return session

    def drop(self) -> None:
        with errors(), self._lock:
            self._own.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    # names -----------------------------------------------------------------------------------

    def prepare(self, topics: Mapping[str, int], tables: Iterable[str]) -> None:
        with errors(), self._lock, self._own.transaction():
            execute = self._own.execute
            execute("LOCK TABLE topics, tables IN EXCLUSIVE MODE")
            for name, partitions in topics.items():
                text = "INSERT INTO topics (name, partitions) VALUES (%b, %b) ON CONFLICT DO NOTHING RETURNING id"
                row = execute(text, (name, partitions)).fetchone()
                if row is not None:
                    execute(schema.topic(row[0]), prepare=False)
                    text = "INSERT INTO partitions SELECT %b::bigint, generate_series(0::bigint, %b::bigint - 1)"
                    execute(text, (row[0], partitions))
            for name in tables:
                text = "INSERT INTO tables (name) VALUES (%b) ON CONFLICT DO NOTHING RETURNING id"
                row = execute(text, (name,)).fetchone()
                if row is not None:
                    execute(schema.table(row[0]), prepare=False)
        self._read_names()

    def _read_names(self) -> None:
        with errors():
            topics = self._own.execute("SELECT id, name, partitions FROM topics").fetchall()
            tables = self._own.execute("SELECT name, id FROM tables").fetchall()
        self._topics = {row[1]: Topic(*row) for row in topics}
        self._tables = dict(tables)

    def topic(self, name: str) -> Topic:
        """Returns a topic. ValueError for a name that was not prepared."""
        if name not in self._topics:
            raise ValueError(f"no topic {name!r}: prepare() makes it")
        return self._topics[name]

    def table(self, name: str) -> int:
        """Returns the table's number. ValueError for a name that was not prepared."""
        if name not in self._tables:
            raise ValueError(f"no table {name!r}: prepare() makes it")
        return self._tables[name]

    # reading ---------------------------------------------------------------------------------

    def ask(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Runs a query on the store's own connection; any thread may call it."""
        with errors(), self._lock:
            rows: list[tuple[Any, ...]] = self._own.execute(
                text, parameters, binary=True
            ).fetchall()
        return rows

    def rows(self, table: str) -> dict[str, Any]:
        text = f"SELECT key, n, value FROM table_{self.table(table)} WHERE n IS NOT NULL OR value IS NOT NULL"
        return {key: _value(n, packed) for key, n, packed in self.ask(text)}

    def server(self) -> int | None:
        """Returns the process of the server; None where the platform does not tell."""
        ((backend,),) = self.ask("SELECT pg_backend_pid()")
        try:
            stat = Path(f"/proc/{backend}/stat").read_text()
        except OSError:
            return None
        return int(stat.rpartition(")")[2].split()[1])

    # costs -----------------------------------------------------------------------------------

    @property
    def transactions(self) -> int:
        return sum(session.transactions for session in self._sessions)

    @property
    def round_trips(self) -> int:
        return sum(session.round_trips for session in self._sessions)

    def syncs(self) -> int:
        """Returns how often the server has synced its log. Each connection counts its own, and tells now."""
        for session in self._sessions:
            session.tell_statistics()
        ((syncs,),) = self.ask("SELECT wal_sync FROM pg_stat_wal")
        return int(syncs)


class Session:
    """One connection, opened when it is needed, and again after it was lost.

    A ClientCursor sends two statements in one round trip. Not a pipeline: when one has ended, the server does not
    watch how long a transaction is idle, and a lost connection's reason is lost too.

    Invariant: `open` is true between BEGIN and the transaction's end.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: _Connection | None = None
        self._busy = threading.Lock()
        self.open = False
        self.transactions = self.round_trips = 0

    @contextmanager
    def _calling(self, committing: bool = False) -> Iterator[_Connection]:
        """Yields the connection. A failure ends the transaction; it is raised as Cancelled or Unknown."""
        with self._busy:
            try:
                with errors(committing):
                    if self._connection is None or self._connection.closed:
                        if self.open:
                            self.open = False
                            raise Cancelled("ConnectionLost")
                        self._connection = self._store.connect()
                    yield self._connection
            except (Cancelled, Unknown):
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        self.open = False
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    self.round_trips += 1
                    connection.execute("ROLLBACK")
            except psycopg.Error:
                connection.close()

    def rollback(self) -> None:
        """Rolls back an uncommitted transaction, if any."""
        if self.open:
            with self._busy:
                self._roll_back()

    def tell_statistics(self) -> None:
        """Makes the server count what this connection caused so far, if it is idle: it does so once a second."""
        if self._busy.acquire(blocking=False):
            try:
                if self._connection is not None and not self._connection.closed and not self.open:
                    self._connection.execute("SELECT pg_stat_force_next_flush()")
            except psycopg.Error:
                pass  # whoever uses it next meets the same error
            finally:
                self._busy.release()

    def take(self, place: Place, at: int | None, most: int | None, consumer: str = "") -> Chunk:
        """Reads records from `at` on; None: from the consumer's position on. `most` None reads all."""
        topic = self._store.topic(place[0])
        topic.check(place[1])
        source = f"FROM log_{topic.id} WHERE partition = %b AND at >= "
        with self._calling() as connection:
            self.round_trips += 1
            if at is not None:
                text = f"SELECT %b, at, key, value {source} %b ORDER BY at LIMIT %b"
                parameters: tuple[Any, ...] = at, place[1], at, most
            else:
                text = (
                    "SELECT start.at, log.at, log.key, log.value FROM (SELECT coalesce((SELECT at FROM positions"
                    " WHERE consumer = %b AND topic = %b AND partition = %b), 0) AS at) AS start LEFT JOIN LATERAL"
                    f" (SELECT at, key, value {source} start.at ORDER BY at LIMIT %b) AS log ON true"
                )
                parameters = consumer, topic.id, place[1], place[1], most
            rows = connection.execute(text, parameters, binary=True).fetchall()
        begin = rows[0][0] if rows else at or 0
        if rows and rows[0][1] is None:
            rows = []
        end = begin + len(rows)
        _, _, keys, values = zip(*rows, strict=True) if rows else ((), (), (), ())
        return Chunk(list(values), list(keys), begin, end, range(begin, end))

    def locked(self, row: Row) -> Any:
        """Returns a row's value and locks it until the transaction ends; None if it has none."""
        text = f"SELECT n, value FROM locked_{self._store.table(row[0])}"
        with self._calling() as connection:
            self.round_trips += 1
            if self.open:
                cursor = connection.execute(f"{text}(%b)", (row[1],), binary=True)
            else:
                cursor = psycopg.ClientCursor(connection)
                cursor.execute(f"BEGIN; {text}(%s)", (row[1],))
                cursor.nextset()
                self.open = True
            (found,) = cursor.fetchall()
        return _value(*found)

    def apply(self, change: Change) -> Certificate:
        """Commits a change. Cancelled when it had no effect, Unknown when that is not known."""
        if self._store.read_only:
            raise Impossible("opened to look only")
        batches = _batches(self._store, change)
        small = sum(len(batch.records) for batch in batches) <= SMALL
        calls, parameters = _calls(self._store, change, batches, small)
        text = f"SELECT placed({' || '.join(calls)})" if calls else "SELECT placed('{}')"
        if small:
            with self._calling(committing=True) as connection:
                place, *bases = self._in_one_trip(connection, text, parameters)
        else:
            with self._calling() as connection:
                place, *bases = self._begin(connection, text, parameters)
                self._copy(connection, batches, bases)
            with self._calling(committing=True) as connection:
                self.round_trips += 1
                connection.execute("COMMIT")
        self.open = False
        self.transactions += 1
        published = {
            (batch.topic.name, batch.partition): (base, base + len(batch.records))
            for batch, base in zip(batches, bases, strict=True)
        }
        return Certificate(place, 0, None, published)

    def _in_one_trip(
        self, connection: _Connection, text: str, parameters: Sequence[Any]
    ) -> list[int]:
        self.round_trips += 1
        if not self.open:
            return _one(connection.execute(text, parameters, binary=True))
        cursor = psycopg.ClientCursor(connection)
        cursor.execute(f"{text}; COMMIT".replace("%b", "%s"), parameters)
        return _one(cursor)

    def _begin(self, connection: _Connection, text: str, parameters: Sequence[Any]) -> list[int]:
        self.round_trips += 1
        with connection.pipeline():
            if not self.open:
                connection.execute("BEGIN")
            cursor = connection.execute(text, parameters, binary=True)
        self.open = True
        return _one(cursor)

    def _copy(
        self, connection: _Connection, batches: Sequence[_Batch], bases: Sequence[int]
    ) -> None:
        """Writes records by COPY, once for each topic."""
        pairs = zip(batches, bases, strict=True)
        for topic, of_topic in groupby(pairs, lambda pair: pair[0].topic):
            self.round_trips += 2
            text = f"COPY log_{topic.id} (partition, at, key, value) FROM STDIN (FORMAT BINARY)"
            with connection.cursor() as cursor, cursor.copy(text) as copy:
                copy.set_types(("int8", "int8", "bytea", "bytea"))
                for batch, base in of_topic:
                    for offset, (key, value) in enumerate(batch.records, base):
                        copy.write_row((batch.partition, offset, key, value))


def _batches(store: Store, change: Change) -> list[_Batch]:
    """Returns the change's records in the order in which partitions are locked."""
    batches = [
        _Batch(store.topic(name), partition, records)
        for (name, partition), records in change.records.items()
    ]
    return sorted(batches, key=lambda batch: (batch.topic.id, batch.partition))


def _calls(
    store: Store, change: Change, batches: Sequence[_Batch], small: bool
) -> tuple[list[str], list[Any]]:
    """Returns the calls that apply a change, but for the records of a large one, and their parameters."""
    calls, parameters = [], list[Any]()
    if change.consumed:
        spans = sorted(
            (store.topic(name).id, partition, *span)
            for (name, partition), span in change.consumed.items()
        )
        calls.append("moved(%b, %b, %b, %b, %b)")
        parameters += [change.consumer, *map(list, zip(*spans, strict=True))]
    rows = sorted((store.table(table), key, *row) for (table, key), row in change.rows.items())
    for table, of_table in groupby(rows, lambda row: row[0]):
        _, keys, puts, values = zip(*of_table, strict=True)
        whole = [value if type(value) is int else 0 for value in values]
        packed = [b"" if type(value) is int else _PACK(value) for value in values]
        calls.append(f"change_{table}(%b, %b, %b, %b)")
        parameters += [list(keys), list(puts), whole, packed]
    for topic, of_topic in groupby(batches, lambda batch: batch.topic):
        mine = list(of_topic)
        targets = [batch.partition for batch in mine]
        counts = [len(batch.records) for batch in mine]
        if small:
            record_keys, values = zip(
                *(pair for batch in mine for pair in batch.records), strict=True
            )
            calls.append(f"write_{topic.id}(%b, %b, %b::bytea[], %b)")
            no_keys = not any(key is not None for key in record_keys)
            parameters += [targets, counts, None if no_keys else list(record_keys), list(values)]
        else:
            calls.append(f"reserve({topic.id}, %b, %b)")
            parameters += [targets, counts]
    return calls, parameters


def _one(cursor: psycopg.Cursor[Any]) -> list[int]:
    ((value,),) = cursor.fetchall()
    found: list[int] = value
    return found


def _value(n: int | None, packed: bytes | None) -> Any:
    return n if packed is None else msgpack.unpackb(packed)


@contextmanager
def errors(committing: bool = False) -> Iterator[None]:
    """Raises errors as those of the interface. `committing`: a lost reply leaves the outcome unknown."""
    try:
        yield
    except psycopg.Error as error:
        code, cause = error.sqlstate, type(error).__name__
        if code == schema.CONFLICT:
            raise Cancelled("Conflict") from error
        if code in _RETRYABLE:
            raise Cancelled(cause) from error
        lost = isinstance(error, psycopg.OperationalError) and (
            code is None or code.startswith(_LOST)
        )
        if lost and committing:
            raise Unknown(cause) from error
        raise Cancelled("ConnectionLost" if lost else cause, retryable=lost) from error
