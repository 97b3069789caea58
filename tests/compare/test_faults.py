"""Tests the workload faults: work goes on after them in every system; lost and repeated records are reported."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.bench.compare.cell import OK, Cell, Result
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.systems import open_system
from planstep.bench.compare.systems.base import SAME_NAME, TIME_OUT, Options
from planstep.bench.compare.workloads import faults_dropped, faults_killed
from planstep.bench.compare.workloads.base import Run, Shape
from planstep.bench.compare.workloads.driving import WorkerRun
from planstep.bench.compare.workloads.faults import Faults
from planstep.bench.compare.workloads.faults_dropped import (
    CONSUMER,
    NOTHING,
    OUT,
    ROW_READ,
    UNDISTURBED,
)
from planstep.bench.judges.trace import ABORTED, COMMITTED, Trace, identity

OPTIONS = Options(transaction_timeout_ms=300)
SHAPE = Shape(partitions=2, workers=4, duration=0.1)
ENDED = {NOTHING: "Conflict", TIME_OUT: "PRODUCER_FENCED", SAME_NAME: "PRODUCER_FENCED"}
NOT_FENCED = "TransactionTimeout"
"""The refusal of a late commit where nobody is fenced, and its owner's own timer has gone off."""
WAYS = [
    ("deterministic", "shared", "full", {NOTHING: 2}),
    ("deterministic", "separate", "os", {NOTHING: 2}),
    ("kafka", "separate", "full", {TIME_OUT: 1, SAME_NAME: 2}),
    ("kafka-v1", "shared", "os", {TIME_OUT: 1, SAME_NAME: 2}),
    ("pulsar", "separate", "full", {TIME_OUT: 2}),
    ("sqlite", "shared", "full", {NOTHING: 2}),
    ("sqlite-64", "shared", "os", {NOTHING: 2}),
]


@pytest.fixture(autouse=True)
def own_timers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets late commits in mode pulsar come behind their owner's timer.

    It runs beside the coordinator's. On a busy machine it may be the later one: then the commit's last
    acknowledgement is refused instead (TransactionHasOperationFailed).
    """
    come_late = faults_dropped._Dropping.come_late

    def coming_late(dropping: Any) -> Any:
        if dropping._run.system.mode == "pulsar":
            for _, _, attempt in dropping._left:
                wait_for_its_end(dropping._run, attempt)
        return come_late(dropping)

    monkeypatch.setattr(faults_dropped._Dropping, "come_late", coming_late)


def wait_for_its_end(run: Any, attempt: Any) -> None:
    """Waits until a transaction of the engine's has ended by itself."""
    until = time.monotonic() + 120
    while run.system.db.outcome(attempt.work.id).state == "open":
        assert time.monotonic() < until
        time.sleep(0.01)


def run_faults(path: Path, system: str = "deterministic", **more: Any) -> Result:
    options = Options(transaction_timeout_ms=300, **more)
    return run_cell(Cell("faults", system, options, SHAPE), path / "cell")


@pytest.mark.parametrize("system, placement, durability, kills", WAYS)
def test_work_goes_on_and_nothing_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    placement: str,
    durability: str,
    kills: dict[str, int],
) -> None:
    if system == "sqlite":
        monkeypatch.setattr(faults_dropped, "HELD_S", 0.1)
    result = run_faults(tmp_path, system, placement=placement, durability=durability)
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    assert result.commit_ms is None and result.visible_ms is None, "of a few commits each"
    dropped, killed = result.extra["dropped"], result.extra["killed"]
    rows = {} if TIME_OUT in kills else {ROW_READ: "Conflict"}
    assert set(dropped) == {UNDISTURBED, *kills, *rows}
    if system == "sqlite":  # a transaction that reads a row to replace it holds the one write lock
        assert dropped.pop(ROW_READ) == {
            "goes_on_ms": None,
            "readable_ms": None,
            "not_within_ms": 100,
        }
        del rows[ROW_READ]
    for way, cause in ({way: ENDED[way] for way in kills} | rows).items():
        assert dropped[way]["comes_late"] == (NOT_FENCED if system == "pulsar" else cause)
    assert all(0 < figures["goes_on_ms"] < figures["readable_ms"] for figures in dropped.values())
    assert {way: killed[way]["kills"] for way in kills} == kills
    for way in kills:
        figures = killed[way]
        assert 0 < figures["open_ms"] < figures["first_commit_ms"] and 0 < figures["gone_ms"]
        assert figures["start_ms"] > 0 and figures["readable_ms"] > figures["open_ms"]
    assert killed["acknowledged"] > 0 and killed["lost"] == killed["repeated"] == 0
    time_out_ms = result.extra["settings"].get("transaction_timeout_ms")
    assert time_out_ms == (300 if TIME_OUT in kills else None)
    trace = Trace.load(tmp_path / "cell" / "trace")
    outcomes = [row.outcome for row in trace.transactions]
    assert outcomes.count(COMMITTED) == result.transactions
    least = 1 if set(kills) == {TIME_OUT} else 5  # a time-out is waited for once
    assert outcomes.count(ABORTED) == result.cancelled >= least
    assert len(trace.records) == len(trace.seen) == 2 * result.transactions


def test_a_time_out_before_the_drop_costs_another_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first transaction to be dropped is flushed when its time is over, as on a busy machine."""
    late: list[int] = []
    flush = WorkerRun.flush

    def flushing(worker: WorkerRun, attempt: Any) -> bool:
        if not late:
            late.append(attempt.tx)
            wait_for_its_end(worker.run, attempt)
        return flush(worker, attempt)

    monkeypatch.setattr(WorkerRun, "flush", flushing)
    monkeypatch.setattr(faults_killed, "KILLS_MIN", 1)
    result = run_faults(tmp_path, "pulsar", placement="separate", durability="os")
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    assert result.extra["dropped"][TIME_OUT]["comes_late"] == NOT_FENCED
    rows = {row.tx: row for row in Trace.load(tmp_path / "cell" / "trace").transactions}
    assert [(rows[tx].outcome, rows[tx].cause) for tx in late] == [(ABORTED, NOT_FENCED)]


def verified_after(
    path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path, Path], None]
) -> Result:
    """Runs the workload and harms its second store before it is verified: harm(the store before the work, the
    store)."""
    prepare, verify = Faults.prepare, Faults.verify

    def preparing(self: Faults, run: Run) -> None:
        prepare(self, run)
        shutil.copytree(run.folder / "killed", path / "before")

    def verifying(self: Faults, run: Run) -> Any:
        harm(path / "before", run.folder / "killed")
        return verify(self, run)

    monkeypatch.setattr(Faults, "prepare", preparing)
    monkeypatch.setattr(Faults, "verify", verifying)
    monkeypatch.setattr(faults_killed, "KILLS_MIN", 1)
    return run_faults(path)


def test_acknowledged_commits_that_are_gone_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is whole, positions included, so its output alone looks correct."""

    def harm(before: Path, now: Path) -> None:
        shutil.rmtree(now)
        shutil.copytree(before, now)

    result = verified_after(tmp_path, monkeypatch, harm)
    assert not result.verified and result.missing == 0
    lost = result.violations_by["lost"]
    assert lost > 0 and result.violations == lost
    assert result.problems == [f"{lost} of {lost} records of acknowledged commits are lost"]
    assert result.extra == {}


def test_a_record_that_is_there_twice_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def harm(before: Path, now: Path) -> None:
        with planstep.open(now / "store") as db:
            assert db.topic("in").position(CONSUMER)[0] > 0
            db.topic(OUT).write(identity(0, 0), partition=0)

    result = verified_after(tmp_path, monkeypatch, harm)
    assert (result.verified, result.duplicated, result.missing) == (False, 1, 0)


def test_an_owner_ends_with_its_parent(tmp_path: Path) -> None:
    """It also ends if its parent was killed: the end of a process closes its pipe."""
    system = open_system("deterministic", tmp_path, OPTIONS)
    system.prepare({"in": 1, OUT: 1})
    system.close()
    spec = {
        "system": "deterministic",
        "folder": str(tmp_path),
        "options": asdict(OPTIONS),
        "partitions": 1,
        "name": "owner",
        "incarnation": 0,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "planstep.bench.compare.workloads.faults_owner", json.dumps(spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        assert [child.stdout.readline().split()[1] for _ in range(2)] == ["started", "open"]
        child.stdin.close()
        assert child.wait(timeout=120) == 1


def test_no_owner_is_left_behind_by_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = []
    wait = faults_killed._Process.wait

    def interrupted(self: Any, what: str) -> int:
        owners.append(self)
        if what == "held":
            raise KeyboardInterrupt
        return wait(self, what)

    monkeypatch.setattr(faults_killed._Process, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_faults(tmp_path)
    assert owners and all(owner._child.returncode is not None for owner in owners)


def test_an_owner_that_cannot_go_on_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Faults.prepare

    def preparing(self: Faults, run: Run) -> None:
        prepare(self, run)
        shutil.rmtree(run.folder / "killed")
        (run.folder / "killed").mkdir()

    monkeypatch.setattr(Faults, "prepare", preparing)
    with pytest.raises(ValueError, match=r"the process that owns the store: .*no topic"):
        run_faults(tmp_path)
