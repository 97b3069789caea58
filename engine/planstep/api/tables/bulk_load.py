"""Loads many rows into a table, in transactions of bounded size.

    pairs, dicts, columns ─▶ (key, value) … ─ 10,000 rows or 8 MiB ─▶ put … commit ─▶ progress(rows so far)

Puts read nothing, so they never conflict. Putting a row twice is the same as once, so a load that was cut short may
be repeated.

Next: ../columns/frame_encoder.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..arguments import brief
from ..columns.span import check_rows
from ..limits import AHEAD_BYTES
from ..optional_packages import is_frame
from ..retry import run

if TYPE_CHECKING:
    from ..context import Context
    from ..transaction.transaction import Transaction

Pairs = Iterator[tuple[Any, Any]]
_SLICE_ROWS = 10_000


def load(
    context: "Context",
    table: str,
    rows: Any,
    names: tuple[str | Sequence[str] | None, str | None],
    batch_rows: int,
    progress: Callable[[int], object] | None,
) -> int:
    """Loads rows into a table; `names` are those of the key and the value. See Table.load."""
    key, value = names
    check_rows(batch_rows)
    context.check_writable()
    context.table(table)
    where = f"table {table!r}"
    pairs = _pairs(rows, None if key is None else Columns(where, key, value), where)
    done = 0
    try:
        while count := _load_some(context, table, pairs, batch_rows):
            done += count
            if progress is not None:
                progress(done)
        return done
    except BaseException as error:
        error.add_note(f"{where}: {done:,} rows were loaded before; load again from the beginning")
        raise


def _load_some(context: "Context", table: str, pairs: Pairs, batch_rows: int) -> int:
    """Puts the next rows in one transaction, and returns how many."""
    held: list[tuple[Any, Any]] = []

    def put(tx: "Transaction") -> None:
        for key, value in held:  # rows of an attempt that was refused for lack of room
            tx.put(table, key, value)
        while len(held) < batch_rows and tx.contents.bytes_written < AHEAD_BYTES:
            if (pair := next(pairs, None)) is None:
                return
            tx.put(table, *pair)
            held.append(pair)

    run(context, put)
    return len(held)


class Columns:
    """Names the columns, or fields of dicts, that are the key and the value."""

    def __init__(self, where: str, key: str | Sequence[str], value: str | None) -> None:
        self.where = where
        self.single = isinstance(key, str)
        self.key = [key] if isinstance(key, str) else list(key) if isinstance(key, Iterable) else []
        self.value = value
        if not self.key or not all(isinstance(name, str) for name in self.key):
            raise TypeError(
                f"{where}: key= is the name of a column, or a list of names, not {brief(key)}"
            )

    def pair(self, row: Mapping[str, Any], number: int) -> tuple[Any, Any]:
        missing = [name for name in [*self.key, self.value] if name is not None and name not in row]
        if missing:
            raise ValueError(f"{self.where}: row {number} has no {missing[0]!r}")
        parts = tuple(as_key(row[name]) for name in self.key)
        if None in parts:
            raise ValueError(
                f"{self.where}: row {number} has no key: {self.key[parts.index(None)]!r} is None"
            )
        key = parts[0] if self.single else parts
        if self.value is not None:
            return key, row[self.value]
        return key, {name: item for name, item in row.items() if name not in self.key}


def as_key(part: Any) -> Any:
    """Turns structs and lists in a key into tuples, which `Rows.to_arrow` turns into structs."""
    if isinstance(part, dict):
        part = list(part.values())
    return tuple(map(as_key, part)) if isinstance(part, list) else part


def _pairs(rows: Any, columns: Columns | None, where: str) -> Pairs:
    reader = hasattr(rows, "read_next_batch")  # read batch by batch, not collected
    if is_frame(rows) and not reader:
        yield from _of_frame(rows, columns, where)
        return
    if isinstance(rows, Mapping):
        rows = rows.items()
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise TypeError(f"{where}: rows are pairs, dicts or a table of columns, not {brief(rows)}")
    hint = "; make the series a frame, with .to_frame()" if hasattr(rows, "to_frame") else ""
    for number, row in enumerate(rows):
        if is_frame(row):
            yield from _of_frame(row, columns, where)
        elif isinstance(row, Mapping):
            if columns is None:
                raise ValueError(
                    f"{where}: rows are dicts: name the field that is the key, with key="
                )
            yield columns.pair(row, number)
        elif columns is not None:
            raise TypeError(
                f"{where}: key= goes with dicts and columns, and row {number} is {brief(row)}"
            )
        else:
            try:
                key, value = row
            except (TypeError, ValueError):
                raise TypeError(
                    f"{where}: row {number} is no pair of key and value: {brief(row)}{hint}"
                ) from None
            yield key, value


def _of_frame(frame: Any, columns: Columns | None, where: str) -> Pairs:
    from ..columns.frame_encoder import python_values, table_of

    if columns is None:
        raise ValueError(f"{where}: name the column that is the key, with key=")
    table = table_of(frame)
    rest = table.column_names if columns.value is None else [columns.value]
    names = [*dict.fromkeys([*columns.key, *rest])]
    for begin in range(0, table.num_rows, _SLICE_ROWS):
        part = table.slice(begin, _SLICE_ROWS)
        for number, row in enumerate(python_values(part, names, where), begin):
            yield columns.pair(row, number)
