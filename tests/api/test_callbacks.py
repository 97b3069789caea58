"""Tests callbacks of futures and closing: their threads, their timing, and interrupts."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from kit import background, until

import planstep
from planstep import testing


def test_another_loop_may_not_close_and_the_right_one_still_can(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:

        async def opened() -> planstep.AsyncEngine:
            return await planstep.open_async(tmp_path / "s")

        db = runner.run(opened())
        with pytest.raises(RuntimeError), background(lambda: asyncio.run(db.close())):
            pass
        assert not db.closed
        runner.run(db.close())
        assert db.closed and db.sync.closed


def test_a_read_under_way_ends_with_the_engine() -> None:
    with testing.engine(hosts=3) as db:
        table = db.create_table("n", shards=3)
        table.put("k", 1)
        view = db.snapshot()
        node = db._runtime.nodes[1]
        view.pinned._reading.snap.marks[1] += 10
        with pytest.raises(planstep.EngineClosed), background(lambda: list(view.scan("n"))):
            until(lambda: node.changed.listening)
            db.close()


def test_a_callback_on_any_thread_may_close_the_engine(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s")
    topic = db.create_topic("t")
    topic.write_batch([b"x"] * 4)
    reader = db.reader("t", "c", max_records=1)
    now = 0.0
    reader.group._clock = lambda: now
    one, two = reader.read(), reader.read()
    assert one is not None and two is not None
    closed = threading.Event()

    def close(future: object) -> None:
        db.close()
        closed.set()

    future = two.tx.submit()
    now = 31.0
    future.add_done_callback(close)
    assert closed.wait(20)
    planstep.open(tmp_path / "s").close()


@pytest.mark.parametrize("hosts", [1, 3])
def test_an_interrupt_while_closing_is_raised_when_it_is_closed(
    tmp_path: Path, hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = planstep.open(tmp_path / "s", hosts=hosts)
    db.create_table("t").put("k", 1)
    interrupts = 1

    def interrupted(*args: Any) -> None:
        nonlocal interrupts
        if interrupts:
            interrupts -= 1
            raise KeyboardInterrupt
        stop(*args)

    stop = db._runtime.turns.stop_everything
    monkeypatch.setattr(db._runtime.turns, "stop_everything", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db.close()
    assert db.closed
    db = planstep.open(tmp_path / "s")
    stop = db._runtime.turns.stop_everything
    monkeypatch.setattr(db._runtime.turns, "stop_everything", interrupted)
    interrupts = 2
    with pytest.raises(KeyboardInterrupt):
        db.close()
    db.close()  # closes it at last
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") == 1


def test_a_scan_while_the_engine_is_closed_says_so(tmp_path: Path) -> None:
    for _ in range(10):
        db = planstep.open(tmp_path / "s")
        table = db.create_table("t", exist_ok=True)
        table.load([(i, i) for i in range(2000)])
        db._runtime.nodes[0].host.store.checkpoint()

        def scan(table: planstep.Table = table) -> None:
            while True:
                table.scan()

        with pytest.raises(planstep.EngineClosed), background(scan):
            db.close()


@pytest.mark.parametrize("hosts", [1, 3])
def test_callbacks_come_on_a_thread_of_the_engine(hosts: int) -> None:
    """It never runs on a committing thread, which may hold a lock that it needs, or be deep in callbacks."""
    with planstep.open(":memory:", hosts=hosts) as db:
        table = db.create_table("t")
        lock = threading.Lock()
        ended: list[str] = []

        def count(future: object) -> None:
            with lock:
                ended.append(threading.current_thread().name)

        def submit() -> None:
            tx = db.transaction()
            tx.add("t", "n", 1)
            tx.submit().add_done_callback(count)

        for _ in range(50):
            submit()
            with lock:
                table.add("m", 1)
        until(lambda: len(ended) == 50)
        here = threading.current_thread().name
        # A callback added to a finished future runs where it is added.
        assert sum(name != here for name in ended) > 0
        assert {name for name in ended if name != here} == {
            "planstep-service" if hosts == 1 else "planstep-answers"
        }


@pytest.mark.parametrize("hosts", [1, 3])
def test_callbacks_that_commit_do_not_nest(hosts: int) -> None:
    with planstep.open(":memory:", hosts=hosts) as db:
        table = db.create_table("t")
        done = threading.Event()
        remaining = 3000

        def again(future: object) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining <= 0:
                done.set()
                return
            table.add("n", 1)
            submit()

        def submit() -> None:
            tx = db.transaction()
            tx.add("t", "n", 1)
            tx.submit().add_done_callback(again)

        for _ in range(5):
            submit()
        assert done.wait(60)
        assert table.get("n", 0) > 3000


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_what_a_callback_raises_ends_no_thread(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    for hosts in (1, 3):
        with planstep.open(":memory:", hosts=hosts) as db:
            db.create_table("t")

            def fail(future: object) -> None:
                raise error("made to fail")

            tx = db.transaction()
            tx.add("t", "n", 1)
            runtime: Any = db._runtime
            with runtime.nodes[0].lock:  # a finished future would call back here
                future = tx.submit()
                future.add_done_callback(fail)
            future.result(20)
            tx = db.transaction()
            tx.add("t", "n", 1)
            assert tx.submit().result(20).place
