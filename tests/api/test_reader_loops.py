"""Tests that loops over a reader see all records: None means that there is nothing to read."""

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import kit
import pytest
from kit import background, lease, until

import planstep
from planstep.aio import AsyncTransaction

each_mode = kit.each_mode
RECORDS = 200


@pytest.fixture
def db(each_mode: planstep.Engine) -> planstep.Engine:
    each_mode.create_topic("in", partitions=2)
    each_mode.create_topic("out")
    return each_mode


def fill(db: planstep.Engine, records: int = RECORDS) -> None:
    for p in range(2):
        db.topic("in").write_batch([b"%d" % n for n in range(p, records, 2)], partition=p)


def all_seen(values: list[Any], records: int = RECORDS) -> bool:
    return sorted(map(int, values)) == list(range(records))


@pytest.mark.parametrize("ending", ["submit", "commit"])
def test_a_loop_until_none_reads_all_there_is(db: planstep.Engine, ending: str) -> None:
    fill(db)
    values: list[bytes] = []
    batches = 0
    with db.reader("in", consumer="c", max_records=2) as reader:
        while (leased := reader.read()) is not None:
            tx, batch = leased
            values += batch.values
            tx.write_batch("out", batch.values)
            batches += 1
            getattr(tx, ending)()
        assert batches == 100 and all_seen(values)
        assert reader.in_flight == 0
        until(reader.idle)  # mode "kafka" answers a commit before it is visible
    until(lambda: all_seen(db.topic("out").read(max_records=2 * RECORDS).values))


def test_a_loop_until_none_reads_again_what_failed_on_its_way(db: planstep.Engine) -> None:
    """None would be too early while a commit that may fail is under way."""
    fill(db, 20)
    records: list[bytes] = []
    lost = {b"4", b"18", b"19"}
    with db.reader("in", consumer="c", max_records=1) as reader:
        hand = reader.group.runtime.transactions.send

        def send(tx: bytes, parts: Any, ending: Any, **_: Any) -> None:
            reader.group.runtime.transactions.rollback(tx)
            error = planstep.Conflict(
                kind="topic", name="in", part=0, consumer="c", expected=0, actual=0
            )
            threading.Timer(0.01, ending.set_exception, (error,)).start()

        while (leased := reader.read()) is not None:
            tx, batch = leased
            failing = batch.values[0] in lost
            lost.discard(batch.values[0])
            reader.group.runtime.transactions.send = send if failing else hand
            future = tx.submit()
            reader.group.runtime.transactions.send = hand
            future.add_done_callback(
                lambda done, values=batch.values: (
                    None if done.exception() else records.extend(values)
                )
            )
        assert not lost and reader.in_flight == 0
    until(lambda: all_seen(records, 20))  # a future's callbacks run after the end of its batch


def test_iteration_ends_when_all_is_consumed_if_that_is_asked_for(db: planstep.Engine) -> None:
    fill(db)
    values: list[bytes] = []
    with db.reader("in", consumer="c", max_records=2, until_idle=True) as reader:
        for tx, batch in reader:
            values += batch.values
            tx.submit()
            if len(values) == 10:
                tx.outcome(10)
                fill_more = db.topic("in").write(b"%d" % RECORDS, partition=0)
                assert fill_more
        assert db.topic("in").lag("c") == 0
    assert all_seen(values, RECORDS + 1)


def test_iteration_until_idle_waits_for_what_others_hold() -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("in")
        db.topic("in").write_batch([b"0", b"1"])
        one = db.reader("in", consumer="c")
        held = lease(one)
        values: list[bytes] = []

        def work() -> None:
            with db.reader("in", consumer="c", until_idle=True) as reader:
                for tx, batch in reader:
                    values.extend(batch.values)
                    tx.commit()

        with background(work):
            until(lambda: held.tx.life.group.waiters)
            one.close()
        assert values == [b"0", b"1"]


def test_room_is_waited_for_whatever_the_time_out() -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("in")
        db.topic("in").write_batch([b"0", b"1", b"2"])
        with db.reader("in", consumer="c", max_records=1, in_flight=2) as reader:
            one, two = reader.read(), reader.read()
            assert one and two
            with background(reader.read) as (reading,):
                until(lambda: reader.group.waiters)
                assert not reading.done()
                one.tx.commit()
            third = reading.result()
            assert third is not None and third.batch.values == [b"2"]
            third.tx.rollback()
            two.tx.commit()


@pytest.mark.parametrize("wants", ["room", "the end"])
def test_a_wait_for_what_nobody_ends_ends_with_the_lease(wants: str) -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("in")
        db.topic("in").write_batch([b"0", b"1", b"2"])
        in_flight = 2 if wants == "room" else 4
        with db.reader("in", "c", max_records=1, in_flight=in_flight, until_idle=True) as reader:
            now = 0.0
            group = reader.group
            group._clock = lambda: now
            held = [reader.read() for _ in range(2 if wants == "room" else 3)]
            assert all(held)
            read = reader.read if wants == "room" else partial(next, iter(reader))
            with pytest.raises(planstep.LeaseLost) as caught, background(read):
                until(lambda: group.waiters)
                now = 31.0
                group.wake()
            texts = (f"{len(held)} batches", "commit or roll back", "<Reader of 'c' on topic 'in'>")
            assert all(text in str(caught.value) for text in texts)
            again = lease(reader)
            assert again.batch.values == [b"0"]
            again.tx.rollback()


def test_a_callback_is_not_kept_waiting(tmp_path: Path) -> None:
    """The callback runs on the very thread that would free the in-flight slot."""
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("in")
        db.topic("in").write_batch([b"0", b"1", b"2"])
        with db.reader("in", consumer="c", max_records=1, in_flight=1) as reader:
            one = lease(reader)
            db.create_table("n")
            ended = threading.Event()
            results: list[planstep.Leased | None] = []

            def read(future: object) -> None:
                results.append(reader.read())
                ended.set()

            tx = db.transaction()
            tx.put("n", "k", 1)
            with db._runtime.nodes[0].lock:  # runs no turn: otherwise the callback would run here
                tx.submit().add_done_callback(read)
            assert ended.wait(30) and results == [None]
            one.tx.rollback()


@pytest.mark.parametrize("hosts", [1, 3])
async def test_the_loops_with_asyncio(hosts: int) -> None:
    async with planstep.open_async(":memory:", hosts=hosts) as db:
        topic = await db.create_topic("in", partitions=2)
        for p in range(2):
            values = [b"%d" % n for n in range(p, RECORDS, 2)]
            await topic.write_batch(values, partition=p)
        records: list[Any] = []
        async with db.reader("in", consumer="c", max_records=2) as reader:
            while (leased := await reader.read()) is not None:
                records += leased.batch.values
                leased.tx.submit()
            assert reader.in_flight == 0
        assert all_seen(records)
        records = []
        async with db.reader("in", consumer="d", max_records=2, until_idle=True) as reader:
            async for tx, batch in reader:
                records += batch.values
                tx.submit()
        assert all_seen(records) and await topic.lag("d") == 0


async def test_a_submit_that_is_still_to_be_sent_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With asyncio a task sends it, perhaps after the next read has begun."""
    send = AsyncTransaction._ended

    async def late(tx: AsyncTransaction, *args: Any) -> Any:
        await asyncio.sleep(0.01)
        return await send(tx, *args)

    monkeypatch.setattr(AsyncTransaction, "_ended", late)
    async with planstep.open_async(":memory:") as db:
        await (await db.create_topic("in")).write_batch([b"0", b"1"])
        async with db.reader("in", consumer="c") as reader:
            leased = await reader.read()
            assert leased is not None
            leased.tx.submit()
            assert await reader.read() is None
            assert reader.in_flight == 0 and await db.topic("in").lag("c") == 0
