"""Shares an engine to run in, and a check for leftovers, between the tests of the asyncio face."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import planstep
from planstep.aio import AsyncEngine


@asynccontextmanager
async def engine(hosts: int = 1) -> AsyncIterator[AsyncEngine]:
    """Opens a store in memory, with a topic of four partitions and a table."""
    async with planstep.open_async(":memory:", hosts=hosts) as db:
        await db.create_topic("clicks", partitions=4)
        await db.create_table("totals")
        yield db


def nothing_is_open(db: AsyncEngine) -> bool:
    runtime = db.sync._runtime
    db.sync.context.drop()
    proxy = runtime.nodes[0].host.proxy
    assert proxy is not None
    return not (
        db.sync.context.consuming
        or runtime.replies.waiting
        or runtime.turns.watches.watched
        or runtime.admission._held
        or runtime.nodes[0].host.history.pins()[0]
        or proxy.open
        or proxy.staging
        or db.bridge.waiting
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
