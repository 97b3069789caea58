"""Tests space: dropped data is freed, a full disk recovers, readers keep the files that they use."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storekit import (
    TABLETS,
    FastFiles,
    FaultyFiles,
    after_crash,
    contents,
    crash,
    drop,
    fill,
    held_in,
    open_small,
    write,
    write_and_checkpoint,
)

from planstep.errors import NoSpace
from planstep.store.files import io_error
from planstep.store.log.compaction import SMALL_FILES_MAX, choose
from planstep.store.log.extents import address_key
from planstep.store.log.segments import Folder, data_files, segment_files
from planstep.store.readers.readonly import ReadOnlyStore
from planstep.store.tables.table import Extent, Table
from planstep.store.verify import verify

SMALL = 8 << 10
STORE = bytes(16)
A, B = TABLETS


# extents -------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 239), st.integers(1, 30)), max_size=12),
)
def test_dropping_leaves_exactly_the_rest(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], drops: list[tuple[int, int]]
) -> None:
    """Compares with a brute-force model of one flag for each byte."""
    folder = tmp_path_factory.mktemp("table")
    table = Table(folder, STORE)
    runs: list[Extent] = []
    where: dict[int, tuple[str, int]] = {}
    address = 0
    for n, length in enumerate(lengths):
        runs.append(Extent(address, f"log-{n % 2}", 7 * n, length))
        where |= {address + i: (f"log-{n % 2}", 7 * n + i) for i in range(length)}
        address += length
    table.checkpoint({}, runs, [], (1, address, "", False, 0))
    dropped: list[tuple[int, int]] = []
    for begin, length in drops:
        run = next((r for r in runs if r.address <= begin < r.address + r.length), None)
        if run is not None:  # a slice lies within one turn's payload
            length = min(length, run.address + run.length - begin)
            if all(begin + i in where for i in range(length)):  # and is dropped once
                for i in range(length):
                    del where[begin + i]
                dropped.append((begin, length))
    table.checkpoint({}, [], dropped, (2, address, "", False, 0))
    for at in range(address):
        extent = table.find_payload(at)
        found = None if extent is None else (extent.file, extent.offset + at - extent.address)
        assert found == where.get(at)
    held = [file for file, _ in where.values()]
    assert table.live() == {file: held.count(file) for file in sorted(set(held))}
    for files in (frozenset({"log-0"}), frozenset({"log-1"}), frozenset({"log-0", "log-1"})):
        assert sum(e.length for e in table.extents(files)) == sum(map(held.count, files))
    table.close()


sizes_of_files = st.dictionaries(
    st.integers(0, 60).map("log-{:02d}".format),
    st.tuples(st.integers(1, 2000), st.integers(0, 2000)),
    max_size=40,
)


@given(sizes_of_files)
def test_what_is_rewritten_is_worth_it(files: dict[str, tuple[int, int]]) -> None:
    live = {name: held for name, (held, _) in files.items()}
    sizes = {name: held + rest for name, (held, rest) in files.items()}
    chosen = choose(live, sizes, 4000)
    dead = [name for name in live if live[name] * 2 < sizes[name]]
    small = [name for name in live if sizes[name] * 8 < 4000]
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= set(dead) | set(small)
    assert bool(chosen) == bool(dead or len(small) > SMALL_FILES_MAX)
    assert len(chosen) == 1 or sum(live[name] for name in chosen) <= 4000


# rewriting -----------------------------------------------------------------------------------


def test_mostly_dead_segments_are_rewritten(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(80))
    before = len(segment_files(store.folder))
    drop(store, range(0, 80, 8))
    store.checkpoint()
    assert store.counters.rewrites == 0  # most is live
    drop(store, range(80)[1::8])
    drop(store, range(80)[2::8])
    drop(store, range(80)[3::8])
    drop(store, range(80)[4::8])
    drop(store, range(80)[5::8])
    held = contents(store)
    write_and_checkpoint(store, range(4))
    assert store.counters.rewrites
    held[A] = contents(store)[A]
    assert contents(store) == held and len(held) == 21
    assert data_files(store.folder) and len(segment_files(store.folder)) < before / 2
    size = sum(p.stat().st_size for p in [*segment_files(store.folder), *data_files(store.folder)])
    assert size < 80 * 900 / 1.5
    assert after_crash(store) == held
    look = ReadOnlyStore.open(quick_path / "s")
    assert contents(look) == held
    look.close()


def test_what_follows_one_another_becomes_one_extent(quick_path: Path) -> None:
    """Each small payload would otherwise cost an entry, and memory while it is copied."""
    store = open_small(quick_path / "s")
    fill(store, range(400), size=30)  # most of a segment's bytes is not payload
    drop(store, range(100, 103))
    write_and_checkpoint(store, range(2))
    held = contents(store)
    files = frozenset(path.name for path in data_files(store.folder))
    extents = list(store.table.extents(files))
    assert sum(extent.length for extent in extents) > 9_000
    assert len(extents) <= 2 + store.counters.rewrites
    drop(store, range(20, 300, 3))  # out of the middle
    store.checkpoint()
    for n in range(20, 300, 3):
        held.pop(B + n.to_bytes(2, "big"), None)
    assert contents(store) == held and len(held) > 300
    assert after_crash(store) == held


def test_small_files_become_one(quick_path: Path) -> None:
    """A program that opens, writes a little and closes does not leave one more file each time."""
    held = {}
    for n in range(3 * SMALL_FILES_MAX):
        store = open_small(quick_path / "s")
        write(store, {}, {B + bytes([n]): b"x" * n})
        held[B + bytes([n])] = b"x" * n
        store.checkpoint()
        store.close()
    store = open_small(quick_path / "s")
    assert contents(store) == held
    assert len(segment_files(store.folder)) <= SMALL_FILES_MAX + 3
    store.close()
    assert verify(quick_path / "s") == []


def test_reads_go_on_while_files_are_rewritten(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(400))
    kept = range(0, 400, 40)
    values = {n: store.get(B + n.to_bytes(2, "big")) for n in kept}
    done = threading.Event()
    failures: list[BaseException] = []
    reads = 0

    def look() -> None:
        nonlocal reads
        try:
            while not done.is_set():
                for n, (_, address, length) in values.items():
                    assert store.read_payload(address, length) == bytes([n % 251]) * 900
                    reads += 1
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for n in range(400):
            if n not in kept:
                drop(store, range(n, n + 1))
            if n % 20 == 0:
                store.checkpoint()
        write_and_checkpoint(store, range(10))
    finally:
        done.set()
        reader.join()
    assert not failures and reads and store.counters.rewrites > 1
    store.close()


@pytest.mark.parametrize("piece", [100, 901, 10_000])
def test_what_is_rewritten_is_copied_in_pieces(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """One turn's payload may be gigabytes; memory holds one piece, and other reads wait for one piece."""
    monkeypatch.setattr("planstep.store.log.compaction._PIECE_BYTES", piece)
    store = open_small(quick_path / "s")
    fill(store, range(40))
    drop(store, range(1, 40, 2))
    drop(store, range(2, 40, 4))
    held = contents(store)
    lengths: list[int] = []
    read = store._folder.read

    def counted(name: str, offset: int, length: int) -> bytes:
        lengths.append(length)
        return read(name, offset, length)

    monkeypatch.setattr(store._folder, "read", counted)
    store.checkpoint()
    assert store.counters.rewrites and max(lengths) == min(piece, 900)
    assert contents(store) == held
    store.close()
    assert verify(quick_path / "s") == []
    assert held_in(quick_path / "s") == held


def test_a_file_stays_where_not_all_is_found_that_is_live_in_it(quick_path: Path) -> None:
    """An older page of the tables may be in place of the newer one: each of its entries is as it was written."""
    store = open_small(quick_path / "s")
    fill(store, range(80))
    store.checkpoint()
    extent = store._extent(store.get(B + (24).to_bytes(2, "big"))[1])
    with store._table._env.begin(write=True) as txn:
        assert txn.delete(address_key(extent.address))
    drop(store, range(1, 80, 2))
    drop(store, range(2, 80, 4))
    write_and_checkpoint(store, range(3))
    assert store.counters.failed_chores
    assert extent.file in [path.name for path in segment_files(store.folder)]
    crash(store)


@pytest.mark.parametrize("kind", ["allocate", "write", "sync", "sync_folder", "remove"])
def test_a_failure_while_rewriting_loses_nothing(quick_path: Path, kind: str) -> None:
    """Any operation of it may fail, and leave anything behind: nothing is lost and all is freed."""
    failed, n = True, 0
    while failed:
        folder = quick_path / str(n)
        store = open_small(folder)
        fill(store, range(40))
        for begin in range(0, 40, 8):
            drop(store, range(begin + 1, begin + 8))
        held = contents(store)
        store._folder.files = files = FaultyFiles(kind, n)
        store.checkpoint()
        failed = bool(files.failed)
        assert store.counters.failed_chores == files.failed
        assert contents(store) == held
        crash(store)
        store = open_small(folder)
        assert contents(store) == held
        write_and_checkpoint(store, range(3))
        assert contents(store) == {**held, A: 2}
        store.close()
        assert verify(folder) == []
        assert 1 <= len(data_files(folder)) <= 2 and len(segment_files(folder)) <= 2
        n += 1
    assert n > 1


# a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_can_be_freed(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(60))
    full = FaultyFiles("allocate", 0, code=errno.ENOSPC, times=None)
    store._folder.files = store._log._files = full
    held = contents(store)
    refused = 0
    for n in range(100, 120):
        try:
            fill(store, range(n, n + 1))
            held[B + n.to_bytes(2, "big")] = bytes([n % 251]) * 900
        except NoSpace:
            refused += 1
        assert contents(store) == held
    assert refused > 5
    for n in range(50):  # these find space in the reserve
        key = B + n.to_bytes(2, "big")
        write(store, {key: None}, frees=True)
        del held[key]
        assert contents(store) == held
    with pytest.raises(NoSpace):
        fill(store, range(1))
    before = len(segment_files(store.folder))
    store.checkpoint()
    assert len(segment_files(store.folder)) < before
    crash(store)

    store = open_small(quick_path / "s")
    assert contents(store) == held
    fill(store, range(10))
    held |= {B + n.to_bytes(2, "big"): bytes([n]) * 900 for n in range(10)}
    store.checkpoint()
    assert not store._folder.lacks_reserve()
    store.close()
    assert verify(quick_path / "s") == []


def test_a_store_opens_on_a_full_disk(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(20))
    held = contents(store)
    crash(store)
    files = FaultyFiles("allocate", 0, code=errno.ENOSPC, times=None)
    store = open_small(quick_path / "s", files)
    assert contents(store) == held
    with pytest.raises(NoSpace):
        fill(store, range(1))
    write(store, {B + bytes(2): None}, frees=True)
    del held[B + bytes(2)]
    files.times = files.failed  # from here on the disk has space
    fill(store, range(30, 40))
    store.checkpoint()
    assert not store._folder.lacks_reserve()
    crash(store)
    store = open_small(quick_path / "s")
    assert contents(store) == {
        **held,
        **{B + bytes([0, n]): bytes([n]) * 900 for n in range(30, 40)},
    }
    crash(store)


def test_the_next_segment_is_allocated_ahead(quick_path: Path) -> None:
    files = FaultyFiles("allocate", 10**6)  # only counts
    store = open_small(quick_path / "s", files)
    fill(store, range(6))
    assert store.checkpoint_due(0.0)
    store.checkpoint()
    assert not store._folder.lacks_spare()
    before, segments = files.calls, store.counters.segments
    fill(store, range(6, 10))
    assert store.counters.segments == segments + 1
    assert files.calls == before
    store.close()


def test_writes_are_refused_when_checkpoints_keep_failing(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.store.checkpointing.WAITING_BYTES_MAX", 20_000)
    store = open_small(quick_path / "s")
    commit = store._table.checkpoint

    def failing(*args: Any) -> Any:
        raise NoSpace("made to fail")

    store._table.checkpoint = failing
    with pytest.raises(NoSpace):
        store.checkpoint()
    written = 0
    with pytest.raises(NoSpace, match="checkpoints fail"):
        for written in range(100):
            fill(store, range(written, written + 1))
    assert 20 <= written < 30
    drop(store, range(0))
    write(store, {B + bytes(2): None}, frees=True)
    held = contents(store)
    assert len(held) == written - 1
    store._table.checkpoint = commit
    store.checkpoint()
    store.checkpoint()
    fill(store, range(1))
    assert after_crash(store) == {**held, B + bytes(2): bytes(900)}


def test_a_checkpoint_has_room_put_aside_on_a_full_disk(quick_path: Path) -> None:
    """LMDB takes pages even to record dropped data: without space for them, nothing could ever be freed."""
    store = open_small(quick_path / "s")
    fill(store, range(60))
    full = FaultyFiles("allocate", 0, code=errno.ENOSPC, times=None)
    store._folder.files = store._log._files = full
    drop(store, range(10))
    cushion = quick_path / "s" / "cushion"
    assert cushion.stat().st_size == SMALL
    commit = store._table.checkpoint

    def without_room(*args: Any) -> Any:
        if cushion.exists() or (quick_path / "s" / "spare").exists():
            raise NoSpace("made to fail")
        return commit(*args)

    store._table.checkpoint = without_room
    before = len(segment_files(store.folder))
    store.checkpoint()
    assert len(segment_files(store.folder)) < before and not cushion.exists()
    full.times = full.failed  # from here on the disk has space
    store._table.checkpoint = commit
    write(store, {A: 1})
    store.checkpoint()
    assert cushion.stat().st_size == SMALL
    store.close()


class SlowDisk(FastFiles):
    """A full disk; `meanwhile` runs while it looks for space: ext4 waits there until removed files are freed."""

    def __init__(self, waits_for: str) -> None:
        self.waits_for = waits_for
        self.meanwhile: list[threading.Thread] = []
        self.room = False

    def free(self, folder: Path) -> int:
        return SMALL * self.room

    def remove(self, path: Path) -> None:
        self.room = self.room or path.name == "cushion"
        super().remove(path)

    def allocate(self, path: Path, size: int) -> None:
        if path.name.startswith(self.waits_for) and self.meanwhile:
            self.meanwhile[0].start()
            self.meanwhile.pop().join(0.2)
            if not self.room:
                raise NoSpace("full")
        super().allocate(path, size)


@pytest.mark.parametrize("takes", ["reserve.new", "log-"])
def test_what_waits_for_room_does_not_take_what_a_checkpoint_is_lent(
    tmp_path: Path, takes: str
) -> None:
    files = SlowDisk(takes)
    folder = Folder(tmp_path, STORE, files, SMALL)
    folder.keep_reserve()
    if takes == "reserve.new":
        (tmp_path / "reserve").unlink()
    lending = threading.Thread(target=folder.give_back_cushion)
    files.meanwhile.append(lending)
    with pytest.raises(NoSpace):
        folder.make_reserve()
        folder.create_segment("log-00000001-00000001", 100)
    lending.join()
    for call in (
        folder.make_reserve,
        lambda: folder.create_segment("log-00000001-00000001", 100),
        lambda: folder.create_copy("data-00000001-00000000", 100),
    ):
        with pytest.raises(NoSpace, match="a checkpoint uses the space put aside"):
            call()
    assert not (tmp_path / "cushion").exists()
    folder.close()


def test_a_name_that_takes_room_has_the_cushion_s(tmp_path: Path) -> None:
    """On a completely full ext4, a new name takes another block if the folder's block is full."""

    class FullFolder(FastFiles):
        def rename(self, source: Path, target: Path) -> None:
            if target.name.startswith("log-") and (tmp_path / "cushion").exists():
                raise io_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), source)
            super().rename(source, target)

    folder = Folder(tmp_path, STORE, FullFolder(), SMALL)
    folder.keep_reserve()
    folder.create_from_reserve("log-00000001-00000001", 100)
    assert sorted(os.listdir(tmp_path)) == ["log-00000001-00000001"]
    folder.close()
