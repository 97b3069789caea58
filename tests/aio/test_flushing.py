"""Tests await tx.flush(), and waiting for a topic's records without a thread for each waiter."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import planstep


@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
async def test_flushed_and_followed(tmp_path: Path, mode: Any) -> None:
    async with planstep.open_async(tmp_path / "s", mode=mode) as db:
        topic = await db.create_topic("t", partitions=2)
        followers = [asyncio.create_task(topic.read(timeout=30)) for _ in range(50)]
        async with db.transaction() as tx:
            await tx.write("t", b"x", partition=1)
            await tx.flush()
            await tx.flush()
            assert not (await topic.read()).values
            assert not any(task.done() for task in followers)
            assert threading.active_count() < 20
        for batch in await asyncio.gather(*followers):
            assert batch.values == [b"x"]
        assert not (await topic.read({0: 0}, timeout=0.01)).values


async def test_a_follower_that_is_cancelled_waits_no_more() -> None:
    async with planstep.open_async(":memory:") as db:
        topic = await db.create_topic("t")
        task = asyncio.create_task(topic.read(timeout=30))
        while not db.bridge.waiting:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not db.bridge.waiting


async def test_nobody_follows_an_engine_that_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.aio.bridge._LOOK_SECONDS", 0.01)
    async with planstep.open_async(":memory:") as db:
        topic = await db.create_topic("t")
        task = asyncio.create_task(topic.read(timeout=60))
        while not db.bridge.waiting:
            await asyncio.sleep(0.001)
        runtime, error = db.sync._runtime, RuntimeError("made to stop")
        runtime.nodes[0].host.stopped = error
        runtime.turns.stop_everything(error)
        with pytest.raises(planstep.HostStopped, match="made to stop"):
            await task
