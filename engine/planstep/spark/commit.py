"""Commits what Spark's tasks have staged: all writes, positions and the fence in ONE transaction, or nothing.

    df.write            one write ───────────┐
    transaction.py      writes, positions ───┼─ open the store ─ end what was left open ─ read the fence
    a stream's batch    one write ───────────┘             └─ done already? nothing : write all, and the fence

Another process may have committed since the tasks began, also one of a driver that was killed: the fence finds a
batch done, and a position that has moved is a Conflict. In modes without conflict detection this process compares
positions itself. That is enough: it owns the store, and runs one of these commits at a time.

Next: transaction.py.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import planstep

from ..api import optional_packages
from ..api.arguments import items_of
from ..api.columns.codecs import decode_value
from ..api.transaction.routing import key_of
from ..api.transaction.row_writes import pack_number
from ..api.transaction.topic_writes import Outbox
from ..errors import Conflict, PlanstepError, StoreInUse, TransactionTooLarge
from ..proto.keys import partition_of
from ..proto.messages import ADD, PUT
from ..runtime.catalog import TableInfo, TopicInfo
from .fence import FENCES, Fences, Mark, end_left_open
from .options import Kind
from .picture import store_id
from .staging import StagedWrite

if TYPE_CHECKING:
    from ..api.engine import Engine
    from ..api.topics.changelog import Changelog
    from ..api.transaction.transaction import Transaction
    from ..runtime.outcome import Commit

pa = optional_packages.pyarrow()
pc = pa.compute

_COMMITTING = threading.Lock()


class Advance(NamedTuple):
    """A consumer's records that a transaction consumes: partition → [begin, end) of a topic."""

    topic: str
    id: int
    consumer: str
    ranges: dict[int, tuple[int, int]]


def commit(
    path: str,
    wait: float,
    mark: Mark,
    writes: Sequence[StagedWrite],
    advances: Sequence[Advance] = (),
) -> "Commit | None":
    """Commits all in one transaction; returns its receipt, None for a batch that was committed before.

    StoreInUse after `wait` seconds; Conflict for a position that has moved; TransactionTooLarge.
    """
    added = {write.name for write in writes if write.kind == "topic" and write.add}
    for write in writes:
        if write.kind == "topic" and not write.add and write.name in added:
            raise ValueError(
                f"{write.where}: a transaction adds to a topic's numbers, or writes records there"
            )
    with _COMMITTING, owned(path, wait) as db:
        fences = Fences(db)
        logs = {name: _Sums(db, name) for name in sorted(added)}

        def run(tx: "Transaction") -> "Transaction | None":
            if not fences.passes(tx, mark):
                return None
            for advance in advances:
                _advance(db, tx, advance)
            for write in writes:
                _write(db, tx, write, logs)
            return tx

        try:
            committed = db.run(run, worker=FENCES)
        except TransactionTooLarge as error:
            raise TransactionTooLarge(
                f"write in several batches, each with a batchId of its own: {error}"
            ) from error
        with suppress(PlanstepError):  # the data is committed; the next commit tries again
            fences.compact()
        return None if committed is None else committed.life.result


@contextmanager
def owned(path: str, wait: float) -> "Iterator[Engine]":
    """Opens the store to write, once nothing of an earlier commit is open. StoreInUse after `wait` seconds."""
    try:
        db = planstep.open(path, create=False, wait=wait)
    except StoreInUse as error:
        error.args = (
            f"process {error.pid} owns {path} and does not share it, and has for the {wait:g} s of the "
            "option wait: open it there without share=False, close the store there while Spark writes, or write "
            "from that process, as in for batch in df.toLocalIterator()",
        )
        raise
    with db:
        end_left_open(db)
        yield db


def target(db: "Engine", kind: Kind, name: str) -> TopicInfo | TableInfo:
    return db.context.topic(name) if kind == "topic" else db.context.table(name)


def _advance(db: "Engine", tx: "Transaction", advance: Advance) -> None:
    topic, _, consumer, ranges = advance
    if db.context.topic(topic).id != advance.id:
        raise _replaced(f"topic {topic!r}", "this transaction read it")
    positions = positions_in(tx, topic, consumer)
    for partition, (begin, end) in ranges.items():
        if begin == end:
            continue
        if positions[partition] != begin:
            raise Conflict(
                kind="topic",
                name=topic,
                part=partition,
                consumer=consumer,
                expected=begin,
                actual=positions[partition],
                consumed=positions[partition] > begin,
                ahead=positions[partition] < begin,
            )
        tx.consume(topic, consumer, partition, begin, end)


def positions_in(tx: "Transaction", topic: str, consumer: str) -> dict[int, int]:
    """Returns a consumer's positions as a transaction reads them: after earlier commits, also in mode kafka, which
    answers before they show."""
    return tx.life.view().positions(tx.life.context.topic(topic), consumer)


def _write(db: "Engine", tx: "Transaction", write: StagedWrite, logs: "dict[str, _Sums]") -> None:
    info = target(db, write.kind, write.name)
    if (store_id(db), info.id) != (write.store, write.id):
        raise _replaced(write.where, "this write began")
    if isinstance(info, TableInfo):
        op = ADD if write.add else PUT
        for key, value in _pairs(write):
            if write.add:
                pack_number(info.name, info.format, decode_value(info.format, value), finite=True)
            tx.contents.write_row(info, key_of(key), op, value)
    elif write.add:
        for key, value in _pairs(write):
            logs[write.name].add(tx, key, decode_value(info.format, value))
    else:
        outbox = tx.contents.outboxes.get(info.name) or _Encoded(replace(info, format="bytes"), 0)
        for keyless, records in _joined(write, len(info.partitions)):
            outbox.keyless = keyless
            for partition, part in _by_partition(records):
                _write_records(tx, outbox, part, partition)


def _replaced(where: str, when: str) -> PlanstepError:
    return PlanstepError(
        f"{where} is another one than when {when}: it was dropped, or the store was replaced; write again"
    )


def _pairs(write: StagedWrite) -> Iterator[tuple[bytes, bytes]]:
    for table in write.tables():
        for batch in table.to_batches():
            yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)


class _Sums:
    """The numbers by key that a topic keeps: each key's last record has its sum."""

    def __init__(self, db: "Engine", topic: str) -> None:
        self._db, self._topic = db, topic
        self._partitions = db.topic(topic).partitions
        self._logs: dict[int, Changelog] = {}
        for partition in range(self._partitions):
            self._logs[partition] = db.changelog(topic, partition, worker=FENCES)

    def add(self, tx: "Transaction", key: bytes | None, n: Any) -> None:
        if key is None:
            raise ValueError(f"topic {self._topic!r}: a number has no key to be added to")
        if isinstance(n, bool) or not isinstance(n, (int, float)):
            raise TypeError(f"topic {self._topic!r}: add takes an int or float, not {n!r:.100}")
        self._logs[partition_of(key, self._partitions)].add(tx, key.decode(), n)


def _joined(write: StagedWrite, partitions: int) -> Iterator[tuple[int, Any]]:
    """Yields (partition of records without key, records); neighbouring tasks with the same routing are joined.

    Otherwise each task would make a batch in each partition, and many tasks more than a transaction may have.
    """
    tables: list[tuple[Any, Any]] = []
    for records in write.tables():
        # Without a column key a task's records share a partition; tasks and jobs take turns at partitions.
        turn = 0 if write.keyed else len(tables)
        nulls = records["partition"].null_count
        mixed = len(tables) + 1 if 0 < nulls < len(records) else 0
        tables.append((((write.turn + turn) % partitions, nulls == 0, mixed), records))
    for (keyless, _, _), group in groupby(tables, itemgetter(0)):
        yield keyless, pa.concat_tables([records for _, records in group])


class _Encoded(Outbox):
    """An outbox for records that tasks have encoded already: it keeps them as they are."""

    __slots__ = ()

    def encode(
        self, values: Iterable[Any], keys: Iterable[Any] | None, headers: Iterable[Any] | None
    ) -> tuple[Sequence[bytes], Sequence[bytes | None] | None, list[bytes | None] | None, int]:
        raw = items_of(self.where, "values", values)
        raw_keys = None if keys is None else items_of(self.where, "keys", keys)
        packed = None if headers is None else list(headers)
        return raw, raw_keys, packed, self._measure(raw, raw_keys, packed)


def _by_partition(records: Any) -> Iterator[tuple[int | None, Any]]:
    """Yields (partition, records) for each partition that records name, and (None, the others)."""
    column = records["partition"]
    if column.null_count == len(column):
        yield None, records
        return
    for partition in sorted(pc.unique(column).drop_null().to_pylist()):
        yield partition, records.filter(pc.equal(column, partition))
    if column.null_count:
        yield None, records.filter(pc.is_null(column))


def _write_records(tx: "Transaction", outbox: Outbox, records: Any, partition: int | None) -> None:
    if partition is not None and not 0 <= partition < len(outbox.topic.partitions):
        raise ValueError(
            f"{outbox.where} has partitions 0 to {len(outbox.topic.partitions) - 1}, not {partition}: "
            "mend the column partition"
        )
    topic = outbox.topic.name
    tx.contents.outboxes[topic] = outbox
    if records["headers"].null_count == records.num_rows:
        frame = records.select(["key", "value"])
        tx.write_batch(topic, frame, partition=partition, key="key", value="value")
        return
    for batch in records.to_batches():
        values, keys, headers = (batch[c].to_pylist() for c in ("value", "key", "headers"))
        tx.write_batch(topic, values, keys, headers, partition)
