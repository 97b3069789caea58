"""Tests turns that may or may not be on the disk: they never void a turn that is acknowledged later."""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import storekit
from storekit import TABLETS, FastFiles, after_crash, contents, crash, held_in, write

from planstep.errors import IoError, NoSpace
from planstep.store.files import io_error
from planstep.store.log.segments import segment_files

open_small = partial(storekit.open_small, segment_bytes=4 << 10)
A, B = TABLETS


class Hooked(FastFiles):
    """Calls `before[kind]` and `after[kind]`, once each, around the next operation of that kind."""

    def __init__(self) -> None:
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    def _around(self, kind: str, operation: Callable[[], None]) -> None:
        self.before.pop(kind, lambda: None)()
        operation()
        self.after.pop(kind, lambda: None)()

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        kind = "write" if offset else "start"
        self._around(kind, lambda: super(Hooked, self).write(fd, buffers, offset, sync))

    def sync(self, fd: int) -> None:
        self._around("sync", lambda: super(Hooked, self).sync(fd))

    def sync_folder(self, path: Path) -> None:
        self._around("sync_folder", lambda: super(Hooked, self).sync_folder(path))


def images(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in segment_files(folder)}


# the next segment ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["start", "sync_folder"])
@pytest.mark.parametrize("done", [True, False])
def test_a_full_disk_while_a_segment_begins(quick_path: Path, kind: str, done: bool) -> None:
    """Its leftovers may reappear after a power loss: even then later turns count."""
    files = Hooked()
    store = open_small(quick_path / "s", files)
    write(store, {A + b"0": bytes(2_500)})
    left: dict[str, bytes] = {}

    def full() -> None:
        left.update(images(store.folder))
        raise io_error(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), None)

    (files.after if done else files.before)[kind] = full
    with pytest.raises(NoSpace):
        write(store, {A + b"1": bytes(2_500)})
    assert left
    for n in range(2, 5):
        write(store, {A + bytes([n]): n})
    held = contents(store)
    crash(store)
    for name, data in left.items():
        if not (store.folder / name).exists():  # its removal was not synced
            (store.folder / name).write_bytes(data)
    assert held_in(quick_path / "s") == held


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["start", "sync_folder", "sync"])
def test_an_interrupt_while_a_segment_begins(quick_path: Path, kind: str, when: str) -> None:
    files = Hooked()
    store = open_small(quick_path / "s", files, durability="os")
    write(store, {A + b"0": bytes(2_500)})

    def interrupt() -> None:
        raise SystemExit("a signal's handler")

    getattr(files, when)[kind] = interrupt
    with pytest.raises(SystemExit):
        write(store, {A + b"1": bytes(2_500)})
    for n in range(2, 5):
        write(store, {A + bytes([n]): n})
    held = contents(store)
    assert A + b"1" not in held
    assert after_crash(store) == held


@pytest.mark.parametrize("full", [False, True])
def test_a_files_new_name_is_durable_before_its_first_byte(quick_path: Path, full: bool) -> None:
    """Otherwise a power loss may leave a spare or a reserve that contains a void turn."""

    class Renaming(FastFiles):
        renamed = written = 0

        def allocate(self, path: Path, size: int) -> None:
            if full and path.name.startswith("log-"):
                raise NoSpace("made to fail")
            super().allocate(path, size)

        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            self.renamed = target.stat().st_ino

        def sync_folder(self, path: Path) -> None:
            self.renamed = 0

        def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
            assert self.renamed != os.fstat(fd).st_ino
            self.written += 1
            super().write(fd, buffers, offset, sync)

    store = open_small(quick_path / "s")
    write(store, {A + b"0": bytes(2_000)})
    store.checkpoint()
    write(store, {A + b"1": 1})
    crash(store)
    names = {path.name for path in store.folder.iterdir()}
    assert {"spare", "reserve"} <= names
    if full:
        (store.folder / "spare").unlink()
    files = Renaming()
    store = open_small(quick_path / "s", files)
    assert {"spare", "reserve"} - {path.name for path in store.folder.iterdir()}
    assert files.written == 2  # the turn that is copied, and the first record
    assert contents(store) == {A + b"0": bytes(2_000), A + b"1": 1}
    crash(store)


# durability "os": one error of a segment's sync, and two that sync it ---------------------------


@pytest.mark.parametrize("retried", [False, True])
def test_one_failed_sync_is_everybodys(quick_path: Path, retried: bool) -> None:
    """The checkpoint gets the error, while the log wants to move on."""

    class Failing(FastFiles):
        failing = True

        def sync(self, fd: int) -> None:
            if self.failing:
                self.failing = False
                turn.start()
                turn.join(0.1)  # waits for this sync
                raise io_error(OSError(errno.EIO, os.strerror(errno.EIO)), None)

    def move_on() -> None:
        try:
            write(store, {A + b"2": bytes(2_500)})
        except IoError as error:
            refused.append(error)

    refused: list[IoError] = []
    turn = threading.Thread(target=move_on)
    store = open_small(quick_path / "s", Failing(), durability="os")
    write(store, {A + b"0": 0})
    write(store, {A + b"1": 1}, {B + b"1": b"p" * 2_000})
    (first,) = segment_files(store.folder)
    with pytest.raises(IoError):
        store.checkpoint()
    turn.join()
    if retried:
        store.checkpoint()
    write(store, {A + b"3": 3})
    held = contents(store)
    assert (A + b"2" in held) == (not refused)
    crash(store)
    data = first.read_bytes()  # power loss: the failed sync's data is not on the disk
    first.write_bytes(data[:512] + bytes(len(data) - 512))
    assert held_in(quick_path / "s") == held


def test_an_interrupt_while_the_checkpoint_syncs(quick_path: Path) -> None:
    """The result of the sync is unknown."""
    files = Hooked()
    store = open_small(quick_path / "s", files, durability="os")
    write(store, {A + b"0": 0})
    (first,) = segment_files(store.folder)

    def interrupt() -> None:
        raise SystemExit("a signal's handler")

    files.after["sync"] = interrupt
    with pytest.raises(SystemExit):
        store.checkpoint()
    store.checkpoint()
    write(store, {A + b"1": 1})
    held = contents(store)
    crash(store)
    data = first.read_bytes()
    first.write_bytes(data[:84] + bytes(len(data) - 84))
    assert held_in(quick_path / "s") == held


def test_a_write_that_fails_while_its_segment_is_synced(quick_path: Path) -> None:
    """The log goes on in another segment; the checkpoint's own sync then proves its turns durable."""
    files = Hooked()
    store = open_small(quick_path / "s", files, durability="os")
    write(store, {A + b"0": 0})

    def fail() -> None:
        raise io_error(OSError(errno.EIO, os.strerror(errno.EIO)), None)

    def doubt() -> None:
        files.before["write"] = fail
        with pytest.raises(IoError):
            write(store, {A + b"1": 1})

    def another() -> None:
        thread.start()
        thread.join(0.1)

    thread = threading.Thread(target=doubt)
    files.before["sync"] = another
    store.checkpoint()
    thread.join()
    write(store, {A + b"2": 2})
    assert after_crash(store) == {A + b"0": 0, A + b"2": 2}
