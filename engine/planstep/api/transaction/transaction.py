"""Defines Transaction: it reads one snapshot, buffers its writes, and commits once.

    read ─▶ Reading (snapshot S) ─▶ Conditions ─┐
    write ─▶ Outbox per topic ──────────────────┼─ commit ─▶ parts by tablet ─▶ Runtime ─▶ Commit | Conflict
    put, add ─▶ RowWrites per table ────────────┘

The first read takes the snapshot. A key or range of a table that was read must be unchanged at
commit, and a range of a topic that a consumer read must still be the consumer's next; else Conflict.
Writes that read nothing (write, put, delete, add, max, min, put_if_absent) never conflict.

Own table writes are visible in `get` and `scan`. Own topic writes have no offsets before the commit:
`pending(topic)` shows them, `read` does not.

Threads may share a transaction: `contents.lock` lets one call after the other at its contents. A wait for records
or for answers holds no lock.
Next: ../engine.py.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from ...proto.ids import TxnID, tx_text
from ...proto.keys import Key, check_name, encode_key
from ...proto.messages import ADD, DELETE, MAX, MIN, PUT, PUT_IF_ABSENT
from ...runtime.outcome import Commit, Outcome
from ..arguments import items_of, seconds, whole
from ..columns.batch import ReadBatch, Record, Rows
from ..columns.codecs import decode_value
from ..limits import AHEAD_BYTES, READ_BYTES
from ..optional_packages import is_frame
from .consume import ConsumerReads
from .lifecycle import CommitHandle, Lifecycle
from .participant_parts import Contents, encode_outboxes
from .read_set import Conditions
from .routing import scan_range, shard_of
from .row_writes import merged, pack_number, pack_value
from .snapshot_reader import check_limits, check_partition, younger
from .topic_writes import Headers, Outbox

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo, TopicInfo
    from ..context import Context

T = TypeVar("T")


class Transaction:
    """One transaction. `with db.transaction() as tx:` commits at the end, rolls back on an error.

    Threads may share it: one call runs after the other, and what comes after the commit is TransactionClosed.
    It is faster with one thread at a time.

    Invariants: it has no effect before commit or submit; after that, it accepts nothing more.
    """

    _lifecycle: type[Lifecycle] = Lifecycle

    def __init__(self, context: "Context", worker: Any = None, statement: bool = False) -> None:
        """`statement`: it is a single statement's."""
        self._context = context
        self._runtime = context.runtime
        self.contents = Contents(context, statement)
        self.life = self._lifecycle(context, self.contents, worker)

    @property
    def id(self) -> str:
        """The transaction's id, as in "3-17": `db.outcome(id)` finds it, after reopening too."""
        return tx_text(self.life.tx)

    @property
    def txn_id(self) -> TxnID | None:
        """Mode "pulsar": the id that a coordinator has given, None until it has answered, as after `flush`.
        None in other modes."""
        return self._runtime.hooks.txn_id(self.life.tx)

    @property
    def commit(self) -> CommitHandle:
        """Call it to commit; afterwards `tx.commit.place` is the place (step, n)."""
        return CommitHandle(self.life)

    def submit(self) -> "Future[Commit]":
        """Commits without waiting; the future gives the Commit or raises as `commit` would.

        It cannot be cancelled. Its callbacks run on a thread of the engine, one after the other:
        they may commit, but must not wait for another future of this engine. Overloaded, without
        effect, when there is no room for its bytes within 30 s.
        """
        return self.life.submit()

    def rollback(self) -> None:
        """Ends the transaction without effect."""
        self.life.rollback()

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Returns how the transaction ended; once it was sent, waits for the end at most `timeout` seconds. Without
        it, IoError after 30 s in which nothing was heard of another process that owns the store."""
        return self.life.outcome(timeout)

    def __enter__(self) -> Self:
        self.life.check_open()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        life = self.life
        if life.state != "open":
            return
        try:
            if error is None:
                life.commit(None)
        finally:
            # Not behind a commit that counts: for want of memory it would fail there.
            if life.state != "committed":
                life.leave()

    def __repr__(self) -> str:
        return repr(self.life)

    # topics --------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        consumer: str,
        *,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        timeout: float = 0.0,
        partition: int | None = None,
        exact: bool = False,
    ) -> ReadBatch:
        """Reads the next records of `consumer`, and moves its positions when the transaction commits.

        Takes partition after partition (or the one given) until `max_records` or about `max_bytes`
        are reached; the next read of this consumer begins after the partition where this one was
        full. A second read in the same transaction continues after the first. Waits up to `timeout`
        seconds for data, only if it is the transaction's first read: later ones see its snapshot.

        The commit checks that the records read are still this consumer's next; not that there were no
        more. With `exact` it does: the end of each partition that was read to its end is a condition, so
        a record that came meanwhile is a Conflict. Modes "kafka" and "pulsar": NotSupported.
        """
        if exact:
            self._runtime.hooks.check_exact()
        deadline = time.monotonic() + seconds("timeout", timeout)
        before: dict[int, int] | None = None
        while True:
            batch, ends = self._read_once(
                topic, consumer, max_records, max_bytes, partition, exact, deadline=deadline
            )
            if ends is None:
                return batch
            if ends == before:  # else they may have moved since the read: look once more
                self._runtime.wait_published(ends, ends, deadline - time.monotonic())
            before = ends

    def _read_once(
        self,
        topic: str,
        consumer: str,
        max_records: int,
        max_bytes: int,
        partition: int | None,
        exact: bool,
        *,
        deadline: float,
    ) -> tuple[ReadBatch, dict[int, int] | None]:
        """Reads the records that are there. Where there are none, and there is time to wait for some, lets the
        snapshot go, and returns the ends of the tablets that were read, too."""
        with self.contents.lock:
            batch = self._read_on(topic, consumer, max_records, max_bytes, partition, exact)
            if batch or not self.contents.waitable or time.monotonic() >= deadline:
                self.contents.waitable = False
                return batch, None
            ends = self._ends(topic, partition)
            self.life.release()
            return batch, ends

    def _read_on(
        self,
        topic: str,
        consumer: str,
        max_records: int,
        max_bytes: int,
        partition: int | None,
        exact: bool,
    ) -> ReadBatch:
        """Reads the records that are there for the consumer now, in this transaction's snapshot."""
        info = self._consumed(topic, consumer)
        check_limits(max_records, max_bytes)
        if partition is not None:
            check_partition(info, partition)
        reads = ConsumerReads(self.life.view(), self.contents.conditions, info, consumer)
        turns = self._context.turns
        segments, more = reads.next(turns, partition, max_records, max_bytes, exact)
        if segments:
            self._context.consuming[self.life.tx] = self.contents.conditions
        return ReadBatch(topic, info.format, segments, more)

    def _consumed(self, topic: str, consumer: str) -> "TopicInfo":
        """Returns the topic that a consumer of this name may read here."""
        self.life.check_open()
        info = self._context.topic(topic)
        check_name(consumer)
        if consumer in info.exclusive:
            self._context.groups.check_free(info, consumer)
        step = self.life.view().snap.step
        if info.step > step and self._runtime.hooks.has_places:
            raise younger(info, step)
        return info

    def _ends(self, topic: str, partition: int | None) -> dict[int, int]:
        """Returns the end of each tablet that was read from, which a wait watches. The next read starts anew after
        the wait, so the reads so far are no conditions."""
        self.contents.conditions = Conditions()
        info, reading = self._context.topic(topic), self.life.view()
        tablets = info.partitions if partition is None else (info.partitions[partition],)
        return {tablet: reading.bounds(tablet)[1] for tablet in tablets}

    def consume(self, topic: str, consumer: str, partition: int, begin: int, end: int) -> None:
        """Consumes the offsets [begin, end) without reading them, for callers that read elsewhere.

        `begin` must be the consumer's position when the transaction commits, else Conflict; for an
        individual consumer no part of the range may be consumed by then. Conflict here, not retryable,
        when it was consumed before this transaction's snapshot; OffsetOutOfRange when the range is not
        inside the log.
        """
        with self.contents.lock:
            info = self._consumed(topic, consumer)
            check_partition(info, partition)
            reads = ConsumerReads(self.life.view(), self.contents.conditions, info, consumer)
            reads.consume(partition, begin, end)
            self._context.consuming[self.life.tx] = self.contents.conditions
            self.contents.waitable = False

    def write(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Writes one record: to `partition`, else by its key, else to the partition for records without key."""
        if key is None and headers is None and partition is None:
            with self.contents.lock:
                outbox = self._outbox(topic)
                raw = outbox.encode_one(value)
                self.contents.grow(len(raw))
                outbox.add_one(raw)
                self._added(outbox, len(raw))
            return
        keys = None if key is None else (key,)
        each = None if headers is None else (headers,)
        self.write_batch(topic, (value,), keys, each, partition)

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

        `values` may be a table of columns: of pyarrow, pandas, or any object with Arrow's C interface.
        `key` and `value` then name columns; without `value` a record of format json or msgpack is a
        dict of all columns but the key. Text and bytes go from column to batch unchanged. No column
        sets the timestamp: a stored batch has one, the time of writing.

        A record with a key goes to the partition crc32(key) mod partitions. All records without key of
        one transaction go to one partition; transactions take the partitions in turn.
        `partition` sends all to one, or as a list each to its own.
        RecordTooLarge above 16 MiB a record, TransactionTooLarge above 1 GiB in all. From 8 MiB on
        writes are staged in the store before the commit; NoSpace, Overloaded or Aborted in
        doing so end the transaction, without effect.
        """
        outbox = self._outbox(topic)
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
            if keys is not None or headers is not None:
                raise TypeError(
                    "keys= and headers= go with lists: name the column of keys with key="
                )
            self._write_frame(outbox, values, one, key, value)
            return
        if key is not None or value is not None:
            raise TypeError("key= and value= name columns of a pyarrow Table or a DataFrame")
        columns = outbox.encode(values, keys, headers)
        if each is not None and len(each) != len(columns[0]):
            raise ValueError(f"{outbox.where}: {len(columns[0])} values but {len(each)} partitions")
        self._add(outbox, *columns, one if each is None else each)

    def _outbox(self, topic: str) -> Outbox:
        """Returns what holds this transaction's records for a topic, a new one at its first write."""
        self.life.check_open()
        outbox = self.contents.outboxes.get(topic) if isinstance(topic, str) else None
        if outbox is None:
            info = self._context.topic(topic)
            self._context.check_writable()
            outbox = Outbox(info, self._context.keyless(info))
        return outbox

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
        with self.contents.lock:
            outbox = self._kept(outbox)
            self.contents.grow(size)
            outbox.add(values, keys, headers, partition)
            self._added(outbox, size)

    def _kept(self, outbox: Outbox) -> Outbox:
        """Returns the outbox to add to: values are encoded without the lock, another may have come meanwhile."""
        self.life.check_open()
        return self.contents.outboxes.get(outbox.topic.name, outbox)

    def _added(self, outbox: Outbox, size: int) -> None:
        """Counts bytes that an outbox has got, and sends them ahead where that is due."""
        contents, hooks = self.contents, self._runtime.hooks
        contents.outboxes[outbox.topic.name] = outbox
        contents.waiting_bytes += size
        if contents.waiting_bytes >= AHEAD_BYTES or (
            hooks.streams_writes
            and not contents.alone
            and hooks.may_send(self.life.tx, contents.waiting_bytes, contents.outboxes)
        ):
            self._send_ahead()

    def _write_frame(
        self, outbox: Outbox, frame: Any, partition: int | None, key: str | None, value: str | None
    ) -> None:
        from ..columns.frame_encoder import Records

        records = Records(outbox.topic, frame, key, value)
        with self.contents.lock:
            outbox = self._kept(outbox)
            self.contents.grow(records.size)
            for size, pieces in records.pieces(outbox.keyless, partition):
                for target, piece in pieces:
                    outbox.add_piece(target, piece)
                self._added(outbox, size)

    def flush(self) -> None:
        """Makes the topic writes so far durable at their partitions, and returns when they are.

        They stay invisible until the commit, which then has less to do. Mode "kafka": returns when all writes
        so far are in the logs, and acknowledged. Errors (Aborted, NoSpace, Overloaded, KafkaError)
        end the transaction, without effect.
        """
        with self.contents.lock:
            self.life.check_open()
            if any(outbox.columns for outbox in self.contents.outboxes.values()):
                self._send_ahead()
        self.life.await_sent()

    def pending(self, topic: str) -> list[Record]:
        """Returns the records that this transaction has written to the topic so far, without offsets."""
        with self.contents.lock:
            self.life.check_open()
            info = self._context.topic(topic)
            outbox = self.contents.outboxes.get(info.name)
            if outbox is None:
                return []
            records = []
            if self.contents.ahead:
                self._runtime.look()  # an attached process sent it to the store's owner
            for partition, tablet in enumerate(info.partitions):
                if tablet in self.contents.ahead:
                    staged = self._runtime.views.staged(tablet, self.life.tx)
                    records += outbox.decode(partition, staged)
                records += outbox.records(partition)
            return records

    def _send_ahead(self) -> None:
        """Stages the topic writes so far: durable at their partitions, invisible."""
        staged = self.contents.ahead
        slices = encode_outboxes(self.contents.outboxes.values(), sum(staged.values()))
        ahead = {tablet: (staged.get(tablet, 0), batches) for tablet, batches in slices.items()}
        for tablet, (count, batches) in ahead.items():
            staged[tablet] = count + len(batches)
        try:
            self._runtime.transactions.send_ahead(self.life.tx, ahead)
        except BaseException as error:
            self.life.give_up(error)
            raise
        for outbox in self.contents.outboxes.values():
            outbox.columns.clear()
        self.contents.waiting_bytes = 0

    # tables --------------------------------------------------------------------------------

    @overload
    def get(self, table: str, key: Key, default: None = None) -> Any | None: ...
    @overload
    def get(self, table: str, key: Key, default: T) -> T: ...
    def get(self, table: str, key: Key, default: Any = None) -> Any:
        """Returns the row's value, own writes included; `default` when there is none."""
        with self.contents.lock:
            self.life.check_open()
            info = self._context.table(table)
            raw = encode_key(key)
            writes = self.contents.rows_of(info)
            old: bytes | None = None
            if writes is None or not writes.known(raw):
                view = self.life.view()
                if info.step > view.snap.step:
                    raise younger(info, view.snap.step)
                place, old = view.row(info, raw) or (None, None)
                self.contents.waitable = False
                self.contents.conditions.saw_row(shard_of(raw, info.shards), raw, place)
            value = old if writes is None else writes.over(raw, old)
            return default if value is None else decode_value(info.format, value)

    def put(self, table: str, key: Key, value: Any) -> None:
        """Writes a row, replacing one that is there."""
        with self.contents.lock:
            info = self._table_to_write(table)
            self.contents.write_row(info, key, PUT, pack_value(table, info.format, value))

    def put_if_absent(self, table: str, key: Key, value: Any) -> None:
        """Writes a row if none is there when the transaction commits. Never conflicts."""
        with self.contents.lock:
            info = self._table_to_write(table)
            self.contents.write_row(info, key, PUT_IF_ABSENT, pack_value(table, info.format, value))

    def delete(self, table: str, key: Key) -> None:
        """Removes a row; nothing happens when there is none."""
        with self.contents.lock:
            self.contents.write_row(self._table_to_write(table), key, DELETE, b"")

    def add(self, table: str, key: Key, n: int | float) -> None:
        """Adds to the number in a row (0 when absent), evaluated at commit: counters never conflict.

        TypeError here or at commit when the row holds no number, or the sum exceeds 64 bits or is not
        finite.
        """
        with self.contents.lock:
            info = self._table_to_write(table)
            self.contents.write_row(info, key, ADD, pack_number(table, info.format, n, finite=True))

    def max(self, table: str, key: Key, n: int | float) -> None:
        """Raises the number in a row to `n` if it is below, evaluated at commit like `add`."""
        with self.contents.lock:
            info = self._table_to_write(table)
            self.contents.write_row(info, key, MAX, pack_number(table, info.format, n))

    def min(self, table: str, key: Key, n: int | float) -> None:
        """Lowers the number in a row to `n` if it is above, evaluated at commit like `add`."""
        with self.contents.lock:
            info = self._table_to_write(table)
            self.contents.write_row(info, key, MIN, pack_number(table, info.format, n))

    def scan(
        self,
        table: str,
        prefix: str | bytes | tuple[Any, ...] | None = None,
        begin: Key = None,
        end: Key = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Rows:
        """Returns (key, value) of all rows with this prefix, or begin <= key < end, in key order.

        Own writes are included. If the transaction writes, the rows read must be unchanged when it commits, with no
        other row in the range: at most 10,000 rows then, else TransactionTooLarge.
        """
        first, last = scan_range(prefix, begin, end)
        if limit is not None:
            whole("limit", limit)
        with self.contents.lock:
            self.life.check_open()
            info = self._context.table(table)
            if limit == 0 or first >= last:
                return Rows()
            reading = self.life.view()
            if info.step > reading.snap.step:
                raise younger(info, reading.snap.step)
            self.contents.waitable = False
            conditions, writes = self.contents.conditions, self.contents.rows_of(info)
            rows = merged(
                reading, conditions, info, writes, (first, last), limit=limit, reverse=reverse
            )
            if self.contents.outboxes or self.contents.rows:
                self.contents.conditions.check_ranged()
            return rows

    def _table_to_write(self, table: str) -> "TableInfo":
        self.life.check_open()
        info = self._context.table(table)
        self._context.check_writable()
        return info
