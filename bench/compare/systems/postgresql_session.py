"""Applies the changes of one worker, over a connection of its own.

    read      one query: the position, and the records from there on
    commit    of a small change: one statement, so one round trip
              of a large one: BEGIN with the offsets ─ COPY for each topic ─ COMMIT

Every statement is prepared, and in binary.

Next: postgresql_statements.py, the same without functions.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

import msgpack
import psycopg

from .base import Cancelled, Certificate, Chunk, Impossible, Unknown
from .gathered import Change, Place, Row, Topic
from .postgresql_store import Connection, Store, errors, value_of

SMALL = 64
"""Records of a change that go with its one statement; more go by COPY."""


class Batch(NamedTuple):
    """Records of one partition, with their keys."""

    topic: Topic
    partition: int
    records: Sequence[tuple[bytes | None, bytes]]


class Session:
    """One connection, opened when it is needed, and again after it was lost.

    A ClientCursor sends two statements in one round trip. Not a pipeline: when one has ended, the server does not
    watch how long a transaction is idle, and a lost connection's reason is lost too.

    Invariant: `open` is true between BEGIN and the transaction's end.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: Connection | None = None
        self._busy = threading.Lock()
        self.open = False
        self.transactions = self.round_trips = 0

    @contextmanager
    def _calling(self, committing: bool = False) -> Iterator[Connection]:
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
        return value_of(*found)

    def apply(self, change: Change) -> Certificate:
        """Commits a change. Cancelled when it had no effect, Unknown when that is not known."""
        if self._store.read_only:
            raise Impossible("opened to look only")
        batches = _batches(self._store, change)
        place, bases = self._apply(change, batches)
        self.open = False
        self.transactions += 1
        published = {
            (batch.topic.name, batch.partition): (base, base + len(batch.records))
            for batch, base in zip(batches, bases, strict=True)
        }
        return Certificate(place, 0, None, published)

    def _apply(self, change: Change, batches: Sequence[Batch]) -> tuple[int, Sequence[int]]:
        """Commits a change; returns its place, and the first offset of each batch."""
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
            self._commit()
        return place, bases

    def _commit(self) -> None:
        with self._calling(committing=True) as connection:
            self.round_trips += 1
            connection.execute("COMMIT")

    def _in_one_trip(
        self, connection: Connection, text: str, parameters: Sequence[Any]
    ) -> list[int]:
        self.round_trips += 1
        if not self.open:
            return _one(connection.execute(text, parameters, binary=True))
        cursor = psycopg.ClientCursor(connection)
        cursor.execute(f"{text}; COMMIT".replace("%b", "%s"), parameters)
        return _one(cursor)

    def _begin(self, connection: Connection, text: str, parameters: Sequence[Any]) -> list[int]:
        self.round_trips += 1
        with connection.pipeline():
            if not self.open:
                connection.execute("BEGIN")
            cursor = connection.execute(text, parameters, binary=True)
        self.open = True
        return _one(cursor)

    def _copy(self, connection: Connection, batches: Sequence[Batch], bases: Sequence[int]) -> None:
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


def _batches(store: Store, change: Change) -> list[Batch]:
    """Returns the change's records in the order in which partitions are locked."""
    batches = [
        Batch(store.topic(name), partition, records)
        for (name, partition), records in change.records.items()
    ]
    return sorted(batches, key=lambda batch: (batch.topic.id, batch.partition))


def _calls(
    store: Store, change: Change, batches: Sequence[Batch], small: bool
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
        packed = [b"" if type(value) is int else msgpack.packb(value) for value in values]
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
