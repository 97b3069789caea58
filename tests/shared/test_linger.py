"""Tests the linger of a replicated store: a ceiling on its puts, that delays no idle store and no close."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import replica_kit
from kit import background, in_threads, until
from replica_kit import Hooks, Machines, rows
from shared_kit import Backing

import planstep
from planstep.runtime import turn_loop
from planstep.shared.registry import open_shared_log

machines = replica_kit.machines
hooks = replica_kit.hooks
LONG = 10.0
FOR_EVER = 1_000.0


class Rests:
    """The rests of all engines: how many have begun."""

    def __init__(self) -> None:
        self.begun = 0


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Rests:
    rests = Rests()
    really = turn_loop.wait_for

    def wait_for(*args: Any) -> bool:
        rests.begun += 1
        return really(*args)

    monkeypatch.setattr(turn_loop, "wait_for", wait_for)
    return rests


def opened(machines: Machines, linger: float | None) -> planstep.Engine:
    settings = planstep.Replicate(machines.url, linger=linger)
    return planstep.open(machines.folder("a"), replicate=settings)


def resting(machines: Machines) -> planstep.Engine:
    """Opens a store that has had a turn, and would rest longer than any test takes."""
    db = opened(machines, LONG)
    db.create_table("t")
    db._runtime.nodes[0].due += FOR_EVER
    return db


def test_turns_have_a_pause_between_them_whoever_leads(machines: Machines, hooks: Hooks) -> None:
    times: list[float] = []
    hooks.before = hooks.after = lambda _: times.append(time.monotonic())
    with opened(machines, 0.02) as db:
        db.create_table("t")

        def commit(n: int) -> None:
            for k in range(5):
                db.table("t").put(f"{n} {k}", 1)
            with db.transaction() as tx:
                tx.add("t", "count", 1)

        in_threads(lambda n=n: commit(n) for n in range(8))
        assert rows(db)["count"] == 8
        turns = len(times) // 2
    # The first is the BEGIN; the last one, of the close, waits for nothing.
    ends, begins = times[3 : 2 * turns - 1 : 2], times[4 : 2 * turns : 2]
    assert turns > 5
    assert min(begin - end for begin, end in zip(begins, ends, strict=True)) >= 0.02


def test_an_idle_store_commits_at_once(machines: Machines, rests: Rests) -> None:
    with opened(machines, LONG) as db:
        db.create_table("t")
        assert rests.begun == 0
        db._runtime.nodes[0].due -= LONG  # as if so much time had passed
        db.table("t").put("k", 1)
        assert rests.begun == 0


def test_what_comes_meanwhile_shares_the_next_turn(machines: Machines, rests: Rests) -> None:
    db = resting(machines)
    before = len(machines.entries())
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(db.table("t").put, n, n) for n in range(6)]
        until(lambda: len(db._runtime.nodes[0].inbox) == 6)
        assert rests.begun
        db._runtime.nodes[0].due = 0.0
        db._runtime.turns.hurry()
        db.table("t").put("last", 1)  # now
        for put in sent:
            put.result(60)
    assert len(machines.entries()) <= before + 2
    db.close()


def test_closing_waits_for_no_rest_and_loses_nothing(machines: Machines, rests: Rests) -> None:
    db = resting(machines)
    with ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(db.table("t").put, n, n) for n in range(2)]
        until(lambda: len(db._runtime.nodes[0].inbox) == 2 and rests.begun)
        db.close()
        for put in sent:
            put.result(60)
    with machines.open("b") as other:
        assert rows(other) == {0: 0, 1: 1}


def test_a_commit_that_may_not_wait_so_long_is_done_later(machines: Machines, rests: Rests) -> None:
    db = resting(machines)
    tx = db.transaction()
    tx.put("t", "k", 1)
    with pytest.raises(planstep.Undetermined):
        tx.commit(timeout=0.01)
    assert rests.begun and rows(db) == {}
    db.close()  # the service thread had it
    with machines.open("b") as other:
        assert rows(other) == {"k": 1}


def test_ctrl_c_ends_a_rest(machines: Machines, rests: Rests) -> None:
    db = resting(machines)

    def strike() -> None:
        until(lambda: rests.begun)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), background(strike):
        db.table("t").put("k", 1)
    db.close()
    with machines.open("b") as other:
        assert rows(other) == {"k": 1}


def test_schema_changes_rest_too(machines: Machines, rests: Rests) -> None:
    db = resting(machines)
    with background(lambda: db.create_table("u")) as (made,):
        until(lambda: rests.begun)
        assert not made.done()
        db.close()
    with machines.open("b") as other:
        assert rows(other, "u") == {}


def test_a_bucket_lingers_and_other_logs_do_not(backing: Backing, kind: str) -> None:
    log = backing.open()
    if kind == "bucket":
        log = open_shared_log(backing.url, None)[0]  # type: ignore[union-attr]
    assert log.linger == (0.05 if kind == "bucket" else 0.0)


def test_the_logs_own_linger_is_the_default(machines: Machines, hooks: Hooks) -> None:
    with opened(machines, None) as db:
        assert db._runtime.nodes[0].linger == 0.0
    with opened(machines, 0.5) as db:
        assert db._runtime.nodes[0].linger == 0.5
