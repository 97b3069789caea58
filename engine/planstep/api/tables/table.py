"""Table: one statement at a time, each a transaction or a snapshot of its own.

    db.table("totals").get("u1", 0)      db.table("totals").scan(prefix=("2024",))

Several statements that belong together take `db.transaction()` or `db.snapshot()` instead.

Next: ../topics/topic.py.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from ...proto.ids import Place
from ...proto.keys import Key
from ..columns.batch import Rows, counted, html_table
from ..columns.mixins import TableColumns

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo
    from ..engine import Engine
    from ..transaction.transaction import Transaction

T = TypeVar("T")


class TableDescription(NamedTuple):
    """A table: the format of its values, and how many key spaces it is split into."""

    name: str
    format: str
    shards: int


class Table(TableColumns):
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
        """Name, format and number of shards."""
        info = self._info()
        return TableDescription(info.name, info.format, len(info.shards))

    @overload
    def get(self, key: Key, default: None = None) -> Any | None: ...
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

    def __contains__(self, key: Key) -> bool:
        """Whether there is such a row."""
        missing = object()
        return self.get(key, missing) is not missing

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame with the columns key and value."""
        return self.scan().to_pandas()

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
        rows = self.scan(limit=21)
        shown = f"the first 20 rows of table {self.name!r}" if len(rows) > 20 else None
        title = shown or f"table {self.name!r}: {counted(len(rows), 'row')}"
        return html_table(title, ("key", "value"), rows[:20], 0)
