"""Tests closing an engine of mode "kafka": requested ends happen, open transactions are aborted, no reader
waits."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import planstep


def values_are(topic: planstep.Topic, values: list[str]) -> None:
    """Waits until the topic shows these values, once the remaining markers are written."""
    deadline = time.monotonic() + 60
    while topic.read().values != values and time.monotonic() < deadline:
        time.sleep(0.002)
    assert topic.read().values == values


HOW: list[dict[str, Any]] = [
    {},
    {"placement": "separate"},
    {"hosts": 3},
    {"rtt": 0.002},
    {"protocol_version": 2},
]


@pytest.mark.parametrize("how", HOW, ids=lambda how: "-".join(how) or "shared")
def test_what_is_open_is_aborted(tmp_path: Path, how: dict[str, Any]) -> None:
    """A closed producer of Kafka does this too; otherwise readers would wait for the time-out."""
    with planstep.open(tmp_path / "s", mode="kafka", **how) as db:
        db.create_topic("t", partitions=2, format="utf8")
        opened = db.transaction(worker="w1")
        opened.write_batch("t", ["a", "b"], partition=[0, 1])
        rolled_back = db.transaction(worker="w2")
        rolled_back.write("t", "c", partition=0)
        ends = db._runtime.views.whole_log
        while [ends(tablet)[1] for tablet in db.context.topic("t").partitions] != [2, 1]:
            time.sleep(0.001)
        rolled_back.rollback()
    with planstep.open(tmp_path / "s") as db:
        topic = db.topic("t")
        topic.write_batch(["d", "e"], partition=[0, 1])
        values_are(topic, ["d", "e"])


@pytest.mark.parametrize("how", HOW, ids=lambda how: "-".join(how) or "shared")
def test_what_was_submitted_is_committed(tmp_path: Path, how: dict[str, Any]) -> None:
    with planstep.open(tmp_path / "s", mode="kafka", **how) as db:
        db.create_topic("t", format="utf8")
        with db.transaction(worker="w") as tx:
            tx.write("t", "a")
            future = tx.submit()
    assert future.result(0).id == tx.id
    with planstep.open(tmp_path / "s") as db:
        values_are(db.topic("t"), ["a"])


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
        closing = threading.Thread(target=db.close)
        closing.start()
        closing.join()

    ended: list[BaseException] = []

    def ask() -> None:
        tx = db.transaction()
        tx.write("t", "a")
        runtime.turns.check_open = closed_meanwhile
        try:
            if what == "request":
                runtime.hooks.requests.rejoin("c", "m")
            elif what == "ready":
                runtime.hooks.ready("w")
            else:
                tx.commit()
        except planstep.PlanstepError as error:
            ended.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(60)
    assert len(ended) == 1
    db.close()
