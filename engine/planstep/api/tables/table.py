"""Implements Table: each of its methods is a single statement, a transaction or a snapshot of its own.

    db.table("totals").get("u1", 0)      db.table("totals").scan(prefix=("2024",))

For several statements that belong together use `db.transaction()` or `db.snapshot()` instead.

Next: ../topics/topic.py.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from ...proto.keys import Key
from ..columns.batch import counted, html_table
from ..columns.span import BATCH_ROWS, LOAD_ROWS, Prefix
from ..context import Handle, in_transaction, of_now
from ..snapshot import SnapshotView
from ..transaction.transaction import Transaction

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo

T = TypeVar("T")


class TableDescription(NamedTuple):
    """A table: the format of its values, and the number of shards that its keys are split into."""

    name: str
    format: str
    shards: int


class Table(Handle):
    """A table by name; each method is a transaction or a snapshot of its own."""

    def _info(self) -> "TableInfo":
        self._context.look()
        return self._context.table(self.name)

    def _begin(self) -> Transaction:
        context = self._context
        context.check_writable()
        return context.begin()

    @property
    def format(self) -> str:
        return self._info().format

    def describe(self) -> TableDescription:
        """Returns name, format and number of shards."""
        info = self._info()
        return TableDescription(info.name, info.format, len(info.shards))

    @overload
    def get(self, key: Key, default: None = None) -> Any | None: ...
    @overload
    def get(self, key: Key, default: T) -> T: ...
    def get(self, key: Key, default: Any = None) -> Any:
        """Returns the row's value, `default` when there is none."""
        with self._context.open_view() as view:
            return view.get(self.name, key, default)

    scan = of_now(SnapshotView.scan)
    count = of_now(SnapshotView.count)

    def __contains__(self, key: Key) -> bool:
        """Returns whether there is such a row."""
        missing = object()
        return self.get(key, missing) is not missing

    def to_pandas(self) -> Any:
        """Returns all rows as a pandas DataFrame with the columns key and value."""
        return self.scan().to_pandas()

    put = in_transaction(Transaction.put)
    put_if_absent = in_transaction(Transaction.put_if_absent)
    delete = in_transaction(Transaction.delete)
    add = in_transaction(Transaction.add)
    max = in_transaction(Transaction.max)
    min = in_transaction(Transaction.min)

    def scan_arrow(
        self,
        batch_rows: int = BATCH_ROWS,
        prefix: Prefix = None,
        begin: Key = None,
        end: Key = None,
        *,
        decode: bool = True,
        value_type: Any = None,
    ) -> Iterator[Any]:
        """Yields the rows of `scan` as pyarrow RecordBatches, as of the step at which the first is asked for."""
        with self._context.open_view() as view:
            yield from view.scan_arrow(
                self.name, batch_rows, prefix, begin, end, decode=decode, value_type=value_type
            )

    def load(
        self,
        rows: Any,
        key: str | Sequence[str] | None = None,
        value: str | None = None,
        batch_rows: int = LOAD_ROWS,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Puts many rows, in transactions of at most `batch_rows` and about 8 MiB; returns how many.

        rows        (key, value) pairs, a dict of them, dicts, a table of columns (of pyarrow, pandas,
                    or any type with Arrow's C interface), or an iterable of such tables
        key         of dicts and columns: the name of the key; several names make a tuple
        value       the name of the value; None: a dict of all fields but the key
        progress    called after each transaction with the number of rows so far

        Each transaction is durable when the next one begins. After an error, whose notes say how many rows
        were loaded, load again from the beginning: putting the same row again changes nothing.
        """
        from .bulk_load import load

        return load(self._context, self.name, rows, (key, value), batch_rows, progress)

    def __repr__(self) -> str:
        return f"<Table {self.name!r}>"

    def _repr_html_(self) -> str:
        rows = self.scan(limit=21)
        part = f"the first 20 rows of table {self.name!r}" if len(rows) > 20 else None
        title = part or f"table {self.name!r}: {counted(len(rows), 'row')}"
        return html_table(title, ("key", "value"), rows[:20], 0)
