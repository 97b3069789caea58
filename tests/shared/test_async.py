"""Tests stores whose commits are answered before the shared log has them: shipping, its bound, snapshots.

The numbers are those of the scenarios that replication is accepted by.
"""

import logging
import threading
import time
from contextlib import closing
from typing import Any

import async_kit
import pytest
import replica_kit
from async_kit import Cut, die, ends, floor_of, often, opened, settings, store_of
from kit import background, until
from replica_kit import Hooks, Line, Machines, rows

import planstep
from planstep.errors import LogUnreachable, NoSpace
from planstep.runtime import replication, shipping
from planstep.runtime.snapshotting import Snapshotter, snapshots_of
from planstep.shared.entry import BEGIN, Entry
from planstep.shared.registry import open_shared_log
from planstep.store.replicated import SHIPPED_KEY
from planstep.store.verify import verify

machines = replica_kit.machines
hooks = replica_kit.hooks
line = replica_kit.line
cut = async_kit.cut


# shipping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_all_is_shipped_in_order_before_a_store_is_closed(machines: Machines, mode: Any) -> None:
    with machines.open("a", mode=mode, replicate=settings(machines)) as db:
        topic = db.create_topic("c")
        for n in range(200):
            topic.write(b"%d" % n)
    assert ends(machines)
    with machines.open("b") as db:  # it was closed, so nobody is taken over
        assert [int(value) for value in db.topic("c").read(0, 0).values] == list(range(200))
        assert store_of(db).last_turn > 200
    assert verify(machines.folder("a") / "host-0") == []


def test_a_commit_does_not_wait_for_the_log(machines: Machines, cut: Cut) -> None:
    with opened(machines) as db:
        table = db.create_table("t")
        cut.is_set = True
        for n in range(20):
            table.put(n, n)
        stats = db.stats()["shared_log"]
        assert stats["lag_turns"] >= 20 and stats["lag_bytes"] > 20 * 100
        assert stats["lag_seconds"] > 0 and stats["role"] == "owner"
        assert rows(db) == {n: n for n in range(20)}
        cut.is_set = False
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        assert db.stats()["shared_log"]["lag_seconds"] == db.stats()["shared_log"]["lag_bytes"] == 0
        shipped = store_of(db).last_turn
        assert ends(machines)[-1] == (1, shipped)


def test_answers_that_are_lost_make_no_second_turn(machines: Machines, line: Line) -> None:
    """Each put gets there, and nobody hears of it, for longer than one call to the log lasts."""
    with opened(machines) as db:
        table = db.create_table("t")
        line.arrives, line.failing = True, float("inf")
        for n in range(10):
            table.put(n, n)
        shared = store_of(db)._shared
        until(lambda: isinstance(shared._trouble, LogUnreachable))
        line.failing = 0
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        assert db.stats()["shared_log"]["mine_after_doubt"] > 0
    ends(machines)
    with machines.open("b") as db:
        assert rows(db) == {n: n for n in range(10)}


def test_a_log_without_room_is_waited_for(machines: Machines, hooks: Hooks) -> None:
    full = [True]

    def refuse(entry: Entry) -> None:
        if full[0] and entry.kind != BEGIN:
            raise NoSpace("the log's disk is full")

    with opened(machines, max_lag=0.1, log_timeout=60) as db:
        hooks.before = refuse
        db.create_table("t")
        with background(lambda: db.table("t").put("k", 1)) as (put,):
            until(lambda: db.stats()["shared_log"]["lag_seconds"] > 0.2)
            full[0] = False
            put.result(60)
        assert rows(db) == {"k": 1}


# scenario 29: back-pressure ---------------------------------------------------------------------


def test_29_commits_wait_once_the_oldest_turn_is_too_old(machines: Machines, cut: Cut) -> None:
    with opened(machines, max_lag=0.3) as db:
        table = db.create_table("t")
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        cut.is_set = True
        table.put("first", 1)
        answered = time.monotonic()
        acknowledged: list[float] = []
        stop = threading.Event()

        def write() -> None:
            n = 0
            while not stop.is_set():
                table.put(n, n)
                acknowledged.append(time.monotonic())
                n += 1

        with background(write):
            until(lambda: db.stats()["shared_log"]["lag_seconds"] > 1)
            # The one that had room by then may be answered later.
            late = [at for at in acknowledged if at > answered + 0.3]
            assert acknowledged and len(late) <= 1
            cut.is_set = False
            until(lambda: len(acknowledged) > len(late) + 10)
            stop.set()
    ends(machines)


def test_29_commits_wait_once_too_many_bytes_are_unshipped(
    machines: Machines, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "LAG_BYTES_MAX", 100_000)
    with opened(machines) as db:
        topic = db.create_topic("c")
        cut.is_set = True
        sent = [0]

        def write() -> None:
            for _ in range(30):
                topic.write(bytes(10_000))
                sent[0] += 1

        with background(write):
            until(lambda: db.stats()["shared_log"]["lag_bytes"] > 100_000)
            time.sleep(0.2)
            assert 9 <= sent[0] <= 11
            assert db.stats()["shared_log"]["lag_bytes"] < 100_000 + 2 * 10_500
            cut.is_set = False
        assert sent[0] == 30


def test_29_a_log_that_stays_away_stops_the_engine_and_nothing_is_lost(
    machines: Machines, cut: Cut
) -> None:
    db = opened(machines, max_lag=1.0, log_timeout=0.4)
    table = db.create_table("t")
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    cut.is_set = True
    answered = []
    with pytest.raises(LogUnreachable, match="safe here"):
        for n in range(1_000_000):
            table.put(n, n)
            answered.append(n)
    with pytest.raises(LogUnreachable):
        table.put("more", 1)
    db.close()
    assert answered
    cut.is_set = False
    with opened(machines) as db:
        assert rows(db) == {n: n for n in answered}  # what was refused had no effect
    ends(machines)


def test_close_waits_for_the_log_and_says_if_it_was_not_told(
    machines: Machines, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    db = opened(machines, log_timeout=0.3)
    db.create_table("t").put("k", 1)
    cut.is_set = True
    db.table("t").put("l", 2)
    with caplog.at_level(logging.WARNING):
        db.close()
    assert "left_open" in [getattr(record, "event", "") for record in caplog.records]
    with pytest.raises(planstep.OwnedElsewhere):
        machines.open("b")
    cut.is_set = False
    with opened(machines) as db:
        assert rows(db) == {"k": 1, "l": 2}


# snapshots ----------------------------------------------------------------------------------------


def snapshots_in(machines: Machines) -> list[int]:
    found = (machines.home / "log" / "snap").glob("*/manifest")
    return sorted(int(path.parent.name[:20]) for path in found)


def test_a_snapshot_is_of_turns_that_the_log_has(
    machines: Machines, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    often(monkeypatch)
    with opened(machines, snapshot_bytes=2_000) as db:
        db.create_table("t")
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        shared = store_of(db).last_turn
        cut.is_set = True
        for n in range(100):
            db.table("t").put(n, n)
            if n % 20 == 0:
                time.sleep(0.05)
        assert all(turn <= shared for turn in snapshots_in(machines))
        cut.is_set = False
        until(lambda: snapshots_in(machines)[-1:] > [shared])
    with machines.open("b") as db:
        assert rows(db) == {n: n for n in range(100)}


def test_the_log_is_trimmed_no_further_than_the_folder_knows(machines: Machines, cut: Cut) -> None:
    """Else the next opening could not read on from where the folder's last turn says that the log was."""
    db = opened(machines)
    table, store = db.create_table("t"), store_of(db)
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    shared = store.last_turn
    cut.is_set = True
    for n in range(5):
        table.put(n, n)
    log, root = open_shared_log(machines.url, None)
    options = settings(machines, keep=1)
    with closing(log), snapshots_of(options, log, root) as snapshots:
        assert snapshots is not None
        leading = store._shared
        with background(
            lambda: Snapshotter(store, options, None, leading).make_now(log, snapshots)
        ):
            until(lambda: (store.table.state() or (0,))[0] == shared + 5)
            for n in range(5, 20):
                table.put(n, n)
            cut.above = shared + 10
        assert (snapshots_in(machines), floor_of(machines)) == ([shared + 5], 1)
    until(lambda: leading._ownership.last.turn == shared + 10)
    die(db)
    assert ends(machines)[-1] == (1, shared + 10)
    cut.is_set = False
    with opened(machines) as db:
        assert rows(db) == {n: n for n in range(20)}
    assert not list(machines.home.glob("a.term-*"))


def test_digests_agree_behind_an_owner_that_lags(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "DIGEST_SECONDS", 0.1)
    with opened(machines) as db, planstep.follow(machines.folder("f"), machines.url) as me:
        table = db.create_table("t")
        n = 0
        while me._tail.folder.compared < 3:
            me.db.context.check()
            table.put(n % 100, n)
            n += 1
            store_of(db).checkpoint()


# settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"mode": "later"}, {"max_lag": -1}, {"mode": "async", "local_sync": False}, {"max_lag": "5"}],
)
def test_settings_are_checked(machines: Machines, wrong: dict[str, Any]) -> None:
    with pytest.raises(
        (ValueError, TypeError), match=next(iter(wrong)) if len(wrong) == 1 else "local_sync"
    ):
        machines.replicate(**wrong)


def test_each_turn_is_durable_before_its_answer(machines: Machines) -> None:
    with opened(machines) as db:
        table = db.create_table("t")
        before = db.stats()["store"]["syncs"]
        for n in range(10):
            table.put(n, n)
        assert db.stats()["store"]["syncs"] >= before + 10
        store = store_of(db)
        assert store._log.synced == store.last_turn


def test_a_sync_opening_leaves_nothing_of_the_mode_behind(machines: Machines, cut: Cut) -> None:
    """Row S is of an older term then: the folder is never ahead again."""
    with opened(machines) as db:
        db.create_table("t").put("k", 1)
    with machines.open("a") as db:
        db.table("t").put("k", 2)
        row, term = store_of(db).get(SHIPPED_KEY), store_of(db)._shared.term
        assert row[0] < term and store_of(db)._log.written is None
        die_sync(db)
    with opened(machines) as db:
        assert rows(db) == {"k": 2}
    ends(machines)


def die_sync(db: planstep.Engine) -> None:
    db._runtime.crash()
    db.close()
