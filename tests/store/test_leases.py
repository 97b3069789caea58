"""Tests leases: readers in other processes keep the files that they use, and dead readers keep nothing."""

import errno
import fcntl
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from kit import Child
from storekit import (
    FIRST,
    LAST,
    TABLETS,
    contents,
    drop,
    fill,
    open_small,
    write,
    write_and_checkpoint,
)

from planstep.store.log.segments import segment_files
from planstep.store.readers.reader_lease import Lease, oldest_lease

A, B = TABLETS


LOOK = """
import hashlib, pathlib, sys
sys.path.insert(0, sys.argv[2])
from storekit import contents
from planstep.store.readers.readonly import ReadOnlyStore

look = ReadOnlyStore.open(pathlib.Path(sys.argv[1]))
for line in sys.stdin:
    print(hashlib.sha256(repr(contents(look)).encode()).hexdigest(), flush=True)
look.close()
"""


def look_on(folder: Path) -> Child:
    """Starts a reader in its own process, and returns once it has its view."""
    child = Child(LOOK, folder, Path(__file__).parent)
    seen(child)
    return child


def seen(child: Child) -> str:
    child.tell()
    return child.line()


def test_a_reader_keeps_the_files_it_looks_at(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(60))
    store.checkpoint()
    held = hashlib.sha256(repr(contents(store)).encode()).hexdigest()
    child = look_on(store.folder)
    assert seen(child) == held
    drop(store, range(60))
    write_and_checkpoint(store, range(5))
    before = len(segment_files(store.folder))
    assert seen(child) == held
    newer = look_on(store.folder)
    child.end()
    write(store, {A: 5})
    store.checkpoint()
    assert len(segment_files(store.folder)) < before / 2  # the newer one needs none of them
    assert seen(newer) == hashlib.sha256(repr({A: 4}).encode()).hexdigest()
    newer.end()
    assert not list((quick_path / "s" / "leases").iterdir())
    store.close()


def test_a_killed_readers_lease_goes_with_it(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(60))
    store.checkpoint()
    child = look_on(store.folder)
    assert oldest_lease(store.folder) == store._table.newest()
    drop(store, range(60))
    write_and_checkpoint(store, range(3))
    before = len(segment_files(store.folder))
    child.kill()
    write(store, {A: 3})
    store.checkpoint()
    assert store._table._env.reader_check() == 0  # nor do its pages stay
    assert len(segment_files(store.folder)) < before / 2
    assert oldest_lease(store.folder) is None
    assert not list((quick_path / "s" / "leases").iterdir())
    store.close()


def test_a_lease_that_names_nothing_yet_keeps_everything(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(30))
    lease = Lease(store.folder)
    assert oldest_lease(store.folder) == 0
    drop(store, range(30))
    store.checkpoint()
    write(store, {A: 1})
    before = segment_files(store.folder)
    store.checkpoint()
    assert segment_files(store.folder) == before
    lease.close()
    lease.close()
    write(store, {A: 2})
    store.checkpoint()
    assert len(segment_files(store.folder)) < len(before)
    assert store.scan(FIRST, LAST) == [(A, 2)]
    store.close()


def test_a_dead_lease_is_dead_whoever_has_its_process_id(quick_path: Path) -> None:
    (quick_path / "leases").mkdir()
    for pid in (1, os.getpid()):
        (quick_path / "leases" / f"{pid}-deadbeef").write_bytes(b"%020d" % 1)
    assert oldest_lease(quick_path) is None
    assert not list((quick_path / "leases").iterdir())


@pytest.mark.parametrize("owner_is_done", [True, False])
def test_the_owner_looks_while_a_lease_is_made(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, owner_is_done: bool
) -> None:
    """The owner looks between a lease's creation and its lock, or holds the lock itself: the reader still gets a
    lease."""
    flock = fcntl.flock
    looked = 0

    def looking(fd: int, how: int) -> None:
        nonlocal looked
        if how == fcntl.LOCK_EX and not looked:
            looked += 1
            if owner_is_done:
                assert oldest_lease(quick_path) is None
            else:
                (path,) = (quick_path / "leases").iterdir()
                other = os.open(path, os.O_RDWR)
                flock(other, fcntl.LOCK_EX)
                path.unlink()
                os.close(other)
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", looking)
    lease = Lease(quick_path)
    assert looked == 1
    assert oldest_lease(quick_path) == 0
    lease.name(7)
    assert oldest_lease(quick_path) == 7
    lease.close()
    assert oldest_lease(quick_path) is None


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("call", ["open", "listdir"])
def test_what_cannot_be_looked_at_is_alive(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    lease = Lease(quick_path)
    lease.name(7)

    def refuse(*args: Any, **more: Any) -> Any:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        assert oldest_lease(quick_path) == 0
    assert oldest_lease(quick_path) == 7
    lease.close()


def test_a_lease_that_cannot_be_named_keeps_everything(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lease = Lease(quick_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        lease.name(7)
    assert oldest_lease(quick_path) == 0
    lease.close()


def test_the_owner_can_look_at_roots_lease(quick_path: Path) -> None:
    """The owner may read the lease, and the folder around it is the owner's."""
    umask = os.umask(0o077)
    try:
        store = open_small(quick_path / "s")
        (leases,) = (quick_path / "s").glob("leases")
        lease = Lease(store.folder)
    finally:
        os.umask(umask)
    (path,) = leases.iterdir()
    assert path.stat().st_mode & 0o777 == 0o644
    lease.close()
    store.close()
