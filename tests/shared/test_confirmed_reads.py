"""Tests reads of an owner that may have been taken over: a confirmed one is never old."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import replica_kit
from kit import Child, background, until
from replica_kit import Hooks, Line, Machines, nothing, rows

import planstep
from planstep.shared.entry import Entry
from planstep.shared.objects_log import slot_name

machines = replica_kit.machines
hooks = replica_kit.hooks
line = replica_kit.line

READER = """
import os, sys
import planstep

db = planstep.open(sys.argv[1], replicate=planstep.Replicate(sys.argv[2], reads=sys.argv[3]))
db.create_table("t").put("k", "old")
for kind in sys.stdin:
    try:
        if kind == "snapshot\\n":
            with db.snapshot() as view:
                seen = view.get("t", "k")
        elif kind == "statement\\n":
            seen = db.table("t").get("k")
        else:
            with db.transaction() as tx:
                seen = tx.get("t", "k")
    except planstep.Fenced:
        seen = "Fenced"
    print(seen, flush=True)
"""


def begun(machines: Machines, name: str = "a") -> planstep.Engine:
    db = machines.open(name)
    db.create_table("t").put("k", 1)
    return db


class Counted:
    """Counts the barriers, and holds the first one."""

    def __init__(self, hooks: Hooks) -> None:
        self.barriers = 0
        self.begun, self.go_on = threading.Event(), threading.Event()
        hooks.barrier = self

    def __call__(self) -> None:
        self.barriers += 1
        self.begun.set()
        assert self.go_on.wait(60)


@pytest.mark.parametrize("reads", ["confirmed", "local"])
def test_a_zombie_never_shows_what_is_old(machines: Machines, reads: str) -> None:
    kinds = ("snapshot", "statement", "transaction")
    with Child(READER, machines.folder("a"), machines.url, reads) as zombie:

        def seen() -> list[str]:
            for kind in kinds:
                zombie.tell(kind)
            return [zombie.line().strip() for _ in kinds]

        assert seen() == ["old"] * 3
        zombie.process.send_signal(signal.SIGSTOP)
        with machines.take_over("b") as db:
            db.table("t").put("k", "new")
        zombie.process.send_signal(signal.SIGCONT)
        assert seen() == (["Fenced"] if reads == "confirmed" else ["old"]) * 3
        zombie.end()


def test_a_snapshot_of_before_stays_what_it_was(machines: Machines) -> None:
    with begun(machines) as old, old.snapshot() as view:
        assert view.get("t", "k") == 1
        with machines.take_over("b") as db:
            db.table("t").put("k", 2)
        assert view.get("t", "k") == 1, "it was the newest when it was confirmed"
        with pytest.raises(planstep.Fenced):
            rows(old)


def test_one_barrier_serves_all_who_wait(machines: Machines, hooks: Hooks) -> None:
    with begun(machines) as db, ThreadPoolExecutor(16) as pool:
        counted = Counted(hooks)
        first = pool.submit(db.table("t").get, "k")
        assert counted.begun.wait(60)
        shared = db._runtime.nodes[0].host.store._shared
        asked = threading.Semaphore(0)
        really = shared.confirm

        def confirm(appending: threading.Lock) -> None:
            asked.release()
            really(appending)

        shared.confirm = confirm
        others = [pool.submit(db.table("t").get, "k") for _ in range(15)]
        for _ in others:
            assert asked.acquire(timeout=60)
        counted.go_on.set()
        assert [read.result(60) for read in [first, *others]] == [1] * 16
        assert 2 <= counted.barriers <= 3, "one that began before a call proves nothing to it"


def test_an_append_that_begins_later_is_a_barrier(machines: Machines, hooks: Hooks) -> None:
    with begun(machines) as db:
        counted = Counted(hooks)
        counted.go_on.set()
        store = db._runtime.nodes[0].host.store
        asked = store._shared._begun
        db.table("t").put("k", 2)
        assert store._shared._proved > asked
        assert db.table("t").get("k") == 2
        assert counted.barriers == 1


def test_a_read_waits_for_the_put_that_is_under_way(machines: Machines, hooks: Hooks) -> None:
    with begun(machines) as db:
        asleep, wake = threading.Event(), threading.Event()

        def sleep(_: Entry) -> None:
            hooks.before = nothing
            asleep.set()
            assert wake.wait(60)

        hooks.before = sleep
        tx = db.transaction()
        tx.add("t", "k", 1)
        with background(tx.commit):
            assert asleep.wait(60)
            with background(lambda: db.table("t").get("k")) as (read,):
                wake.set()
                assert read.result(60) in (1, 2)


def test_a_transaction_that_writes_needs_no_barrier(machines: Machines, hooks: Hooks) -> None:
    with begun(machines) as db:
        counted = Counted(hooks)
        counted.go_on.set()
        with db.transaction() as tx:
            tx.put("t", "k", tx.get("t", "k") + 1)
        assert counted.barriers == 0
        with db.transaction() as tx:
            assert tx.get("t", "k") == 2
        assert counted.barriers == 1
        assert tx.commit.place is not None and tx.commit.place.n is None


def test_a_transaction_that_only_read_does_not_commit_once_fenced(machines: Machines) -> None:
    with begun(machines) as old:
        tx = old.transaction()
        assert tx.get("t", "k") == 1
        machines.take_over("b").close()
        with pytest.raises(planstep.Fenced):
            tx.commit()
        assert tx.commit.place is None
        submitted = old.transaction()
        assert submitted.get("t", "k") == 1
        with pytest.raises(planstep.Fenced):
            submitted.submit()


def test_an_unreachable_log_fails_a_read_and_no_more(
    machines: Machines, line: Line, hooks: Hooks
) -> None:
    hooks.timeout = 0.05
    with begun(machines) as db:
        line.failing = float("inf")
        with pytest.raises(planstep.LogUnreachable, match="read again"):
            rows(db)
        line.failing = 0
        assert rows(db) == {"k": 1}
        db.table("t").put("k", 2)


@pytest.mark.parametrize("trimmed", [False, True])
def test_nothing_is_confirmed_behind_an_append_that_failed(
    machines: Machines, hooks: Hooks, trimmed: bool
) -> None:
    """Its turn may be there, others may have gone on from it, and a trim of theirs may have emptied its slot."""
    db = begun(machines)
    sent, waiting = threading.Event(), threading.Event()
    shared = db._runtime.nodes[0].host.store._shared
    really = shared.confirm

    def confirm(appending: threading.Lock) -> None:
        waiting.set()
        really(appending)

    shared.confirm = confirm

    def strike(entry: Entry) -> None:
        hooks.after = nothing
        sent.set()
        assert waiting.wait(60)
        if trimmed:
            (machines.home / "log" / slot_name(entry.turn)).unlink()
        raise planstep.LogUnreachable("cut")

    hooks.after = strike
    with ThreadPoolExecutor(2) as pool:
        put = pool.submit(db.table("t").put, "k", 2)
        assert sent.wait(60)
        read = pool.submit(db.table("t").get, "k")
        assert type(put.exception(60)) is planstep.Undetermined
        error = read.exception(60)
        assert type(error) is planstep.LogUnreachable and str(error) == "cut"
    db.close()


def test_31_an_interrupt_during_a_barrier(machines: Machines, hooks: Hooks) -> None:
    with begun(machines) as db:
        ended: list[str] = []

        def strike() -> None:
            hooks.barrier = lambda: None
            os.kill(os.getpid(), signal.SIGINT)
            ended.append("barrier")

        hooks.barrier = strike
        with pytest.raises(KeyboardInterrupt):
            db.table("t").get("k")
        assert ended == ["barrier"], "the log is not left amid a call"
        db.table("t").put("k", 2)
        assert db.table("t").get("k") == 2


def test_a_close_waits_for_the_barrier_and_ends_reads_behind_it(
    machines: Machines, hooks: Hooks
) -> None:
    db = begun(machines)
    counted = Counted(hooks)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(db.table("t").get, "k")
        assert counted.begun.wait(60)
        second = pool.submit(db.table("t").get, "k")
        closing = pool.submit(db.close)
        until(lambda: db.closed)
        counted.go_on.set()
        closing.result(60)
        for read in (first, second):
            error = read.exception(60)
            assert error is None or isinstance(error, planstep.EngineClosed)
    machines.open("b").close()


def test_reads_of_an_event_loop_are_confirmed_on_a_thread(machines: Machines, hooks: Hooks) -> None:
    begun(machines).close()
    counted = Counted(hooks)

    async def main() -> None:
        async with planstep.open_async(machines.folder("a"), replicate=machines.url) as db:
            read = asyncio.ensure_future(db.table("t").get("k"))
            async with db.snapshot() as view, db.transaction() as tx:
                shown = asyncio.ensure_future(view.get("t", "k"))
                assert await tx.get("t", "k") == 1
                ending = tx.submit()
                await asyncio.sleep(0)
                assert await asyncio.to_thread(counted.begun.wait, 60)
                counted.go_on.set()
                assert await read == await shown == 1
                await ending
            machines.take_over("b").close()
            with pytest.raises(planstep.Fenced):
                await db.table("t").get("k")
            async with db.snapshot() as view:
                with pytest.raises(planstep.Fenced):
                    await view.get("t", "k")
            tx = db.transaction()
            await tx.get("t", "k")
            with pytest.raises(planstep.Fenced):
                await tx.commit()

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["kafka", "pulsar"])
def test_modes_without_snapshots_confirm_each_read(machines: Machines, mode: str) -> None:
    with machines.open("a", mode=mode) as old:
        old.create_topic("out", format="utf8").write("x")
        assert list(old.topic("out").read(0).values) == ["x"]
        machines.take_over("b").close()
        with pytest.raises(planstep.Fenced):
            old.topic("out").read(0)
