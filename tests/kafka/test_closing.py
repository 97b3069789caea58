"""Tests closing an engine of mode "kafka": requested ends happen and can be read, open transactions are aborted, no
reader waits."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import in_threads, lose_markers_until_a_wait, until

import planstep
from planstep.proto.ids import host_of
from planstep.proto.kafka.coordinators import coordinator_of
from planstep.runtime import client_hooks

SETUPS: list[dict[str, Any]] = [
    {},
    {"placement": "separate"},
    {"hosts": 3},
    {"rtt": 0.002},
    {"protocol_version": 2},
]


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: "-".join(setup) or "shared")
def test_what_is_open_is_aborted(tmp_path: Path, setup: dict[str, Any]) -> None:
    """A closed producer of Kafka does this too; otherwise readers would wait for the time-out."""
    with planstep.open(tmp_path / "s", mode="kafka", **setup) as db:
        db.create_topic("t", partitions=2, format="utf8")
        opened = db.transaction(worker="w1")
        opened.write_batch("t", ["a", "b"], partition=[0, 1])
        rolled_back = db.transaction(worker="w2")
        rolled_back.write("t", "c", partition=0)
        ends = db._runtime.views.whole_log
        tablets = db.context.topic("t").partitions
        until(lambda: [ends(tablet)[1] for tablet in tablets] == [2, 1])
        rolled_back.rollback()
    with pytest.raises(planstep.EngineClosed):
        opened.commit()
    with planstep.open(tmp_path / "s") as db:
        topic = db.topic("t")
        topic.write_batch(["d", "e"], partition=[0, 1])
        until(lambda: topic.read().values == ["d", "e"])


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: "-".join(setup) or "shared")
def test_what_was_submitted_is_committed(tmp_path: Path, setup: dict[str, Any]) -> None:
    with planstep.open(tmp_path / "s", mode="kafka", **setup) as db:
        db.create_topic("t", format="utf8")
        with db.transaction(worker="w") as tx:
            tx.write("t", "a")
            future = tx.submit()
    assert future.result(0).id == tx.id
    with planstep.open(tmp_path / "s") as db:
        until(lambda: db.topic("t").read().values == ["a"])


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: "-".join(setup) or "shared")
def test_what_was_committed_is_read_by_others_once_it_is_closed(
    tmp_path: Path, setup: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is answered before its markers are written, and no process that only reads can write them."""
    with planstep.open(tmp_path / "s", mode="kafka", **setup) as db:
        db.create_topic("t", partitions=2, format="utf8").write("in", partition=0)
        lose_markers_until_a_wait(monkeypatch)
        with db.transaction(worker="w") as tx:
            assert tx.read("t", "c").values == ["in"]
            tx.write_batch("t", ["a", "b"], partition=[0, 1])
        assert db.topic("t").read().values == ["in"]
    with planstep.open(tmp_path / "s", read_only=True) as db:
        topic = db.topic("t")
        assert topic.read().values == ["in", "a", "b"]
        assert topic.position("c") == {0: 1, 1: 0}


def test_closing_waits_for_no_host_that_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = next(name for name in "abcdefgh" if host_of(coordinator_of(name, 2)) == 0)
    with planstep.open(tmp_path / "s", mode="kafka", hosts=2) as db:
        db.create_topic("t", partitions=2, format="utf8")
        there = next(part for part in db.context.topic("t").partitions if host_of(part) == 1)
        lose_markers_until_a_wait(monkeypatch, lambda tablet: tablet == there)
        with db.transaction(worker=worker) as tx:
            tx.write_batch("t", ["a", "b"], partition=[0, 1])
        until(lambda: db._runtime.hooks.untold() == [there])
        db._runtime.stop_host(1)
        monkeypatch.setattr(client_hooks.time, "sleep", lambda seconds: pytest.fail("it waits"))
    monkeypatch.undo()
    with planstep.open(tmp_path / "s") as db:
        until(lambda: db.topic("t").read().values == ["a", "b"])


def test_closing_ends_though_something_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance may ask again and again while one marker never arrives."""
    counts = itertools.cycle([2, 1])
    rests = 0

    def rest(seconds: float) -> None:
        nonlocal rests
        rests += 1
        assert rests < 100_000, "it waits for ever"

    with planstep.open(":memory:", mode="kafka") as db:
        with monkeypatch.context() as patch:
            patch.setattr(db._runtime.hooks, "_under_way", lambda: next(counts))
            clock = SimpleNamespace(sleep=rest, monotonic=client_hooks.time.monotonic)
            patch.setattr(client_hooks, "time", clock)
            db._runtime.hooks._wait_for_ends()


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("what", ["request", "ready", "commit"])
def test_what_is_asked_while_it_closes_is_told_so(what: str, hosts: int) -> None:
    """The engine closes just between the check that it is open and the request."""
    db = planstep.open(":memory:", mode="kafka", hosts=hosts)
    db.create_topic("t", format="utf8")
    runtime: Any = db._runtime
    is_open = runtime.turns.check_open

    def closed_meanwhile() -> None:
        is_open()
        runtime.turns.check_open = is_open
        in_threads([db.close])

    def ask() -> None:
        tx = db.transaction()
        tx.write("t", "a")
        runtime.turns.check_open = closed_meanwhile
        if what == "request":
            runtime.hooks.requests.rejoin("c", "m")
        elif what == "ready":
            runtime.hooks.ready("w")
        else:
            tx.commit()

    with pytest.raises(planstep.PlanstepError):
        in_threads([ask])
    db.close()
