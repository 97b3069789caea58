"""Tests an open store whose folder is moved, replaced or removed: it follows its folder, or reports the loss."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import Child, python
from storekit import TABLETS, contents, crash, held_in, open_small, write

import planstep
from planstep.errors import FormatError, IoError, StoreClosed
from planstep.runtime import consistent_cut
from planstep.runtime.open_runtime import open_runtime
from planstep.runtime.open_stores import OpenOptions
from planstep.store import DiskStore
from planstep.store import files as files_module
from planstep.store.readers.pinned import PinnedStore
from planstep.store.readers.readonly import ReadOnlyStore
from planstep.store.verify import verify

A, B = TABLETS


def work(store: DiskStore, round_: int) -> None:
    """Writes so that segments begin and end, data is rewritten, and tables grow."""
    for n in range(60):
        write(store, {A + bytes([n]): round_}, {B + bytes([round_, n]): bytes([n]) * 900})
    store.checkpoint()
    write(store, {B + bytes([round_, n]): None for n in range(60) if n % 7})
    store.checkpoint()
    write(store, {A + b"last": round_})


def picture(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {os.fspath(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("replaced", [True, False])
def test_an_owner_follows_its_folder(quick_path: Path, replaced: bool) -> None:
    folder, moved = quick_path / "s", quick_path / "moved"
    store = open_small(folder)
    work(store, 1)
    folder.rename(moved)
    if replaced:
        other = open_small(folder)
        for _ in range(3):
            work(other, 9)
        other.close()
    before = picture(folder)
    for round_ in (2, 3):
        work(store, round_)
    assert store.counters.failed_chores == 0 and store.counters.rewrites
    held = contents(store)
    store.close()
    assert picture(folder) == before
    assert verify(moved) == []
    assert held_in(moved) == held


def test_readers_follow_the_folder_that_they_looked_at(quick_path: Path) -> None:
    folder = quick_path / "s"
    store = open_small(folder)
    work(store, 1)
    store.checkpoint()
    held = contents(store)
    pinned = PinnedStore(store)
    look = Child(LOOK, folder, env=FOUND_HERE)
    look.line()
    folder.rename(quick_path / "moved")
    other = open_small(folder)
    work(other, 9)
    other.close()
    before = picture(folder)
    work(store, 2)
    assert contents(pinned) == held
    pinned.close()
    assert picture(folder) == before
    look.tell()
    assert look.line() == hashlib.sha256(repr(held).encode()).hexdigest()
    look.end()
    assert picture(folder) == before
    assert os.listdir(quick_path / "moved" / "leases") == []
    store.close()


LOOK = """
import hashlib, pathlib, sys
from storekit import contents
from planstep.store.readers.readonly import ReadOnlyStore

look = ReadOnlyStore.open(pathlib.Path(sys.argv[1]))
print(flush=True)
sys.stdin.readline()
print(hashlib.sha256(repr(contents(look)).encode()).hexdigest(), flush=True)
look.close()
"""


FOUND_HERE = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
"""The environment of a program that imports from this folder."""


@pytest.mark.parametrize("what", ["all of it", "its lock"])
def test_a_store_that_was_removed_says_so_at_the_next_turn(quick_path: Path, what: str) -> None:
    folder = quick_path / "s"
    store = open_small(folder)
    work(store, 1)
    if what == "its lock":
        (folder / "lock").unlink()
    else:
        shutil.rmtree(folder)
        open_small(folder).close()
    before = picture(folder)
    if what == "its lock":
        del before[f"{folder}/table/lock.mdb"]  # the owner frees its own reader slots there
    for _ in range(2):
        with pytest.raises(StoreClosed, match="was removed"):
            write(store, {A: 1})
    assert not store.checkpoint_due(1e9)
    store.close()
    assert picture(folder).items() >= before.items()


def test_an_engine_whose_store_was_removed_says_so(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t").put(1, 1)
        shutil.rmtree(tmp_path / "s")
        with pytest.raises(planstep.EngineClosed, match="was removed"):
            db.table("t").put(2, 2)
    assert not (tmp_path / "s").exists()
    planstep.open(tmp_path / "s").close()


@pytest.mark.parametrize("hosts", [1, 2])
def test_an_engine_goes_on_where_its_store_was_moved(tmp_path: Path, hosts: int) -> None:
    db = planstep.open(tmp_path / "s", hosts=hosts)
    db.create_table("t", shards=4).put(0, 0)
    (tmp_path / "s").rename(tmp_path / "moved")
    for n in range(20):
        db.table("t").put(n, n)
    with pytest.raises(planstep.StoreInUse, match="it was moved, removed"):
        planstep.open(tmp_path / "s")
    db.backup(tmp_path / "b")
    db.close()
    assert not (tmp_path / "s").exists()
    for path in (tmp_path / "moved", tmp_path / "b"):
        with planstep.open(path) as again:
            assert dict(again.table("t").scan()) == {n: n for n in range(20)}


def before_reading(patch: pytest.MonkeyPatch, module: str, act: Callable[[], None]) -> None:
    """Runs `act` once, when the folder is open and before its files are."""
    name, left = f"planstep.store.{module}.load_meta", [act]
    from planstep.store.meta import load_meta

    def late(*args: Any) -> Any:
        if left:
            left.pop()()
        return load_meta(*args)

    patch.setattr(name, late)


def swap(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    other = open_small(folder)
    write(other, {A: "another's"})
    other.close()


@pytest.mark.parametrize("module", ["owned_folder", "readers.readonly"])
def test_a_folder_that_is_replaced_while_it_is_opened(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Data of the two stores is never mixed."""
    folder = quick_path / "s"
    store = open_small(folder)
    write(store, {A: "its own"})
    store.close()
    before_reading(monkeypatch, module, lambda: swap(folder))
    store = open_small(folder) if module == "owned_folder" else ReadOnlyStore.open(folder)
    assert contents(store) == {A: "its own"}
    store.close()
    assert verify(folder) == [] and verify(quick_path / "moved") == []


@pytest.mark.parametrize("module", ["owned_folder", "readers.readonly"])
def test_where_descriptors_are_no_paths_a_folder_that_is_replaced_is_refused(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """LMDB opens by path, and would open the other store's tables."""
    monkeypatch.setattr(files_module, "_DESCRIPTORS", quick_path / "none")
    folder = quick_path / "s"
    store = open_small(folder)
    write(store, {A: "its own"})
    store.close()
    before = picture(folder)
    before_reading(monkeypatch, module, lambda: swap(folder))
    with pytest.raises(IoError, match="was moved, replaced or removed while it was opened"):
        open_small(folder) if module == "owned_folder" else ReadOnlyStore.open(folder)
    moved = picture(quick_path / "moved")
    assert {name: moved[name.replace("/s/", "/moved/")] for name in before if "mdb" in name} == {
        name: value for name, value in before.items() if "mdb" in name
    }
    assert held_in(folder) == {A: "another's"}


def test_a_host_that_begins_anew_is_of_the_same_store(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s", hosts=2)
    db.create_table("t", shards=4).put(0, 0)
    reopen = db._runtime.hosting._reopen
    crash(db._runtime.nodes[1].host.store)
    (tmp_path / "s").rename(tmp_path / "moved")
    open_runtime(tmp_path / "s", OpenOptions(hosts=2)).close()
    before = picture(tmp_path / "s")
    with pytest.raises(FormatError, match="another store"):
        reopen(1)
    crash(db._runtime.nodes[0].host.store)
    with pytest.raises(FormatError, match="another store"):
        reopen(0)  # it would create missing files
    assert picture(tmp_path / "s") == before
    db.close()


def test_a_look_at_several_hosts_is_at_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks of one store say nothing about the other."""
    path = tmp_path / "s"
    for name, value in (("s", 1), ("next", 2)):
        with planstep.open(tmp_path / name, hosts=2) as db:
            db.create_table("t", shards=4)
            with db.transaction() as tx:
                for key in range(20):
                    tx.put("t", key, value)
    marks, left = consistent_cut._marks, [1]

    def late(*args: Any) -> Any:
        if left:
            left.pop()
            path.rename(tmp_path / "old")
            (tmp_path / "next").rename(path)
            return [None, None]  # marks of another store do not count
        return marks(*args)

    monkeypatch.setattr(consistent_cut, "_marks", late)
    opens: list[bytes] = []
    open_ = ReadOnlyStore.open

    def noted(folder: Path, until: Any = None, **options: Any) -> ReadOnlyStore:
        store = open_(folder, until, **options)
        opens.append(store.store_id)
        return store

    monkeypatch.setattr(ReadOnlyStore, "open", noted)
    with planstep.open(path, read_only=True) as db:
        assert set(dict(db.table("t").scan()).values()) == {2}
    assert len(opens) == 3, "the first was not taken"


WATCHED = """
import os, pathlib, sys
import planstep
from storekit import open_small
from test_moved import work
from planstep.store.readers.pinned import PinnedStore

folder = pathlib.Path(sys.argv[1])
store = open_small(folder / "bare")
db = planstep.open(folder / "s", hosts=2)
seen = []

def told(event, args):
    paths = [os.fsdecode(a) for a in args if isinstance(a, (str, bytes, os.PathLike))]
    inside = [p for p in paths if p == str(folder) or p.startswith(f"{folder}/")]
    seen.extend(f"{event} {p}" for p in inside if watching)

watching = True
sys.addaudithook(told)
stat = os.stat

def watched(path, **more):
    told("stat", [] if isinstance(path, int) else [path])
    return stat(path, **more)

os.stat = watched
work(store, 1)
PinnedStore(store).close()
work(store, 2)
rewrites = store.counters.rewrites
store.close()
db.create_topic("in", partitions=4)
for n in range(50):
    db.write("in", bytes(5_000))
for node in db._runtime.nodes:
    node.host.store.checkpoint()
db.topic("in").trim({0: 1})
assert db.stats()["disk_bytes"]["tables"] and len(db.topic("in").read()) > 40
db.backup(sys.argv[2])
db.close()
watching = False
assert rewrites, "not all was met"
print("\\n".join(seen) or "nothing")
"""


def test_an_open_store_finds_nothing_by_its_path(quick_path: Path) -> None:
    """A path may lead to another store by then."""
    done = python(WATCHED, quick_path / "s", quick_path / "copy", timeout=100, env=FOUND_HERE)
    assert (done.stdout, done.stderr) == ("nothing\n", "")
