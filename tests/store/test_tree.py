"""Tests that damaged pages of the tables are refused before LMDB follows them, and that good ones never are.

LMDB ends the process at most of these, so the page check sees each damage first, and LMDB never opens it here.
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import pack_into, unpack_from

import lmdb
import pytest
from kit import Child

from planstep.errors import Corruption
from planstep.store.tables import page_check
from planstep.store.tables.page_check import check_tree
from planstep.store.tables.table import Table

PAGE = 4096
ROWS = 3_000
STORE = bytes(16)
STATE = (1, 0, "log-00000001-00000000", False, 0)


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """Makes tables with branch pages, overflow pages and free pages."""
    table = Table(quick_path, STORE)
    for begin in (0, 1):
        rows = {b"tabl%08d" % n: n for n in range(begin, ROWS, 2)}
        table.checkpoint(rows | {b"tablong%d" % begin: b"v" * 9_000}, [], [], STATE)
    table.close()
    return quick_path


class Pages:
    """Reads the file's bytes, and finds the pages in them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "data.mdb"
        self.data = bytearray(self.path.read_bytes())
        transactions = [unpack_from("=Q", self.data, at * PAGE + 144)[0] for at in (0, 1)]
        self.meta = PAGE * (transactions[1] > transactions[0])
        (self.root,) = unpack_from("=Q", self.data, self.meta + 128)
        (self.free,) = unpack_from("=Q", self.data, self.meta + 80)
        assert unpack_from("=H", self.data, self.meta + 94) == (2,), "one branch page and leaves"
        self.children = []
        for at in self.offsets(self.root):
            low, high = unpack_from("=HI", self.data, at)
            self.children.append(low | high << 16)

    def offsets(self, page: int) -> list[int]:
        """Returns the places of a page's entries in the file."""
        (lower,) = unpack_from("=H", self.data, page * PAGE + 12)
        found = unpack_from(f"={(lower - 16) // 2}H", self.data, page * PAGE + 16)
        return [page * PAGE + at for at in found]

    def long(self) -> tuple[int, int]:
        """Returns the place of an entry whose value is in overflow pages, and the first of those pages."""
        for page in self.children:
            for at in self.offsets(page):
                _, _, flags, key = unpack_from("=HHHH", self.data, at)
                if flags == 1:
                    return at, unpack_from("=Q", self.data, at + 8 + key)[0]
        raise AssertionError("no value is in overflow pages")

    def page(self, number: int) -> bytes:
        return bytes(self.data[number * PAGE : number * PAGE + PAGE])

    def put(self, number: int, page: bytes) -> None:
        self.data[number * PAGE : number * PAGE + PAGE] = page


def zeroed_leaf(pages: Pages) -> int:
    pages.put(pages.children[3], bytes(PAGE))
    return pages.children[3]


def zeroed_root(pages: Pages) -> int:
    pages.put(pages.root, bytes(PAGE))
    return pages.root


def exchanged_leaves(pages: Pages) -> int:
    one, other = sorted(pages.children[1:3])
    first, second = pages.page(one), pages.page(other)
    pages.put(one, second)
    pages.put(other, first)
    return one


def branch_in_place_of_a_leaf(pages: Pages) -> int:
    leaf = pages.children[2]
    pages.put(leaf, pages.page(pages.root))
    pack_into("=Q", pages.data, leaf * PAGE, leaf)
    return leaf


def leaf_twice(pages: Pages) -> int:
    at = pages.offsets(pages.root)[4]
    pack_into("=H", pages.data, at, pages.children[3])
    return pages.children[3]


def leaf_beyond_the_file(pages: Pages) -> int:
    at = pages.offsets(pages.root)[4]
    pack_into("=H", pages.data, at, len(pages.data) // PAGE)
    return len(pages.data) // PAGE


def flipped_offset(pages: Pages) -> int:
    leaf = pages.children[3]
    pages.data[leaf * PAGE + 16 + 1] ^= 0x40
    return leaf


def entry_twice(pages: Pages) -> int:
    """Replaces an entry by another of the same length: if that is a power of two, a single bit does it."""
    leaf = pages.children[3]
    at = leaf * PAGE + 16
    pages.data[at + 12 : at + 14] = pages.data[at + 10 : at + 12]
    return leaf


def flipped_size(pages: Pages) -> int:
    leaf = pages.children[3]
    pages.data[pages.offsets(leaf)[2] + 1] ^= 0x80
    return leaf


def flipped_high_size(pages: Pages) -> int:
    leaf = pages.children[3]
    pages.data[pages.offsets(leaf)[2] + 3] ^= 0x80
    return leaf


def flipped_kind(pages: Pages) -> int:
    leaf = pages.children[3]
    pages.data[pages.offsets(leaf)[2] + 4] ^= 4
    return leaf


def flipped_key_size(pages: Pages) -> int:
    leaf = pages.children[3]
    pages.data[pages.offsets(leaf)[2] + 6] ^= 2
    return leaf


def flipped_branch_key_size(pages: Pages) -> int:
    pages.data[pages.offsets(pages.root)[2] + 7] ^= 0x40
    return pages.root


def flipped_branch_key(pages: Pages) -> int:
    """Makes a search for a row look in the wrong leaf, and find none."""
    pages.data[pages.offsets(pages.root)[5] + 8 + 8] ^= 8
    return pages.children[5]


def flipped_bound(pages: Pages) -> int:
    leaf = pages.children[3]
    pages.data[leaf * PAGE + 15] ^= 0x80
    return leaf


def no_entries(pages: Pages) -> int:
    leaf = pages.children[3]
    pack_into("=HH", pages.data, leaf * PAGE + 12, 16, PAGE)
    return leaf


def zeroed_overflow(pages: Pages) -> int:
    _, first = pages.long()
    pages.put(first, bytes(PAGE))
    return first


def overflow_too_short(pages: Pages) -> int:
    _, first = pages.long()
    pack_into("=I", pages.data, first * PAGE + 12, 2)
    return first


def overflow_in_use(pages: Pages) -> int:
    at, _ = pages.long()
    (key,) = unpack_from("=H", pages.data, at + 6)
    pack_into("=Q", pages.data, at + 8 + key, pages.children[0])
    return pages.children[0]


def zeroed_free(pages: Pages) -> int:
    pages.put(pages.free, bytes(PAGE))
    return pages.free


def in_use_and_free(pages: Pages) -> int:
    at = pages.offsets(pages.free)[0]
    pack_into("=Q", pages.data, at + 8 + 8 + 8, pages.children[3])
    return pages.children[3]


def free_beyond_the_file(pages: Pages) -> int:
    at = pages.offsets(pages.free)[0]
    pack_into("=Q", pages.data, at + 8 + 8 + 8, 1 << 40)
    return 1 << 40


OWNERS = (zeroed_free, in_use_and_free, free_beyond_the_file)
EVERYBODYS = (
    zeroed_leaf,
    zeroed_root,
    exchanged_leaves,
    branch_in_place_of_a_leaf,
    leaf_twice,
    leaf_beyond_the_file,
    flipped_offset,
    entry_twice,
    flipped_size,
    flipped_high_size,
    flipped_kind,
    flipped_key_size,
    flipped_branch_key_size,
    flipped_branch_key,
    flipped_bound,
    no_entries,
    zeroed_overflow,
    overflow_too_short,
    overflow_in_use,
)


@pytest.mark.parametrize("damage", [*EVERYBODYS, *OWNERS])
def test_damaged_pages_are_named(folder: Path, damage: Callable[[Pages], int]) -> None:
    check_tree(folder)
    pages = Pages(folder)
    number = damage(pages)
    pages.path.write_bytes(pages.data)
    with pytest.raises(Corruption, match=rf"data\.mdb: damaged: page {number}\b"):
        Table(folder, STORE)
    if damage in OWNERS:  # a read-only opener does not touch them
        assert len(everything(folder)) == ROWS + 5
    else:
        met = pages.root if damage is flipped_branch_key else number  # it is out of order there
        with pytest.raises(Corruption, match=rf"data\.mdb: damaged: page {met}\b"):
            everything(folder)


def everything(folder: Path) -> list[tuple[bytes, bytes]]:
    """Reads all entries as a reader in another process does."""
    table = Table(folder, STORE, read_only=True)
    try:
        return list(table.entries())
    finally:
        table.close()


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (40, "=I", 8192),  # the size of pages
        (40, "=I", 0),
        (92, "=H", 4),  # the kind of tree
        (94, "=H", 1),  # its depth
        (94, "=H", 200),
        (128, "=Q", (1 << 64) - 1),  # its root
        (128, "=Q", 1),
        (136, "=Q", 3),  # the last page
        (144, "=Q", 9),  # the transaction: not one for this place
    ],
)
def test_a_damaged_meta_page_is_named(folder: Path, at: int, form: str, value: int) -> None:
    pages = Pages(folder)
    if form == "=Q" and at == 144:
        value += pages.meta == PAGE
    pack_into(form, pages.data, pages.meta + at, value)
    pages.path.write_bytes(pages.data)
    with pytest.raises(Corruption):
        Table(folder, STORE)
    with pytest.raises(Corruption):
        everything(folder)


def test_what_is_not_lmdbs_is_left_to_it(quick_path: Path) -> None:
    check_tree(quick_path)
    for data in (b"", b"\0" * 9_000, b"planstep" * 1_000):
        (quick_path / "data.mdb").write_bytes(data)
        check_tree(quick_path)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_version_that_nobody_knows_is_damage(folder: Path, read_only: bool) -> None:
    """The binding refuses it like tables that are open already, which would be reported as in use."""
    pages = Pages(folder)
    pages.data[20] ^= 4
    pages.path.write_bytes(pages.data)
    with pytest.raises(Corruption, match="cannot be opened"):
        Table(folder, STORE, read_only=read_only)


def test_the_format_of_lmdb_1_is_left_to_it(quick_path: Path) -> None:
    path = quick_path / "other"
    try:
        with lmdb.open(os.fspath(path), lib_version=1) as env, env.begin(write=True) as txn:
            for n in range(1_000):
                txn.put(b"%d" % n, bytes(50))
    except (lmdb.Error, TypeError, ValueError) as error:
        pytest.skip(f"this py-lmdb does not write it: {error}")
    check_tree(path)


def test_the_leaves_of_large_tables_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Pages(folder)
    leaf = zeroed_leaf(pages)
    pages.path.write_bytes(pages.data)
    with pytest.raises(Corruption, match=f"page {leaf}"):
        check_tree(folder)
    monkeypatch.setattr(page_check, "LEAVES_UP_TO", 100 << 10)
    check_tree(folder)
    zeroed_root(pages)
    pages.path.write_bytes(pages.data)
    with pytest.raises(Corruption, match=f"page {pages.root}"):
        check_tree(folder)


def test_no_good_file_is_refused(quick_path: Path) -> None:
    """Puts, overwrites and deletes random rows, and checks the pages after each commit."""
    depths = set()
    for seed in range(60):
        rng = random.Random(seed)
        folder = quick_path / "s"
        rows, largest = rng.choice([1, 10, 300, 1_500]), rng.choice([0, 60, 2_000, 20_000])
        longest = rng.choice([8, 100, 500])
        keys: list[bytes] = []
        with lmdb.open(os.fspath(folder), map_size=1 << 28, sync=False, lock=False) as env:
            check_tree(folder)
            for _ in range(rng.randrange(1, 6)):
                with env.begin(write=True) as txn:
                    for _ in range(rows):
                        if keys and rng.random() < 0.4:
                            txn.delete(keys.pop(rng.randrange(len(keys))))
                        else:
                            keys.append(rng.randbytes(rng.randrange(1, longest)))
                            size = rng.randrange(largest + 1) if rng.random() < 0.1 else 20
                            txn.put(keys[-1], bytes(size))
                    if rng.random() < 0.1:
                        while keys:
                            txn.delete(keys.pop())
                depths.add(env.stat()["depth"])
                check_tree(folder)
        shutil.rmtree(folder)
    assert depths >= {0, 1, 2, 3}


WRITER = """
import pathlib, random, sys
from planstep.store.tables.table import Table

table, rng, n = Table(pathlib.Path(sys.argv[1]), bytes(16)), random.Random(1), 0
print("began", flush=True)
while True:
    n += 1
    keys = [b"tabl%08d" % rng.randrange(5_000) for _ in range(rng.randrange(1, 400))]
    changes = {key: bytes(rng.choice([5, 50, 3_000])) for key in keys}
    table.checkpoint(changes, [], [], (n, 0, "log-00000001-00000000", False, 0))
"""


def test_looks_at_a_file_whose_owner_was_killed(quick_path: Path) -> None:
    for _ in range(4):
        with Child(WRITER, quick_path) as child:
            child.line()
        check_tree(quick_path)
    Table(quick_path, STORE).close()
