"""A transaction: reads of one snapshot, writes kept on the side, one commit.

    read ─▶ Reading (snapshot S) ─▶ Conditions ─┐
    write ─▶ Outbox per topic ──────────────────┼─ commit ─▶ parts by tablet ─▶ Runtime ─▶ Commit | Conflict
    put, add ─▶ RowWrites per table ────────────┘

The snapshot is taken by the first read. A key or range of a table that was read must be unchanged at
commit, and a range of a topic that a consumer read must still be the consumer's next; else Conflict.
Writes that read nothing (write, put, delete, add, max, min, put_if_absent) never conflict.

Own table writes are visible in `get` and `scan`. Own topic writes have no offsets before the commit:
`pending(topic)` shows them, `read` does not.

What it leaves out: threads. One transaction belongs to one thread at a time.
Next: ../engine.py.
"""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ...errors import TransactionTooLarge
from ...proto.keys import Key, check_name, encode_key
from ...proto.messages import ADD, DELETE, MAX, MIN, PUT, PUT_IF_ABSENT
from ..arguments import items_of, seconds, whole
from ..columns.batch import ReadBatch, Record, Rows
from ..columns.codecs import decode_value
from ..limits import AHEAD_BYTES, READ_BYTES, TRANSACTION_BYTES_MAX
from ..optional_packages import is_frame
from .consume import consume_next, consume_range
from .lifecycle import Life
from .overlay_scan import merged
from .participant_parts import Parts, build_parts, encode_outboxes
from .read_set import Conditions
from .routing import scan_range, shard_of
from .row_writes import RowWrites, pack_number, pack_value
from .snapshot_reader import check_limits, check_partition
from .topic_writes import Headers, Outbox

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo
    from ..engine import Engine

T = TypeVar("T")


class Transaction(Life):
    """One transaction. `with db.transaction() as tx:` commits at the end, rolls back on an error.

    Invariants: nothing leaves before commit or submit; after that, nothing more is accepted.
    """

    def __init__(self, engine: "Engine", worker: Any = None) -> None:
        self._waitable = True
        self._alone = False  # one statement of its own
        self._conditions = Conditions()
        self._outboxes: dict[str, Outbox] = {}
        self._rows: dict[str, RowWrites] = {}
        self._bytes = 0
        self._waiting_bytes = 0  # of topic writes that are still here
        super().__init__(engine, worker)  # last: from here on it can be dropped open

    # topics --------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        consumer: str,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        timeout: float = 0.0,
        partition: int | None = None,
        exact: bool = False,
    ) -> ReadBatch:
        """Reads on where `consumer` stopped, and moves its positions when the transaction commits.

        Takes partition after partition (or the one given) until `max_records` or about `max_bytes`
        are reached; the next read of this consumer begins behind the partition where this one was
        full. A second read in the same transaction goes on behind the first. Waits up to `timeout`
        seconds for data, only if it is the transaction's first read: later ones see its snapshot.

        The commit checks that what was read is still this consumer's next; not that there was no
        more. With `exact` it does: of each partition whose end the read came to, the end is a condition, so
        that a record that came meanwhile is a Conflict. Mode "kafka": NotSupported.
        """
        if exact:
            self._runtime.hooks.check_exact()
        deadline = time.monotonic() + seconds("timeout", timeout)
        seen: dict[int, int] | None = None
        while True:
            batch = self._read_on(topic, consumer, max_records, max_bytes, partition, exact)
            if batch or not self._waitable or time.monotonic() >= deadline:
                self._waitable = False
                return batch
            tablets, ends = self._ends(topic, partition)
            self._release()
            if ends == seen:  # else they may have moved behind the read: it looks once more
                self._runtime.wait_published(tablets, ends, deadline - time.monotonic())
            seen = ends

    def _read_on(
        self,
        topic: str,
        consumer: str,
        max_records: int,
        max_bytes: int,
        partition: int | None,
        exact: bool = False,
    ) -> ReadBatch:
        """What is there for the consumer now, in this transaction's snapshot."""
        self._check()
        info = self._engine._topic(topic)
        check_name(consumer)
        check_limits(max_records, max_bytes)
        if partition is not None:
            check_partition(info, partition)
        segments, more = consume_next(
            self._view(),
            self._conditions,
            self._engine._turns,
            info,
            consumer,
            partition,
            max_records,
            max_bytes,
            exact,
        )
        if segments:
            self._engine._consuming[self._tx] = self._conditions
        return ReadBatch(topic, info.format, segments, more)

    def _ends(self, topic: str, partition: int | None) -> tuple[tuple[int, ...], dict[int, int]]:
        """The tablets that were read from, and where each ended: more is what a wait is for. All is looked at
        anew behind it, so nothing that was seen is a condition."""
        self._conditions = Conditions()
        info = self._engine._topic(topic)
        tablets = info.partitions if partition is None else (info.partitions[partition],)
        reading = self._view()
        return tablets, {tablet: reading.bounds(tablet)[1] for tablet in tablets}

    def consume(self, topic: str, consumer: str, partition: int, begin: int, end: int) -> None:
        """Consumes the offsets [begin, end) without reading them, for callers that read elsewhere.

        `begin` must be the consumer's position when the transaction commits, else Conflict; for an
        individual consumer nothing of the range may be consumed by then. OffsetOutOfRange here when
        the range is not inside the log.
        """
        self._check()
        info = self._engine._topic(topic)
        check_name(consumer)
        check_partition(info, partition)
        consume_range(self._view(), self._conditions, info, consumer, partition, begin, end)
        self._engine._consuming[self._tx] = self._conditions
        self._waitable = False

    def write(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Writes one record: to `partition`, else by its key, else where keyless records go."""
        self.write_batch(
            topic,
            (value,),
            None if key is None else (key,),
            None if headers is None else (headers,),
            partition,
        )

    def write_batch(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | Sequence[int] | None = None,
        *,
        key: str | None = None,
        value: str | None = None,
    ) -> None:
        """Writes many records, all or (on an error here) none of them.

        `values` may be a table of columns: of pyarrow, pandas, or whoever speaks Arrow's C interface.
        `key` and `value` then name columns; without `value` a record of format json or msgpack is a
        dict of all columns but the key. Text and bytes go from column to batch as they are. No column
        sets the timestamp: a stored batch has one, the time of writing.

        A record with a key goes to the partition crc32(key) mod partitions. Records without key
        go, all of one transaction, to one partition; transactions take the partitions in turn.
        `partition` sends all to one, or as a list each to its own.
        RecordTooLarge above 16 MiB a record, TransactionTooLarge above 1 GiB in all. From 8 MiB on
        what was written goes to the store ahead of the commit; NoSpace, Overloaded or Aborted in
        doing so end the transaction, without effect.
        """
        self._check()
        outbox = self._outboxes.get(topic) if isinstance(topic, str) else None
        if outbox is None:
            info = self._engine._topic(topic)
            self._engine._writable()
            outbox = Outbox(info, self._engine._keyless(info))
        one: int | None = None
        each: list[int] | None = None
        if isinstance(partition, int):
            one = check_partition(outbox.topic, partition)
        elif partition is not None:
            listed = items_of(outbox.where, "partition", partition)
            each = [check_partition(outbox.topic, p) for p in listed]
        if is_frame(values):
            if each is not None:
                raise TypeError("a table of columns goes to one partition, or by its keys")
            self._write_frame(outbox, values, keys, headers, one, key, value)
            return
        if key is not None or value is not None:
            raise TypeError("key= and value= name columns of a pyarrow Table or a DataFrame")
        columns = outbox.encode(values, keys, headers)
        if each is not None and len(each) != len(columns[0]):
            raise ValueError(f"{outbox.where}: {len(columns[0])} values but {len(each)} partitions")
        self._add(outbox, *columns, one if each is None else each)

    def _write_raw(
        self, topic: str, value: bytes, key: bytes | None, headers: bytes | None
    ) -> None:
        """One record as it is stored."""
        info = self._engine._topic(topic)
        outbox = self._outboxes.get(topic) or Outbox(info, self._engine._keyless(info))
        size = len(value) + len(key or b"") + len(headers or b"")
        self._add(outbox, [value], [key], [headers], size, None)

    def _add(
        self,
        outbox: Outbox,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: list[bytes | None] | None,
        size: int,
        partition: int | Sequence[int] | None,
    ) -> None:
        if not values:
            return
        self._grow(size)
        outbox.add(values, keys, headers, partition)
        self._outboxes[outbox.topic.name] = outbox
        self._waiting_bytes += size
        self._send_if_due()

    def _send_if_due(self) -> None:
        runtime = self._runtime
        if self._waiting_bytes >= AHEAD_BYTES or (
            runtime.hooks.sends_at_once
            and not self._alone
            and runtime.hooks.may_send(self._tx, self._waiting_bytes, self._outboxes)
        ):
            self._send_ahead()

    def _write_frame(
        self,
        outbox: Outbox,
        frame: Any,
        keys: Any,
        headers: Any,
        partition: int | None,
        key: str | None,
        value: str | None,
    ) -> None:
        from ..columns.frame_encoder import Records

        if keys is not None or headers is not None:
            raise TypeError("keys= and headers= go with lists: name the column of keys with key=")
        records = Records(outbox.topic, frame, key, value)
        self._grow(records.size)
        for size, pieces in records.pieces(outbox.keyless, partition):
            for target, piece in pieces:
                outbox.add_sealed(target, piece)
            self._outboxes[outbox.topic.name] = outbox
            self._waiting_bytes += size
            self._send_if_due()

    def flush(self) -> None:
        """Makes the topic writes so far durable at their partitions, and returns when they are.

        Nobody sees them before the commit, which then has less to do. Mode "kafka": returns when all that was
        written so far is in the logs, and acknowledged. Errors (Aborted, NoSpace, Overloaded, KafkaError)
        end the transaction, without effect.
        """
        self._check()
        if any(outbox.columns for outbox in self._outboxes.values()):
            self._send_ahead()
        self._await_sent()

    def pending(self, topic: str) -> list[Record]:
        """What this transaction has written to the topic so far, without offsets."""
        self._check()
        info = self._engine._topic(topic)
        outbox = self._outboxes.get(info.name)
        if outbox is None:
            return []
        found = []
        for partition, tablet in enumerate(info.partitions):
            if tablet in self._ahead:
                found += outbox.shown(partition, self._runtime.views.staged(tablet, self._tx))
            found += outbox.records(partition)
        return found

    def _send_ahead(self) -> None:
        """The topic writes so far become durable at their partitions, invisible."""
        slices = encode_outboxes(self._outboxes.values(), sum(self._ahead.values()))
        ahead = {
            tablet: (self._ahead.get(tablet, 0), batches) for tablet, batches in slices.items()
        }
        for tablet, batches in slices.items():
            self._ahead[tablet] = self._ahead.get(tablet, 0) + len(batches)
        try:
            self._runtime.transactions.send_ahead(self._tx, ahead)
        except BaseException as error:
            self._give_up(error)
            raise
        for outbox in self._outboxes.values():
            outbox.columns.clear()
        self._waiting_bytes = 0

    # tables --------------------------------------------------------------------------------

    @overload
    def get(self, table: str, key: Key, default: None = None) -> Any | None: ...
    @overload
    def get(self, table: str, key: Key, default: T) -> T: ...
    def get(self, table: str, key: Key, default: Any = None) -> Any:
        """The row's value, own writes included; `default` when there is none."""
        self._check()
        info = self._engine._table(table)
        raw = encode_key(key)
        writes = self._rows.get(table)
        old: bytes | None = None
        if writes is None or not writes.known(raw):
            row = self._view().row(info, raw)
            self._waitable = False
            self._conditions.saw_row(shard_of(raw, info.shards), raw, row[0] if row else None)
            old = row[1] if row else None
        value = old if writes is None else writes.over(raw, old)
        return default if value is None else decode_value(info.format, value)

    def put(self, table: str, key: Key, value: Any) -> None:
        """Writes a row, whatever is there."""
        info = self._table_to_write(table)
        self._write_row(info, key, PUT, pack_value(table, info.format, value))

    def put_if_absent(self, table: str, key: Key, value: Any) -> None:
        """Writes a row if none is there when the transaction commits. Never conflicts."""
        info = self._table_to_write(table)
        self._write_row(info, key, PUT_IF_ABSENT, pack_value(table, info.format, value))

    def delete(self, table: str, key: Key) -> None:
        """Removes a row; nothing happens when there is none."""
        self._write_row(self._table_to_write(table), key, DELETE, b"")

    def add(self, table: str, key: Key, n: int | float) -> None:
        """Adds to the number in a row (0 when absent), evaluated at commit: counters never conflict.

        TypeError here or at commit when the row holds no number, or the sum exceeds 64 bits or is no
        finite number.
        """
        info = self._table_to_write(table)
        self._write_row(info, key, ADD, pack_number(table, info.format, n, finite=True))

    def max(self, table: str, key: Key, n: int | float) -> None:
        """Raises the number in a row to `n` if it is below, evaluated at commit like `add`."""
        info = self._table_to_write(table)
        self._write_row(info, key, MAX, pack_number(table, info.format, n))

    def min(self, table: str, key: Key, n: int | float) -> None:
        """Lowers the number in a row to `n` if it is above, evaluated at commit like `add`."""
        info = self._table_to_write(table)
        self._write_row(info, key, MIN, pack_number(table, info.format, n))

    def scan(
        self,
        table: str,
        prefix: str | bytes | tuple[Any, ...] | None = None,
        begin: Key = None,
        end: Key = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Rows:
        """(key, value) of all rows with this prefix, or begin <= key < end, in key order.

        Own writes are included. What was seen, and that nothing else was there, must hold when the
        transaction commits, if it writes: at most 10,000 rows then, else TransactionTooLarge.
        """
        self._check()
        info = self._engine._table(table)
        first, last = scan_range(prefix, begin, end)
        if limit is not None:
            whole("limit", limit)
        if limit == 0 or first >= last:
            return Rows()
        reading = self._view()
        self._waitable = False
        found = merged(
            reading, self._conditions, info, self._rows.get(table), first, last, limit, reverse
        )
        if self._outboxes or self._rows:
            self._conditions.check_ranged()
        return found

    def _table_to_write(self, table: str) -> "TableInfo":
        self._check()
        info = self._engine._table(table)
        self._engine._writable()
        return info

    def _write_row(self, info: "TableInfo", key: Key, op: int, value: bytes) -> None:
        raw = encode_key(key)
        self._grow(len(raw) + len(value))
        writes = self._rows.get(info.name)
        if writes is None:
            writes = self._rows[info.name] = RowWrites(info.name)
        writes.write(raw, op, value)

    def _has_writes(self) -> bool:
        return bool(self._outboxes or self._rows)

    def _parts(self) -> Parts | None:
        conditions = self._conditions
        if not (self._outboxes or self._rows or conditions.consumed or conditions.acked):
            return None
        self._engine._writable()
        rows = [(self._engine._table(name), writes) for name, writes in self._rows.items()]
        parts = build_parts(conditions, self._outboxes.values(), rows, self._ahead)
        # What went ahead of its commit belongs to a transaction, and ends as one.
        return self._runtime.hooks.statement(parts) if self._alone and not self._ahead else parts

    def _grow(self, size: int) -> None:
        if self._bytes + size > TRANSACTION_BYTES_MAX:
            raise TransactionTooLarge(
                f"the transaction would write {self._bytes + size:,} bytes, the limit is "
                f"{TRANSACTION_BYTES_MAX:,}; nothing was written"
            )
        self._bytes += size
