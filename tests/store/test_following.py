"""Tests an engine that reads another process's store: each call sees what that has released, snapshots stay."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import Child, background

import planstep
from planstep.errors import SnapshotTooOld, StoreClosed, TooManyReaders
from planstep.runtime import following
from planstep.runtime.consistent_cut import open_views
from planstep.runtime.replace_store import refuse_readers
from planstep.store.readers.reader_lease import KEEPS_NOTHING, oldest_lease
from planstep.store.readers.released_mark import say_replaced

OWNER = """
import sys
import planstep

path, mode, hosts = sys.argv[1:]
with planstep.open(path, mode=mode, hosts=int(hosts)) as db:
    topic = db.create_topic("t", partitions=2, format="utf8")
    topic.write("first", partition=0)
    rows = db.create_table("rows") if mode == "deterministic" else None
    print("ready", flush=True)
    for line in sys.stdin:
        word, *what = line.split()
        if word == "write":
            topic.write(what[0], partition=1)
        elif word == "move":  # from one row to another
            with db.transaction() as tx:
                tx.put("rows", "a", -int(what[0]))
                tx.put("rows", "b", int(what[0]))
                tx.write("t", what[0], partition=1)
        elif word == "create":
            db.create_topic(what[0])
        elif word == "say":
            db.write(what[0], what[1].encode())
        elif word == "drop":
            db.drop_topic(what[0])
        print("done", flush=True)
"""
WAIT = 60.0
Tell = Callable[[str], None]
Store = tuple[Path, Tell]
Follower = tuple[Tell, planstep.Engine, planstep.Topic, dict[int, int]]


@pytest.fixture(params=["deterministic 1", "deterministic 2", "kafka 1"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    path = tmp_path / "s"
    with Child(OWNER, path, *request.param.split()) as child:
        assert child.line() == "ready"

        def tell(line: str) -> None:
            child.tell(line)
            assert child.line() == "done"

        yield path, tell
        child.end()


@pytest.fixture
def follower(store: Store) -> Iterator[Follower]:
    """Yields what makes the owner write; a reader of the store, its topic, and the ends of what it has seen."""
    path, tell = store
    with planstep.open(path, read_only=True) as db:
        topic = db.topic("t")
        yield tell, db, topic, topic.read().ends


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_call_sees_what_the_owner_has_released(follower: Follower) -> None:
    tell, db, topic, ends = follower
    assert not topic.read(ends)
    tell("write one")
    assert topic.read(ends).values == ["one"]
    tell("write two")
    assert topic.describe().records == 3
    tell("write three")
    assert topic.lag("nobody") == 4
    tell("write four")
    tx = db.transaction()
    assert len(tx.read("t", "c")) == 5
    tx.rollback()
    tell("create more")
    assert db.topic("more").describe().records == 0
    tell("create other")
    assert list(db.topics()) == ["more", "other", "t"]
    tell("drop more")
    with pytest.raises(planstep.UnknownName):
        db.topic("more")
    tell("create more")
    tell("drop other")
    with pytest.raises(planstep.UnknownName):
        db.topic("other")
    step = db.stats()["step"]
    tell("write five")
    assert db.stats()["step"] > step or db.mode == "kafka"


def test_a_topic_that_was_made_anew_is_read_as_the_new_one(follower: Follower) -> None:
    tell, db, _, _ = follower
    tell("create more")
    more = db.topic("more")
    assert not more.read()
    tell("drop more")
    tell("create more")
    tell("say more one")
    assert len(more.read()) == 1


def test_a_read_that_waits_is_woken(follower: Follower) -> None:
    tell, db, topic, ends = follower
    assert ends[1] == 0 and not topic.read(ends, timeout=0.05)
    for word in ("one", "two", "three"):
        tell(f"write {word}")
        batch = topic.read(ends, timeout=WAIT)
        assert batch.values == [word]
        ends = batch.ends
    tell("create more")
    tell("write four")
    tx = db.transaction()
    assert "first" in tx.read("t", "c", timeout=WAIT).values
    tx.rollback()
    assert topic.read(ends, timeout=WAIT).values == ["four"]
    assert "more" in db.topics()


def test_names_are_read_again_once_they_may_have_changed(follower: Follower) -> None:
    tell, db, topic, ends = follower
    runtime = db._runtime
    before, topics = runtime.names, dict(db.topics())
    tell("write one")
    ends = topic.read(ends, timeout=WAIT).ends
    assert runtime.names is before or runtime.hosts > 1
    tell("create more")
    tell("drop more")
    tell("create other")
    tell("write two")
    assert topic.read(ends, timeout=WAIT).values == ["two"]
    assert list(topics) == ["t"] and list(db.topics()) == ["other", "t"]


async def test_a_task_that_waits_is_woken(store: Store) -> None:
    path, tell = store
    async with planstep.open_async(path, read_only=True) as db:
        topic = db.topic("t")
        ends = (await topic.read()).ends
        waiting = asyncio.create_task(topic.read(ends, timeout=WAIT))
        await asyncio.sleep(0)
        await asyncio.to_thread(tell, "write one")
        assert (await waiting).values == ["one"]


def test_a_snapshot_stays_at_its_step(follower: Follower) -> None:
    tell, db, topic, ends = follower
    if db.mode == "kafka":
        return  # it has none
    with db.snapshot() as view, db.transaction() as tx:
        assert not tx.scan("rows")
        tell("write one")
        assert topic.read(ends).values == ["one"]
        assert view.read("t").values == ["first"]
        tell("move 7")
        with db.snapshot() as later:
            tell("move 9")
            assert db.snapshot().get("rows", "b") == 9
            assert dict(later.scan("rows")) == {"a": -7, "b": 7}
            assert later.read("t").values == ["first", "one", "7"]
        assert not view.scan("rows") and not tx.scan("rows")
        assert db.table("rows").get("a") == -9


def test_snapshots_are_whole_and_never_go_back(store: Store) -> None:
    """Threads look at once, each with snapshots of its own."""
    path, tell = store
    told = [0]

    def look(db: planstep.Engine) -> int:
        last = looks = 0
        while told[0] < 60:
            begun = told[0]
            with db.snapshot() as view:
                a, b = view.get("rows", "a", 0), view.get("rows", "b", 0)
                words = view.read("t").values
                assert a + b == 0 and words[-1] == (str(b) if b else "first"), (a, b, words)
            assert b >= begun and b >= last, (b, begun, last)
            last, looks = b, looks + 1
        return looks

    with planstep.open(path, read_only=True) as db, ThreadPoolExecutor(4) as pool:
        if db.mode == "kafka":
            return  # it has none
        looking = [pool.submit(look, db) for _ in range(4)]
        try:
            for n in range(1, 61):
                tell(f"move {n}")
                told[0] = n
        finally:
            told[0] = 60
        assert all(one.result(WAIT) for one in looking)
        assert db.stats()["snapshots"]["open"] == 0


def leases(path: Path) -> int:
    return sum(len(list(host.glob("leases/*"))) for host in path.glob("host-*"))


def test_views_behind_are_closed(store: Store) -> None:
    path, tell = store
    with planstep.open(path, read_only=True) as db:
        ends = db.topic("t").read().ends
        for n in range(4):
            tell(f"write w{n}")
            ends = db.topic("t").read(ends, timeout=WAIT).ends
            assert leases(path) <= 2 * db._runtime.hosts  # the newest, and one that is being made
        view = db.context.open_view()  # it stays open, and its views have a successor
        tell("write last")
        assert "last" in db.topic("t").read().values
    assert leases(path) == 0
    view.close()


def test_who_watches_is_told_by_any_look(follower: Follower) -> None:
    tell, db, topic, _ = follower
    told: list[bool] = []
    tablets = db.context.topic("t").partitions
    with db._runtime.turns.watches.watch(tablets, lambda: told.append(True)):
        tell("write one")
        wait_until(lambda: bool(told))  # by the thread's look
        told.clear()
        tell("write two")
        assert len(topic.read()) == 3
        wait_until(lambda: bool(told))  # by this thread's, or the other's just before it


def keeps(path: Path) -> bool:
    oldest = [oldest_lease(host) for host in path.glob("host-*")]
    return any(lease is not None and lease < KEEPS_NOTHING for lease in oldest)


def pinned(table: Any) -> bool:
    """Returns whether this process has a read transaction of LMDB open."""
    rows = [line.split() for line in table._env.readers().splitlines()]
    return any(row[0] == str(os.getpid()) and row[-1] != "-" for row in rows if row)


def test_an_engine_without_calls_keeps_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tell = store
    monkeypatch.setattr(following, "_IDLE_SECONDS", 0.05)
    with planstep.open(path, read_only=True) as db:
        topic = db.topic("t")
        table = db._runtime.nodes[0].host.store.table
        assert pinned(table) and keeps(path)
        for n in range(3):
            wait_until(lambda: not keeps(path))
            assert not pinned(table)
            with pytest.raises(planstep.StoreInUse, match=f"process {os.getpid()}"):
                refuse_readers(path, path)  # all the same, none replaces the store
            tell(f"write w{n}")
            assert topic.read({0: 1, 1: n}).values == [f"w{n}"]
        wait_until(lambda: not keeps(path))
        assert topic.read().values == ["first", "w0", "w1", "w2"]  # nothing has changed meanwhile
        wait_until(lambda: not keeps(path))
        tell("create more")
        assert "more" in db.topics()
        # Who looks at rows without a call of the engine's wakes it up.
        wait_until(lambda: not keeps(path))
        tablet = db.context.topic("t").partitions[0]
        assert db._runtime.views.log_bounds(tablet) == (0, 1)
        store_ = db._runtime.nodes[0].host.store
        wait_until(lambda: not keeps(path))
        assert store_.scan(b"", b"\xff" * 8) and keeps(path)
    assert not leases(path)


def test_a_command_reads_one_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path, tell = store
    monkeypatch.setattr(following, "_IDLE_SECONDS", 0.01)
    with planstep.open(path, read_only=True) as db:
        wait_until(lambda: not keeps(path))
        db.context.runtime.stay()
        tell("write one")
        tell("create more")
        time.sleep(0.1)
        assert db.topic("t").read().values == ["first"]
        assert keeps(path) and "more" not in db.topics()


def test_a_snapshot_keeps_what_it_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path, tell = store
    monkeypatch.setattr(following, "_IDLE_SECONDS", 0.01)
    with planstep.open(path, read_only=True) as db:
        with db.context.open_view() as view:
            rested = db._runtime.nodes[0].host.store
            tell("write one")
            time.sleep(0.2)
            assert leases(path) == db._runtime.hosts
            assert db._runtime.nodes[0].host.store is rested
            if db.mode != "kafka":  # which has no snapshots: each read shows the present
                assert view.read("t").values == ["first"]
            assert db.topic("t").read().values == ["first", "one"]
        wait_until(lambda: not keeps(path))


def test_an_engine_without_calls_costs_no_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = store
    monkeypatch.setattr(following, "_IDLE_SECONDS", 0.01)
    waits: list[float] = []
    wait = following.Signal.wait

    def noted(self: Any, seconds: float) -> None:
        waits.append(seconds)
        wait(self, seconds)

    monkeypatch.setattr(following.Signal, "wait", noted)
    with planstep.open(path, read_only=True):
        wait_until(lambda: not keeps(path) and following._RESTING_SECONDS in waits)
        count = waits.count(following._RESTING_SECONDS)
        time.sleep(0.2)
        assert waits.count(following._RESTING_SECONDS) == count == 1


def test_with_a_limit_a_snapshot_ends_after_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tell = store
    monkeypatch.setattr(following, "_IDLE_SECONDS", 0.01)
    with planstep.open(path, read_only=True) as db:
        follows = db._runtime.following
        assert follows is not None and follows.limit_seconds is None
        if db.mode == "kafka":
            return  # it has none
        follows.limit_seconds = 0.05
        tell("move 5")
        with db.snapshot() as old, db.snapshot():
            time.sleep(0.2)
            assert old.read("t").values == ["first", "5"]  # nothing newer came
            tell("move 7")
            wait_until(lambda: not follows._older and not keeps(path))
            for read in (lambda: old.read("t"), lambda: old.get("rows", "a")):
                with pytest.raises(SnapshotTooOld, match="snapshot_seconds"):
                    read()
            with db.snapshot() as newer:
                assert newer.get("rows", "a") == -7


def test_each_call_of_an_engine_whose_store_was_replaced_says_so(
    follower: Follower, store: Store
) -> None:
    _, db, topic, ends = follower
    wait = partial(topic.read, ends, timeout=WAIT)
    with pytest.raises(StoreClosed, match="open it again"), background(wait):
        wait_until(lambda: bool(db._runtime.turns.watches.watched))
        for host in store[0].glob("host-*"):
            say_replaced(host / "released")
    assert isinstance(db._runtime.turns.stopped, StoreClosed)
    for call in (topic.read, db.topics, db.context.open_view, topic.describe):
        with pytest.raises(StoreClosed, match="open it again"):
            call()


def test_who_reads_in_a_view_that_gave_way_is_answered_by_the_newer(
    store: Store,
) -> None:
    """Without a snapshot, ends, lags and outcomes are looked up in several steps."""
    path, tell = store
    with planstep.open(path, read_only=True) as db:
        ends = db.topic("t").read().ends
        before = [node.host.store for node in db._runtime.nodes]
        tell("write one")
        assert db.topic("t").read(ends, timeout=WAIT)
        for view, node in zip(before, db._runtime.nodes, strict=True):
            assert view is not node.host.store
            rows = node.host.store.scan(b"", b"\xff" * 8)
            assert view.scan(b"", b"\xff" * 8) == rows
            assert [view.get(key) for key, _ in rows] == [row for _, row in rows]
            held = view.hold_folder()
            os.close(held)
    for view in before:
        with pytest.raises(planstep.EngineClosed):
            view.scan(b"", b"\xff")


@pytest.mark.parametrize("error", [TooManyReaders(1001, 1000), ValueError("a bug")])
def test_waiting_goes_on_after_an_error(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tell, db, topic, ends = follower
    errors = [error]
    real = following.open_views

    def look(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return real(*args)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(topic.read, ends, timeout=WAIT)
        wait_until(lambda: bool(db._runtime.turns.watches.watched))
        monkeypatch.setattr(following, "open_views", look)
        tell("write one")
        assert waiting.result(WAIT).values == ["one"]
    assert not errors


def test_a_look_that_fails_is_its_callers(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, _, topic, ends = follower

    def fails(*args: Any) -> Any:
        raise TooManyReaders(1001, 1000)

    tell("write one")
    with monkeypatch.context() as patch:
        patch.setattr(following, "open_views", fails)
        with pytest.raises(TooManyReaders):
            topic.read(ends)
    assert topic.read(ends).values == ["one"]


def test_a_store_that_was_moved_is_followed(follower: Follower, store: Store) -> None:
    tell, _, topic, ends = follower
    store[0].rename(store[0].with_name("moved"))
    for word in ("one", "two"):
        tell(f"write {word}")
        batch = topic.read(ends, timeout=WAIT)
        assert batch.values == [word]
        ends = batch.ends


def test_a_look_that_fails_leaves_no_view(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path, tell = store

    def fails(*args: Any) -> Any:
        raise ValueError("a bug")

    with planstep.open(path, read_only=True) as db:
        hosts = db._runtime.hosts
        views = [node.host.store for node in db._runtime.nodes]
        tell("write one")
        with monkeypatch.context() as patch:
            patch.setattr("planstep.runtime.consistent_cut._leftover", fails)
            patch.setattr("planstep.runtime.consistent_cut.settle", fails)
            with pytest.raises(ValueError):
                open_views(path, hosts, views)
        assert leases(path) == hosts
        with monkeypatch.context() as patch:
            patch.setattr(following, "Shown", fails)
            with pytest.raises(ValueError):
                db.topics()
        assert leases(path) == hosts
        assert db.topic("t").read().values == ["first", "one"]


def test_payloads_that_a_view_has_settled_are_its_own(store: Store) -> None:
    path, tell = store
    (first,) = open_views(path, 1)
    tell("write one")
    later = first.newer()
    found: list[tuple[Any, int]] = []
    for view in (first, later):
        view.settling = True
        turn = view.begin()
        address = turn.append_payload(f"of {view.last_turn}".encode())
        view.commit(turn)
        view.settling = False
        found.append((view, address))
    assert found[0][1] != found[1][1]
    first.give_way(lambda: later)
    for view, address in found:
        assert view.read_payload(address, 4) == f"of {view.last_turn}".encode()[:4]
    runs = later._epoch.runs
    assert runs
    for run in runs:  # those that the owner has written since
        data = later.read_payload(run.address, run.length)
        assert first.read_payload(run.address, run.length) == data
    first.close()
    later.close()
