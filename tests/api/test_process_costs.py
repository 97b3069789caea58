"""Tests the overhead of process: it causes no conflicts by itself, and waits at no cost."""

import asyncio
import threading
from functools import partial
from typing import Any

import kit
import pytest
from aio_kit import until as until_in_loop
from kit import background, until

import planstep
from planstep.api.topics import process as threads
from planstep.api.topics.batch_search import BatchSearch
from planstep.api.topics.consumer_group import Group

db = kit.each_mode
WORKERS = 16


def count(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    tx.put("n", "all", tx.get("n", "all", 0) + len(batch))


def test_one_worker_never_conflicts_with_itself(db: planstep.Engine) -> None:
    """A batch is read once the batch before has ended, unless asked otherwise."""
    db.create_topic("in").write_batch([b"x"] * 200)
    rows = db.mode == "deterministic"
    if rows:
        db.create_table("n")
    run = count if rows else lambda tx, batch: None
    done = db.process(run, "in", "c", max_records=2, until_idle=True)
    assert (done.records, done.transactions, done.conflicts) == (200, 100, 0)
    assert not rows or db.table("n").get("all") == 200


async def test_one_task_never_conflicts_with_itself() -> None:
    async with planstep.open_async(":memory:") as db:
        await (await db.create_topic("in")).write_batch([b"x"] * 200)
        await db.create_table("n")

        async def count(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
            await tx.put("n", "all", await tx.get("n", "all", 0) + len(batch))

        done = await db.process(count, "in", "c", max_records=2, until_idle=True)
        assert (done.transactions, done.conflicts) == (100, 0)


class Watched:
    """Watches how often readers look, how long they then mean to wait, and which transaction ids are used."""

    def __init__(self, db: planstep.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._runtime = db._runtime
        self.group: Group | None = None
        self.waits: list[float] = []
        whole = BatchSearch.attempt

        def attempt(search: Any, wait: Any, *args: Any) -> Any:
            self.group = search.group
            result = whole(search, wait, *args)
            if result[0] is None:
                self.waits.append(result[1])
            return result

        monkeypatch.setattr(BatchSearch, "attempt", attempt)

    def all_wait(self) -> bool:
        return self.group is not None and len(self.group.waiters) == WORKERS

    def looks_again(self) -> None:
        """Wakes all workers; they find nothing and wait again."""
        assert self.group is not None
        for _ in range(5):
            before = len(self.waits)
            self.group.wake()
            until(lambda before=before: len(self.waits) >= before + WORKERS and self.all_wait())

    def ids(self) -> int:
        return int.from_bytes(self._runtime.new_tx()[4:], "big")


def test_waiting_begins_no_transaction_and_asks_for_nothing_soon(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = db.create_topic("in", partitions=WORKERS)
    watched = Watched(db, monkeypatch)
    looks: list[float] = []
    wait_for = threads.wait_for

    def wait(queue: Any, seconds: float | None) -> bool:
        looks.append(seconds or 0.0)
        return wait_for(queue, seconds)

    monkeypatch.setattr(threads, "wait_for", wait)
    values: list[bytes] = []
    enough = threading.Event()

    def run(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        values.extend(batch.values)
        if b"stop" in batch.values:
            enough.set()

    # Only an event of the caller's is polled again and again.
    monkeypatch.setattr(threads, "_STOP_SECONDS", 1.0)
    with background(lambda: db.process(run, "in", "c", workers=WORKERS, stop=enough)) as (done,):
        until(watched.all_wait)
        before = watched.ids()
        watched.looks_again()
        assert watched.ids() == before + 1
        assert min(watched.waits) >= 5.0 and min(looks) >= 1.0
        topic.write(b"one", partition=3)
        until(lambda: values == [b"one"] and watched.all_wait())
        assert watched.ids() <= before + 2 + 2 + WORKERS  # the write, and its reader
        topic.write(b"stop", partition=5)
    assert done.result().records == 2 and done.result().conflicts == 0


def test_a_batch_wakes_no_worker_that_it_does_not_concern(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_topic("in", partitions=4).write_batch([b"x"] * 200, partition=2)
    watched = Watched(db, monkeypatch)
    done = db.process(lambda tx, batch: None, "in", "c", max_records=1, workers=4, until_idle=True)
    assert done.transactions == 200
    if db.mode == "deterministic":  # in the others a worker looks again while a position is pending
        assert len(watched.waits) < 100  # 600 if each end woke the other three


async def test_waiting_tasks_begin_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    async with planstep.open_async(":memory:") as db:
        topic = await db.create_topic("in", partitions=WORKERS)
        watched = Watched(db.sync, monkeypatch)
        values: list[bytes] = []

        async def run(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
            values.extend(batch.values)

        task = asyncio.create_task(db.process(run, "in", "c", workers=WORKERS))
        await until_in_loop(watched.all_wait)
        before = watched.ids()
        for _ in range(5):
            looks = len(watched.waits)
            assert watched.group is not None
            watched.group.wake()
            await until_in_loop(
                lambda looks=looks: len(watched.waits) >= looks + WORKERS and watched.all_wait()
            )
        assert watched.ids() == before + 1 and min(watched.waits) >= 5.0
        await topic.write(b"one", partition=3)
        await until_in_loop(lambda: values == [b"one"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_workers_that_wait_hear_of_the_end_at_once() -> None:
    """The end comes from closing the engine, or from an error of one worker."""
    for ending in ("close", "raise"):
        with planstep.open(":memory:") as db:
            db.create_topic("in", partitions=4)

            def run(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
                raise ValueError

            kind = planstep.EngineClosed if ending == "close" else planstep.ProcessingError
            process = partial(db.process, run, "in", "c", workers=4)
            with pytest.raises(kind), background(process):
                until(lambda: [len(group.waiters) for group in db.context.groups] == [4])
                if ending == "close":
                    db.close()
                else:
                    db.write("in", b"x")
