"""Shares an engine to run in, and a check for leftovers, between the tests of the asyncio face."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import planstep
from planstep.aio import AsyncEngine

Program = Callable[[AsyncEngine], Coroutine[Any, Any, None]]


def run(program: Program, hosts: int = 1) -> None:
    async def main() -> None:
        async with planstep.open_async(":memory:", hosts=hosts) as db:
            await db.create_topic("clicks", partitions=4)
            await db.create_table("totals")
            await program(db)

    asyncio.run(main())


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
        or runtime.nodes[0].host.history._open
        or proxy.open
        or proxy.staging
        or db.bridge.waiting
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
