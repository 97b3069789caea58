"""Tests a process that reads a store and becomes its owner, on what it has open."""

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import lmdb
import pytest
from kit import Child, FullDisk, until
from ownerkit import KEYS, Owner
from storekit import TABLETS, contents, crash, held_in, open_files, open_small, write

from planstep.errors import Corruption, IoError, NoSpace, StoreClosed, StoreInUse
from planstep.store import DiskStore
from planstep.store.owner_lock import OwnerLock
from planstep.store.readers.reader_lease import readers
from planstep.store.readers.readonly import ReadOnlyStore
from planstep.store.tables import table as table_module
from planstep.store.tables.table import Extent, Table

A, B = TABLETS
STORE = bytes(16)
STATE = (3, 300, "log-00000001-00000000", False, 0)
TABLES = """
import pathlib, sys
from planstep.store.tables.table import Extent, Table

table = Table(pathlib.Path(sys.argv[1]), bytes(16))
for turn in (1, 2):
    at = 100 * (turn - 1)
    extents = [Extent(at, "log-00000001-00000000", at, 100)]
    state = (turn, at + 100, "log-00000001-00000000", False, 0)
    table.checkpoint({b"\\x30\\0\\0\\1" + bytes([turn]): turn}, extents, [], state)
within = table._env.begin(write=True)  # as within a commit: it has the writers' lock
within.put(b"void", b"void")
print(table.newest(), flush=True)
sys.stdin.read()
"""
ROW = b"\x30\0\0\1"


def take_over(view: ReadOnlyStore, **settings: Any) -> DiskStore:
    """Makes this process the owner of a view's store, with small segments."""
    lock = OwnerLock(view.folder / "lock", 10, share=True)
    return DiskStore.take_over(view, lock, segment_bytes=8 << 10, **settings)


# tables ------------------------------------------------------------------------------------


@pytest.fixture
def read(quick_path: Path) -> Iterator[Table]:
    """Tables that a killed process owned, open to be owned; the process was within a commit."""
    folder = quick_path / "table"
    folder.mkdir()
    with Child(TABLES, folder) as owner:
        owner.line()
        table = Table(folder, STORE, read_only=True, ownable=True)
        owner.kill()
        with closing(table):
            yield table


WRITES: list[Callable[[Table], object]] = [
    lambda table: table.checkpoint({ROW: 3}, [], [], STATE),
    lambda table: table.move([Extent(0, "data-00000001", 0, 100)], frozenset()),
    lambda table: table.mark_closed("log-00000001-00000000"),
    lambda table: table._note_newest(table._folder),
]


@pytest.mark.parametrize("writes", WRITES)
def test_nothing_is_written_until_the_tables_are_owned(
    read: Table, writes: Callable[[Table], object]
) -> None:
    before = (read._folder / "data.mdb").read_bytes()
    with pytest.raises(StoreClosed):
        writes(read)
    assert (read._folder / "data.mdb").read_bytes() == before
    read.own(read._folder)
    writes(read)
    read.disown()
    before = (read._folder / "data.mdb").read_bytes()
    with pytest.raises(StoreClosed):
        writes(read)
    assert (read._folder / "data.mdb").read_bytes() == before


def test_an_open_read_goes_on_as_it_was(read: Table) -> None:
    pinned = read.pin()
    read.own(read._folder)
    for n in range(3, 40):  # freed pages would be written again
        read.checkpoint({ROW + bytes([n % 7]): n, ROW + b"x": "y" * 3000}, [], [], (n, *STATE[1:]))
    assert read.get(ROW + b"\x02") == 37 and read.get(ROW + b"\x02", pinned) == 2
    assert read.state()[0] == 39 and read.state(pinned)[0] == 2
    assert [key for key, _ in read.scan(ROW, ROW + b"\xff", False, pinned)] == [
        ROW + b"\1",
        ROW + b"\2",
    ]
    pinned.abort()
    read.disown()
    assert read.get(ROW + b"\x02") == 37


def test_tables_that_are_damaged_are_not_written(read: Table) -> None:
    """They are checked before the first write; what is read meanwhile is checked page by page."""
    path = read._folder / "data.mdb"
    data = path.read_bytes()
    harmless = 0
    for page in range(2, len(data) // 4096):
        damaged = data[: page * 4096 + 10] + b"\xff\xff" + data[page * 4096 + 12 :]
        path.write_bytes(damaged)
        read.own(read._folder)
        try:
            read.checkpoint({ROW: 3}, [], [], STATE)
            harmless += 1  # nothing uses that page
        except Corruption:
            assert path.read_bytes() == damaged
            with pytest.raises(Corruption):
                read.checkpoint({ROW: 3}, [], [], STATE)
            break
        read.disown()
        path.write_bytes(data)
    else:
        pytest.fail("no page is looked at")
    read.disown()
    path.write_bytes(data)
    read.own(read._folder)
    read.checkpoint({ROW: 3}, [], [], STATE)
    assert read.state()[0] == 3


def test_large_tables_are_owned_as_fast_as_small_ones(
    read: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is checked that is not read, until the first write."""
    checks = []
    monkeypatch.setattr(table_module, "check_tree", lambda folder: checks.append(folder))
    read.own(read._folder)
    assert read.get(ROW + b"\x02") == 2 and list(read.scan(ROW, ROW + b"\xff", False))
    assert not checks
    read.checkpoint({ROW: 3}, [], [], STATE)
    read.mark_closed("log-00000001-00000000")
    assert read.get(ROW) == 3 and len(checks) == 1


def test_tables_that_are_trusted_are_read_by_lmdb_itself(read: Table) -> None:
    """A snapshot of a replicated store is LMDB's own copy."""
    read.own(read._folder)
    with closing_pin(read) as checked:
        assert not isinstance(checked, lmdb.Transaction)
    read.trust()
    with closing_pin(read) as pinned:
        assert isinstance(pinned, lmdb.Transaction)
    read.disown()
    with closing_pin(read) as checked:
        assert not isinstance(checked, lmdb.Transaction)


@contextmanager
def closing_pin(table: Table) -> Iterator[Any]:
    txn = table.pin()
    yield txn
    txn.abort()


def test_tables_that_were_replaced_are_not_owned(read: Table) -> None:
    copy = read._folder / "copy"
    shutil.copy(read._folder / "data.mdb", copy)
    copy.rename(read._folder / "data.mdb")
    with pytest.raises(IoError, match="replaced"):
        read.own(read._folder)
    with pytest.raises(StoreClosed):
        read.mark_closed("")


def test_who_ends_the_ownership_waits_for_a_write(read: Table) -> None:
    read.own(read._folder)
    within, go_on = threading.Event(), threading.Event()

    def rest() -> None:
        within.set()
        assert go_on.wait(60)

    rows = {ROW + n.to_bytes(2, "big"): n for n in range(2000)}
    writing = threading.Thread(target=read.checkpoint, args=(rows, [], [], STATE, rest))
    writing.start()
    assert within.wait(60)
    ending = threading.Thread(target=read.disown)
    ending.start()
    assert read._owned
    go_on.set()
    ending.join(60)
    writing.join(60)
    assert not read._owned and read.state()[0] == 3


# stores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["full", "os"])
@pytest.mark.parametrize("seed", range(6))
def test_a_reader_becomes_the_owner_as_any_opener_does(
    quick_path: Path, seed: int, durability: str
) -> None:
    """The owner is killed; its views stay; the store is what an opening of a copy gives."""
    random, path = Random(seed), quick_path / "s"
    owner = Owner(path, random, durability)
    newest = ReadOnlyStore.open(path, ownable=True)
    views = [(newest, owner.held)]
    for _ in range(random.randint(1, 60)):
        owner.act()
        if random.random() < 0.2:
            newest = newest.newer()
            views.append((newest, owner.held))
    held, acknowledged = owner.held, owner.turn
    with pytest.raises(StoreInUse):
        OwnerLock(path / "lock")
    owner.kill()
    copy = quick_path / "copy"
    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("leases", "lock.mdb"))
    with closing(open_small(copy, durability=durability)) as same:
        expected = (same.generation, same.last_turn, same.next_address, same.clean)
        assert contents(same) == held
    store = take_over(newest, durability=durability)
    assert (store.generation, store.last_turn, store.next_address, store.clean) == expected
    assert store.generation > newest.generation and store.last_turn == acknowledged
    assert contents(store) == held
    with closing(newest.newer()) as shown:  # by the former owner
        assert contents(shown) == held
    store.begin_to_show()
    for n in range(random.randint(1, 30)):
        key = random.choice(KEYS)
        held = {**held, key: n}
        write(store, {key: n})
        if random.random() < 0.1:
            store.checkpoint()
        view, then = random.choice(views)
        assert contents(view) == then
        if random.random() < 0.1:
            later = newest.newer()
            assert contents(later) == held
            views.append((later, held))
    assert contents(store) == held
    store.close() if random.random() < 0.5 else crash(store)
    for view, then in views:
        assert contents(view) == then
        view.close()
    assert not readers(path)
    assert not [name for name in open_files(os.getpid()) if path in name.parents]
    assert held_in(path) == held


def test_views_stay_while_owners_change(quick_path: Path) -> None:
    """This process and others own the store by turns; a view of the first turn sees it until the end."""
    path = quick_path / "s"
    owner = Owner(path, Random(1), "full")
    first = newest = ReadOnlyStore.open(path, ownable=True)
    then = owner.held
    generation = first.generation
    for n in range(1, 6):
        owner.write({A: n}, {B + b"p": 700})
        owner.ask("checkpoint")
        owner.kill()
        newest = newest.newer()
        store = take_over(newest)
        assert store.get(A) == n and store.generation > generation
        generation = store.generation
        write(store, {A: -n})
        store.checkpoint()
        crash(store) if n % 2 else store.close()
        owner = Owner.again(path)
        generation += 1
        assert owner.generation == generation
        later = newest.newer()
        assert later.get(A) == -n and contents(first) == then
        if newest is not first:
            newest.close()
        newest = later
    owner.kill()
    newest.close()
    first.close()


@pytest.mark.parametrize("damage", ["log", "lost segment"])
def test_damage_is_found_as_at_any_opening(quick_path: Path, damage: str) -> None:
    """The lock is free again, and the view stays."""
    path = quick_path / "s"
    owner = Owner(path, Random(1), "full")
    owner.write({A: 1})
    begin, segment = owner.offset, path / owner.segment
    owner.write({A: 2})
    view = ReadOnlyStore.open(path, ownable=True)
    owner.kill()
    data = segment.read_bytes()
    if damage == "log":
        segment.write_bytes(data[: begin + 20] + b"\xff\xff\xff" + data[begin + 23 :])
    else:
        segment.unlink()
    for _ in range(2):
        with pytest.raises(Corruption):
            take_over(view)
    assert view.get(A) == 2
    with pytest.raises(StoreClosed):
        view.table.mark_closed("")
    segment.write_bytes(data)
    with closing(take_over(view)) as store:
        assert store.get(A) == 2
    view.close()


def test_without_room_the_lock_is_free_again(quick_path: Path) -> None:
    path = quick_path / "s"
    owner = Owner(path, Random(1), "full")
    owner.write({A: 1})
    view = ReadOnlyStore.open(path, ownable=True)
    owner.kill()
    (path / "reserve").unlink(missing_ok=True)
    for name in path.glob("reserve*"):
        name.unlink()
    full = FullDisk()
    full.full = True
    with pytest.raises(NoSpace):
        take_over(view, files=full)
    with pytest.raises(StoreClosed):
        view.table.mark_closed("")
    OwnerLock(path / "lock").close()
    full.full = False
    with closing(take_over(view, files=full)) as store:
        write(store, {A: 2})
        assert view.get(A) == 1
    view.close()


def test_another_store_in_its_place_is_not_taken(quick_path: Path) -> None:
    path = quick_path / "s"
    owner = Owner(path, Random(1), "full")
    view = ReadOnlyStore.open(path, ownable=True)
    owner.kill()
    path.rename(quick_path / "moved")
    open_small(path).close()
    with pytest.raises(StoreClosed, match="another store"):
        take_over(view)
    OwnerLock(path / "lock").close()
    assert view.get(A) == 0
    view.close()


def test_a_copy_in_its_place_is_not_taken(quick_path: Path) -> None:
    """It has the store's id, and other files."""
    path = quick_path / "s"
    owner = Owner(path, Random(1), "full")
    view = ReadOnlyStore.open(path, ownable=True)
    owner.kill()
    path.rename(quick_path / "moved")
    shutil.copytree(quick_path / "moved", path)
    with pytest.raises(IoError, match="replaced"):
        take_over(view)
    OwnerLock(path / "lock").close()
    view.close()


@pytest.mark.skipif(
    sys.platform != "linux", reason="only there other processes are stopped by name"
)
def test_of_several_readers_one_becomes_the_owner(quick_path: Path) -> None:
    """The others follow it: their environments are open to be owned, too."""
    path = quick_path / "s"
    owner = Owner(path, Random(1), "full")
    owner.write({A: 1})
    with (
        Child(READER, path, Path(__file__).parent) as one,
        Child(READER, path, Path(__file__).parent) as two,
    ):
        assert one.line() == two.line() == "1"
        owner.kill()
        one.tell("own")
        assert one.line() == "owner"
        two.tell("own")
        assert two.line() == "StoreInUse"
        one.tell("write 7")
        assert one.line() == "7"
        two.tell("read")
        assert two.line() == "7"
        one.kill()
        two.tell("own")
        assert two.line() == "owner"
        two.tell("write 8")
        assert two.line() == "8"
    assert until(lambda: held_in(path)[A]) == 8


READER = """
import pathlib, sys
sys.path.insert(0, sys.argv[2])
from storekit import TABLETS, write
from planstep.errors import StoreInUse
from planstep.store import DiskStore
from planstep.store.owner_lock import OwnerLock
from planstep.store.readers.readonly import ReadOnlyStore

A, _ = TABLETS
path = pathlib.Path(sys.argv[1])
view = ReadOnlyStore.open(path, ownable=True)
print(view.get(A), flush=True)
for line in sys.stdin:
    what, *value = line.split()
    if what == "own":
        try:
            store = DiskStore.take_over(view, OwnerLock(path / "lock"), segment_bytes=8 << 10)
            print("owner", flush=True)
        except StoreInUse:
            print("StoreInUse", flush=True)
    elif what == "write":
        write(store, {A: int(value[0])})
        store.checkpoint()
        print(store.get(A), flush=True)
    else:
        view = view.newer()
        print(view.get(A), flush=True)
"""
