"""Tests that removing the tables of an open store loses nothing: acknowledged turns stay in the log."""

import os
import shutil
from pathlib import Path

import pytest
from storekit import TABLETS, Contents, contents, crash, held_in, open_small, write

import planstep
from planstep.store import DiskStore
from planstep.store.readers.pinned import PinnedStore
from planstep.store.verify import verify

A, B = TABLETS
HOW = ["removed", "moved", "replaced", "file removed"]


def grown(folder: Path, old: bool) -> DiskStore:
    """Makes a store; the log of an old one no longer goes back to its first turn."""
    store = open_small(folder)
    write(store, {A + b"first": 1})
    store.checkpoint()
    if old:
        for n in range(60):
            write(store, {A + bytes([n]): "x" * 900})
        store.checkpoint()
        assert not (folder / "log-00000001-00000000").exists()
    return store


def take_away(folder: Path, how: str) -> None:
    table = folder / "table"
    if how == "file removed":
        (table / "data.mdb").unlink()
        return
    table.rename(folder.parent / "away")
    if how == "removed":
        shutil.rmtree(folder.parent / "away")
    elif how == "replaced":
        shutil.copytree(folder.parent / "away", table)


def log_of(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if name.startswith(("log-", "data-"))}


def assert_nothing_lost(folder: Path, acknowledged: Contents, how: str, old: bool) -> None:
    """Opens the store: it has everything, or reports, again and again, that the tables are missing."""
    if how in ("removed", "moved", "file removed") and old:
        for _ in range(2):
            with pytest.raises(planstep.Corruption, match="the tables are empty"):
                open_small(folder)
        if how != "moved":
            return
        shutil.rmtree(folder / "table")
        (folder.parent / "away").rename(folder / "table")
    assert held_in(folder) == acknowledged


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("how", HOW)
def test_a_checkpoint_that_finds_its_tables_gone(quick_path: Path, how: str, old: bool) -> None:
    folder = quick_path / "s"
    store = grown(folder, old)
    take_away(folder, how)
    write(store, {B + b"behind it": 2}, {B + b"payload": b"y" * 900})
    acknowledged, files = contents(store), log_of(folder)
    for _ in range(2):
        with pytest.raises(planstep.Corruption, match=r"data\.mdb was moved or removed"):
            store.checkpoint()
        with pytest.raises(planstep.NoSpace, match="a backup copies"):
            write(store, {A: "refused"})
    assert contents(store) == acknowledged
    pinned = PinnedStore(store)
    assert contents(pinned) == acknowledged
    pinned.close()
    store.close()
    assert log_of(folder) >= files
    assert_nothing_lost(folder, acknowledged, how, old)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("end", ["close", "close, nothing unsaved", "crash"])
@pytest.mark.parametrize("how", HOW)
def test_an_end_that_finds_the_tables_gone(quick_path: Path, how: str, end: str, old: bool) -> None:
    folder = quick_path / "s"
    store = grown(folder, old)
    take_away(folder, how)
    if end != "close, nothing unsaved":
        write(store, {B + b"behind it": 2}, {B + b"payload": b"y" * 900})
    acknowledged, files = contents(store), log_of(folder)
    if end == "crash":
        crash(store)
    else:
        with pytest.raises(planstep.Corruption, match=r"data\.mdb was moved or removed"):
            store.close()
    assert log_of(folder) >= files
    assert_nothing_lost(folder, acknowledged, how, old)


@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_an_engine_without_its_tables_is_still_copied(
    tmp_path: Path, hosts: int, mode: str
) -> None:
    db = planstep.open(tmp_path / "s", hosts=hosts, mode=mode)
    topic = db.create_topic("t", partitions=4, format="json")
    topic.write(0, key="k0")
    stores = [node.host.store for node in db._runtime.nodes]
    for store in stores:
        store.checkpoint()
    for host in (tmp_path / "s").glob("host-*"):
        shutil.rmtree(host / "table")
    for n in range(1, 20):
        topic.write(n, key=f"k{n}")
    for store in stores:
        with pytest.raises(planstep.Corruption):
            store.checkpoint()
    for n in range(3):  # mode kafka's answers have no texts of their own, and refer to the log
        with pytest.raises(planstep.NoSpace, match=r"a backup copies|in the log"):
            topic.write("refused", key=f"k{n}")
    assert sorted(topic.read().values) == list(range(20))
    db.backup(tmp_path / "b")
    db.close()
    for path in (tmp_path / "b", tmp_path / "s"):  # its log goes back to the first turn
        with planstep.open(path) as again:
            assert sorted(again.topic("t").read().values) == list(range(20))
            again.topic("t").write("new")


@pytest.mark.parametrize("read_only", [False, True])
def test_tables_removed_from_a_closed_store(tmp_path: Path, read_only: bool) -> None:
    """The owner rebuilds them from a log that goes back to the first turn; a read-only opener creates nothing."""
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t").put(1, 1)
    shutil.rmtree(tmp_path / "s" / "host-0" / "table")
    assert verify(tmp_path / "s" / "host-0")
    if read_only:
        with pytest.raises(planstep.FormatError, match="holds no tables"):
            planstep.open(tmp_path / "s", read_only=True)
        assert not (tmp_path / "s" / "host-0" / "table").exists()
    else:
        with planstep.open(tmp_path / "s", create=False) as db:
            assert db.table("t").get(1) == 1
