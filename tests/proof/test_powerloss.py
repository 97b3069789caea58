"""Tests row powerloss: its negative control, and its parts."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.proof.disks.images import Allowed, Disk
from planstep.bench.proof.disks.modes import MODES
from planstep.bench.proof.disks.recorder import commit_events
from planstep.bench.proof.disks.strace import Reading
from planstep.bench.proof.rows import powerloss
from planstep.bench.proof.rows.powerloss import Task, images_of
from planstep.bench.proof.rows.registry import RowOptions
from planstep.store.log.log_writer import LogEnd
from planstep.store.tables.table import Extent
from planstep.store.turn import Turn


def test_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    task = Task(3, "bare", "os", 1, 40, tmp_path, "full")
    first, second = images_of(task), images_of(task)
    assert first == second and first.violations


def test_a_mark_that_is_shown_too_early_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark may reach the disk before a power loss prevents the turn's sync."""
    append = LogEnd.append

    def early(log: LogEnd, changes: bytes, dropped: bytes, turn: Turn, frees: bool) -> Extent:
        synced, log.synced = log.synced, log.turn + 1
        log._show()
        log.synced = synced
        return append(log, changes, dropped, turn, frees)

    monkeypatch.setattr(LogEnd, "append", early)
    result = images_of(Task(1, "bare", "full", 1, 60, tmp_path, "full"))
    assert any("says the file `released`" in wrong for wrong in result.violations)


@pytest.mark.parametrize(
    "kind, mode, variant",
    [
        ("bare", "deterministic", ""),
        *(("face", mode, way) for mode in MODES for way in MODES[mode].variants),
    ],
)
def test_a_disk_that_lies_is_noticed(tmp_path: Path, kind: str, mode: Any, variant: str) -> None:
    task = Task(1, kind, "full", 1, 40, tmp_path, "full", True, mode=mode, variant=variant)
    result = images_of(task)
    assert result.violations


@pytest.mark.parametrize("variant", MODES["pulsar"].variants)
def test_ends_and_aborted_ids_outlive_a_power_loss(tmp_path: Path, variant: str) -> None:
    task = Task(5, "face", "full", 1, 20, tmp_path, "full", mode="pulsar", variant=variant)
    assert images_of(task).violations == []


def test_each_mode_and_variant_is_drawn(tmp_path: Path) -> None:
    tasks = [powerloss._task(seed, 100, tmp_path, True) for seed in range(1, 201)]
    drawn = {(task.mode, task.variant, task.hosts) for task in tasks}
    assert drawn >= {(m, v, hosts) for m in MODES for v in MODES[m].variants for hosts in (1, 2)}
    assert {task.mode for task in tasks[:12]} == {*MODES}


def test_the_control_is_noticed(options: RowOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(powerloss, "EACH", 15)
    result = powerloss.control(options)
    assert any("acknowledged turns are lost" in wrong for wrong in result.violations)


def images(disk: Disk, folder: Path, count: int = 60) -> list[dict[str, bytes]]:
    contents = []
    for n in range(count):
        disk.image(folder / str(n), random.Random(n), Counter())
        files = [path for path in (folder / str(n)).rglob("*") if path.is_file()]
        contents.append({p.relative_to(folder / str(n)).as_posix(): p.read_bytes() for p in files})
    return contents


def test_what_is_synced_is_in_every_image_and_the_rest_in_any_part(tmp_path: Path) -> None:
    disk = Disk()
    for event in [
        ("create", "f", 1536),
        ("sync_folder", ""),
        ("write", "f", 0, b"a" * 512),
        ("flush", "f", 0, 512),
        ("write", "f", 512, b"b" * 1024),
        ("create", "g", 4),
    ]:
        disk.step(event)
    contents = images(disk, tmp_path)
    assert {image["f"][:512] for image in contents} == {b"a" * 512}
    torn = {(image["f"][512:1024][:1], image["f"][1024:][:1]) for image in contents}
    assert len(torn) == 4
    assert {"g" in image for image in contents} == {True, False}


def test_a_name_that_was_not_synced_may_be_the_old_one(tmp_path: Path) -> None:
    disk = Disk()
    for event in [("create", "old", 1), ("sync_folder", ""), ("rename", "old", "new")]:
        disk.step(event)
    assert {tuple(image) for image in images(disk, tmp_path / "a")} == {("old",), ("new",)}
    disk.step(("sync_folder", ""))
    assert {tuple(image) for image in images(disk, tmp_path / "b")} == {("new",)}


def test_files_of_a_folder_without_a_name_are_gone(tmp_path: Path) -> None:
    disk = Disk()
    for event in [("folder", "s"), ("create", "s/f", 1), ("sync_folder", "s")]:
        disk.step(event)
    assert {tuple(image) for image in images(disk, tmp_path / "a")} == {("s/f",), ()}


def test_what_a_failed_sync_lost_stays_in_doubt(tmp_path: Path) -> None:
    disk = Disk()
    for event in [
        ("create", "f", 512),
        ("sync_folder", ""),
        ("write", "f", 0, b"x" * 512),
        ("lose", "f"),
        ("sync", "f"),
    ]:
        disk.step(event)
    assert {image["f"][:1] for image in images(disk, tmp_path)} == {b"x", b"\0"}


def test_lmdb_writes_its_pages_before_the_one_that_makes_them_count() -> None:
    before = bytes(4 * 4096)
    after = bytearray(before)
    after[4096 + 40] = 1
    after[9000:9003] = b"abc"
    kinds = [(event[0], *event[2:3]) for event in commit_events("t", before, bytes(after))]
    assert kinds == [("write", 8704), ("sync",), ("write", 4128), ("flush", 4128)]


def test_at_durability_os_a_prefix_is_allowed_and_at_full_nothing_but_all() -> None:
    events = [("begin", 1), ("acknowledged",), ("begin", 2), ("acknowledged",), ("begin", 3)]
    loose, strict = Allowed("os", 0), Allowed("full", 0)
    for event in events:
        loose.step(event)
        strict.step(event)
    assert [not loose.judge(n) for n in range(5)] == [True, True, True, True, False]
    assert [not strict.judge(n) for n in range(5)] == [False, False, True, True, False]
    loose.step(("kept", 0))
    assert [not loose.judge(n) for n in range(4)] == [False, False, True, True]


def test_calls_are_read(tmp_path: Path) -> None:
    def text(value: str) -> str:
        return "".join(f"\\x{byte:02x}" for byte in value.encode())

    path, folder, new = (text(f"{tmp_path}{name}") for name in ("/spare", "", "/data.new"))
    lines = [
        f'7 openat(AT_FDCWD<{text("/")}>, "{path}", O_RDWR|O_CREAT|O_EXCL, 0600) = 3<{path}>',
        f"7 fallocate(3<{path}>, 0, 0, 16) = 0",
        f'7 pwritev2(3<{path}>, [{{iov_base="{text("ab")}", iov_len=2}}], 1, 4, 0 <unfinished ...>',
        f"8 fsync(3<{path}>) = -1 EIO (Input/output error)",
        "7 <... pwritev2 resumed>) = 2",
        f'7 pwritev2(3<{path}>, [{{iov_base="{text("c")}", iov_len=1}}], 1, 6, RWF_DSYNC) = 1',
        f"7 fsync(3<{path}>) = 0",
        f'7 openat(AT_FDCWD<{text("/")}>, "{folder}", O_RDONLY|O_DIRECTORY) = 4<{folder}>',
        f'7 renameat(4<{folder}>, "{text("spare")}", 4<{folder}>, "{text("reserve")}") = 0',
        f"7 fsync(4<{folder}>) = 0",
        f'7 openat(AT_FDCWD<{text("/")}>, "{text("/proc/self/fd/4/data.new")}", O_CREAT) = 5<{new}>',
        f'7 unlinkat(4<{folder}>, "{text("reserve")}", 0) = 0',
    ]
    assert list(Reading(tmp_path).events(lines)) == [
        ("create", "spare", 0),
        ("write", "spare", 0, bytes(16)),
        ("write", "spare", 4, b"ab"),
        ("write", "spare", 6, b"c"),
        ("flush", "spare", 6, 1),
        ("sync", "spare"),
        ("rename", "spare", "reserve"),
        ("sync_folder", ""),
        ("create", "data.new", 0),
        ("remove", "reserve"),
    ]
