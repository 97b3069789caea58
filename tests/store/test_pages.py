"""Tests outcomes in pages: small, as old stores had them, damaged; and lookups that need no tables at all."""

from pathlib import Path
from typing import Any

import pytest
from storekit import TABLETS, FastFiles, crash, write

from planstep.errors import Corruption
from planstep.proto.ids import tx_id
from planstep.store import DiskStore
from planstep.store.tables import digested_rows
from planstep.store.tables.checksums import seal, unseal
from planstep.store.tables.pages import PAGED, PAGED_END
from planstep.store.tables.table import Table
from planstep.store.verify import verify

A = TABLETS[0]


def outcome(counter: int) -> tuple[bytes, Any]:
    """Returns the key and row of an outcome as the coordinator writes them."""
    return PAGED + tx_id(3, counter), (2, counter, 0, 1_763_900_000_000 + counter // 7, (1, 2))


def opened(folder: Path) -> DiskStore:
    return DiskStore.open(folder, files=FastFiles())


def entry_count(store: DiskStore, kind: bytes) -> int:
    return sum(1 for key, _ in store.table.entries() if key[:1] == kind)


def used_bytes(store: DiskStore) -> int:
    stat = store.table.environment.stat()
    pages: int = stat["leaf_pages"] + stat["branch_pages"] + stat["overflow_pages"]
    return pages * int(stat["psize"])


def test_an_outcome_takes_less_than_twenty_bytes(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    for begin in range(0, 20_000, 500):  # the last page of each checkpoint is written again
        write(store, dict(map(outcome, range(begin, begin + 500))))
        store.checkpoint()
    assert used_bytes(store) < 20 * 20_000
    assert entry_count(store, b"p") == 20_000 // 256 + 1 and entry_count(store, b"k") == 0
    for counter in (0, 255, 256, 19_999):
        key, row = outcome(counter)
        assert store.get(key) == row
    assert store.get(outcome(20_000)[0]) is None
    newest = store.scan(PAGED, PAGED_END, reverse=True, limit=3)
    assert newest == [outcome(counter) for counter in (19_999, 19_998, 19_997)]
    write(store, dict.fromkeys((key for key, _ in map(outcome, range(19_900))), None))
    store.checkpoint()
    assert store.scan(PAGED, PAGED_END) == [outcome(n) for n in range(19_900, 20_000)]
    assert entry_count(store, b"p") == 2, "empty pages are gone"
    store.close()
    assert verify(tmp_path / "s") == []


def test_rows_of_an_older_version_stay_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "s"
    store = opened(folder)
    with monkeypatch.context() as older:
        older.setattr(
            "planstep.store.tables.pages.Pages.entries",
            lambda self, txn, changes: {b"k" + key: value for key, value in changes.items()},
        )
        older.setattr(digested_rows, "_SEALS", 1)
        write(store, dict(map(outcome, range(0, 600, 2))))
        store.checkpoint()
    assert entry_count(store, b"k") == 300
    write(store, dict(map(outcome, range(1, 600, 2))))
    store.checkpoint()
    everything = [outcome(n) for n in range(600)]
    assert store.scan(PAGED, PAGED_END) == everything
    assert store.scan(PAGED, PAGED_END, reverse=True) == everything[::-1]
    assert [store.get(key) for key, _ in everything] == [row for _, row in everything]
    changed = (*everything[0][1][:-1], ())
    write(store, {everything[0][0]: changed, everything[2][0]: None})
    store.checkpoint()
    assert entry_count(store, b"k") == 298 and entry_count(store, b"p") == 3
    assert store.get(everything[0][0]) == changed and store.get(everything[2][0]) is None
    assert len(store.scan(PAGED, PAGED_END)) == 599
    store.close()
    assert verify(folder) == []


def test_tablets_of_an_older_version_keep_their_digests(tmp_path: Path) -> None:
    """In format 1 a tablet's digest sums a longer hash of each entry, and has no mark."""
    folder = tmp_path / "s"
    store = opened(folder)
    store.checkpoint()
    key, data = b"k" + A + b"a", seal(b"k" + A + b"a", 1)
    digest = (digested_rows.hash_entry(key[1:], data), 1)
    with store.table.environment.begin(write=True) as txn:
        txn.put(key, data)
        txn.put(b"d" + A, seal(b"d" + A, digest))
    crash(store)
    assert verify(folder) == []
    store = opened(folder)
    write(store, {A + b"a": 2, A + b"b": 3})
    store.close()
    assert verify(folder) == []
    store = opened(folder)
    (stored,) = (value for key, value in store.table.entries() if key == b"d" + A)
    assert len(unseal(b"d" + A, stored)) == 2
    store.close()


@pytest.mark.parametrize("older", [False, True], ids=["flipped", "the page before"])
def test_a_damaged_page_is_noticed(tmp_path: Path, older: bool) -> None:
    folder = tmp_path / "s"
    store = opened(folder)
    write(store, dict(map(outcome, range(100))))
    store.checkpoint()
    page = b"p" + outcome(0)[0][:-1]
    with store.table.environment.begin() as txn:
        before = txn.get(page)
    write(store, dict(map(outcome, range(100, 120))))
    store.checkpoint()
    with store.table.environment.begin(write=True) as txn:
        data = bytearray(txn.get(page))
        data[30] ^= 4
        txn.put(page, before if older else bytes(data))
    crash(store)
    problem = verify(folder)[0]
    assert "the digest over" in problem.what or "not what was written" in problem.what
    store = opened(folder)
    if older:
        assert store.get(outcome(110)[0]) is None, "no checksum of one entry can tell"
    else:
        with pytest.raises(Corruption, match="coordinator"):
            store.get(outcome(5)[0])
    crash(store)


def test_what_lies_behind_the_last_of_its_kind_is_not_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    write(store, {A + b"b1": 1, A + b"b3": 3, A + b"m": 0})
    store.checkpoint()
    asked: list[bytes] = []
    get = Table.get

    def counted(self: Table, key: bytes, txn: Any = None) -> Any:
        asked.append(key)
        return get(self, key, txn)

    monkeypatch.setattr(Table, "get", counted)
    assert [store.get(A + name) for name in (b"b4", b"b9", b"q", b"t1")] == [None] * 4
    assert asked == []
    assert (store.get(A + b"b2"), store.get(A + b"b3")) == (None, 3) and len(asked) == 2
    write(store, {A + b"b4": 4})
    store.checkpoint()
    assert store.get(A + b"b4") == 4, "a checkpoint moves the end"
    write(store, {A + b"b4": None})
    store.checkpoint()
    assert store.get(A + b"b4") is None
    store.close()
