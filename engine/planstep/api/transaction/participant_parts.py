"""Collects a transaction's contents, and makes the parts to send: one for each participating tablet.

    Outbox      columns of a partition   ─▶ PartitionPart.slices
    Conditions  ranges of consumers      ─▶ PartitionPart.ranges, .acks, .fences, .end
    Conditions  rows and ranges seen     ─▶ ShardPart.reads, .ranges
    RowWrites   folded writes            ─▶ ShardPart.writes

Next: engine/planstep/runtime/runtime.py, which takes them.
"""

import time
from _thread import RLock  # that of threading is a function of Python around it
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...errors import Dropped, TransactionTooLarge
from ...proto.keys import Key, encode_key
from ...proto.messages import PartitionPart, Parts, ShardPart, Slices
from ..limits import INDEX_ENTRIES_MAX, TRANSACTION_BYTES_MAX
from .read_set import Conditions
from .routing import shard_of
from .row_writes import RowWrites
from .topic_writes import Outbox

if TYPE_CHECKING:
    from ...runtime.catalog import TableInfo
    from ..context import Context


class Contents:
    """The contents of one transaction until it is sent. Invariants: it writes at most TRANSACTION_BYTES_MAX; who
    changes it, or ends the transaction, has `lock`."""

    def __init__(self, context: "Context", alone: bool) -> None:
        self._context = context
        self.lock = RLock()  # one that a signal's handler may have already
        self.waitable = True  # no read so far but the one that may wait
        self.alone = alone  # a single statement
        self.conditions = Conditions()
        self.outboxes: dict[str, Outbox] = {}
        self.rows: dict[str, RowWrites] = {}
        self.ahead: dict[int, int] = {}  # batches staged before the commit, by tablet
        self.bytes_written = 0
        self.waiting_bytes = 0  # of topic writes that are not staged

    def has_writes(self) -> bool:
        return bool(self.outboxes or self.rows)

    def grow(self, size: int) -> None:
        """Counts bytes to be written; TransactionTooLarge above the limit."""
        if self.bytes_written + size > TRANSACTION_BYTES_MAX:
            raise TransactionTooLarge(
                f"the transaction would write {self.bytes_written + size:,} bytes, the limit is "
                f"{TRANSACTION_BYTES_MAX:,}; nothing was written"
            )
        self.bytes_written += size

    def write_row(self, info: "TableInfo", key: Key, op: int, value: bytes) -> None:
        raw = encode_key(key)
        self.grow(len(raw) + len(value))
        writes = self.rows_of(info)
        if writes is None:
            writes = self.rows[info.name] = RowWrites(info)
        writes.write(raw, op, value)

    def rows_of(self, info: "TableInfo") -> RowWrites | None:
        """Returns the writes to a table, if there are any. Dropped when they were made to an earlier table of its
        name, perhaps in another format."""
        writes = self.rows.get(info.name)
        if writes is not None and writes.table.id != info.id:
            raise Dropped(
                f"table {info.name!r} was dropped, and created anew, since this transaction wrote to it: begin "
                "another"
            )
        return writes

    def parts(self) -> Parts | None:
        """Returns the parts to send, None without effects; raises for invalid contents."""
        conditions = self.conditions
        if not (self.outboxes or self.rows or conditions.consumed or conditions.acked):
            return None
        context = self._context
        if context.settings.read_only:
            context.check_writable()
        parts = build_parts(conditions, self.outboxes.values(), self.rows.values(), self.ahead)
        # Staged data belongs to a transaction, and ends as one.
        return context.runtime.hooks.statement(parts) if self.alone and not self.ahead else parts


def build_parts(
    conditions: Conditions,
    outboxes: Iterable[Outbox],
    rows: Iterable[RowWrites],
    ahead: dict[int, int],
) -> Parts:
    """Makes parts by tablet; TransactionTooLarge before any effect. `ahead`: staged batches by tablet."""
    if conditions.ranged:
        conditions.check_ranged()
    parts: Parts = {}
    slices = encode_outboxes(outboxes, sum(ahead.values()))
    for tablet, batches in slices.items():
        parts[tablet] = PartitionPart((), batches)
    for tablet, staged in ahead.items():
        parts[tablet] = PartitionPart((), slices.get(tablet, ()), staged=staged)
    for tablet in conditions.partitions_read():
        parts[tablet] = PartitionPart(
            conditions.consumed_of(tablet) if tablet in conditions.consumed else (),
            slices.get(tablet, ()),
            staged=ahead.get(tablet, 0),
            acks=conditions.acked_of(tablet) if tablet in conditions.acked else (),
            fences=tuple(conditions.fences[tablet].items()) if tablet in conditions.fences else (),
            end=conditions.ends.get(tablet),
        )
    writes: dict[int, list[tuple[bytes, int, bytes]]] = {}
    for pending in rows:
        shards = pending.table.shards
        for key, ops in pending.pending.items():
            target = writes.setdefault(shard_of(key, shards), [])
            for op, value in ops:
                target.append((key, op, value))
    for tablet, written in writes.items():
        parts[tablet] = ShardPart((), (), tuple(written))
    for tablet in {**conditions.rows, **conditions.ranges}:
        parts[tablet] = ShardPart(
            conditions.reads_of(tablet), conditions.ranges_of(tablet), tuple(writes.get(tablet, ()))
        )
    return parts


def encode_outboxes(outboxes: Iterable[Outbox], ahead: int = 0) -> dict[int, Slices]:
    """Encodes batches by tablet (bytes, records), stamped with the time of writing.

    `ahead`: the number of batches that the transaction has staged already.
    """
    now_ms = time.time_ns() // 1_000_000
    slices = {
        outbox.topic.partitions[partition]: column.batches(now_ms)
        for outbox in outboxes
        for partition, column in outbox.columns.items()
    }
    entries = ahead + sum(map(len, slices.values()))
    if entries > INDEX_ENTRIES_MAX:
        raise TransactionTooLarge(
            f"the transaction writes {entries:,} batches, the limit is {INDEX_ENTRIES_MAX:,}; "
            "nothing was written"
        )
    return slices
