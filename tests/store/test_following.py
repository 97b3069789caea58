"""Tests a read-only engine that goes on while a caller waits for records; snapshots stay at their step."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit import Child

import planstep
from planstep.errors import TooManyReaders
from planstep.runtime import following
from planstep.runtime.consistent_cut import open_views

OWNER = """
import sys
import planstep

path, mode, hosts = sys.argv[1:]
with planstep.open(path, mode=mode, hosts=int(hosts)) as db:
    topic = db.create_topic("t", partitions=2, format="utf8")
    topic.write("first", partition=0)
    print("ready", flush=True)
    for line in sys.stdin:
        word, *what = line.split()
        if word == "write":
            topic.write(what[0], partition=1)
        elif word == "create":
            db.create_topic(what[0])
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


def test_a_read_that_waits_is_woken(follower: Follower) -> None:
    tell, db, topic, ends = follower
    assert ends[1] == 0 and not topic.read(ends, timeout=0.05)
    tell("write one")
    assert not topic.read(ends)  # the view does not move
    for word in ("one", "two", "three"):
        if word != "one":
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
    with db.snapshot() as view:
        tell("write one")
        assert not topic.read(ends, timeout=0.1)
        assert view.read("t").values == ["first"]
    assert topic.read(ends, timeout=WAIT).values == ["one"]


def test_a_snapshot_that_is_opened_during_a_newer_look_stays_at_its_step(
    follower: Follower, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, db, topic, ends = follower
    opened: list[Any] = []
    shown = threading.Event()
    real, show = following.open_views, db._runtime.show

    def look(*args: Any) -> Any:
        views = real(*args)
        if not opened:
            opened.append(db.context.open_view())
        return views

    def noted(views: Any) -> Any:
        try:
            return show(views)
        finally:
            shown.set()

    monkeypatch.setattr(following, "open_views", look)
    monkeypatch.setattr(db._runtime, "show", noted)
    tell("write one")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(topic.read, ends, timeout=WAIT)
        assert shown.wait(WAIT)
        assert opened[0].read("t").values == ["first"]
        assert leases(store[0]) <= 2 * db._runtime.hosts
        opened[0].close()
        assert waiting.result(WAIT).values == ["one"]


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
    assert leases(path) == 0


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
            assert [view.get(key) for key, _ in rows if key not in view._epoch.layer.values] == [
                row for key, row in rows if key not in view._epoch.layer.values
            ]
    for view in before:
        with pytest.raises(planstep.EngineClosed):
            view.scan(b"", b"\xff")


@pytest.mark.parametrize("error", [TooManyReaders(1001, 1000), ValueError("a bug")])
def test_following_goes_on_after_an_error(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tell, _, topic, ends = follower
    errors = [error]
    real = following.open_views

    def look(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return real(*args)

    monkeypatch.setattr(following, "open_views", look)
    tell("write one")
    assert topic.read(ends, timeout=WAIT).values == ["one"]
    assert not errors


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
            patch.setattr("planstep.runtime.consistent_cut.Host", fails)  # settling makes them
            with pytest.raises(ValueError):
                open_views(path, hosts, views)
        assert leases(path) == hosts
        with monkeypatch.context() as patch:
            patch.setattr(db._runtime, "show", fails)
            follower: Any = db._runtime.turns.watches
            with pytest.raises(ValueError):
                follower._go_on()
        assert leases(path) == hosts
        ends = db.topic("t").read().ends
        assert db.topic("t").read(ends, timeout=WAIT).values == ["one"]
