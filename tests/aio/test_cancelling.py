"""Tests cancelling, time-outs, interrupts and missing closes: nothing stays open, every sent commit has an
outcome."""

import asyncio
import gc
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aio_kit import engine, nothing_is_open, until
from kit import Child, python

import planstep
from planstep.aio import AsyncEngine, AsyncTransaction


@pytest.mark.parametrize("hosts", [1, 3])
async def test_cancelled_anywhere_it_leaves_nothing_open(hosts: int) -> None:
    """Cancels at the first, second, third … turn of the loop, until the work is done uncancelled."""

    async def work(db: AsyncEngine, started: list[str]) -> None:
        async with db.transaction() as tx:
            started.append(tx.id)
            await tx.read("clicks", "c", timeout=0.001)
            await tx.get("totals", "k")
            await tx.write_batch("clicks", [bytes(1 << 20)] * 9)  # is staged before the commit
            await tx.scan("totals")
            await tx.add("totals", "k", 1)

    async with engine(hosts) as db:
        committed = 0
        for turns in range(500):
            started: list[str] = []
            task = asyncio.create_task(work(db, started))
            for _ in range(turns):
                await asyncio.sleep(0 if turns % 2 else 0.0005)
            cancelled = task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                assert cancelled
            except planstep.Conflict:
                pass
            if started:
                async with asyncio.timeout(20):
                    while (outcome := await db.outcome(started[0])).state in ("open", "planned"):
                        await asyncio.sleep(0.001)
                committed += outcome.state == "committed"
            await until(lambda: nothing_is_open(db))
            await db.topic("clicks").trim("latest")
            if not cancelled and turns > 5:
                break
        else:
            raise AssertionError("never done")
        assert await db.table("totals").get("k", 0) == committed > 0


async def test_a_wait_that_was_cancelled_loses_no_wake_up() -> None:
    async with engine() as db:

        async def read() -> int:
            async with db.transaction() as tx:
                return len(await tx.read("clicks", "c", timeout=60))

        for _ in range(20):
            leavers = [asyncio.create_task(read()) for _ in range(5)]
            await until(lambda: len(db.bridge.waiting) == 5)
            stays = asyncio.create_task(read())
            await until(lambda: len(db.bridge.waiting) == 6)
            writing = asyncio.create_task(db.write("clicks", b"x"))
            for task in leavers:
                task.cancel()
            await asyncio.gather(*leavers, return_exceptions=True)
            assert await stays == 1
            await writing


async def test_a_commit_that_times_out_goes_on() -> None:
    async with engine() as db:
        node = db.sync._runtime.nodes[0]
        tx = db.transaction()
        await tx.put("totals", "k", 1)
        with node.lock:
            with pytest.raises(planstep.Undetermined, match=tx.id):
                await tx.commit(timeout=0.01)
        assert (await tx.outcome(20)).state == "committed"
        assert await db.table("totals").get("k") == 1


async def test_a_process_ends_when_cancelled_and_when_told() -> None:
    async with engine() as db:

        async def count(tx: AsyncTransaction, batch: planstep.ReadBatch) -> None:
            await tx.add("totals", "n", len(batch))
            await asyncio.sleep(0.001)

        for cancelled in (True, False):
            stop = asyncio.Event()
            running = asyncio.create_task(
                db.process(count, "clicks", "c", workers=3, max_records=1, stop=stop)
            )
            await db.topic("clicks").write_batch([b"x"] * 20)
            await until(lambda: (db.sync.table("totals").get("n", 0) % 20) > 5)
            if cancelled:
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            else:
                stop.set()
                await running
            await until(lambda: nothing_is_open(db))
            lag = await db.topic("clicks").lag("c")
            end = await db.process(count, "clicks", "c", until_idle=True)
            assert end.records == lag
        assert await db.table("totals").get("n") == 40


@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
def test_nothing_is_printed_of_batches_that_a_cancelled_process_gave_up(mode: Any) -> None:
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )
        async with planstep.open_async(":memory:", mode=mode) as db:
            topic = await db.create_topic("clicks", partitions=3)
            await db.create_topic("out")
            await topic.write_batch([b"x"] * 3000, partition=[n % 3 for n in range(3000)])

            async def copy(tx: AsyncTransaction, batch: planstep.ReadBatch) -> None:
                await asyncio.sleep(0.002)
                await tx.write_batch("out", batch.values)

            for turns in range(20):
                running = db.process(copy, "clicks", "c", workers=3, in_flight=3, max_records=3)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(running, 0.01 + 0.005 * turns)
            await asyncio.sleep(0.1)  # ends the staged data

    asyncio.run(main())
    gc.collect()
    assert not complaints


def test_a_submit_that_failed_and_is_not_asked_about_prints_nothing() -> None:
    """The result is still available from the transaction, as with the face for threads."""
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        async with engine() as db:
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: complaints.append(context)
            )
            tx = db.transaction()
            await tx.get("totals", "k")
            await db.table("totals").put("k", 1)
            await tx.put("totals", "k", 2)
            waited = asyncio.wait([tx.submit()])
            await waited
            assert (await tx.outcome(20)).state == "aborted"
            del tx, waited

    asyncio.run(main())
    gc.collect()
    assert not complaints


async def test_a_submit_that_was_cancelled_before_it_began_did_nothing() -> None:
    async with engine() as db:
        tx = db.transaction()
        await tx.write_batch("clicks", [bytes(1 << 20)] * 9)
        future = tx.submit()
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        await until(lambda: nothing_is_open(db))
        assert (await tx.outcome()).state == "aborted"
        assert (await db.topic("clicks").describe()).records == 0


_INTERRUPTED = """
import asyncio, os, signal, sys, threading
import planstep

async def main():
    db = await planstep.open_async(sys.argv[1])
    await db.create_table("n", exist_ok=True)
    tx = db.transaction()
    await tx.put("n", "k", 1)
    lock = db.sync._runtime.nodes[0].lock
    lock.acquire()
    threading.Timer(0.2, lambda: (os.kill(os.getpid(), signal.SIGINT), lock.release())).start()
    print(tx.id, flush=True)
    await tx.commit()

asyncio.run(main())
"""


def test_an_interrupt_in_a_waiting_commit_leaves_its_outcome(tmp_path: Path) -> None:
    """The interpreter ends without `close`."""
    with Child(_INTERRUPTED, tmp_path / "s", stderr=subprocess.DEVNULL) as child:
        tx = child.line()
        assert child.process.wait(60) in (-signal.SIGINT, 1)
    with planstep.open(tmp_path / "s", create=False) as db:
        state = db.outcome(tx).state
        assert state in ("committed", "unknown")
        assert db.table("n").get("k") == (1 if state == "committed" else None)


_UNCLOSED = """
import asyncio, sys
import planstep

async def main():
    db = await planstep.open_async(sys.argv[1], hosts=int(sys.argv[2]))
    await db.create_topic("t")
    async def wait(number):
        async with db.transaction() as tx:
            await tx.read("t", f"c{number}", timeout=3600)
    tasks = [asyncio.create_task(wait(i)) for i in range(10)]
    await db.write("t", b"x")
    await asyncio.sleep(0.05)
    db.transaction()

asyncio.run(main())
print("done")
"""


@pytest.mark.parametrize("hosts", ["1", "3"])
def test_the_interpreter_ends_without_close(tmp_path: Path, hosts: str) -> None:
    strict = {**os.environ, "PYTHONWARNINGS": "error"}
    ended = python(_UNCLOSED, tmp_path / "s", hosts, env=strict)
    assert (ended.stdout, ended.stderr) == ("done\n", "")
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("t").describe().records == 1
