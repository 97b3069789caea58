"""Tests that a reader reads the tables as LMDB does, checks only what it reads, and survives what it meets."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack_into, unpack_from
from typing import Any

import lmdb
import pytest
from kit import Child

import planstep
from planstep.errors import Corruption, PlanstepError
from planstep.spark.picture import opened_view
from planstep.store.tables import page_check, page_reader
from planstep.store.tables.page_format import PageFile
from planstep.store.tables.page_reader import TablesFile
from planstep.store.tables.table import Table
from planstep.store.verify import verify

STORE = bytes(16)
STATE = (1, 0, "log-00000001-00000000", False, 0)


@contextmanager
def both(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Begins a transaction of LMDB's, and one over checked pages."""
    file = TablesFile(folder)
    with (
        lmdb.open(os.fspath(folder), readonly=True, lock=False) as env,
        env.begin() as plain,
        file.begin(env) as checked,
    ):
        yield plain, checked
    file.close()


def moves(cursor: Any, rng: random.Random, keys: list[bytes]) -> list[Any]:
    """Moves a cursor at random; returns what it showed."""
    shown: list[Any] = []
    for _ in range(200):
        move = rng.choice(["first", "last", "set_range", "next", "prev", "next", "prev"])
        if not cursor.key() and move in ("next", "prev"):
            continue  # the engine never asks, and LMDB has several answers
        wanted = [rng.choice(keys) if rng.random() < 0.5 else rng.randbytes(3)]
        found = getattr(cursor, move)(*(wanted if move == "set_range" else []))
        shown.append((move, found, cursor.key(), cursor.item()))
    return shown


@pytest.mark.parametrize("held", [512, 2])
def test_it_shows_what_lmdb_shows(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(page_reader, "_HELD_PAGES", held)  # with few it reads leaves again
    depths = set()
    for seed in range(25):
        rng = random.Random(seed)
        folder = quick_path / f"s{seed}"
        rows, largest = rng.choice([0, 1, 10, 300, 3_000]), rng.choice([0, 60, 2_000, 20_000])
        keys = [rng.randbytes(rng.randrange(1, rng.choice([8, 300]))) for _ in range(rows)]
        with lmdb.open(os.fspath(folder), map_size=1 << 28, sync=False, lock=False) as env:
            for part in (keys, keys[::3]):
                with env.begin(write=True) as txn:
                    for key in part:
                        large = rng.random() < 0.1
                        txn.put(key, rng.randbytes(rng.randrange(largest + 1) if large else 20))
            with env.begin(write=True) as txn:
                for key in keys[::2]:
                    txn.delete(key)
            depths.add(env.stat()["depth"])
        with both(folder) as (plain, checked):
            assert type(checked) is not type(plain)
            for key in [*keys, b"", b"\xff" * 9, *keys, *(key + b"\0" for key in keys[:9])]:
                assert checked.get(key) == (plain.get(key) if key else None)
            assert list(checked.cursor()) == list(plain.cursor())
            shown = [
                moves(t.cursor(), random.Random(seed), keys or [b"k"]) for t in (plain, checked)
            ]
            assert shown[0] == shown[1]
    assert depths >= {0, 1, 2, 3}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lists the numbers of pages that readers read."""
    numbers: list[int] = []
    plain = PageFile.read

    def read(self: PageFile, number: int, length: int) -> bytes:
        numbers.append(number)
        return plain(self, number, length)

    monkeypatch.setattr(PageFile, "read", read)
    return numbers


def test_what_a_topic_s_reader_looks_at_does_not_grow_with_tables(
    tmp_path: Path, looked: list[int]
) -> None:
    """A task of Spark opens the store for a topic's records only."""
    pages = []
    for rows in (10, 20_000):
        store = tmp_path / f"{rows}"
        with planstep.open(store, hosts=1) as db:
            topic = db.create_topic("t", partitions=4, format="json")
            db.create_table("large").load((n, "v" * 50) for n in range(rows))
            topic.write({"n": 1}, key="k")
        looked.clear()
        with opened_view(os.fspath(store)) as (db, view):
            assert sum(end for _, end in view.bounds("t").values()) == 1
            assert len(view.read("t")) == 1
            pages.append(len(looked))
            assert view.get("large", rows - 1) == "v" * 50
        assert len(looked) - pages[-1] <= 4, "a row is looked up"
    assert (tmp_path / "20000/host-0/table/data.mdb").stat().st_size > 300 * 4096
    assert pages[1] <= pages[0] + 20 < 60


def test_damage_costs_only_those_who_meet_it(quick_path: Path) -> None:
    """A row in a page that is whole is read; the one in the damaged page is an error, again and again."""
    table = Table(quick_path, STORE)
    table.checkpoint({b"tabl%05d" % n: n for n in range(5_000)}, [], [], STATE)
    table.close()
    path = quick_path / "data.mdb"
    data = bytearray(path.read_bytes())
    at = data.index(b"ktabl02500") // 4096 * 4096
    data[at : at + 4096] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(Corruption):
        Table(quick_path, STORE)
    table = Table(quick_path, STORE, read_only=True)
    for _ in range(2):
        assert table.get(b"tabl00007") == 7
        assert len(list(table.scan(b"tabl00000", b"tabl01000", False))) == 1_000
        for key in (b"tabl02500", b"tabl02500x"):
            with pytest.raises(Corruption, match=r"data\.mdb: damaged: page \d+"):
                table.get(key)
        with pytest.raises(Corruption):
            list(table.scan(b"tabl02000", b"tabl03000", True))
    table.close()


@pytest.mark.parametrize("value", [1 << 47, 1 << 20, 0])
def test_a_branch_page_that_leads_out_of_the_file(quick_path: Path, value: int) -> None:
    """A lookup meets it first: no scan has."""
    table = Table(quick_path, STORE)
    table.checkpoint({b"tabl%05d" % n: n for n in range(5_000)}, [], [], STATE)
    table.close()
    path = quick_path / "data.mdb"
    data = bytearray(path.read_bytes())
    meta = 4096 * (unpack_from("=Q", data, 4096 + 144) > unpack_from("=Q", data, 144))
    (root,) = unpack_from("=Q", data, meta + 128)
    (offset,) = unpack_from("=H", data, root * 4096 + 16 + 2 * 5)
    pack_into("=IH", data, root * 4096 + offset, value & 0xFFFFFFFF, value >> 32)
    path.write_bytes(data)
    table = Table(quick_path, STORE, read_only=True)
    found = []
    for n in range(0, 5_000, 50):
        try:
            found.append(table.get(b"tabl%05d" % n))
        except Corruption as error:
            assert f"page {value}" in str(error)
    assert 0 < len(found) < 100
    table.close()


@pytest.mark.parametrize("bit", range(0, 64, 3))
def test_a_last_page_that_cannot_be(quick_path: Path, bit: int) -> None:
    """The memory that a reader takes is bounded by the file; LMDB refuses to map some of these."""
    table = Table(quick_path, STORE)
    table.checkpoint({b"tabl%05d" % n: n for n in range(500)}, [], [], STATE)
    table.close()
    path = quick_path / "data.mdb"
    data = bytearray(path.read_bytes())
    meta = 4096 * (unpack_from("=Q", data, 4096 + 144) > unpack_from("=Q", data, 144))
    data[meta + 136 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    try:
        table = Table(quick_path, STORE, read_only=True)
        try:
            assert table.get(b"tabl00007") == 7
        finally:
            table.close()
    except PlanstepError:
        pass


def test_a_page_that_is_damaged_while_the_store_is_open_ends_no_reader(quick_path: Path) -> None:
    """Cuts the file under an open reader, and zeroes it: an access through a map would end the process."""
    table = Table(quick_path, STORE)
    table.checkpoint({b"tabl%05d" % n: n for n in range(5_000)}, [], [], STATE)
    table.close()
    path = quick_path / "data.mdb"
    whole = path.read_bytes()
    table = Table(quick_path, STORE, read_only=True)
    txn = table.pin()
    assert table.get(b"tabl00007", txn) == 7
    os.truncate(path, 3 * 4096)
    with pytest.raises(Corruption, match="is cut off"):
        list(table.scan(b"t", b"u", False, txn))
    path.write_bytes(whole[: 2 * 4096] + bytes(len(whole) - 2 * 4096))
    with pytest.raises(Corruption):
        list(table.scan(b"t", b"u", False, txn))
    txn.abort()
    table.close()


def test_random_damage_is_refused_or_not_met(quick_path: Path) -> None:
    """A reader of everything gets all as written, or a typed error."""
    table = Table(quick_path, STORE)
    rows: dict[bytes, Any] = {b"tabl%08d" % n: n for n in range(3_000)}
    rows |= {b"tablong%d" % n: b"v" * 9_000 for n in range(3)}
    table.checkpoint(rows, [], [], STATE)
    table.close()
    path = quick_path / "data.mdb"
    whole = path.read_bytes()
    rng = random.Random(22)
    ends = {"refused": 0, "as written": 0}
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            table = Table(quick_path, STORE, read_only=True)
            try:
                assert dict(table.scan(b"t", b"u", False)) == rows
                assert all(
                    table.get(key) == row for key, row in rows.items() if rng.random() < 0.05
                )
            finally:
                table.close()
            ends["as written"] += 1
        except PlanstepError:
            ends["refused"] += 1
    assert min(ends.values()) > 5


WRITER = """
import pathlib, random, sys
from planstep.store.tables.table import Table

table, rng, n = Table(pathlib.Path(sys.argv[1]), bytes(16)), random.Random(1), 0
while True:
    n += 1
    table.checkpoint({b"tabl%04d" % rng.randrange(2_000): n for _ in range(300)} | {b"tablast": n}, [], [],
                     (n, 0, "log-00000001-00000000", False, 0))
    if n == 1:
        print("began", flush=True)
"""


def test_a_pinned_view_stands_still_while_the_owner_writes(quick_path: Path) -> None:
    with Child(WRITER, quick_path) as child:
        child.line()
        table = Table(quick_path, STORE, read_only=True)
        newest = 0
        for _ in range(15):
            txn = table.pin()
            rows = dict(table.scan(b"t", b"u", False, txn))
            assert max(rows.values()) == rows[b"tablast"] == table.state(txn)[0] >= newest
            newest = rows[b"tablast"]
            assert [*table.scan(b"t", b"u", True, txn)][::-1] == [*rows.items()]
            txn.abort()
        table.close()
    assert newest > 1


def test_a_reader_walks_no_tree_and_verify_walks_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "s", hosts=1) as db:
        db.create_table("t").load((n, n) for n in range(3_000))
    host = tmp_path / "s" / "host-0"
    path = host / "table" / "data.mdb"
    data = bytearray(path.read_bytes())
    at = len(data) // 2 // 4096 * 4096
    data[at : at + 16] = bytes(16)
    path.write_bytes(data)
    monkeypatch.setattr(page_check._Look, "look", lambda _: pytest.fail("every page is checked"))
    with planstep.open(tmp_path / "s", read_only=True) as db:
        assert db.table("t").describe().name == "t"
        with pytest.raises(Corruption):
            db.table("t").scan()
    assert verify(host)
