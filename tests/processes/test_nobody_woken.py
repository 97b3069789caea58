"""Tests that a commit over a link wakes no thread, and looks at no link, that has nothing to do with it."""

import os
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest
from process_kit import Other

import planstep
from planstep.runtime.processes.peer import Peer
from planstep.runtime.wait_primitives import Signal

COMMITS = 300
WRITES = f"[db.topic('t').write(b'x').place for _ in range({COMMITS})]"


class Counted(Signal):
    """Counts how often it is set, and passes that on."""

    def __init__(self, passed_on: Signal) -> None:
        super().__init__()
        self.times = 0
        self._passed_on = passed_on

    def set(self) -> None:
        self.times += 1
        self._passed_on.set()


def test_submits_of_an_attached_process_wake_no_service_thread(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner, planstep.open(tmp_path / "s") as db:
        owner.run("db.create_topic('t')")
        turns = db.context.runtime.turns
        counted = turns.submitted = Counted(turns.submitted)
        futures = []
        for _ in range(COMMITS):
            tx = db.transaction()
            tx.write("t", b"x")
            futures.append(tx.submit())
        assert len({future.result().place for future in futures}) == COMMITS
        assert counted.times == 0


def test_a_callback_of_a_future_is_called_all_the_same(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner, planstep.open(tmp_path / "s") as db:
        owner.run("db.create_topic('t')")
        called: SimpleQueue[object] = SimpleQueue()
        for _ in range(COMMITS):
            tx = db.transaction()
            tx.write("t", b"x")
            tx.submit().add_done_callback(lambda future: called.put(future.result().place))
        assert len({called.get(timeout=60) for _ in range(COMMITS)}) == COMMITS


def test_the_owner_looks_at_no_link_that_did_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    has_output = Peer.has_output
    monkeypatch.setattr(
        Peer,
        "has_output",
        property(lambda peer: (looked.append(peer.process.pid), has_output.__get__(peer))[1]),
    )
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t")
        with Other(tmp_path / "s") as one, Other(tmp_path / "s") as other:
            assert other("list(db.topics())") == ["t"]
            one(WRITES)
            looked.clear()
            one(WRITES)
            assert looked.count(one.pid) >= COMMITS
            assert other.pid not in looked


POLICIES = """{
    thread.name.removeprefix("planstep-"): os.sched_getscheduler(thread.native_id)
    for thread in threading.enumerate()
}"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these policies")
def test_a_link_interrupts_nobody_and_an_owner_does(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as one, Other(tmp_path / "s") as other:
        one.run("db.create_topic('t')")
        other(WRITES)
        assert os.SCHED_BATCH not in one(POLICIES).values()
        batch = {name for name, policy in other(POLICIES).items() if policy == os.SCHED_BATCH}
        assert batch == {"link"}
        one.close()
        other(WRITES)
        assert other("db.owner") == other.pid
        policies = other(POLICIES)
        assert "processes" in policies and os.SCHED_BATCH not in policies.values()
        with Other(tmp_path / "s") as third:
            third(WRITES)
            assert third(POLICIES)["link"] == os.SCHED_BATCH
            assert os.SCHED_BATCH not in other(POLICIES).values()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these policies")
def test_a_policy_that_a_user_has_chosen_stays(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as one:
        one.run("db.create_topic('t')")
        os.sched_setscheduler(one.pid, os.SCHED_IDLE, os.sched_param(0))
        with Other(tmp_path / "s") as other:
            other.run("db.close(); os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))")
            other.run(f"db = planstep.open({str(tmp_path / 's')!r})")
            other(WRITES)
            assert set(other(POLICIES).values()) == {os.SCHED_IDLE}
