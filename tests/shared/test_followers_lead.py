"""Tests followers that take over by command, and readers beside them.

The numbers are those of the scenarios that replication is accepted by.
"""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import replica_kit
from follower_kit import begun, follow, shown
from kit import background, until
from replica_kit import Line, Machines, rows

import planstep

machines = replica_kit.machines
line = replica_kit.line


def test_25_a_follower_s_reader_never_goes_back_over_takeovers(machines: Machines) -> None:
    steps: list[int] = []
    values: list[int] = []
    with begun(machines) as first, follow(machines, "reader") as me:
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                with me.snapshot() as view:
                    steps.append(view.step)
                    values.append(view.get("t", "k"))

        owner = first
        with background(look):
            for number in range(1, 9):
                for _ in range(10):
                    owner.table("t").add("k", 1)
                with follow(machines, f"m{number}") as standby:
                    led = standby.lead()
                if number > 1:
                    owner.close()
                owner = led
            owner.table("t").add("k", 1)
            me.snapshot(at_least=owner.turn).close()
            stop.set()
        assert steps == sorted(steps) and values == sorted(values)
        assert shown(me, owner.turn) == {"k": 81}
        owner.close()


def test_32_by_command_after_a_close(machines: Machines) -> None:
    db = begun(machines)
    with follow(machines) as me:
        db.close()
        with me.lead() as led:
            assert rows(led) == {"k": 0}
            led.table("t").put("k", 1)
        with pytest.raises(planstep.EngineClosed):
            me.lag()
    with machines.open("a") as db:
        assert rows(db) == {"k": 1}


def test_33_mode_kafka_over_a_takeover_by_a_follower(machines: Machines) -> None:
    old = machines.open("a", mode="kafka")
    old.create_topic("out", format="utf8")
    with old.transaction(worker="w") as tx:
        tx.write("out", "first")
    tx = old.transaction(worker="w")
    tx.write("out", "never")
    tx.flush()
    (before,) = old.transactional_ids()
    with follow(machines) as me, me.lead() as db:
        with db.transaction(worker="w") as new:
            new.write("out", "second")
        until(lambda: not db.transactional_ids(only_open=True))
        (after,) = db.transactional_ids()
        assert (after.producer, after.epoch > before.epoch) == (before.producer, True)
        until(lambda: list(db.topic("out").read(0).values) == ["first", "second"])
        with pytest.raises(planstep.PlanstepError):
            tx.commit()
    old.close()


def test_a_fenced_owner_follows_in_its_own_folder(machines: Machines) -> None:
    old = begun(machines)
    with follow(machines) as me, me.lead() as db:
        with pytest.raises(planstep.Fenced):
            old.table("t").put("k", 1)
        old.close()
        with follow(machines, "a") as again:
            db.table("t").put("k", 2)
            assert shown(again, db.turn) == {"k": 2}
            with again.lead() as third:
                third.table("t").put("k", 3)
            with pytest.raises(planstep.Fenced):
                rows(db)


def test_a_folder_that_is_open_twice_is_not_led(machines: Machines) -> None:
    begun(machines).close()
    with follow(machines) as me:
        with planstep.open(machines.folder("f"), read_only=True) as again:
            with pytest.raises(planstep.StoreInUse):
                me.lead()
            assert rows(again) == {"k": 0}
        me.lead().close()


def test_a_follower_that_is_closed_leads_nothing(machines: Machines) -> None:
    with begun(machines) as db:
        me = follow(machines)
        me.close()
        with pytest.raises(planstep.EngineClosed):
            me.lead()
        db.table("t").put("k", 1)
        me = follow(machines)
        with me.lead() as led:
            for settings in ({}, {"hosts": 0}):
                with pytest.raises(planstep.EngineClosed):
                    me.lead(**settings)
            led.table("t").put("k", 2)
            assert rows(led) == {"k": 2}
        me.close()


def test_a_forked_child_leads_nothing(machines: Machines) -> None:
    with begun(machines) as db, follow(machines) as me:
        child = os.fork()
        if not child:
            try:
                me.lead()
            except planstep.ForkedProcess:
                os._exit(3)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        db.table("t").put("k", 1)
        assert shown(me, db.turn) == {"k": 1}


def test_a_close_that_fails_to_begin_leaves_the_follower_whole(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(machines):
        me = follow(machines)
        with monkeypatch.context() as patch:
            patch.setattr("planstep.api.lifetime.room_for_a_turn", fail)
            with pytest.raises(MemoryError):
                me.lead()
        me.close()
        follow(machines).close()


def fail() -> None:
    raise MemoryError


def test_a_lead_that_fails_lets_the_folder_go(machines: Machines, line: Line) -> None:
    with begun(machines) as db:
        me = follow(machines)
        with pytest.raises(planstep.WrongMode):
            me.lead(mode="kafka")
        db.table("t").put("k", 1)
        with follow(machines) as me:
            assert shown(me, db.turn) == {"k": 1}
            with pytest.raises(ValueError, match="hosts"):
                me.lead(hosts=0)
        follow(machines).close()


def test_40_nothing_grows_over_10_000_turns(machines: Machines) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with begun(machines) as db, follow(machines) as me, ThreadPoolExecutor(4) as pool:

        def some(turns: int) -> None:
            goal = db.turn + turns
            while db.turn < goal:
                list(pool.map(lambda n: db.table("t").put(n % 50, "x" * 200), range(200)))
                me.snapshot(at_least=db.turn).close()
            gc.collect()

        some(2_000)
        files, size = open_files(), resident()
        some(8_000)
        assert db.turn > 10_000
        assert open_files() <= files + 2
        assert resident() - size < 64 << 20
        assert me.db.stats()["memory"]["history_bytes"] == 0
