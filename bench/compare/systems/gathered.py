"""Gathers the effects of a transaction in memory, for systems whose transactions should be short.

    GatheredWork ─ read, write, add, put ─▶ Change: consumed, records, rows ─ commit ─▶ applied as a whole

A database keeps rows locked to the end of a transaction. One that is open for half a second must not lock others
out for that long, so its writes go to the database at its commit. Positions that it read are a condition of the
commit.

Next: sqlite_store.py, postgresql_store.py.
"""

import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .base import Chunk, Impossible, Work

Place = tuple[str, int]
"""A topic's name and a partition."""
Row = tuple[str, str]
"""A table's name and a key."""


@dataclass(frozen=True, slots=True)
class Topic:
    id: int
    name: str
    partitions: int

    def partition(self, key: bytes | None, otherwise: int) -> int:
        return (otherwise if key is None else zlib.crc32(key)) % self.partitions

    def check(self, partition: int) -> None:
        """ValueError for a partition that the topic does not have."""
        if not 0 <= partition < self.partitions:
            raise ValueError(f"topic {self.name!r} has no partition {partition}")


@dataclass
class Change:
    """The effects of a transaction, applied as a whole or not at all.

    consumed  records [begin, end) that it consumed; a condition of the commit
    rows      (True, value that replaces the old one), or (False, number to add)
    """

    id: str
    consumer: str = ""
    consumed: dict[Place, tuple[int, int]] = field(default_factory=dict)
    records: dict[Place, list[tuple[bytes | None, bytes]]] = field(default_factory=dict)
    rows: dict[Row, tuple[bool, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.consumed or self.records or self.rows)

    def write(
        self,
        topic: Topic,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
        otherwise: int,
    ) -> None:
        """Adds records to the change.

        `otherwise` chooses the partition of records without a key, modulo the number of partitions. ValueError for
        a partition that the topic does not have.
        """
        if partition is not None:
            topic.check(partition)
        for pair in zip([None] * len(values) if keys is None else keys, values, strict=True):
            target = topic.partition(pair[0], otherwise) if partition is None else partition
            self.records.setdefault((topic.name, target), []).append(pair)


class GatheredWork(Work):
    """A transaction that gathers its change. The worker's number chooses partitions of records without a key."""

    staging: str
    """Says why it cannot flush."""

    def __init__(self, change: Change, number: int) -> None:
        self.id, self.change, self._number = change.id, change, number

    @abstractmethod
    def topic(self, name: str) -> Topic:
        """Returns a topic. ValueError for a name that was not prepared."""

    @abstractmethod
    def take(self, place: Place, at: int | None, most: int) -> Chunk:
        """Reads records from the offset `at` on; None: from the consumer's committed position on."""

    @abstractmethod
    def value(self, row: Row) -> Any:
        """Returns a row's value as committed, None if there is no such row."""

    def read(self, topic: str, partition: int, max_records: int) -> Chunk:
        place = topic, partition
        span = self.change.consumed.get(place)
        chunk = self.take(place, None if span is None else span[1], max_records)
        if chunk.values:
            self.change.consumed[place] = (chunk.begin if span is None else span[0]), chunk.end
        return chunk

    def write(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        self.change.write(self.topic(topic), values, keys, partition, self._number)

    def flush(self) -> None:
        raise Impossible(self.staging)

    def add(self, table: str, key: str, n: int) -> None:
        replaces, value = self.change.rows.get((table, key), (False, 0))
        self.change.rows[table, key] = replaces, value + n

    def get(self, table: str, key: str) -> Any:
        replaces, own = self.change.rows.get((table, key), (False, 0))
        if replaces:
            return own
        value = self.value((table, key))
        return (value or 0) + own if own else value

    def put(self, table: str, key: str, value: Any) -> None:
        self.change.rows[table, key] = True, value
