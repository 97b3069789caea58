"""Topic and Table: one statement at a time, each a transaction or a snapshot of its own.

    db.topic("clicks").write(b"…", key="u1")     db.table("totals").get("u1", 0)

Several statements that belong together take `db.transaction()` or `db.snapshot()` instead.

Next: writer.py.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from ..proto.ids import Place
from ..proto.keys import Key
from .batch import ReadBatch, Rows, html_table
from .limits import READ_BYTES
from .outbox import Headers
from .writer import LINGER_BYTES, LINGER_RECORDS, Writer

if TYPE_CHECKING:
    from ..names import TableInfo, TopicInfo
    from .engine import Engine
    from .transaction import Transaction

T = TypeVar("T")


class Written(NamedTuple):
    """Where a record went, and the place of the transaction that published it."""

    partition: int
    offset: int
    place: Place


class PartitionBounds(NamedTuple):
    """A partition's log: the oldest offset that is still there, and the one that comes next."""

    partition: int
    start: int
    end: int


class TopicDescription(NamedTuple):
    name: str
    format: str
    partitions: tuple[PartitionBounds, ...]

    @property
    def records(self) -> int:
        return sum(bounds.end - bounds.start for bounds in self.partitions)

    def _repr_html_(self) -> str:
        title = f"topic {self.name!r}, format {self.format}: {self.records} records"
        rows = list(self.partitions)
        return html_table(title, PartitionBounds._fields, rows[:100], len(rows))


class TableDescription(NamedTuple):
    name: str
    format: str
    shards: int


class Topic:
    """A topic by name."""

    def __init__(self, engine: "Engine", name: str) -> None:
        self._engine = engine
        self.name = name

    def _info(self) -> "TopicInfo":
        self._engine._check()
        return self._engine._topic(self.name)

    @property
    def format(self) -> str:
        return self._info().format

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self._info().partitions)

    def describe(self) -> TopicDescription:
        """Name, format, and each partition's bounds, as of one step."""
        info = self._info()
        with self._engine.snapshot() as view:
            bounds = view.bounds(self.name)
        parts = tuple(PartitionBounds(p, start, end) for p, (start, end) in bounds.items())
        return TopicDescription(self.name, info.format, parts)

    def read(
        self,
        start: int | Mapping[int, int] = 0,
        partition: int | None = None,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
    ) -> ReadBatch:
        """Looks at records, for no consumer: nothing moves.

        `start` is an offset of `partition` (or of the only one), 0 for the oldest record still
        there, or a dict of partition to offset: `topic.read(batch.ends)` reads on in the partitions
        of a batch. OffsetOutOfRange outside the log.
        """
        with self._engine.snapshot() as view:
            return view.read(self.name, start, partition, max_records, max_bytes)

    def write(
        self,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Written:
        """Writes one record in a transaction of its own; returns where it is."""
        info = self._info()
        with self._engine.transaction() as tx:
            tx.write(self.name, value, key, headers, partition)
            done = tx.commit()
        ((tablet, published),) = done.published.items()
        return Written(info.partitions.index(tablet), published[0], done.place)

    def write_batch(
        self,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | None = None,
    ) -> Place:
        """Writes many records in one transaction of their own."""
        with self._engine.transaction() as tx:
            tx.write_batch(self.name, values, keys, headers, partition)
            return tx.commit().place

    def writer(
        self,
        producer: str | bytes | None = None,
        dedupe: bool = True,
        linger_records: int = LINGER_RECORDS,
        linger_bytes: int = LINGER_BYTES,
    ) -> Writer:
        """A buffered writer whose records are numbered, so that repeats are published once.

        producer        a name under which numbers go on after a restart; None: a fresh one
        dedupe          True: a repeated number is skipped in silence; False: it is a Conflict
        linger_records  buffered records at which the writer flushes by itself
        linger_bytes    buffered bytes at which it does
        """
        self._engine._writable()
        self._info()
        return Writer(self._engine, self.name, producer, dedupe, linger_records, linger_bytes)

    def position(self, consumer: str) -> dict[int, int]:
        """Partition → the offset where the consumer goes on."""
        with self._engine.snapshot() as view:
            return view.position(self.name, consumer)

    def lag(self, consumer: str) -> int:
        """How many records the consumer has not consumed yet."""
        with self._engine.snapshot() as view:
            bounds = view.bounds(self.name)
            positions = view.position(self.name, consumer)
        return sum(end - positions[p] for p, (_, end) in bounds.items())

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}>"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()


class Table:
    """A table by name."""

    def __init__(self, engine: "Engine", name: str) -> None:
        self._engine = engine
        self.name = name

    def _info(self) -> "TableInfo":
        self._engine._check()
        return self._engine._table(self.name)

    def _begin(self) -> "Transaction":
        self._engine._writable()
        return self._engine.transaction()

    @property
    def format(self) -> str:
        return self._info().format

    def describe(self) -> TableDescription:
        info = self._info()
        return TableDescription(info.name, info.format, len(info.shards))

    @overload
    def get(self, key: Key) -> Any: ...
    @overload
    def get(self, key: Key, default: T) -> T: ...
    def get(self, key: Key, default: Any = None) -> Any:
        """The row's value, `default` when there is none."""
        with self._engine.snapshot() as view:
            return view.get(self.name, key, default)

    def scan(
        self,
        prefix: str | bytes | tuple[Any, ...] | None = None,
        begin: Key = None,
        end: Key = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Rows:
        """(key, value) of all rows with this prefix, or begin <= key < end, in key order."""
        with self._engine.snapshot() as view:
            return view.scan(self.name, prefix, begin, end, limit, reverse)

    def count(self) -> int:
        """How many rows there are."""
        with self._engine.snapshot() as view:
            return view.count(self.name)

    def put(self, key: Key, value: Any) -> Place:
        """Writes a row, whatever is there; like all writes here, a transaction of its own."""
        with self._begin() as tx:
            tx.put(self.name, key, value)
            return tx.commit().place

    def put_if_absent(self, key: Key, value: Any) -> Place:
        """Writes a row if none is there."""
        with self._begin() as tx:
            tx.put_if_absent(self.name, key, value)
            return tx.commit().place

    def delete(self, key: Key) -> Place:
        """Removes a row; nothing happens when there is none."""
        with self._begin() as tx:
            tx.delete(self.name, key)
            return tx.commit().place

    def add(self, key: Key, n: int | float) -> Place:
        """Adds to the number in a row, 0 when absent."""
        with self._begin() as tx:
            tx.add(self.name, key, n)
            return tx.commit().place

    def max(self, key: Key, n: int | float) -> Place:
        """Raises the number in a row to `n` if it is below."""
        with self._begin() as tx:
            tx.max(self.name, key, n)
            return tx.commit().place

    def min(self, key: Key, n: int | float) -> Place:
        """Lowers the number in a row to `n` if it is above."""
        with self._begin() as tx:
            tx.min(self.name, key, n)
            return tx.commit().place

    def __repr__(self) -> str:
        return f"<Table {self.name!r}>"

    def _repr_html_(self) -> str:
        return self.scan(limit=20)._repr_html_()
