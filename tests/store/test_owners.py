"""Tests that a store has one owner, whatever happens to the folder's name while others wait for its lock or create
it."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import Child
from storekit import TABLETS, contents, held_in, open_files, open_small, write

import planstep
from planstep.errors import IoError, StoreInUse
from planstep.store import DiskStore
from planstep.store.owner_lock import OwnerLock

A, B = TABLETS


def before_locking(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Runs `act` once, between the opening of a lock and its taking."""
    flock, left = fcntl.flock, [act]

    def late(fd: int, operation: int) -> None:
        if left:
            left.pop()()
        flock(fd, operation)

    patch.setattr(fcntl, "flock", late)


def test_the_lock_of_a_folder_that_was_replaced_makes_no_owner(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = quick_path / "s"
    open_small(folder).close()
    there: list[DiskStore] = []

    def replace() -> None:
        folder.rename(quick_path / "s.replaced")
        there.append(open_small(folder))
        write(there[0], {A: "acknowledged"})

    before_locking(monkeypatch, replace)
    with pytest.raises(StoreInUse) as refused:
        open_small(folder)
    assert refused.value.pid == os.getpid()
    there[0].close()
    assert held_in(folder) == {A: "acknowledged"}


def test_who_waits_for_a_store_that_was_moved_has_the_one_at_its_path(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the moved store may go on for ever."""
    folder = quick_path / "s"
    owner = open_small(folder)

    def replace() -> None:
        folder.rename(quick_path / "moved")
        store = open_small(folder)
        write(store, {A: "of the new one"})
        store.close()

    before_locking(monkeypatch, replace)
    store = open_small(folder, wait=60)
    assert contents(store) == {A: "of the new one"}
    store.close()
    owner.close()


def test_a_lock_that_was_removed_before_it_was_taken_is_made_again(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quick_path / "lock"
    before_locking(monkeypatch, path.unlink)
    lock = OwnerLock(path)
    with pytest.raises(StoreInUse):
        OwnerLock(path)
    lock.close()


def test_a_folder_that_was_removed_before_its_lock_was_taken_is_told(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (quick_path / "s").mkdir()
    before_locking(monkeypatch, lambda: shutil.rmtree(quick_path / "s"))
    with pytest.raises(IoError, match="No such file"):
        OwnerLock(quick_path / "s" / "lock")


def test_two_backups_to_one_name_do_not_both_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one ends, and its folder and lock go, while the second is about to take that lock."""
    with planstep.open(tmp_path / "s") as db:
        around = tmp_path / "b.incomplete"
        third: list[OwnerLock] = []

        def end_and_begin() -> None:
            shutil.rmtree(around)
            around.mkdir()
            third.append(OwnerLock(around / "lock"))

        before_locking(monkeypatch, end_and_begin)
        with pytest.raises(planstep.AlreadyExists, match="is making a copy"):
            db.backup(tmp_path / "b")
        third[0].close()
        before_locking(monkeypatch, lambda: shutil.rmtree(around))
        db.backup(tmp_path / "b")
    planstep.open(tmp_path / "b", create=False).close()


WAITER = """
import sys, planstep
with planstep.open(sys.argv[1], wait=60) as db:
    print(len(dict(db.table("t").scan())), flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at what a process has open")
def test_who_waits_through_a_forced_restore_is_no_second_owner(tmp_path: Path) -> None:
    store, lock = tmp_path / "s", tmp_path / "s" / "host-0" / "lock"
    with planstep.open(store) as db:
        db.create_table("t")
        db.backup(tmp_path / "b")
    waiting: list[Child] = []

    def start(done: int, total: int) -> None:
        """Returns once a process waits for the store that is being replaced."""
        if waiting:
            return
        waiting.append(Child(WAITER, store))
        while lock not in open_files(waiting[0].process.pid):
            assert waiting[0].process.poll() is None

    planstep.restore(tmp_path / "b", store, force=True, progress=start)
    with planstep.open(store, wait=60) as db:
        for n in range(50):
            db.table("t").put(n, n)
    said = waiting[0].end()
    assert 0 <= int(said) <= 50  # it owns the store before or after this process, or attaches to it
    with planstep.open(store) as db:
        assert len(dict(db.table("t").scan())) == 50
