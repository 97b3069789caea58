"""Tests row ioerr: single runs, its negative control, and its parts."""

import errno
from pathlib import Path
from typing import Any

import lmdb
import pytest

from planstep.api.engine import Engine
from planstep.bench.proof.disks import strace
from planstep.bench.proof.disks.copied import KINDS
from planstep.bench.proof.disks.engines import open_engine, stores_of
from planstep.bench.proof.disks.failing import FastFiles, FaultyFiles
from planstep.bench.proof.disks.load import Load, Log, check, try_open
from planstep.bench.proof.disks.modes import MODES
from planstep.bench.proof.disks.tables import break_tables
from planstep.bench.proof.rows import full, ioerr
from planstep.bench.proof.rows.ioerr import Outcome, Task, play
from planstep.bench.proof.rows.registry import RowOptions
from planstep.errors import IoError
from planstep.runtime import backup
from planstep.runtime.replace_store import replace
from planstep.store.log.log_writer import LogEnd


def test_a_swallowed_error_is_noticed(options: RowOptions) -> None:
    result = ioerr.control(options)
    seeds = {text.split(",")[0] for text in result.violations}
    assert len(seeds) >= 2  # of 4: the scheduler may have let a lost record be trimmed


def play_well(task: Task) -> Outcome:
    """Plays a run in which something fails, and nothing is wrong."""
    outcome = play(task)
    assert outcome.struck and [*outcome.wrong, *outcome.log.wrong] == []
    return outcome


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_an_engine_that_a_single_failure_closes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    durability = "os" if kind == "sync" else "full"
    task = Task(1, "deterministic", 1, durability, kind, 2, errno.EIO, 1, tmp_path)
    assert play_well(task).struck == 1

    def no_more(log: LogEnd, *more: object, **most: object) -> None:
        raise IoError("no second segment")

    if kind == "write":
        task = Task(**{**task.__dict__, "nth": 14})
    begin = LogEnd.begin_segment

    def once(log: LogEnd, *more: Any, **most: Any) -> None:
        (no_more if log.turn else begin)(log, *more, **most)

    monkeypatch.setattr(LogEnd, "begin_segment", once)
    outcome = play(task)
    assert "a single failure closed the engine for good" in outcome.wrong


@pytest.mark.parametrize(
    "mode, variant", [(mode, way) for mode in MODES for way in MODES[mode].variants]
)
def test_three_hosts_one_of_which_cannot_write_any_more(
    tmp_path: Path, mode: Any, variant: str
) -> None:
    task = Task(1, mode, 3, "full", "write", 30, errno.EIO, None, tmp_path, variant=variant)
    outcome = play_well(task)
    assert outcome.log.closed and outcome.log.unknown


@pytest.mark.skipif(strace.available() is not None, reason="strace is not there, or not allowed")
def test_lmdbs_own_calls_fail(tmp_path: Path) -> None:
    task = Task(1, "deterministic", 1, "full", "table", 0, errno.EIO, None, tmp_path)
    play_well(Task(**{**task.__dict__, "injected": "fdatasync"}))


@pytest.mark.parametrize("kind", ["read", "open"])
@pytest.mark.parametrize("times", [1, None])
def test_a_disk_that_cannot_be_read_keeps_a_store_from_opening_while_it_lasts(
    tmp_path: Path, kind: str, times: int | None
) -> None:
    outcome = play_well(Task(1, "deterministic", 1, "full", kind, 1, errno.EIO, times, tmp_path))
    assert outcome.refused and outcome.opened == (times == 1)
    assert outcome.log.errors["IoError"] and outcome.log.acknowledged


@pytest.mark.parametrize("mode", MODES)
def test_a_read_that_fails_fails_alone(tmp_path: Path, mode: str) -> None:
    outcome = play_well(Task(1, mode, 1, "full", "read", 40, errno.EIO, 1, tmp_path))
    assert outcome.struck == 1 and outcome.opened and not outcome.refused and not outcome.log.closed


@pytest.mark.skipif(strace.available() is not None, reason="strace is not there, or not allowed")
def test_lmdbs_file_cannot_be_opened_or_read(tmp_path: Path) -> None:
    for call, kind, times in (("openat", "open", 1), ("pread64", "read", None)):
        task = Task(1, "deterministic", 1, "full", kind, 0, errno.EIO, times, tmp_path)
        outcome = play_well(Task(**{**task.__dict__, "injected": call}))
        assert outcome.refused and outcome.opened == (times == 1)


@pytest.mark.parametrize("first", [1, 60])
def test_a_read_that_is_taken_for_the_files_end_is_noticed(tmp_path: Path, first: int) -> None:
    """Threads decide which read is the n-th, and not every read finds the end of a log."""
    wrong = "the disk failed, and 1 times it was told as Corruption"
    for nth in range(first, first + 20):
        folder = tmp_path / str(nth)
        folder.mkdir()
        task = Task(1, "deterministic", 1, "full", "read", nth, errno.EIO, 1, folder, swallows=True)
        if wrong in play(task).wrong:
            return
    raise AssertionError(f"of reads {first} to {nth} none was noticed")


def test_a_store_that_stays_shut_and_reads_that_do_not_go_on_are_noticed(tmp_path: Path) -> None:
    def refuses() -> Engine:
        raise IoError("for ever")

    log = Log()
    assert try_open(refuses, log, once=True) == (None, True)
    assert log.wrong == ["the disk failed once, and the store does not open: {'IoError': 2}"]
    with open_engine(tmp_path / "s", FaultyFiles("read", 3, times=None)) as db:
        load = Load(db, log)
        assert load.create()
        load.ends()
        load.ends()
    assert log.wrong[1:] == ["the disk is well, and reads do not go on"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, None])
def test_calls_of_a_copy_fail(tmp_path: Path, kind: str, times: int | None) -> None:
    task = Task(1, "deterministic", 1, "full", kind, 5, errno.EIO, times, tmp_path, injected="open")
    log = play_well(task).log
    assert log.acknowledged and (times or log.errors["IoError"])


def test_a_copy_that_is_called_damaged_is_noticed(tmp_path: Path) -> None:
    task = Task(1, "deterministic", 1, "full", "backup", -3, errno.EIO, 1, tmp_path)
    outcome = play(Task(**{**task.__dict__, "injected": "pread", "swallows": True}))
    assert "the disk failed, and 1 times it was told as Corruption" in outcome.wrong


def test_a_restore_that_is_refused_and_replaces_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def replaced(source: Path, to: Path) -> None:
        replace(source, to)
        calls.append(to)
        if len(calls) == 2:  # the first run is on a healthy disk
            raise IoError("and yet")

    monkeypatch.setattr(backup, "replace", replaced)
    task = Task(1, "deterministic", 1, "full", "restore", 1 << 20, errno.EIO, 1, tmp_path)
    outcome = play(Task(**{**task.__dict__, "injected": "short pwritev"}))
    assert any("it was refused, and the store is replaced" in text for text in outcome.log.wrong)


@pytest.mark.parametrize(
    "draw", [ioerr._task, lambda seed, *_: full._task(seed, [*full._KINDS], RowOptions())]
)
def test_each_mode_and_variant_is_drawn(tmp_path: Path, draw: Any) -> None:
    tasks = [draw(seed, tmp_path, False) for seed in range(1, 201)]
    drawn = {(task.mode, task.variant, task.hosts) for task in tasks}
    assert drawn >= {(m, v, hosts) for m in MODES for v in MODES[m].variants for hosts in (1, 3)}
    assert {task.mode for task in tasks[:20]} == {*MODES} or {t.mode for t in tasks[:40]} == {
        *MODES
    }


def worked(folder: Path, mode: Any = "deterministic") -> Log:
    log = Log()
    db = open_engine(folder, FastFiles(), mode=mode)
    load = Load(db, log)
    assert load.create()
    load.work()
    load.ends()
    db.close()
    assert log.wrong == [] and log.looks and not log.refused and not log.closed
    return log


def checked(folder: Path, log: Log, mode: Any = "deterministic") -> list[str]:
    return check(open_engine(folder, FastFiles(), mode=mode), log, folder)


def test_the_check_sees_what_was_consumed_and_by_whom(tmp_path: Path) -> None:
    log = worked(tmp_path / "s", "pulsar")
    assert checked(tmp_path / "s", log, "pulsar") == [] and any(log.read.values())
    writer = next(value for value in log.acknowledged if log.read.get(value)).split("-")[0]
    again = f"{writer}-again"
    log.read[again] = log.read[next(value for value in log.read if log.read[value])]
    with open_engine(tmp_path / "s", FastFiles(), mode="pulsar") as db, db.transaction() as tx:
        for topic in ("a", "b"):
            tx.write(topic, again)
    wrong = checked(tmp_path / "s", log, "pulsar")
    assert any(f"consumer w{writer} has consumed" in text for text in wrong)


def test_the_check_sees_what_is_lost_and_what_should_not_be_there(tmp_path: Path) -> None:
    log = worked(tmp_path / "s")
    assert checked(tmp_path / "s", log) == []
    log.acknowledged.append("never written")
    log.refused.append(log.acknowledged.pop(0))
    wrong = checked(tmp_path / "s", log)
    assert any("acknowledged and lost: never" in text for text in wrong)
    assert any("refused and there" in text for text in wrong)


def test_the_check_sees_what_is_torn_and_what_is_there_twice(tmp_path: Path) -> None:
    log = worked(tmp_path / "s")
    with open_engine(tmp_path / "s", FastFiles()) as db:
        db.write("a", "alone", partition=0)
        db.write("b", log.acknowledged[0], partition=0)
    wrong = checked(tmp_path / "s", log)
    assert any("torn: alone" in text for text in wrong)
    assert any("topic b: a record is there twice" in text for text in wrong)


@pytest.mark.parametrize("error", ["eio", "full", "map"])
def test_a_commit_that_fails_leaves_nothing(tmp_path: Path, error: str) -> None:
    with open_engine(tmp_path / "s", FastFiles()) as db:
        (store,) = stores_of(db)
        faulty = break_tables(store, error, 0, 1)
        with pytest.raises(lmdb.Error), faulty.begin(write=True) as txn:
            txn.put(b"x", b"y")
        with faulty.begin() as txn:
            assert txn.get(b"x") is None
        with faulty.begin(write=True) as txn:
            txn.put(b"x", b"y")
        with faulty.begin(write=True) as txn:
            assert txn.pop(b"x") == b"y"
