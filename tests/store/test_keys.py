"""Tests keys with flipped bits: reading them or past them raises Corruption, and never returns a wrong entry."""

from pathlib import Path
from struct import unpack_from
from typing import Any
from zlib import crc32

import pytest
from storekit import FIRST, LAST, TABLETS, FastFiles, crash, fill, open_small, write

from planstep.errors import Corruption
from planstep.store import DiskStore
from planstep.store.log.extents import Extent
from planstep.store.log.segments import segment_files
from planstep.store.tables.header_check import DATA_FILE
from planstep.store.tables.page_format import PageFile
from planstep.store.tables.table import Table

STORE = bytes(16)
PAGE = 4096
A, B = TABLETS


def keys() -> list[bytes]:
    """Returns keys of two tablets, of several lengths: neighbours that differ in their last bits, and others."""
    rows = [A + b"b" + n.to_bytes(8, "big") for n in range(0, 120, 2)]
    return sorted(
        [*rows, A + b"m", A + b"p", *(B + b"r" + bytes([n]) * (n % 5) for n in range(60))]
    )


ROWS = {key: (n, b"value" * (n % 9)) for n, key in enumerate(keys())}


def leaf_keys(data: bytes, letter: bytes = b"k") -> list[tuple[int, bytes]]:
    """Returns (place in the file, key) of each row, in used and formerly used pages."""
    found = []
    for at in range(2 * PAGE, len(data), PAGE):
        _, _, flags, lower, _ = unpack_from("=QHHHH", data, at)
        if flags != 2:
            continue
        for offset in unpack_from(f"={(lower - 16) // 2}H", data, at + 16):
            (size,) = unpack_from("=H", data, at + offset + 6)
            begin = at + offset + 8
            if data[begin : begin + 1] == letter:
                found.append((begin, data[begin : begin + size]))
    return found


def written(folder: Path, rows: dict[bytes, Any] = ROWS) -> bytes:
    """Makes tables that hold these rows; returns the bytes of their file."""
    table = Table(folder, STORE)
    table.checkpoint(rows, [], [], (1, 0, "log-00000001-00000000", False, 0))
    table.close()
    return (folder / DATA_FILE).read_bytes()


def flip(path: Path, key: bytes, byte: int = -1) -> None:
    """Flips the last bit of one byte of a key. With the last byte, all keys stay in order."""
    data = bytearray(path.read_bytes())
    for begin, found in leaf_keys(data):
        if found == b"k" + key:
            data[begin + 1 + byte % len(key)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("bit", range(8))
def test_flipped_keys(quick_path: Path, bit: int) -> None:
    whole, path = written(quick_path), quick_path / DATA_FILE
    looked = refused = 0
    for n, (begin, key) in enumerate(leaf_keys(whole)):
        at = begin + (n * 5 + bit) % len(key)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        looked += 1
        try:
            table = Table(quick_path, STORE, read_only=True)
        except Corruption:
            refused += 1
            continue
        for row in (key[1:], *list(ROWS)[:: len(ROWS) // 7]):
            try:
                assert table.get(row) == ROWS[row]
            except Corruption:
                refused += row == key[1:]
        for reverse in (False, True):
            for first, last in ((FIRST, LAST), (A + b"b", A + b"c"), (B, B + b"\xff")):
                expected = [(k, v) for k, v in ROWS.items() if first <= k < last]
                try:
                    shown = list(table.scan(first, last, reverse))
                except Corruption:
                    continue
                assert shown == (expected[::-1] if reverse else expected), (at, bit)
        table.close()
    assert looked >= len(ROWS) and refused >= len(ROWS)


@pytest.mark.parametrize("length", [10, 42, 106])
def test_flipped_places_of_rows(quick_path: Path, length: int) -> None:
    """With entries of 32, 64 or 128 bytes, the stored places of two entries differ in one bit."""
    rows = {B + b"r" + n.to_bytes(2, "big"): bytes([n]) * length for n in range(24)}
    whole, path = written(quick_path, rows), quick_path / DATA_FILE
    refused = 0
    at = next(at for at, key in leaf_keys(whole) if key[1:] in rows) // PAGE * PAGE
    (lower,) = unpack_from("=H", whole, at + 12)
    for place in range(at + 16, at + lower):
        for bit in range(8):
            flipped = bytes([whole[place] ^ 1 << bit])
            path.write_bytes(whole[:place] + flipped + whole[place + 1 :])
            try:
                table = Table(quick_path, STORE, read_only=True)
            except Corruption:
                refused += 1
                continue
            assert list(table.scan(B, B + b"\xff", False)) == list(rows.items())
            assert {key: table.get(key) for key in rows} == rows
            table.close()
    assert refused >= 8 * (lower - 16) // 2


FILES = [f"log-00000001-{n:08d}" for n in range(3)]
EXTENTS = [Extent(100 * n, FILES[n // 3], 400 * n, 90) for n in range(9)]


@pytest.mark.parametrize("letter", [b"a", b"s"])
@pytest.mark.parametrize("byte", [0, 1, -1])
def test_flipped_keys_of_payloads(quick_path: Path, letter: bytes, byte: int) -> None:
    """A file that seems empty would be removed; an extent that seems missing would not be copied."""
    table = Table(quick_path, STORE)
    table.checkpoint(ROWS, EXTENTS, [], (1, 900, FILES[-1], False, 0))
    live = table.live()
    table.close()
    path = quick_path / DATA_FILE
    whole = path.read_bytes()
    places = leaf_keys(whole, letter)
    refused = 0
    for begin, key in places:
        for bit in range(8):
            at = begin + byte % len(key)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            try:
                table = Table(quick_path, STORE, read_only=True)
            except Corruption:
                refused += 1
                continue
            try:
                assert table.live() == live
            except Corruption:
                refused += letter == b"s"
            for file in FILES:
                try:
                    held = list(table.extents(frozenset([file])))
                except Corruption:
                    refused += letter == b"a"
                    continue
                assert held == [extent for extent in EXTENTS if extent.file == file], (at, bit)
            table.close()
    assert len(places) >= len(FILES) and refused >= 8 * len(places)


def test_a_file_is_not_removed_for_a_key_that_flipped(quick_path: Path) -> None:
    store = open_small(quick_path / "s")
    fill(store, range(60))
    store.checkpoint()
    crash(store)
    path = quick_path / "s" / "table" / DATA_FILE
    data = bytearray(path.read_bytes())
    begin, _ = max(leaf_keys(data, b"s"), key=lambda place: place[1])
    data[begin] ^= 4  # still the last one, so a scan ends before it
    path.write_bytes(data)
    held = segment_files(quick_path / "s")
    store = open_small(quick_path / "s")
    write(store, {A: "goes on"})
    with pytest.raises(Corruption):
        store.checkpoint()
    crash(store)
    assert set(held) <= set(segment_files(quick_path / "s"))


def test_nothing_is_written_beside_a_key_that_flipped(quick_path: Path) -> None:
    """The new row would stand between that key and readers that search for it."""
    written(quick_path)
    lost = A + b"b" + (10).to_bytes(8, "big")
    flip(quick_path / DATA_FILE, lost)
    table = Table(quick_path, STORE)
    with pytest.raises(Corruption, match="is not what was written"):
        table.checkpoint({lost + b"\1": 1}, [], [], (2, 0, FILES[0], False, 0))
    with pytest.raises(Corruption, match="nothing is written to tables that are damaged"):
        table.checkpoint({B + b"far": 1}, [], [], (2, 0, FILES[0], False, 0))
    with pytest.raises(Corruption):
        table.get(lost)
    table.close()


def test_keys_out_of_order_are_refused_at_opening(quick_path: Path) -> None:
    written(quick_path)
    row = A + b"b" + (10).to_bytes(8, "big")
    flip(quick_path / DATA_FILE, row, 2)  # of another tablet, between rows of this one
    with pytest.raises(Corruption, match="out of order"):
        Table(quick_path, STORE)


def test_who_met_damage_writes_to_the_log_alone(quick_path: Path) -> None:
    """This holds for closing too: the tables stay unchanged for a repair, and nothing is lost."""
    store = DiskStore.open(quick_path / "s", files=FastFiles())
    write(store, ROWS)
    store.close()
    path = quick_path / "s" / "table" / DATA_FILE
    lost = A + b"b" + (10).to_bytes(8, "big")
    flip(path, lost)
    store = DiskStore.open(quick_path / "s", files=FastFiles())
    damaged = path.read_bytes()
    with pytest.raises(Corruption):
        store.get(lost)
    write(store, {B + b"new": 1})
    with pytest.raises(Corruption, match="nothing is written to tables that are damaged"):
        store.checkpoint()
    store.close()
    assert path.read_bytes() == damaged
    store = DiskStore.open(quick_path / "s", files=FastFiles())
    assert store.get(B + b"new") == 1
    with pytest.raises(Corruption):
        store.get(lost)
    crash(store)


LARGE = [B + b"r" + bytes([n]) for n in (0, 15, 16, 17)]
ABSENT = [B + b"r" + bytes([n]) for n in range(1, 15)]


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_beside_is_not_summed_up_each_time_where_it_is_large(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    """Rows may have 16 MB; inserting many rows next to such a row must not sum it up each time."""
    summed = 0

    def counting(data: Any, start: int = 0) -> int:
        nonlocal summed
        summed += len(data)
        return crc32(data, start)

    table = Table(quick_path, STORE)
    rows = {key: bytes([n]) * 200_000 for n, key in enumerate(LARGE)}
    table.checkpoint(rows, [], [], (1, 0, FILES[0], False, 0))
    monkeypatch.setattr("planstep.store.tables.checksums.crc32", counting)
    for key in ABSENT:
        assert table.get(key) is None
        assert list(table.scan(key, key + b"\0", reverse)) == []
    assert 400_000 < summed < 500_000
    assert {key: table.get(key) for key in LARGE} == rows
    table.close()


def test_a_large_row_s_key_that_flips_into_one_that_was_looked_at(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageFile, "check_keys", lambda *_: None)  # as for large tables
    written(quick_path, {key: bytes([n]) * 200_000 for n, key in enumerate(LARGE)})
    flip(quick_path / DATA_FILE, LARGE[3])
    table = Table(quick_path, STORE, read_only=True)
    assert table.get(ABSENT[-1]) is None
    assert table.get(LARGE[1] + b"\0") is None
    for _ in range(2):
        with pytest.raises(Corruption):
            table.get(LARGE[3])
    table.close()


def test_tables_of_an_older_version_open_beside_a_damaged_first_row(quick_path: Path) -> None:
    """These tables do not name their store, so only rows next to the damaged one are in doubt."""
    table = Table(quick_path, STORE)
    table.checkpoint(ROWS, [], [], (1, 0, FILES[0], False, 0))
    with table._env.begin(write=True) as txn:
        assert txn.delete(b"i")
    table.close()
    first, *others = ROWS
    flip(quick_path / DATA_FILE, first)
    table = Table(quick_path, STORE)
    assert [table.get(key) for key in others] == [ROWS[key] for key in others]
    new = {b"\xff" * 4 + b"a new tablet's": 1}
    table.checkpoint(new, [], [], (2, 0, FILES[0], False, 0))
    assert table.get(next(iter(new))) == 1
    with pytest.raises(Corruption):
        table.get(first)
    table.close()
