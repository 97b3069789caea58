"""Tests closing an engine of mode "kafka": requested ends happen, open transactions are aborted, no reader
waits."""

from pathlib import Path
from typing import Any

import pytest
from kit import in_threads, until

import planstep

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
