"""Tests that tasks may share a transaction: its calls take turns, and none is lost, doubled or left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import pytest
from aio_kit import until

import planstep
from planstep.aio import AsyncEngine

Store: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncEngine]]


@pytest.fixture(params=[{}, {"hosts": 3}, {"mode": "kafka"}, {"mode": "pulsar"}], ids=str)
def store(request: pytest.FixtureRequest) -> Store:
    return lambda: opened(request.param)


@asynccontextmanager
async def opened(options: dict[str, Any]) -> AsyncIterator[AsyncEngine]:
    async with planstep.open_async(":memory:", **options) as engine:
        await engine.create_topic("t", partitions=2)
        yield engine


async def shown(db: AsyncEngine, count: int) -> list[bytes]:
    """Returns the values of topic `t` once that many are visible."""
    values: list[bytes] = []

    def found() -> bool:
        values[:] = db.sync.topic("t").read(max_records=100_000).values
        return len(values) >= count

    await until(found)
    return values


@pytest.mark.parametrize("flushes", [False, True])
async def test_what_tasks_write_is_there_once(store: Store, flushes: bool) -> None:
    async with store() as db:
        async with db.transaction() as tx:

            async def write(i: int) -> None:
                await tx.write("t", b"%d" % i + bytes(2_000))
                if flushes and i % 20 == 0:
                    await tx.flush()

            await asyncio.gather(*map(write, range(500)))
        values = await shown(db, 500)
        assert sorted(int(v.rstrip(b"\0")) for v in values) == list(range(500))


async def test_tasks_read_on_after_each_other(store: Store) -> None:
    async with store() as db:
        numbers = [b"%d" % i for i in range(300)]
        await db.topic("t").write_batch(numbers, keys=numbers)
        await shown(db, 300)
        async with db.transaction() as tx:
            reads = (tx.read("t", "c", max_records=5, timeout=0.001) for _ in range(40))
            batches = await asyncio.gather(*reads)
        read = [value for batch in batches for value in batch.values]
        assert len(read) == len(set(read)) == 200


async def test_a_submit_comes_after_the_call_of_another_task(store: Store) -> None:
    async with store() as db:
        async with db.transaction() as tx:
            await tx.write("t", b"x")
            flush = asyncio.create_task(tx.flush())
            await asyncio.sleep(0)
            future = tx.submit()
        await flush
        await future
        assert await shown(db, 1) == [b"x"] and (await tx.outcome()).state == "committed"


@pytest.mark.parametrize("end", ["cancel", "leave"])
async def test_a_call_of_another_task_ends_before_the_transaction(store: Store, end: Any) -> None:
    """The transaction is rolled back whether its submit is cancelled or its block raises."""
    async with store() as db:
        with pytest.raises((asyncio.CancelledError, KeyError)):
            async with db.transaction() as tx:
                await tx.write("t", b"x")
                flush = asyncio.create_task(tx.flush())
                await asyncio.sleep(0)
                if end == "leave":
                    raise KeyError
                future = tx.submit()
                future.cancel()
                await future
        (error,) = await asyncio.gather(flush, return_exceptions=True)
        assert error is None or (end == "cancel" and isinstance(error, planstep.PlanstepError))
        with pytest.raises(planstep.TransactionClosed):
            await tx.write("t", b"y")
        assert (await tx.outcome()).state == "aborted"
        await db.topic("t").write(b"z")
        assert await shown(db, 1) == [b"z"]
