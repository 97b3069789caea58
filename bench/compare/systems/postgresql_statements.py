"""Applies changes to PostgreSQL without functions of the database: a statement, so a round trip, for each step.

    BEGIN ─ positions ─ rows ─ next offsets ─ records ─ NOTIFY ─ the place ─ COMMIT

Programs do so that are not tuned for round trips. Statements are prepared, and records of many go by COPY, as in
postgresql_session.py.

Next: postgresql.py, which uses both.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from .base import Cancelled
from .gathered import Change
from .postgresql_session import SMALL, Batch, Session
from .postgresql_store import Connection


class StatementSession(Session):
    """A session that commits by statements."""

    def _apply(self, change: Change, batches: Sequence[Batch]) -> tuple[int, Sequence[int]]:
        with self._calling() as connection:
            if not self.open:
                self._run(connection, "BEGIN")
                self.open = True
            self._move_positions(connection, change)
            self._change_rows(connection, change)
            bases = self._reserve(connection, batches)
            if sum(len(batch.records) for batch in batches) > SMALL:
                self._copy(connection, batches, bases)
            else:
                self._insert(connection, batches, bases)
            ((place,),) = self._run(connection, "SELECT nextval('places')")
        self._commit()
        return place, bases

    def _run(
        self, connection: Connection, text: str, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Runs a statement; returns its rows."""
        self.round_trips += 1
        cursor = connection.execute(text, parameters, binary=True)
        return [] if cursor.description is None else cursor.fetchall()

    def _move_positions(self, connection: Connection, change: Change) -> None:
        for (name, partition), (begin, end) in sorted(change.consumed.items()):
            where = change.consumer, self._store.topic(name).id, partition
            text = (
                "UPDATE positions SET at = %b"
                " WHERE consumer = %b AND topic = %b AND partition = %b AND at = %b RETURNING at"
            )
            moved = self._run(connection, text, (end, *where, begin))
            if not moved and begin == 0:
                text = "INSERT INTO positions VALUES (%b, %b, %b, %b) ON CONFLICT DO NOTHING RETURNING at"
                moved = self._run(connection, text, (*where, end))
            if not moved:
                raise Cancelled("Conflict")

    def _change_rows(self, connection: Connection, change: Change) -> None:
        for (name, key), (replaces, value) in sorted(change.rows.items(), key=lambda row: row[0]):
            table, whole = f"table_{self._store.table(name)}", type(value) is int
            new = (
                "excluded.n, value = excluded.value"
                if replaces
                else "coalesce(t.n, 0) + excluded.n"
            )
            text = (
                f"INSERT INTO {table} AS t VALUES (%b, %b::bigint, %b::bytea)"
                f" ON CONFLICT (key) DO UPDATE SET n = {new}"
            )
            values = (key, value, None) if whole else (key, None, msgpack.packb(value))
            self._run(connection, text, values)

    def _reserve(self, connection: Connection, batches: Sequence[Batch]) -> list[int]:
        """Takes the batches' offsets, and wakes followers; returns the first offset of each."""
        bases = []
        for batch in batches:
            count = len(batch.records)
            text = "UPDATE partitions SET next = next + %b WHERE topic = %b AND partition = %b RETURNING next"
            ((following,),) = self._run(connection, text, (count, batch.topic.id, batch.partition))
            bases.append(following - count)
        for topic in dict.fromkeys(batch.topic for batch in batches):
            text = "SELECT pg_notify(%b, '') FROM topics WHERE id = %b AND followed"
            self._run(connection, text, (f"{self._store.schema}_{topic.id}", topic.id))
        return bases

    def _insert(
        self, connection: Connection, batches: Sequence[Batch], bases: Sequence[int]
    ) -> None:
        for batch, base in zip(batches, bases, strict=True):
            for offset, (key, value) in enumerate(batch.records, base):
                text = f"INSERT INTO log_{batch.topic.id} VALUES (%b, %b, %b::bytea, %b)"
                self._run(connection, text, (batch.partition, offset, key, value))
