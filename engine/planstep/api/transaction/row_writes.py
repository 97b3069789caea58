"""Folds table writes of an open transaction as they come, so that each row is written once.

    put, delete                the row's state is known from here on: later writes are computed at once
    add, max, min              kept unevaluated, the row unread: evaluated when the transaction commits
    add after add              one add; the same for max and min

`evaluate` is the shard's own function: a transaction sees its updates exactly as they will be stored.

A scan lays them over the rows of the snapshot:

    stored   a1    b1    c1   d1 …       asked for: limit rows
    own            b del       c2 put    fetched:   limit + own keys in the range
    result   a1          c1   c2         recorded:  exactly the part read, [first, c2] here

Own deletions hide at most as many rows as there are own keys in the range. With that many more rows
fetched, the result never needs rows beyond those.

Next: read_set.py, which keeps the conditions.
"""

from math import isfinite
from typing import TYPE_CHECKING

import msgpack

from ...errors import RecordTooLarge
from ...proto.messages import ADD, DELETE, MAX, MIN, PUT, PUT_IF_ABSENT
from ...tablets.shard import addable, evaluate, number_of
from ..arguments import brief
from ..columns.batch import Rows
from ..columns.codecs import decode_value, encode_value
from ..limits import RECORD_BYTES_MAX
from .read_set import Conditions
from .routing import key_of
from .snapshot_reader import Reading

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo

_NUMERIC = (ADD, MAX, MIN)


class RowWrites:
    """Holds one table's writes. Invariant: at most one PUT or DELETE per key, and then nothing else."""

    __slots__ = ("pending", "table")

    def __init__(self, table: "TableInfo") -> None:
        self.table = table
        self.pending: dict[bytes, list[tuple[int, bytes]]] = {}

    def write(self, key: bytes, op: int, value: bytes) -> None:
        ops = self.pending.get(key)
        if ops is None or op in (PUT, DELETE):
            self.pending[key] = [(op, value)]
        elif ops[0][0] in (PUT, DELETE):
            old = ops[0][1] if ops[0][0] == PUT else None
            self.pending[key] = [(PUT, self._evaluated(op, old, value))]
        elif op == PUT_IF_ABSENT:
            pass  # every earlier update has left a row there
        elif ops[-1][0] == op and op in _NUMERIC and (op != ADD or addable(ops[-1][1], value)):
            folded = evaluate(op, ops[-1][1], value)
            assert folded is not None
            ops[-1] = (op, folded)
        else:
            ops.append((op, value))

    def _evaluated(self, op: int, old: bytes | None, value: bytes) -> bytes:
        if op in _NUMERIC and old is not None and number_of(old) is None:
            raise TypeError(
                f"table {self.table.name!r}: the row is not a finite number: add, max and min need one"
            )
        if op == ADD and old is not None and not addable(old, value):
            raise TypeError(
                f"table {self.table.name!r}: the sum, or the row before it, needs more than 64 bits or is no "
                "finite number"
            )
        new = evaluate(op, old, value)
        assert new is not None
        return new

    def known(self, key: bytes) -> bool:
        """Returns whether the row's state follows from this transaction's writes alone."""
        ops = self.pending.get(key)
        return ops is not None and ops[0][0] in (PUT, DELETE)

    def over(self, key: bytes, old: bytes | None) -> bytes | None:
        """Returns the row after this transaction's writes, given the row before them."""
        for op, value in self.pending.get(key, ()):
            old = value if op == PUT else None if op == DELETE else self._evaluated(op, old, value)
        return old


def pack_value(table: str, format_name: str, value: object) -> bytes:
    """Encodes a row's value as stored."""
    data = encode_value(format_name, value, f"table {table!r}")
    if len(data) > RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"table {table!r}: a value of {len(data):,} bytes, the limit is {RECORD_BYTES_MAX:,}; "
            "nothing was written"
        )
    return data


def pack_number(table: str, format_name: str, value: object, finite: bool = False) -> bytes:
    """Encodes the operand of add, which must be `finite`, of max or of min."""
    if format_name != "msgpack":
        raise TypeError(
            f'table {table!r} has format="{format_name}": add, max and min need format="msgpack"'
        )
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise TypeError(
            f"table {table!r}: add, max and min take an int or float, not {brief(value)}"
        )
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise TypeError(f"table {table!r}: add, max and min take integers of at most 64 bits")
    if finite and not isfinite(value):
        raise TypeError(f"table {table!r}: add takes finite numbers, not {brief(value)}")
    data: bytes = msgpack.packb(value)
    return data


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
    values = {row.key: row.value for row in stored}
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
    return Rows((key_of(key), decode_value(table.format, values[key])) for key in keys)
