"""Tests readers while the owner goes on: a view never goes back, and never mixes two moments."""

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import storekit
from storekit import TABLETS, FastFiles, FaultyFiles, contents, crash, write

from planstep.errors import FormatError, IoError, StoreClosed, StoreInUse
from planstep.store.readers.readonly import ReadOnlyStore, StoreChanged
from planstep.store.readers.released_mark import (
    Mark,
    MarkReader,
    ReleasedMark,
    _boot,
    read_mark,
)
from planstep.store.verify import verify

open_small = partial(storekit.open_small, segment_bytes=4 << 10)
A, B = TABLETS


class Watched(FaultyFiles):
    """Notes before and after each operation which turn a reader would see then."""

    def watch(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[int] = []

    def _look(self) -> None:
        copy = self.folder.with_name("copy")
        shutil.copytree(self.folder, copy)
        look = ReadOnlyStore.open(copy)
        self.seen.append(look.last_turn)
        look.close()
        shutil.rmtree(copy)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        self._look()
        super().write(fd, buffers, offset, sync)
        self._look()

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self._look()

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._look()


@pytest.mark.parametrize("durability", ["full", "os"])
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_reader_does_not_go_back_when_the_log_goes_on_elsewhere(
    quick_path: Path, durability: str, kind: str
) -> None:
    files = Watched(times=1, short=lambda size: size)
    store = open_small(quick_path / "s", files=FastFiles(), durability=durability)
    for n in range(5):
        write(store, {A + bytes([n]): n})
    store._folder.files = store._log._files = files
    files.watch(store.folder)
    files.kind = kind
    if kind == "write":
        with pytest.raises(IoError):
            write(store, {A: 5})
    elif durability == "os":
        with pytest.raises(IoError):
            store.checkpoint()
    assert files.seen == [5] * len(files.seen)
    write(store, {A: 6})
    assert files.seen[-1] == 5
    files._look()
    assert files.seen[-1] == 6
    crash(store)


def test_a_reader_does_not_go_back_when_the_store_is_opened_again(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    for n in range(5):
        write(store, {A + bytes([n]): n})
    crash(store)
    files = Watched()
    files.watch(store.folder)
    store = open_small(quick_path / "s", files)
    assert len(files.seen) > 3 and set(files.seen) == {5}
    crash(store)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", ["killed", "failing"])
def test_a_reader_does_not_go_back_when_the_log_goes_on_elsewhere_after_it_saw_the_mark(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, times: int
) -> None:
    """Otherwise a reader at that very moment sees less than was acknowledged before."""
    files, owned, seen = FaultyFiles(times=1), quick_path / "s", quick_path / "seen"
    stores = [open_small(owned, files)]
    for n in range(5):
        write(stores[0], {A + bytes([n]): n})
    shutil.copytree(owned, seen)
    marks: list[Mark | None] = []

    def go_on() -> None:
        if how == "killed":
            crash(stores.pop())
            stores.append(open_small(owned, files))
        else:
            files.kind, files.failed = "write", 0
            with pytest.raises(IoError):
                write(stores[0], {A: b"void"})
            write(stores[0], {A: b"instead"})
        shutil.copytree(owned, seen, dirs_exist_ok=True)

    def seen_too_early(path: Path, store_id: bytes, *held: Any) -> Mark | None:
        if 0 < len(marks) < times:
            go_on()
        marks.append(read_mark(path, store_id))
        if len(marks) == 1:
            go_on()
        return marks[-1]

    monkeypatch.setattr("planstep.store.readers.whole_look.read_mark", seen_too_early)
    look = ReadOnlyStore.open(seen)
    assert look.last_turn == stores[0].last_turn == (5 if how == "killed" else 5 + times)
    assert look.get(A) == (None if how == "killed" else b"instead")
    assert len(marks) > times
    look.close()
    crash(stores[0])


@pytest.mark.parametrize("failing", [True, False])
def test_a_view_of_an_older_mark_is_of_that_mark(quick_path: Path, failing: bool) -> None:
    """With several hosts, a later view would not fit the others."""
    files = FaultyFiles(times=1)
    store = open_small(quick_path / "s", files)
    for n in range(2):
        write(store, {A + bytes([n]): n})
    mark = read_mark(store.folder / "released", store.store_id)
    for n in range(2, 4):
        write(store, {A + bytes([n]): n})
    if failing:
        files.kind = "write"
        with pytest.raises(IoError):
            write(store, {A: 5})
    crash(store)
    if failing:
        with pytest.raises(StoreChanged):
            ReadOnlyStore.open(store.folder, mark)
        mark = read_mark(store.folder / "released", store.store_id)
    look = ReadOnlyStore.open(store.folder, mark)
    assert look.last_turn == (4 if failing else 2)
    look.close()


def test_a_mark_that_cannot_be_read_is_no_mark_that_is_missing(quick_path: Path) -> None:
    """Without the mark a reader would see an unacknowledged turn: whole in the log, not synced."""
    first = iter([True])
    files = FaultyFiles(times=None, short=lambda size: size * next(first, False))
    store = open_small(quick_path / "s", files)
    write(store, {A: 1})
    files.kind = "write"
    with pytest.raises(StoreClosed):
        write(store, {A: 2})
    crash(store)
    look = ReadOnlyStore.open(store.folder)
    assert look.get(A) == 1
    look.close()
    mark = store.folder / "released"
    mark.rename(mark.with_name("elsewhere"))
    mark.mkdir()
    with pytest.raises(IoError, match="released: "):
        ReadOnlyStore.open(store.folder)
    (problem,) = verify(store.folder)
    assert "released" in problem.what


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_which_boot_it_is_is_asked_again_where_it_could_not_be_read(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Otherwise marks of this boot would count as another boot's for the rest of the process's life."""

    def fails(path: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    _boot.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fails)
        with pytest.raises(IoError):
            _boot()
    assert _boot() == _boot()


def test_a_mark_that_is_removed_is_looked_for_by_its_name(quick_path: Path) -> None:
    """Without it a damaged store opens with what is left; its next owner makes another."""
    path, held = quick_path / "released", os.open(quick_path, os.O_RDONLY)
    reader = MarkReader(path, b"s" * 16, held)
    assert reader.read() is None
    for turn in (1, 2):
        owners = ReleasedMark(path, b"s" * 16)
        owners.show(1, turn, turn)
        assert reader.read() == Mark(1, turn, True, turn)
        owners.show(1, turn + 1, turn)
        assert reader.read() == Mark(1, turn + 1, True, turn)
        owners.close()
        path.unlink()
        assert reader.read() is None
    path.mkdir()
    with pytest.raises(IoError, match="released"):
        reader.read()
    reader.close()
    os.close(held)


def test_a_scan_is_of_one_moment(quick_path: Path) -> None:
    """A turn and a checkpoint come between its reads from memory and from the tables."""
    store = open_small(quick_path / "s")
    write(store, {A + b"a": 1, A + b"b": 1})
    store.checkpoint()
    write(store, {A + b"a": 2, A + b"c": 2})
    table_scan = store._table.scan

    def scan(*args: Any) -> Iterator[Any]:
        write(store, {A + b"a": 3, A + b"b": 3})
        store.checkpoint()
        return table_scan(*args)

    store._table.scan = scan
    assert store.scan(A, A + b"z") == [(A + b"a", 2), (A + b"b", 1), (A + b"c", 2)]
    store._table.scan = table_scan
    assert contents(store) == {A + b"a": 3, A + b"b": 3, A + b"c": 2}
    store.close()


def test_a_store_whose_creation_was_not_finished(quick_path: Path) -> None:
    """A power loss came before the tables existed: nothing is damaged, and its owner can open it."""
    store = open_small(quick_path / "s")
    crash(store)
    for path in (store.folder / "table").iterdir():
        path.unlink()
    with pytest.raises(FormatError, match="open it for writing"):
        ReadOnlyStore.open(store.folder)
    (problem,) = verify(store.folder)
    assert "open it for writing" in problem.what
    open_small(quick_path / "s").close()
    assert verify(store.folder) == []


def test_two_looks_in_one_process(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    with pytest.raises(StoreInUse):
        ReadOnlyStore.open(store.folder)
    write(store, {A: 1})
    store.close()
