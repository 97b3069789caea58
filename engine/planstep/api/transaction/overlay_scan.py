"""Scans a table for a transaction: rows of the snapshot with its own writes laid over them.

    stored   a1    b1    c1   d1 …       asked for: limit rows
    own            b del       c2 put    fetched:   limit + own keys in the range
    result   a1          c1   c2         recorded:  exactly the part read, [first, c2] here

Own deletions hide at most as many rows as there are own keys in the range. With that many more rows
fetched, the result never needs rows beyond those.

Next: read_set.py, which keeps the conditions.
"""

from typing import TYPE_CHECKING

from ..columns.batch import Rows
from ..columns.codecs import decode_value
from .read_set import Conditions
from .routing import key_of
from .row_writes import RowWrites
from .snapshot_reader import Reading

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo


def merged(
    reading: Reading,
    conditions: Conditions,
    table: "TableInfo",
    writes: RowWrites | None,
    bounds: tuple[bytes, bytes],
    *,
    limit: int | None,
    reverse: bool,
) -> Rows:
    """Returns the rows between `bounds` as this transaction sees them, and records the range that it read."""
    first, last = bounds
    own = [] if writes is None else [key for key in writes.pending if first <= key < last]
    fetch = None if limit is None else limit + len(own)
    stored = reading.rows(table, first, last, fetch, reverse)
    values: dict[bytes, bytes] = {row.key: row.value for row in stored}
    if fetch is not None and len(stored) == fetch:
        edge = stored[-1].key  # rows beyond it were not fetched
        own = [key for key in own if (key >= edge if reverse else key <= edge)]
    if writes is not None and own:
        for key in own:
            value = writes.over(key, values.get(key))
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        keys = sorted(values, reverse=bool(reverse))
    else:
        keys = list(values)
    if limit is not None and len(keys) >= limit:
        keys = keys[:limit]
        if reverse:
            first = keys[-1]
        else:
            last = keys[-1] + b"\x00"
        stored = [row for row in stored if first <= row.key < last]
    if reverse:
        stored.reverse()
    conditions.saw_range(table.shards, first, last, stored)
    form = table.format
    return Rows((key_of(key), decode_value(form, values[key])) for key in keys)
