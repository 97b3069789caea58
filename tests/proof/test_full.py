"""Tests row full: a few runs, its negative control, and its parts."""

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.api.open_engine import Mode
from planstep.bench.proof.disks.engines import open_engine, stores_of
from planstep.bench.proof.disks.failing import FastFiles, SmallDisk
from planstep.bench.proof.disks.filling import Filling, LateLog
from planstep.bench.proof.disks.modes import MODES, variant_of
from planstep.bench.proof.disks.tables import break_tables
from planstep.bench.proof.rows import full
from planstep.bench.proof.rows.full import Task, play
from planstep.bench.proof.rows.registry import RowOptions
from planstep.errors import NoSpace
from planstep.store.disk_store import SEGMENT_BYTES

HERE = [("deterministic", 1), ("deterministic", 3), ("kafka", 1), ("pulsar", 1)]


def _may_mount() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        return full._may_mount(Path(folder))


def fill(task: Task) -> LateLog:
    """Checks that a run met fullness, went on afterwards, and found nothing wrong."""
    outcome = play(task)
    assert outcome.full and outcome.log.went_on
    assert [*outcome.log.wrong, *outcome.wrong] == []
    return outcome.log


@pytest.mark.parametrize("kind, room", [("budget", 100_000), ("map", 3)])
@pytest.mark.parametrize(
    "mode, variant", [(mode, way) for mode in MODES for way in MODES[mode].variants]
)
def test_a_full_disk_refuses_and_is_freed(
    tmp_path: Path, mode: Any, variant: str, kind: str, room: int
) -> None:
    log = fill(Task(1, kind, mode, 1, room, tmp_path, variant=variant))
    assert set(log.errors) == {"NoSpace"} and log.looks >= 4
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    fill(Task(1, "fsize", "deterministic", 1, 40 << 10, tmp_path))


@pytest.mark.parametrize(
    "mode, hosts, number",
    [("deterministic", 3, 0), ("kafka", 1, 1), ("kafka", 3, 0), ("pulsar", 1, 1), ("pulsar", 3, 2)],
)
def test_a_process_without_descriptors(tmp_path: Path, mode: Any, hosts: int, number: int) -> None:
    variant = variant_of(mode, number)
    log = fill(Task(1, "files", mode, hosts, 0, tmp_path, variant=variant))
    assert len(log.acknowledged) > 40


@pytest.mark.skipif(_may_mount() is not None, reason="only root may mount")
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_file_systems_without_room(options: RowOptions, kind: str) -> None:
    seed = {"tmpfs": 2, "ext4": 9}[kind]
    task = full._task(seed, list(full._KINDS), options)
    assert task.kind == kind
    fill(task)


@pytest.mark.skipif(_may_mount() is not None, reason="only root may mount")
@pytest.mark.parametrize("mode, hosts", HERE)
def test_forty_megabytes_hold_a_store(tmp_path: Path, mode: Mode, hosts: int) -> None:
    """Segments have the size that users have."""
    log = fill(full.forty_megabytes(1, mode, hosts, tmp_path))
    assert set(log.errors) == {"NoSpace"}
    assert len(log.acknowledged) * 2 * 60_000 > 10 << 20


@pytest.mark.skipif(_may_mount() is not None, reason="only root may mount")
@pytest.mark.parametrize("hosts", [1, 3])
def test_trimming_makes_room_every_time(tmp_path: Path, hosts: int) -> None:
    """Trimming runs in the background, as for a user, on a log that has become full."""
    task = full.forty_megabytes(1, "deterministic", hosts, tmp_path)
    with full._mounted(task, tmp_path) as place:
        db = planstep.open(place / "s", hosts=hosts)
        db.create_topic("t", 2)
        _until_full(db, 100_000, trims=False)
        db.close()
        db = planstep.open(place / "s")
        for cycle in range(5):
            db.topic("t").trim("latest")
            deadline = time.monotonic() + 60
            while not _writes(db, 100_000) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert time.monotonic() < deadline, f"cycle {cycle}: no room"
            _until_full(db, (200_000, 100_000)[cycle % 2], trims=cycle < 3)
        db.close()


def _writes(db: planstep.Engine, size: int) -> bool:
    try:
        db.topic("t").write(bytes(size), partition=0)
    except NoSpace:
        return False
    return True


def _until_full(db: planstep.Engine, size: int, trims: bool) -> None:
    n = 0
    while n < 1000 and _writes(db, size):
        n += 1
        if trims and n % 5 == 0:
            db.topic("t").trim("latest")


@pytest.mark.parametrize("mode, hosts", HERE)
def test_little_room_holds_many_topics(tmp_path: Path, mode: Mode, hosts: int) -> None:
    files = SmallDisk(36 << 20)  # of 40: the rest is for the tables
    with open_engine(
        tmp_path / "s", files, mode=mode, hosts=hosts, segment_bytes=SEGMENT_BYTES
    ) as db:
        for n in range(20):
            db.create_topic(f"t{n}", 4)
            db.write(f"t{n}", bytes(1000), partition=0)
        assert len(db.topics()) == 20


def test_nothing_can_be_freed_without_the_reserve(options: RowOptions) -> None:
    result = full.control(options)
    assert any("the reserve is switched off" in wrong for wrong in result.violations)
    assert any("refused for want of descriptors" in wrong for wrong in result.violations)


def test_a_small_disk_counts_what_is_there(tmp_path: Path) -> None:
    files = SmallDisk(100)
    files.allocate(tmp_path / "a", 60)
    with pytest.raises(NoSpace):
        files.allocate(tmp_path / "b", 60)
    fd = files.open(tmp_path / "a", write=True)
    files.rename(tmp_path / "a", tmp_path / "c")
    files.shrink(fd, 30)
    files.close(fd)
    assert files.used() == 30
    files.allocate(tmp_path / "b", 60)
    files.remove(tmp_path / "c")
    files.remove(tmp_path / "b")
    assert files.used() == 0


def test_an_effect_that_was_refused_is_seen(tmp_path: Path) -> None:
    with open_engine(tmp_path / "s", FastFiles()) as db:
        filling = Filling(db, 100)
        filling.create()
        assert filling.write()
        filling.read("whole")
        assert filling.log.wrong == []
        db.write("a", "nobody acknowledged this", partition=0)
        filling.read("more")
        assert len(filling.log.wrong) == 1


def test_lmdbs_error_for_a_write_cut_short_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_engine(tmp_path / "s", FastFiles()) as db:
        db.create_topic("t")
        (store,) = stores_of(db)
        monkeypatch.setattr("planstep.store.tables.lmdb_errors.is_full", lambda folder: True)
        broken = break_tables(store, "eio", 0, None)
        with pytest.raises(NoSpace):
            store.checkpoint()
        assert broken.failed >= 2  # once more, from the reserve
        broken.nth = 1 << 30
