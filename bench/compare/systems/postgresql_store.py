"""Keeps topics and tables in a schema of PostgreSQL: one schema a run, one connection a worker.

    schema      made on a server for a folder, and dropped with what is in it: to drop a database instead would
                write all of its pages to the disk first
    Store       the names of topics and tables, and connections
    errors      PostgreSQL's errors as those of the interface

Next: postgresql_session.py, a worker's connection.
"""

import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgpack
import psycopg
from psycopg.types.numeric import Int8BinaryDumper

from . import postgresql_schema as schema
from .base import Cancelled, Unknown
from .gathered import Topic
from .postgresql_server import POSTGRES

LOCK_S = 30
"""Seconds that a transaction waits for a lock."""
_RETRYABLE = ("40001", "40P01", "55P03", "57014", "25P03")
"""Serialization failure, deadlock, a lock's, a statement's and an idle transaction's time-out."""
_LOST = ("08", "57P")
"""Beginnings of codes that say that the connection is lost."""
FILE = "schema"
"""The file of a folder that keeps the name of its schema."""
Connection: TypeAlias = "psycopg.Connection[Any]"


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

    def __init__(self, address: str, folder: Path, read_only: bool, time_out_ms: int) -> None:
        file = folder / FILE
        if not file.exists():
            if read_only:
                raise OSError(f"{folder} has no schema of PostgreSQL to read")
            make_schema(address, folder)
        self._address, self.schema = address, file.read_text()
        self.settings = {
            "synchronous_commit": "on",
            "lock_timeout": f"{LOCK_S}s",
            "idle_in_transaction_session_timeout": f"{time_out_ms}ms",
            "plan_cache_mode": "force_generic_plan",
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "enable_sort": "off",
            "jit": "off",
        }
        self.read_only = read_only
        self._connections: list[Connection] = []
        self._topics: dict[str, Topic] = {}
        self._tables: dict[str, int] = {}
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
        self.version = self._own.info.server_version
        """As a number: 150018 for 15.18."""

    def connect(self) -> Connection:
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
        return {key: value_of(n, packed) for key, n, packed in self.ask(text)}

    def server(self) -> int | None:
        """Returns the process of the server; None where the platform does not tell."""
        ((backend,),) = self.ask("SELECT pg_backend_pid()")
        try:
            stat = Path(f"/proc/{backend}/stat").read_text()
        except OSError:
            return None
        return int(stat.rpartition(")")[2].split()[1])


def value_of(n: int | None, packed: bytes | None) -> Any:
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
