"""Tests system calls refused outside of writes: the error is typed, the store survives, a retry works."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from storekit import (
    TABLETS,
    FastFiles,
    FaultyFiles,
    after_close,
    after_crash,
    contents,
    crash,
    fill,
    open_small,
    write,
)

from planstep.errors import ForkedProcess, IoError, NoSpace, StoreInUse
from planstep.store import DiskStore
from planstep.store.fd_reserve import DESCRIPTORS_ASIDE
from planstep.store.files import io_error
from planstep.store.log.segments import READING_MAX, data_files, segment_files
from planstep.store.owner_lock import OwnerLock

SMALL = 8 << 10
A, B = TABLETS


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Forbids this process to open files; open ones still work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_chores_survive_a_process_without_descriptors(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(60))
    store.checkpoint()
    write(store, {B + n.to_bytes(2, "big"): None for n in range(60)})
    write(store, {A: bytes(4000)})
    before = len(segment_files(store.folder))
    with no_descriptors():
        assert store.checkpoint()  # LMDB needs none
    assert store.counters.failed_chores
    assert len(segment_files(store.folder)) == before
    write(store, {A: 1})
    store.checkpoint()
    assert len(segment_files(store.folder)) < before / 2
    assert contents(store) == {A: 1}
    store.close()


class CountedFiles(FastFiles):
    """Counts open files; refuses more than `limit`."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.limit = 1_000

    def _check(self) -> None:
        if len(self.held) >= self.limit:
            raise io_error(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), None)

    def open(self, path: Path, write: bool) -> int:
        self._check()
        fd = super().open(path, write)
        self.held.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.held.remove(fd)
        super().close(fd)

    def allocate(self, path: Path, size: int) -> None:
        self._check()
        super().allocate(path, size)

    def sync_folder(self, path: Path) -> None:
        self._check()


def test_few_files_are_open(quick_path: Path) -> None:
    """This holds for any number of live files, written or read."""
    files = CountedFiles()
    store = open_small(quick_path / "s", files)
    fill(store, range(400))
    assert len(segment_files(store.folder)) > 45
    assert len(files.held) == 1 + DESCRIPTORS_ASIDE
    held = contents(store)
    assert len(files.held) == READING_MAX + 1 + DESCRIPTORS_ASIDE
    store.checkpoint()
    crash(store)
    assert not files.held
    store = open_small(quick_path / "s", files)
    assert contents(store) == held
    assert len(files.held) <= READING_MAX + 1 + DESCRIPTORS_ASIDE
    store.close()
    assert not files.held


@pytest.mark.parametrize("durability", ["full", "os"])
@pytest.mark.parametrize("spare", [True, False])
def test_a_segment_that_finds_no_descriptor_is_refused(
    quick_path: Path, durability: str, spare: bool
) -> None:
    """It is refused before any effect, and the store goes on where it was. Descriptors for reading are closed
    first."""
    files = CountedFiles()
    store = open_small(quick_path / "s", files, durability=durability)
    fill(store, range(23))
    store.checkpoint()
    assert (store.folder / "spare").exists()
    if not spare:
        (store.folder / "spare").unlink()
    held = contents(store)
    files.limit = len(files.held)
    assert files.limit > 2
    write(store, {A: bytes(4_000)})  # these are closed
    held[A] = bytes(4_000)
    for limit in (1, 0):
        files.limit = limit
        before = store.generation, segment_files(store.folder)
        with pytest.raises(IoError, match="ulimit"):
            write(store, {A: bytes(4_001)})
        assert (store.generation, segment_files(store.folder)) == before
        write(store, {A: 1})
    files.limit = 1_000
    write(store, {A: bytes(4_002)})
    held[A] = bytes(4_002)
    assert contents(store) == held
    assert after_crash(store) == held


class FailingOnce(CountedFiles):
    """Fails the next write, when told so."""

    failing = False

    def write(self, fd: int, buffers: Any, offset: int, sync: bool) -> None:
        if self.failing:
            self.failing = False
            raise IoError("made to fail")
        super().write(fd, buffers, offset, sync)


@pytest.mark.parametrize("durability", ["full", "os"])
def test_a_store_goes_on_when_others_have_taken_all_descriptors(
    quick_path: Path, durability: str
) -> None:
    """Segments, checkpoints, reads, and a failing write need only the reserved descriptors."""
    files = FailingOnce()
    store = open_small(quick_path / "s", files, durability=durability)
    files.limit = len(files.held)
    for n in range(6):
        fill(store, range(30))
        held = contents(store)
        store.checkpoint()
        assert contents(store) == held
        write(store, {**dict.fromkeys(held), A: n})
        files.failing = True
        with pytest.raises(IoError, match="made to fail"):
            write(store, {A: -1})
        assert contents(store) == {A: n}
        assert len(files.held) <= files.limit
    assert store.counters.segments > 20
    assert not store.counters.failed_chores
    assert after_close(store) == {A: 5}


def test_what_another_store_took_of_what_one_kept_aside_is_given_back(quick_path: Path) -> None:
    """Stores of one process share: one that gave its descriptors up can use those that others hold."""
    files = CountedFiles()
    first, second = (open_small(quick_path / name, files) for name in "ab")
    files.limit = len(files.held)
    first._folder._fd_reserve.let_go()
    taken = [files.open(first.folder, write=False) for _ in range(DESCRIPTORS_ASIDE)]
    assert len(files.held) == files.limit and second._folder._fd_reserve._held
    fill(first, range(60))
    first.checkpoint()
    assert len(contents(first)) == 60 and not first.counters.failed_chores
    fill(second, range(60))
    assert len(contents(second)) == 60
    for fd in taken:
        files.close(fd)
    for store in (first, second):
        store.close()
    assert not files.held


def test_what_is_put_aside_is_of_its_full_size(quick_path: Path) -> None:
    """A kill during an allocation leaves a shorter file, which reserves nothing for a full disk."""
    files = FaultyFiles("allocate", 0, code=errno.ENOSPC, times=0)
    open_small(quick_path / "s").close()
    for name in ("spare", "reserve", "spare.new", "reserve.new"):
        (quick_path / "s" / name).write_bytes(b"")
    store = open_small(quick_path / "s", files)
    for n in range(6):
        write(store, {A + bytes([n]): bytes(2_000)})
        store.checkpoint()
    for name in ("spare", "reserve"):
        assert (store.folder / name).stat().st_size == SMALL
        assert not (store.folder / f"{name}.new").exists()
    files.times = None
    with pytest.raises(NoSpace):
        for n in range(10):
            write(store, {B + bytes([n]): bytes(1_500)})
    write(store, {A: None, B: bytes(1_800)}, frees=True)
    store.close()


def used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


class SmallDisk(FastFiles):
    """A disk of `size` bytes."""

    size = 1 << 30

    def allocate(self, path: Path, size: int) -> None:
        if size + used(path.parent) > self.size:
            raise io_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path)
        super().allocate(path, size)


def test_a_full_disk_is_opened_again_and_again(quick_path: Path) -> None:
    """The first opening uses the reserve; each later one needs only the space that the one before freed."""
    files = SmallDisk()
    store = open_small(quick_path / "s", files)
    fill(store, range(30))
    held = contents(store)
    for n in range(6):
        files.size = used(store.folder)  # others take the free space
        crash(store)
        store = open_small(quick_path / "s", files)
        assert contents(store) == held
        with pytest.raises(NoSpace):
            write(store, {A: bytes(5_000)})
        key = B + n.to_bytes(2, "big")
        write(store, {key: None}, frees=True)
        del held[key]
    write(store, {key: None for key in held}, frees=True)
    store.checkpoint()
    write(store, {A: bytes(5_000)})
    store.close()
    open_small(quick_path / "s", files).close()


def test_what_the_folder_is_refused_is_typed(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    folder = store._folder
    with no_descriptors():
        for call in (segment_files, data_files):
            with pytest.raises(IoError, match="Too many open files"):
                call(store.folder)
        for ask in (folder.sizes, lambda: folder.remove_unneeded(frozenset(), "m", 1)):
            with pytest.raises(IoError, match="Too many open files"):
                ask()
    (store.folder / "log-00000009-00000000").mkdir()  # cannot be unlinked
    with pytest.raises(IoError):
        folder.discard("log-00000009-00000000")
    (store.folder / "log-00000009-00000000").rmdir()
    store.close()


@pytest.mark.parametrize("name", ["spare", "reserve"])
def test_a_spare_that_cannot_be_looked_at_is_typed(quick_path: Path, name: str) -> None:
    store = open_small(quick_path / "s")
    folder = store._folder
    odd = store.folder / ("x" * 300)  # ENAMETOOLONG stands for EIO and EACCES
    folder._spare = folder._reserve = odd
    asked: list[Any] = [folder.lacks_spare, folder.keep_spare, folder.give_back_spare]
    asked.append(lambda: folder.create_segment("log-00000009-00000000", 10))
    if name == "reserve":
        asked = [folder.lacks_reserve, folder.keep_reserve]
        asked.append(lambda: folder.create_from_reserve("log-00000009-00000000", 10))
    for ask in asked:
        with pytest.raises(IoError, match="name too long"):
            ask()
    crash(store)


@pytest.mark.parametrize("error", [OSError(5, "made to fail"), RuntimeError("made to fail")])
def test_any_failing_checkpoint_bounds_what_waits(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("planstep.store.checkpointing.WAITING_BYTES_MAX", 20_000)
    store = open_small(quick_path / "s")

    def failing(*args: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(store._table, "checkpoint", failing)
        with pytest.raises(type(error)):
            store.checkpoint()
        assert store.counters.failed_checkpoints == 1
        with pytest.raises(NoSpace, match="checkpoints fail"):
            fill(store, range(100))
    held = contents(store)
    assert 15 < len(held) < 30
    store.checkpoint()
    write(store, {A: 1})
    assert after_close(store) == {**held, A: 1}


@pytest.mark.parametrize("free", range(12))
def test_opening_without_descriptors_is_typed(quick_path: Path, free: int) -> None:
    folder = quick_path / "s"
    open_small(folder).close()
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + free, hard))
    try:
        crash(DiskStore.open(folder, segment_bytes=SMALL))
    except IoError as error:
        assert "Too many open files" in str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    open_small(folder).close()


def test_an_owner_who_cannot_be_named_is_the_owner(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", full)
        lock = OwnerLock(quick_path / "lock")
    with pytest.raises(StoreInUse):
        OwnerLock(quick_path / "lock")
    lock.close()
    OwnerLock(quick_path / "lock").close()


def full(*args: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_tables_lock_file_has_no_holes(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB writes to it through a map: on a full disk a hole would kill the process."""
    path = quick_path / "s" / "table" / "lock.mdb"
    store = open_small(quick_path / "s")
    before = path.stat()
    assert before.st_blocks * 512 >= before.st_size >= 64 * 1024
    store.close()
    store = open_small(quick_path / "s")
    assert os.path.samestat(path.stat(), before)
    store.close()
    path.unlink()

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        for _ in range(2):
            with pytest.raises(NoSpace):
                open_small(quick_path / "s")
    open_small(quick_path / "s").close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["data.mdb", "lock.mdb"]


def test_a_forked_child_writes_nothing(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    write(store, {A: 1})
    turn = store.begin()
    turn.put(A, 2)
    child = os.fork()
    if not child:
        refused = 0
        for call in (store.begin, lambda: store.commit(turn), store.checkpoint, store.close):
            try:
                call()
            except ForkedProcess:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    with pytest.raises(StoreInUse):
        open_small(quick_path / "s")  # the child's end has not released the parent's lock
    write(store, {B: 1})
    assert after_crash(store) == {A: 1, B: 1}
