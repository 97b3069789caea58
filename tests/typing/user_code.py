# pyright: strict
"""Shows user code over the whole face, for type checkers: it is never run.

`assert_type` says what an editor shows. Values of topics and rows are Any: their format is chosen when
the topic or table is created.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

import planstep
from planstep import (
    AsyncEngine,
    AsyncLeased,
    AsyncReader,
    AsyncSnapshotView,
    AsyncTable,
    AsyncTopic,
    AsyncTransaction,
    AsyncWriter,
    Backup,
    Commit,
    CommitHandle,
    ConsumerDescription,
    ConsumerPosition,
    Engine,
    Leased,
    OpenTransaction,
    Outcome,
    PartitionBounds,
    Place,
    ProcessingError,
    Progress,
    ReadBatch,
    Reader,
    Record,
    Rows,
    SnapshotView,
    Table,
    TableDescription,
    Topic,
    TopicDescription,
    Transaction,
    TxnID,
    Writer,
    Written,
)


def opening(path: Path) -> Engine:
    with planstep.open(":memory:", hosts=2) as memory:
        assert_type(memory, Engine)
        assert_type(memory.path, str)
        assert_type(memory.closed, bool)
    return planstep.open(path, wait=1.5, durability="os", read_only=False, switch_interval=None)


def names(db: Engine) -> None:
    topic = db.create_topic(
        "clicks", partitions=4, format="json", exist_ok=True, retention=timedelta(days=1)
    )
    assert_type(topic, Topic)
    assert_type(db.create_table("totals", exist_ok=True), Table)
    assert_type(db.topics(), dict[str, Topic])
    assert_type(db.tables(), dict[str, Table])
    assert_type(db.table("totals").describe(), TableDescription)
    description = topic.describe()
    assert_type(description, TopicDescription)
    assert_type(description.partitions, tuple[PartitionBounds, ...])
    assert_type(description.records, int)
    assert_type(topic.partitions, int)
    assert_type(topic.format, str)
    db.drop_topic("old", missing_ok=True)
    db.drop_table("old", missing_ok=True)


def transactions(db: Engine) -> None:
    with db.transaction() as tx:
        assert_type(tx, Transaction)
        batch = tx.read("clicks", consumer="c", max_records=100, timeout=1.0, partition=0)
        assert_type(batch, ReadBatch)
        tx.write_batch("by-user", batch.values, keys=batch.keys, headers=batch.headers)
        tx.write("by-user", {"a": 1}, key="k", headers={"h": "text", "b": b"bytes"})
        tx.consume("clicks", "d", partition=0, begin=0, end=4)
        assert_type(tx.pending("by-user"), list[Record])

        assert_type(tx.get("totals", "k", 0), int)
        assert_type(tx.get("totals", "k", ""), str)
        assert_type(tx.get("totals", ("a", 1, None), {"n": 1}), dict[str, int])
        assert_type(tx.get("totals", b"k"), Any | None)
        assert_type(tx.get("totals", b"k", None), Any | None)
        value: int | None = tx.get("totals", "k")
        tx.put("totals", "k", (value or 0) + 1)
        tx.put_if_absent("totals", "k", [1, 2])
        tx.delete("totals", 1.5)
        tx.add("totals", "k", 1)
        tx.max("totals", "k", 1.5)
        tx.min("totals", "k", 1)
        assert_type(tx.scan("totals", prefix=("a",), limit=3, reverse=True), Rows)

        assert_type(tx.id, str)
        assert_type(tx.commit, CommitHandle)
        commit = tx.commit(timeout=5)
        assert_type(commit, Commit)
        assert_type(commit.place, Place)
    assert_type(tx.commit.place, Place | None)
    assert_type(tx.outcome(timeout=1), Outcome)
    assert_type(db.outcome(tx.id).state, str)
    assert_type(db.outcome(commit.tx).place, Place | None)
    assert_type(db.transactions(limit=3), list[Outcome])
    assert_type(db.stats(), dict[str, Any])

    other = db.transaction()
    assert_type(other.submit(), Future[Commit])
    db.transaction().rollback()


def running(db: Engine) -> None:
    def count(tx: Transaction) -> int:
        return len(tx.read("clicks", consumer="c"))

    assert_type(db.run(count), int)
    assert_type(db.run(lambda tx: tx.get("totals", "k", 1.5)), float)
    assert_type(db.run(count, attempts=3, deadline=timedelta(seconds=1).total_seconds()), int)

    def lookup(tx: Transaction) -> str | None:
        return tx.get("totals", "name")

    assert_type(db.run(lookup), str | None)


def topics(topic: Topic) -> None:
    written = topic.write(b"x", key=b"k")
    assert_type(written, Written)
    assert_type(written.offset, int)
    assert_type(written.place, Place)
    assert_type(topic.write_batch([b"x", b"y"], keys=["a", None]), Place)
    batch = topic.read({0: 5}, max_records=10)
    assert_type(topic.read(batch.ends), ReadBatch)
    topic.create_consumer("c", kind="individual", start=datetime.now(UTC), exist_ok=True)
    assert_type(topic.seek("c", "latest"), dict[int, int])
    topic.seek("c", 5, partition=0)
    topic.trim({0: 1, 1: 2})
    topic.trim("latest", partition=1)
    topic.alter(retention=None)
    topic.alter(retention=60, retention_bytes=1 << 30)
    assert_type(topic.consumers(), dict[str, ConsumerDescription])
    assert_type(topic.consumer("c").partitions, tuple[ConsumerPosition, ...])
    assert_type(topic.consumer("c").missed, int)
    assert_type(topic.lag("c"), int)
    assert_type(topic.position("c"), dict[int, int])
    topic.drop_consumer("c")
    topic.write_batch(["a", "b"], partition=[0, 1])
    with topic.writer(
        producer="p", linger=0.5, partitioner=lambda key, count: hash(key) % count
    ) as writer:
        assert_type(writer, Writer)
        assert_type(writer.write("x", sequence=4), int)
        assert_type(writer.flush(), Commit | None)
        assert_type(writer.buffered, int)


def batches(batch: ReadBatch) -> None:
    for record in batch:
        assert_type(record, Record)
        assert_type(record.headers, dict[str, Any])
        assert_type(record.timestamp_ms, int)
    assert_type(batch[0], Record)
    assert_type(batch[1:3], ReadBatch)
    assert_type(batch.offsets, list[tuple[int, int]])
    assert_type(batch.values, list[Any])
    assert_type(batch.count_by_key(), Counter[Any])
    assert_type(batch.ends, dict[int, int])
    if batch:
        assert_type(len(batch), int)


def tables(table: Table) -> None:
    assert_type(table.get("k", 0), int)
    assert_type(table.get(None, [1]), list[int])
    assert_type(table.get(True), Any | None)
    assert_type(table.put("k", {"a": [1]}), Place)
    for key, value in table.scan(begin=("a",), end=("b",)):
        print(key, value)
    assert_type(table.count(), int)
    assert_type(table.load({"a": 1}), int)
    table.load([{"id": 1, "n": 2}], key=["id"], value="n", progress=print)
    assert_type(table.scan_arrow(batch_rows=10), Iterator[Any])


def snapshots(db: Engine) -> None:
    with db.snapshot() as view:
        assert_type(view, SnapshotView)
        assert_type(view.step, int)
        assert_type(view.get("totals", "k", 0), int)
        assert_type(view.scan("totals"), Rows)
        assert_type(view.read("clicks", 0, 0), ReadBatch)
        assert_type(view.bounds("clicks"), dict[int, tuple[int, int]])
        assert_type(view.consumer("clicks", "c").lag, int)
        assert_type(view.count("totals"), int)


def consuming(db: Engine) -> None:
    with db.reader("clicks", consumer="c", in_flight=2) as reader:
        assert_type(reader, Reader)
        leased = reader.read(timeout=0.5)
        assert_type(leased, Leased | None)
        if leased is not None:
            leased.tx.write_batch("out", leased.batch.values)
            leased.tx.commit()
        for tx, batch in reader:
            assert_type(tx, Transaction)
            assert_type(batch, ReadBatch)
            tx.submit()

    def work(tx: Transaction, batch: ReadBatch) -> None:
        tx.add("totals", "n", len(batch))

    def decide(error: ProcessingError) -> str:
        return "retry" if isinstance(error.__cause__, OSError) else "skip"

    done = db.process(work, topic="clicks", consumer="c", workers=4, on_error=decide)
    assert_type(done, Progress)
    assert_type(done.records, int)
    db.process(work, topic="clicks", consumer="c", on_error="skip", progress=True)


def errors(db: Engine) -> str:
    try:
        db.table("totals").add("k", 1)
    except planstep.Conflict as error:
        assert_type(error.retryable, bool)
        return f"{error.kind} {error.name} {error.part} {error.key}"
    except planstep.UnknownName as unknown:
        assert_type(unknown.nearest, str | None)
    except planstep.StoreInUse as used:
        assert_type(used.pid, int | None)
    except (planstep.Undetermined, planstep.PlanstepError):
        raise
    return ""


def operating(db: Engine, path: Path) -> None:
    assert_type(db.backup(path / "copy", progress=lambda done, total: None), Backup)
    assert_type(planstep.restore(path / "copy", path / "again", force=True).records, int)
    assert_type(db.open_transactions(), list[OpenTransaction])
    for under_way in db.open_transactions():
        assert_type(under_way.age_seconds, float | None)
        assert_type(under_way.waits_for, tuple[str, ...])
    assert_type(db.slow_transactions(30), list[OpenTransaction])
    assert_type(db.abort_transaction("(0,5)"), TxnID)
    assert_type(db.abort_left_open(), tuple[TxnID, ...])
    assert_type(db.buffer_stats("clicks")[0].held_by, TxnID | None)
    assert_type(db.position_state("clicks", "c", 5, partition=0).txn_id, TxnID | None)
    assert_type(db.log_batches()[0].report.last_batched, int | None)
    db.switch_log_batching(True, logs="pending acks")
    planstep.metrics.register(db)


def testing() -> None:
    with planstep.testing.engine(conflicts=0.3, seed=7) as db:
        assert_type(db, Engine)
        assert_type(planstep.testing.crash(db), Engine)


# asyncio -----------------------------------------------------------------------------------


async def opening_async(path: Path) -> AsyncEngine:
    async with planstep.open_async(path, create=True) as db:
        assert_type(db, AsyncEngine)
    return await planstep.open_async(path)


async def transactions_async(db: AsyncEngine) -> None:
    async with db.transaction() as tx:
        assert_type(tx, AsyncTransaction)
        batch = await tx.read("clicks", consumer="c", timeout=1)
        assert_type(batch, ReadBatch)
        await tx.write_batch("by-user", batch.values, keys=batch.keys)
        await tx.write("by-user", "x", headers={"h": b"1"})
        assert_type(await tx.get("totals", "k", 0), int)
        assert_type(await tx.get("totals", "k"), Any | None)
        assert_type(await tx.scan("totals", prefix="a"), Rows)
        assert_type(await tx.pending("by-user"), list[Record])
        await tx.add("totals", "k", 1)
        await tx.consume("clicks", "d", 0, 0, 1)
        commit = await tx.commit()
        assert_type(commit, Commit)
    assert_type(tx.commit.place, Place | None)
    assert_type(await tx.outcome(), Outcome)
    assert_type(await db.outcome(tx.id), Outcome)
    assert_type(await db.stats(), dict[str, Any])
    assert_type(db.transaction().submit(), asyncio.Future[Commit])

    async def move(tx: AsyncTransaction) -> int:
        return await tx.get("totals", "k", 0)

    assert_type(await db.run(move), int)
    assert_type(await db.backup("copy"), Backup)
    assert_type(await db.open_transactions(), list[OpenTransaction])
    count: Awaitable[int] = db.run(move, attempts=3)
    await count


async def handles_async(db: AsyncEngine) -> None:
    topic = await db.create_topic("clicks", partitions=2, exist_ok=True)
    assert_type(topic, AsyncTopic)
    assert_type(await topic.write(b"x", key=b"k"), Written)
    assert_type(await topic.read(max_records=3), ReadBatch)
    assert_type(await topic.describe(), TopicDescription)
    assert_type(await topic.lag("c"), int)
    assert_type(await topic.seek("c", "earliest"), dict[int, int])
    assert_type(topic.iter_arrow(batch_rows=10), AsyncIterator[Any])
    async for part in topic.iter_arrow(partition=0):
        print(part.num_rows)
    table = await db.create_table("totals", exist_ok=True)
    assert_type(table, AsyncTable)
    assert_type(await table.get("k", ""), str)
    assert_type(await table.put("k", "x"), Place)
    assert_type(await table.scan(prefix=("a",)), Rows)
    assert_type(await table.load({"a": 1}), int)
    assert_type(table.scan_arrow(prefix="a"), AsyncIterator[Any])
    async with topic.writer(producer="p") as writer:
        assert_type(writer, AsyncWriter)
        assert_type(await writer.write(b"x"), int)
        assert_type(await writer.flush(), Commit | None)
    async with db.snapshot() as view:
        assert_type(view, AsyncSnapshotView)
        assert_type(await view.get("totals", "k", 0), int)
        assert_type(await view.scan("totals"), Rows)
        assert_type(await view.bounds("clicks"), dict[int, tuple[int, int]])
        assert_type(view.iter_arrow("clicks", batch_rows=3), AsyncIterator[Any])


async def consuming_async(db: AsyncEngine) -> None:
    async with db.reader("clicks", consumer="c") as reader:
        assert_type(reader, AsyncReader)
        leased = await reader.read(timeout=1)
        assert_type(leased, AsyncLeased | None)
        async for tx, batch in reader:
            assert_type(tx, AsyncTransaction)
            assert_type(batch, ReadBatch)
            tx.submit()

    async def work(tx: AsyncTransaction, batch: ReadBatch) -> None:
        await tx.add("totals", "n", len(batch))

    stop = asyncio.Event()
    done = await db.process(work, topic="clicks", consumer="c", stop=stop, until_idle=True)
    assert_type(done, Progress)
