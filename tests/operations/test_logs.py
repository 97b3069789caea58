"""Tests the log messages of an engine, with fields that a program can use."""

import logging
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kit import python

import planstep
from planstep.errors import IoError, NoSpace
from planstep.logs import SELDOM_SECONDS, Seldom


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    caplog.set_level(logging.INFO, "planstep")
    monkeypatch.setattr("planstep.logs._seldom", Seldom())
    return lambda event: [r for r in caplog.records if getattr(r, "event", None) == event]


def test_opening_and_closing(tmp_path: Path, events: Any) -> None:
    with planstep.open(tmp_path / "shop", hosts=2) as db:
        db.create_topic("clicks")
        db.backup(tmp_path / "copy")
    (opened,), (closed,) = events("store_opened"), events("store_closed")
    assert opened.store == str(tmp_path / "shop") and opened.hosts == 2
    assert not opened.read_only and opened.generation == 1
    assert closed.committed == 1 and closed.step > 0
    (backup,) = events("backup_made")
    assert backup.path == str(tmp_path / "copy") and backup.step == closed.step
    assert events("store_recovered") == []


def test_recovery_says_what_it_found(tmp_path: Path, events: Any) -> None:
    code = """
import os, planstep, sys
db = planstep.open(sys.argv[1])
db.create_topic("clicks")
db.write("clicks", b"x")
os._exit(1)
"""
    python(code, tmp_path / "shop", status=1)
    planstep.open(tmp_path / "shop").close()
    (recovered,) = events("store_recovered")
    assert recovered.levelno == logging.WARNING
    assert recovered.replayed_turns >= 2 and recovered.generation == 2


def test_trouble_is_told_and_not_repeated(
    tmp_path: Path, events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "shop") as db:
        db.create_topic("clicks")
        store = db._runtime.nodes[0].host.store
        with monkeypatch.context() as patch:
            patch.setattr(store._log, "append", Mock(side_effect=NoSpace("no room")))
            for _ in range(3):
                with pytest.raises(NoSpace):
                    db.write("clicks", b"x")
        (record,) = events("no_space")
        assert record.host == 0 and "no room" in record.error and record.suppressed == 0
        with monkeypatch.context() as patch:
            patch.setattr("planstep.store.disk_store.SLOW_SYNC_SECONDS", 0.0)
            db.write("clicks", b"x")
        (slow,) = events("slow_sync")
        assert slow.seconds > 0 and slow.bytes > 0
        broken = Mock(side_effect=IoError("no disk"))
        with monkeypatch.context() as patch:
            patch.setattr(store._checkpointer, "_commit_frozen", broken)
            db.context.runtime.threads.outlive("host 0: a checkpoint", store.checkpoint)
        (failed,) = events("tried_again")
        assert failed.what == "host 0: a checkpoint" and failed.error == "no disk"


def test_a_bug_of_ours_is_told_with_its_traceback(events: Any) -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("clicks")
        db._runtime.nodes[0].host.observe = Mock(side_effect=ZeroDivisionError("a bug"))
        with pytest.raises(planstep.HostStopped):
            db.write("clicks", b"x")
    (stopped,) = events("host_stopped")
    assert stopped.levelno == logging.CRITICAL and stopped.exc_info is not None


def test_a_bug_in_a_thread_of_the_engine_is_told_with_its_traceback(events: Any) -> None:
    db = planstep.open(":memory:")
    db.create_topic("clicks")
    db._runtime.nodes[0].host.store.checkpoint_due = Mock(side_effect=MemoryError("no room"))
    with pytest.raises((planstep.HostStopped, planstep.Undetermined), match="no room"):
        for _ in range(1000):
            db.write("clicks", b"x")
            time.sleep(0.02)
    (stopped,) = events("engine_stopped")
    assert stopped.levelno == logging.CRITICAL and stopped.exc_info is not None
    assert stopped.threadName == "planstep-checkpoints"
    db.close()


def test_resolving_is_told(events: Any) -> None:
    with planstep.open(":memory:") as db:
        with db.transaction() as tx:
            pass
        db.resolve(tx.id)
    (record,) = events("tx_resolved")
    assert record.tx == tx.id and record.state == "refused"


def test_seldom_counts_what_it_keeps_quiet() -> None:
    seldom = Seldom()
    assert seldom.passes("slow", "a", 0.0) == 0
    assert seldom.passes("slow", "a", 1.0) is None
    assert seldom.passes("slow", "b", 1.0) == 0
    assert seldom.passes("slow", "a", SELDOM_SECONDS) == 1


def test_nothing_is_printed_unasked(tmp_path: Path) -> None:
    code = "import planstep, sys; planstep.open(sys.argv[1]).close()"
    ended = python(code, tmp_path / "shop")
    assert ended.stdout == ended.stderr == ""
