"""Tests the face for asyncio as a program uses it: `asyncio.run(main())`."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aio_kit import engine, nothing_is_open, until
from kit import background, python

import planstep
from planstep.aio import (
    AsyncEngine,
    AsyncSnapshotView,
    AsyncTable,
    AsyncTopic,
    AsyncTransaction,
    AsyncWriter,
)


def test_an_opening_is_no_engine_yet() -> None:
    opening: Any = planstep.open_async(":memory:")
    with pytest.raises(AttributeError, match="no 'table': write `async with"):
        opening.table("t")


@pytest.mark.parametrize("hosts", [1, 3])
async def test_read_process_write(hosts: int) -> None:
    async with engine(hosts) as db:
        topic, table = db.topic("clicks"), db.table("totals")
        await topic.write_batch([b"1", b"2", b"3"], keys=["a", "b", "a"])

        async def count(tx: AsyncTransaction) -> int:
            batch = await tx.read("clicks", consumer="c", timeout=5)
            for record in batch:
                await tx.add("totals", record.key, 1)
            return len(batch)

        done = 0
        while done < 3:
            done += await db.run(count)
        assert await table.scan() == [(b"a", 2), (b"b", 1)]
        assert await table.get(b"a") == 2 and await table.get("z", 0) == 0
        assert await topic.lag("c") == 0
        async with db.snapshot() as view:
            await table.put(b"a", 7)
            assert await view.get("totals", b"a") == 2 and await view.count("totals") == 2
        tx = db.transaction()
        await tx.put("totals", "b", 9)
        commit = await tx.submit()
        assert tx.commit.place == commit.place and (await tx.outcome()).state == "committed"
        assert (await db.outcome(tx.id)).place == commit.place
        written = await db.write("clicks", b"4", partition=2)
        assert (await topic.read(written.offset, written.partition)).values == [b"4"]
        async with topic.writer(producer="p", linger_records=10) as writer:
            for i in range(25):
                await writer.write(b"%d" % i)
            assert writer.buffered == 5
        assert (await topic.describe()).records == 29
        batches = [batch async for batch in topic.iter_arrow(batch_rows=10)]
        assert sum(batch.num_rows for batch in batches) == 29
        with pytest.raises(planstep.UnknownName):
            db.topic("click")
        with pytest.raises(planstep.Conflict):
            async with db.transaction() as tx:
                await tx.get("totals", "a")
                await tx.put("totals", "a", 1)
                await table.put("a", 8)


def parameters(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """Returns each parameter's name and kind."""
    items = inspect.signature(function).parameters.values()
    return [(one.name, one.kind.name) for one in items]


def test_every_name_of_the_other_face_is_here() -> None:
    """The parameters are the same too, so code moves from one face to the other by adding await."""
    pairs = [
        (planstep.Engine, AsyncEngine),
        (planstep.Transaction, AsyncTransaction),
        (planstep.Topic, AsyncTopic),
        (planstep.Table, AsyncTable),
        (planstep.SnapshotView, AsyncSnapshotView),
        (planstep.Writer, AsyncWriter),
        (planstep.Reader, planstep.AsyncReader),
    ]
    attributes = {
        "step",
        "name",
        "topic",
        "path",
        "consumer",
        "max_records",
        "max_bytes",
        "context",
    }
    for sync, other in pairs:
        for name in [n for n in dir(sync) if not n.startswith("_")]:
            if name in attributes and not callable(getattr(sync, name, None)):
                continue
            assert hasattr(other, name), f"{other.__name__}.{name}"
            method, twin = getattr(sync, name), getattr(other, name)
            assert isinstance(method, property) == isinstance(twin, property), name
            if not isinstance(method, property):
                wanted, actual = parameters(method), parameters(twin)
                assert actual == wanted or "args" in dict(actual), f"{other.__name__}.{name}"
                assert twin.__doc__, f"{other.__name__}.{name}"
    assert parameters(planstep.open_async) == parameters(planstep.open)


@pytest.mark.parametrize("hosts", [1, 3])
async def test_a_thousand_readers_wait_without_threads(hosts: int) -> None:
    async with engine(hosts) as db:

        async def read(number: int) -> bytes:
            async with db.transaction() as tx:
                batch = await tx.read("clicks", f"c{number}", timeout=60)
                (value,) = batch.values
                assert isinstance(value, bytes)
                return value

        readers = [asyncio.create_task(read(number)) for number in range(1000)]
        await until(lambda: len(db.bridge.waiting) == 1000)
        threads = threading.active_count()
        adds = (db.table("totals").add(i % 10, 1) for i in range(100))
        await asyncio.gather(*adds)
        assert len(db.bridge.waiting) == 1000
        assert threading.active_count() <= threads <= 20 + hosts
        await db.write("clicks", b"now")
        assert set(await asyncio.gather(*readers)) == {b"now"}
        assert dict(await db.table("totals").scan()) == dict.fromkeys(range(10), 10)
        await until(lambda: nothing_is_open(db))


async def test_no_room_is_waited_for_without_a_thread() -> None:
    async with engine() as db:
        admission = db.sync._runtime.admission
        admission.admit(b"other", admission.bytes_max, 0)
        putting = asyncio.create_task(db.table("totals").put("k", bytes(100)))
        hasty = db.transaction()
        await hasty.put("totals", "k", 1)
        with pytest.raises(planstep.Overloaded):
            await hasty.commit(timeout=0.02)
        assert not putting.done()
        admission.let_go(b"other")
        await putting


def test_one_store_three_loops_and_a_thread(tmp_path: Path) -> None:
    """All share one engine; each loop has an opening of its own."""

    async def add() -> None:
        async with planstep.open_async(tmp_path / "s") as db:
            await asyncio.gather(*(db.table("n").add("k", 1) for _ in range(50)))

    with planstep.open(tmp_path / "s") as db:
        table = db.create_table("n")
        with background(*[lambda: asyncio.run(add())] * 3):
            for _ in range(50):
                table.add("k", 1)
        assert not db.closed and table.get("k") == 200


def test_an_engine_of_another_loop_says_so(tmp_path: Path) -> None:
    async def opened() -> AsyncEngine:
        return await planstep.open_async(tmp_path / "s")

    db = asyncio.run(opened())

    async def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await db.create_topic("t")

    asyncio.run(elsewhere())
    db.sync.close()


async def test_misuse_says_what_to_do() -> None:
    async with engine() as db:
        with pytest.raises(TypeError, match="async function"):
            await db.run(lambda tx: 1)
        tx = db.transaction()
        await db.close()
        with pytest.raises(planstep.EngineClosed):
            await tx.put("totals", 1, 1)
        await db.close()


async def test_a_waiting_reader_hears_that_the_engine_was_closed() -> None:
    async with engine() as db:
        tx = db.transaction()
        reading = asyncio.create_task(tx.read("clicks", "c", timeout=60))
        await until(lambda: bool(db.bridge.waiting))
        await db.close()
        with pytest.raises(planstep.EngineClosed):
            await reading


@pytest.mark.parametrize("hosts", [1, 3])
async def test_tasks_share_a_reader_or_have_their_own(hosts: int) -> None:
    async with engine(hosts) as db:
        for p in range(4):
            await db.topic("clicks").write_batch([b"%d" % i for i in range(50)], partition=p)

        async def handle(tx: AsyncTransaction, batch: planstep.ReadBatch) -> None:
            await asyncio.sleep(len(batch) % 3 / 1000)  # they end in another order
            await tx.add("totals", "n", len(batch))
            try:
                await tx.commit()
            except planstep.Conflict:
                pass

        async with db.reader("clicks", consumer="c", max_records=7, in_flight=8) as reader:
            tasks = []
            while not await reader.idle():
                leased = await reader.read(timeout=1)
                if leased is not None:
                    tasks.append(asyncio.create_task(handle(*leased)))
            await asyncio.gather(*tasks)
        assert await db.table("totals").get("n") == 200

        async def count(tx: AsyncTransaction, batch: planstep.ReadBatch) -> None:
            await tx.add("totals", "m", len(batch))
            if batch.values[0] == b"13" and len(batch) == 1:
                raise ValueError
            if b"13" in batch.values:
                raise KeyError

        done = await db.process(
            count,
            "clicks",
            "d",
            workers=3,
            max_records=20,
            until_idle=True,
            dead_letter="dead",
        )
        assert (done.records, done.dead_lettered, done.lag) == (200, 4, 0)
        assert await db.table("totals").get("m") == 196
        assert (await db.topic("dead").read()).headers[0]["planstep-error"] == "ValueError: "
        await until(lambda: nothing_is_open(db))


def test_asyncio_is_imported_by_those_who_use_it() -> None:
    python("import sys, planstep; sys.exit('asyncio' in sys.modules)")


def _typed(db: AsyncEngine) -> Awaitable[int]:
    """Typed for mypy, which checks the returned type; never run."""
    return db.table("totals").get("k", 0)
