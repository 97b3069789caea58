"""Tests a failing disk under a backup, a restore or a read: it is reported as an IoError, never as damage."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import planstep
from planstep.bench.proof.disks.calls import failing_calls
from planstep.store import DiskStore
from planstep.store.readers.released_mark import ReleasedMark
from planstep.store.verify import verify


@pytest.fixture
def shop() -> Iterator[Path]:
    """Makes a store, in memory if the system has such a folder, because many copies are made."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        path = Path(folder) / "shop"
        with planstep.open(path) as db:
            db.create_table("t").put("k", 1)
            db.create_topic("a", format="utf8").write("one")
        yield path


@pytest.mark.parametrize("call", ["pread", "open", "io.read", "io.open", "mmap", "listdir", "stat"])
def test_a_copy_that_cannot_be_verified_is_not_called_damaged(shop: Path, call: str) -> None:
    with failing_calls(shop.parent) as calls:
        planstep.restore(shop, shop.with_name("copy"))
    shutil.rmtree(shop.with_name("copy"))
    failed = 0
    for nth in range(calls.counts[call] - 1, -1, -2):
        try:
            with failing_calls(shop.parent, call, nth) as failing:
                planstep.restore(shop, shop.with_name("copy"))
            shutil.rmtree(shop.with_name("copy"))
        except planstep.IoError:
            failed += failing.struck
        assert not shop.with_name("copy").exists()
    planstep.restore(shop, shop.with_name("copy"))
    assert failed and sorted(os.listdir(shop.parent)) == ["copy", "shop"]


@pytest.mark.parametrize("act", ["backup", "restore"])
def test_a_copy_whose_name_is_not_durable_is_not_there(shop: Path, act: str) -> None:
    """The copy's parent folder is synced last; after a failure there, a retry finds nothing in its way."""
    folder = shop.with_name("in")

    def copy(to: Path) -> None:
        if act == "restore":
            planstep.restore(shop, to)
            return
        with planstep.open(shop, read_only=True) as db:
            db.backup(to)

    folder.mkdir()
    with failing_calls(shop.parent) as calls:
        copy(folder / "dry")
    failed = 0
    for nth in range(calls.counts["open"] - 3, calls.counts["open"]):
        to = folder / str(nth)
        try:
            with failing_calls(shop.parent, "open", nth):
                copy(to)
        except planstep.IoError:
            failed += 1
            assert not to.exists()
            copy(to)
        assert verify(to / "host-0") == []
    assert failed


@pytest.mark.parametrize("call", ["stat", "scandir", "fstat"])
def test_a_forced_restore_raises_only_errors_of_its_own(shop: Path, call: str) -> None:
    planstep.restore(shop, shop.with_name("b"))
    for nth in range(6):
        with failing_calls(shop.parent, call, nth) as failing:
            try:
                planstep.restore(shop.with_name("b"), shop, force=True)
            except planstep.IoError:
                pass
        assert failing.struck
    assert verify(shop / "host-0") == []


@pytest.mark.parametrize("call", ["stat", "pread", "open", "fstat"])
def test_verify_tells_what_cannot_be_read_apart_from_damage(shop: Path, call: str) -> None:
    with failing_calls(shop) as calls:
        assert verify(shop / "host-0") == []
    refused = 0
    for nth in range(calls.counts[call]):
        with failing_calls(shop, call, nth):
            problems = verify(shop / "host-0")
        assert all(problem.unread is not None for problem in problems)
        refused += len(problems)
    assert refused
    (table,) = shop.glob("host-0/table/data.mdb")
    table.write_bytes(table.read_bytes()[:8192])
    assert {problem.unread for problem in verify(shop / "host-0")} == {None}


def test_a_mark_that_is_written_short_is_written_on(tmp_path: Path) -> None:
    with failing_calls(tmp_path, "short pwritev", 0) as calls:
        mark = ReleasedMark(tmp_path / "released", b"x" * 16)
    assert calls.struck == 1
    mark.show(1, 2, 3)
    latest = mark.read()
    assert latest is not None and latest.turn == 2
    mark.close()


@pytest.mark.parametrize("call", ["short pwrite", "short pwritev"])
def test_no_write_of_an_opening_that_comes_short_matters(tmp_path: Path, call: str) -> None:
    for nth in range(3):
        path = tmp_path / str(nth)
        with failing_calls(tmp_path, call, nth):
            DiskStore.open(path).close()
        assert verify(path) == []
