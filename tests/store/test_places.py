"""Tests whole files at the wrong names: they are never read as if they were the right ones.

A store's segments and data files are exchanged for each other, or for another store's of the same lengths; its
tables for another store's. Data in the other files is read as ever.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from storekit import TABLETS, FastFiles, crash, open_small, resolve, write, write_and_checkpoint

from planstep.errors import Corruption
from planstep.store import DiskStore
from planstep.store.log.records import HEADER_SIZE
from planstep.store.log.segments import segment_files
from planstep.store.meta import load_meta
from planstep.store.readers.readonly import ReadOnlyStore
from planstep.store.tables.table import Table
from planstep.store.verify import verify

A, B = TABLETS
KEYS = range(160)
WAYS = ("owner", "reader")


def key(n: int) -> bytes:
    return B + n.to_bytes(2, "big")


def made(folder: Path, letter: bytes) -> None:
    """Makes data files of one generation and segments of two; all but the last segment are before the
    checkpoint."""
    for life in (KEYS[:80], KEYS[80:120], KEYS[120:]):
        store = open_small(folder)
        for n in life:
            write(store, {}, {key(n): letter * 900})
        store.checkpoint()
        for half in (KEYS[:40], KEYS[40:80]) if store.generation == 1 else ():
            write(store, {key(n): None for n in half if n % 4})
            store.checkpoint()
        crash(store)


@pytest.fixture(scope="module")
def two(module_path: Path) -> tuple[Path, Path]:
    for name, letter in (("one", b"1"), ("other", b"2")):
        made(module_path / name, letter)
    one, other = module_path / "one", module_path / "other"
    assert held_by(one).keys() == held_by(other).keys()
    return one, other


@pytest.fixture
def folder(two: tuple[Path, Path], quick_path: Path) -> Path:
    shutil.copytree(two[0], quick_path / "s")
    return quick_path / "s"


def held_by_name(store: DiskStore, name: str) -> list[bytes]:
    values = {key(n): store.get(key(n)) for n in KEYS}
    return [k for k, value in values.items() if value and store._extent(value[1]).file == name]


def held_by(folder: Path) -> dict[str, list[bytes]]:
    """Returns keys by the file that holds their payloads."""
    meta = load_meta(folder, FastFiles())
    assert meta is not None
    found: dict[str, list[bytes]] = {}
    table = Table(folder / "table", meta.store_id, read_only=True)
    for n in KEYS:
        value = table.get(key(n))
        extent = None if value is None else table.find_payload(value[1])
        if extent is not None:
            found.setdefault(extent.file, []).append(key(n))
    table.close()
    return found


def expect(folder: Path, way: str, refused: set[str]) -> None:
    """Checks that reads from the files `refused` raise Corruption naming the file, and all others return their
    data."""
    held = held_by(folder)
    assert refused <= held.keys()
    store: Any = open_small(folder) if way == "owner" else ReadOnlyStore.open(folder)
    for file in sorted(held) * 2:
        for one in held[file]:
            if file not in refused:
                assert resolve(store, store.get(one)) == b"1" * 900
                continue
            with pytest.raises(Corruption, match=f"{file}.*another"):
                resolve(store, store.get(one))
    if way == "reader":
        store.close()
        return
    write(store, {A: "goes on"})
    crash(store)
    store = open_small(folder)
    assert store.get(A) == "goes on"
    crash(store)


DATA = "data-00000001-0000000"
SECOND, THIRD = "log-00000002-0000000", "log-00000003-0000000"


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_refused_where_nothing_was_exchanged(folder: Path, way: str) -> None:
    held = held_by(folder)
    assert {DATA + "0", DATA + "1", SECOND + "1", SECOND + "2", THIRD + "1"} <= held.keys()
    expect(folder, way, set())
    assert verify(folder) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SECOND + "1", SECOND + "2"),
        (SECOND + "1", THIRD + "1"),
        (DATA + "0", DATA + "1"),
        (DATA + "1", SECOND + "1"),
    ],
)
def test_files_that_were_exchanged(folder: Path, way: str, one: str, other: str) -> None:
    data = (folder / one).read_bytes(), (folder / other).read_bytes()
    (folder / one).write_bytes(data[1])
    (folder / other).write_bytes(data[0])
    assert {problem.tablet for problem in verify(folder)} >= {one, other}
    expect(folder, way, {one, other})


@pytest.mark.parametrize("way", WAYS)
def test_files_of_another_store(folder: Path, two: tuple[Path, Path], way: str) -> None:
    foreign = {DATA + "1", SECOND + "2"}
    for name in foreign:
        size = (folder / name).stat().st_size
        shutil.copyfile(two[1] / name, folder / name)
        assert (folder / name).stat().st_size == size
    assert {problem.tablet for problem in verify(folder)} >= foreign
    expect(folder, way, foreign)


@pytest.mark.parametrize("generation", ["one's", "another's"])
def test_what_is_not_in_its_place_is_found_at_opening_where_it_is_replayed(
    folder: Path, generation: str
) -> None:
    """No checkpoint covers the two segments."""
    store = open_small(folder)
    for n in range(30):
        write(store, {}, {key(n): b"3" * 900})
    crash(store)
    last = [path for path in segment_files(folder) if path.name.startswith("log-00000004")]
    one, other = (last[1], last[2]) if generation == "one's" else (last[1], folder / (THIRD + "1"))
    shutil.copyfile(other, one)
    for opening in (open_small, ReadOnlyStore.open):
        with pytest.raises(Corruption, match=f"{one.name}.*another"):
            opening(folder)


def test_a_file_is_looked_at_once_while_it_is_open(folder: Path) -> None:
    class Counting(FastFiles):
        reads = 0

        def read(self, fd: int, offset: int, length: int) -> bytes:
            self.reads += 1
            return super().read(fd, offset, length)

    files = Counting()
    store = open_small(folder, files)
    keys = held_by_name(store, SECOND + "1")
    before = files.reads
    for one in keys * 3:
        assert resolve(store, store.get(one)) == b"1" * 900
    assert files.reads - before == 3 * len(keys) + 1
    crash(store)


def test_a_damaged_first_record_takes_nothing_else_along(folder: Path) -> None:
    """It does not prove another file: the payloads have checksums of their own. `verify` names it."""
    for name in (SECOND + "1", DATA + "0"):
        with open(folder / name, "r+b") as file:
            file.seek(40)
            file.write(b"\xff")
    assert {problem.tablet for problem in verify(folder)} >= {SECOND + "1", DATA + "0"}
    expect(folder, "reader", set())
    expect(folder, "owner", set())


def test_what_is_another_file_s_is_not_rewritten(folder: Path) -> None:
    """Otherwise the rewritten file would get this store's name."""
    one, other = SECOND + "1", SECOND + "2"
    keys = held_by(folder)
    shutil.copyfile(folder / other, folder / one)
    store = open_small(folder)
    for name in (one, other):
        write(store, dict.fromkeys(keys[name][:-1]))
    write_and_checkpoint(store, range(3))
    assert store.counters.failed_chores and not store.counters.rewrites
    with pytest.raises(Corruption, match=one):
        resolve(store, store.get(keys[one][-1]))
    assert resolve(store, store.get(keys[other][-1])) == b"1" * 900
    crash(store)


@pytest.mark.parametrize("page", [0, 1])
def test_what_is_exchanged_within_a_file_is_named_by_verify(
    folder: Path, two: tuple[Path, Path], page: int
) -> None:
    """Nothing else distinguishes another store's whole batches from this one's, if they have the same places."""
    for name in (SECOND + "1", DATA + "0"):
        data, foreign = (folder / name).read_bytes(), (two[1] / name).read_bytes()
        begin, end = max(HEADER_SIZE, 4096 * page), 4096 * page + 4096
        (folder / name).write_bytes(data[:begin] + foreign[begin:end] + data[end:])
    assert {problem.tablet for problem in verify(folder)} == {SECOND + "1", DATA + "0"}


def test_tables_of_another_store(folder: Path, two: tuple[Path, Path]) -> None:
    shutil.copyfile(two[1] / "table" / "data.mdb", folder / "table" / "data.mdb")
    for opening in (open_small, ReadOnlyStore.open):
        with pytest.raises(Corruption, match="tables are those of another store"):
            opening(folder)
    assert ["another store" in problem.what for problem in verify(folder)] == [True]
