"""Tests process with a wrong function, or a wrong target of its writes."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import kit
import pytest
from kit import fill

import planstep

db = kit.in_out_n


def test_dead_letters_that_cannot_be_written_end_the_process(db: planstep.Engine) -> None:
    fill(db)

    def drop(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        db.drop_topic("dead", missing_ok=True)
        raise ValueError

    with pytest.raises(planstep.UnknownName, match="dead"):
        db.process(drop, topic="in", consumer="c", dead_letter="dead", until_idle=True)


def test_a_function_may_submit_or_commit_itself(db: planstep.Engine) -> None:
    fill(db, 3)
    db.table("n").put("text", "text")

    def submit(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.add("n", "k", len(batch))
        if batch.offsets[0] == (0, 1) and len(batch) == 1:
            tx.add("n", "text", 1)
        elif (0, 1) in batch.offsets:
            raise ValueError
        tx.submit()

    done = db.process(submit, topic="in", consumer="c", until_idle=True, on_error="skip")
    assert (done.records, done.skipped, db.table("n").get("k")) == (12, 1, 11)


@pytest.mark.parametrize("hosts", [1, 3])
async def test_a_function_of_asyncio_may_submit_itself(hosts: int) -> None:
    async with planstep.open_async(":memory:", hosts=hosts) as db:
        topic = await db.create_topic("in")
        table = await db.create_table("n")
        await table.put("text", "text")
        await topic.write_batch([b"x"] * 6)

        async def submit(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
            if len(batch) > 1:
                raise ValueError
            await tx.add("n", "text" if batch.offsets[0] == (0, 3) else "k", 1)
            if batch.offsets[0] == (0, 4):
                await tx.commit()
            else:
                tx.submit()

        done = await db.process(submit, "in", "c", until_idle=True, on_error="skip")
        assert (done.records, done.skipped, await table.get("k")) == (6, 1, 5)
        calls = 0

        async def conflicting(tx: planstep.AsyncTransaction) -> None:
            nonlocal calls
            calls += 1
            n = await tx.get("n", "k")
            if calls == 1:
                await table.add("k", 1)
            await tx.put("n", "k", n + 1)
            tx.submit()

        await db.run(conflicting)
        assert calls == 2 and await table.get("k") == 7

        def fail(progress: planstep.Progress) -> None:
            raise KeyError

        tasks = len(asyncio.all_tasks())
        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.setattr("planstep.aio.process.report", lambda *args: fail(args[1]))
        with pytest.raises(KeyError):
            await db.process(submit, "in", "c", until_idle=True, progress=fail)
        monkeypatch.undo()
        assert len(asyncio.all_tasks()) == tasks


@pytest.mark.parametrize("wrong", ["async", "generator", "rolls back", "reads", "arity"])
def test_a_function_that_is_wrong_loses_nothing(db: planstep.Engine, wrong: str) -> None:
    fill(db)

    async def asynchronous(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        raise AssertionError("never run")

    def generator(tx: planstep.Transaction, batch: planstep.ReadBatch) -> Iterator[int]:
        yield 1

    def rolls_back(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.rollback()

    def reads(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.read("in", "c")

    functions: dict[str, Any] = {
        "async": asynchronous,
        "generator": generator,
        "rolls back": rolls_back,
        "reads": reads,
        "arity": lambda batch: None,
    }
    with pytest.raises((TypeError, planstep.ProcessingError)) as caught:
        db.process(functions[wrong], topic="in", consumer="c", until_idle=True)
    assert isinstance(caught.value, TypeError) or isinstance(caught.value.__cause__, TypeError)
    assert db.topic("in").lag("c") == 4
    if wrong in ("async", "generator"):
        with pytest.raises(TypeError, match="plain function"):
            db.run(lambda tx: functions[wrong](tx, None))


@pytest.mark.filterwarnings("error")
def test_on_error_of_asyncio_is_a_plain_function() -> None:
    async def on_error(error: planstep.ProcessingError) -> str:
        return "skip"

    async def fail(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
        raise ValueError

    async def main() -> None:
        async with planstep.open_async(":memory:") as db:
            await (await db.create_topic("in")).write(b"1")
            wrong: Any = on_error
            with pytest.raises(TypeError, match="plain function"):
                await db.process(fail, "in", "c", on_error=wrong, until_idle=True)
            assert await db.topic("in").lag("c") == 1

    asyncio.run(main())
    gc.collect()  # a coroutine that was never awaited warns here
