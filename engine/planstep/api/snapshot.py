"""A view of the whole store as of one step: every read agrees with every other, and with no later commit.

    with db.snapshot() as view:
        view.get("totals", "u1"); view.scan("totals"); view.position("clicks", "resharder")

Overwritten versions stay in memory while it is open (SnapshotTooOld beyond 64 MB): close it.

Next: handles.py.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..errors import TransactionClosed
from ..proto.keys import Key, check_name, encode_key
from .arguments import whole
from .columns.batch import ReadBatch, Rows
from .columns.codecs import decode_value
from .columns.mixins import ViewColumns
from .limits import LOOK_BYTES
from .topics.consumer import ConsumerDescription, describe_consumer
from .transaction.routing import key_of, scan_range
from .transaction.snapshot_reader import Reading, look_limit

if TYPE_CHECKING:
    from .engine import Engine

T = TypeVar("T")


class SnapshotView(ViewColumns):
    """Reads as of `step`. Invariant: what it shows never changes."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._reading: Reading | None = Reading(engine._runtime, engine._runtime.snapshot())
        self.step: int = self._reading.snap.step

    def _view(self) -> Reading:
        self._engine._check()
        if self._reading is None:
            raise TransactionClosed("the snapshot was closed; open another with db.snapshot()")
        return self._reading

    @overload
    def get(self, table: str, key: Key, default: None = None) -> Any | None: ...
    @overload
    def get(self, table: str, key: Key, default: T) -> T: ...
    def get(self, table: str, key: Key, default: Any = None) -> Any:
        """The row's value, `default` when there is none."""
        reading = self._view()
        info = self._engine._table(table)
        row = reading.row(info, encode_key(key))
        return default if row is None else decode_value(info.format, row[1])

    def scan(
        self,
        table: str,
        prefix: str | bytes | tuple[Any, ...] | None = None,
        begin: Key = None,
        end: Key = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Rows:
        """(key, value) of all rows with this prefix, or begin <= key < end, in key order."""
        reading = self._view()
        info = self._engine._table(table)
        first, last = scan_range(prefix, begin, end)
        if limit is not None:
            whole("limit", limit)
        if limit == 0 or first >= last:
            return Rows()
        form = info.format
        rows = reading.rows(info, first, last, limit, reverse)
        return Rows((key_of(row.key), decode_value(form, row.value)) for row in rows)

    def count(self, table: str) -> int:
        """How many rows the table has."""
        reading = self._view()
        return len(reading.rows(self._engine._table(table), b"", b"\xff"))

    def consumer(self, topic: str, consumer: str) -> ConsumerDescription:
        """Positions, lag and missed records of a consumer."""
        reading = self._view()
        return describe_consumer(reading, self._engine._topic(topic), check_name(consumer))

    def position(self, topic: str, consumer: str) -> dict[int, int]:
        """Partition → the offset where the consumer goes on."""
        reading = self._view()
        return reading.positions(self._engine._topic(topic), check_name(consumer))

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Partition → (oldest offset still there, offset that the next record will get)."""
        reading = self._view()
        tablets = self._engine._topic(topic).partitions
        return {p: reading.bounds(tablet) for p, tablet in enumerate(tablets)}

    def read(
        self,
        topic: str,
        start: int | Mapping[int, int] = 0,
        partition: int | None = None,
        max_records: int | None = None,
        max_bytes: int = LOOK_BYTES,
    ) -> ReadBatch:
        """Records from `start` on, for no consumer: nothing moves. See Topic.read."""
        reading = self._view()
        info = self._engine._topic(topic)
        most = look_limit(max_records, max_bytes)
        starts = reading.starts(info, start, partition)
        return reading.inspect(info, starts, most, max_bytes)

    def close(self) -> None:
        """Lets go of the step. A second close does nothing."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.snap.close()

    def __enter__(self) -> "SnapshotView":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # As in Transaction: a lock may be held wherever the garbage collector runs.
        reading = getattr(self, "_reading", None)
        if reading is not None:
            self._engine._dropped.append(reading.snap)

    def __repr__(self) -> str:
        state = "closed" if self._reading is None else "open"
        return f"<SnapshotView at step {self.step}, {state}>"
