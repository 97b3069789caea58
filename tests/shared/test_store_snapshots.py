"""Tests snapshots of stores on disk: what comes back, what is sent, and what a damaged part does."""

import os
import random
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import background

import planstep
from planstep.errors import Corruption, IoError, LogUnreachable, StoreClosed
from planstep.shared.manifest import Manifest
from planstep.shared.memory_log import MemoryShared
from planstep.shared.snapshots import Snapshots
from planstep.store import DiskStore
from planstep.store.meta import FORMAT, Meta
from planstep.store.snapshot_making import make_snapshot
from planstep.store.snapshot_restoring import restore_snapshot
from planstep.store.verify import verify

MIB = 1 << 20


class Shop:
    """A store with a table and a topic, and snapshots of it in memory."""

    def __init__(self, path: Path) -> None:
        self.home = path
        self.db = planstep.open(path / "shop", durability="os")
        self.table = self.db.create_table("t")
        self.topic = self.db.create_topic("top")
        self.shared = MemoryShared()
        self.random = random.Random(7)
        self.store: Any = self.db._runtime.nodes[0].host.store
        assert isinstance(self.store, DiskStore)
        self.snapshots = Snapshots(self.shared, "memory", self.store.store_id, 0.0)

    def put(self, rows: int, records: int = 0, size: int = 1000) -> None:
        for _ in range(rows):
            self.table.put(self.random.randrange(1000), self.random.randbytes(100))
        for at in range(0, records, 200):
            values = [self.random.randbytes(size) for _ in range(min(200, records - at))]
            self.topic.write_batch(values, partition=0)

    def make(self, before: Manifest | None = None, **settings: Any) -> tuple[Manifest, int]:
        while self.store.checkpoint():
            pass
        settings = {"part_bytes": MIB, **settings}
        return make_snapshot(self.store, self.snapshots, before, lambda: 1, **settings)

    def restore(self, manifest: Manifest, name: str = "restored") -> Path:
        folder = self.home / name / "host-0"
        meta = Meta(FORMAT, self.store.store_id, "deterministic", 1)
        restore_snapshot(self.snapshots, manifest, folder, meta)
        return folder


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.db.close()


def contents(db: planstep.Engine) -> tuple[dict[Any, Any], list[Any]]:
    """Returns all rows, and all records with their offsets."""
    with db.snapshot() as view:
        records, (start, end) = [], view.bounds("top")[0]
        while start < end:
            batch = view.read("top", start, 0)
            records += [(record.offset, record.value) for record in batch]
            start = batch.ends[0]
        return dict(view.scan("t")), records


def test_what_is_restored_is_as_of_the_snapshot(shop: Shop) -> None:
    shop.put(300, 2000)
    expected, digests = contents(shop.db), shop.store.table.digests()
    made, _ = shop.make()
    turn, address = shop.store.last_turn, shop.store.next_address
    digests = shop.store.table.digests()
    shop.put(50, 500)
    folder = shop.restore(made)
    assert verify(folder) == []
    with planstep.open(folder.parent) as db:
        store: Any = db._runtime.nodes[0].host.store
        assert (store.last_turn, store.next_address) == (turn, address) == (made.turn, made.address)
        assert store.table.digests() == digests == made.digests
        assert contents(db) == expected
        db.table("t").put("k", "v")
        db.topic("top").write_batch([b"more"] * 10, partition=0)
    assert verify(folder) == []


def test_turns_checkpoints_and_rewriting_go_on_while_it_is_made(shop: Shop) -> None:
    shop.put(300, 3000)
    expected = contents(shop.db)
    going = threading.Event()

    def check() -> None:
        """Between the parts, the store goes on: it drops most payload, and rewrites its files."""
        if not going.is_set():
            going.set()
            shop.put(50, 1000)
            shop.topic.trim(2900, 0)
            for _ in range(3):
                while shop.store.checkpoint():
                    pass
                shop.put(1)

    made, _ = shop.make(check=check)
    assert going.is_set()
    folder = shop.restore(made)
    with planstep.open(folder.parent) as db:
        assert contents(db) == expected
    again, _ = shop.make(made)
    expected = contents(shop.db)
    with planstep.open(shop.restore(again, "again").parent) as db:
        assert contents(db) == expected


def test_a_second_snapshot_sends_what_is_new(shop: Shop) -> None:
    shop.put(100, 16_000)  # 16 MB of payload
    first, sent = shop.make()
    assert sent > 16_000_000 and len(first.packs) > 8
    shop.put(10, 100)
    second, sent = shop.make(first)
    tables = sum(part.size for part in second.tables)
    assert sent - tables < 100_000 + 2 * MIB
    assert len(set(first.packs) & set(second.packs)) >= len(first.packs) - 1
    with planstep.open(shop.restore(second).parent) as db:
        assert contents(db) == contents(shop.db)


def test_a_pack_goes_once_most_of_it_is_dead(shop: Shop) -> None:
    shop.put(100, 4000)
    first, _ = shop.make()
    shop.topic.trim(2300, 0)
    second, sent = shop.make(first)
    assert sent < 2_500_000
    gone = {pack.name for pack in first.packs} - {pack.name for pack in second.packs}
    assert gone and len(gone) < len(first.packs)
    assert sum(pack.payload for pack in second.packs) < 2_700_000
    with planstep.open(shop.restore(second).parent) as db:
        assert contents(db) == contents(shop.db)


def test_snapshots_of_a_store_that_trims_and_writes(shop: Shop) -> None:
    manifest = None
    for number in range(25):
        shop.put(shop.random.randrange(20), shop.random.randrange(600))
        with shop.db.snapshot() as view:
            start, end = view.bounds("top")[0]
        if shop.random.random() < 0.5:
            shop.topic.trim(shop.random.randrange(start, end + 1), 0)
        part = shop.random.choice((20_000, 100_000, MIB))
        manifest, _ = shop.make(manifest, part_bytes=part)
        shop.snapshots.collect(manifest.turn)
        with planstep.open(shop.restore(manifest, f"r{number}").parent) as db:
            assert contents(db) == contents(shop.db)
    assert manifest is not None
    assert set(shop.shared.objects) == {
        *manifest.names,
        f"snap/{manifest.stem}/manifest",
        *(name for name in shop.shared.objects if name.endswith("/draft")),
    }


def test_a_snapshot_takes_the_memory_of_two_parts(shop: Shop) -> None:
    for _ in range(30):
        shop.put(0, 1000)
    for at in range(40_000):
        shop.table.put(at, shop.random.randbytes(150))
    while shop.store.checkpoint():
        pass

    class Sink(MemoryShared):
        """Objects whose bytes are somewhere else."""

        def create(self, name: str, data: bytes) -> bool:
            return super().create(name, data[:1])

    sizes: list[int] = []
    snapshots = Snapshots(Sink(), "memory", shop.store.store_id, 0.0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        made, _ = make_snapshot(shop.store, snapshots, None, lambda: 1, part_bytes=4 * MIB)
        sizes.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert made.bytes > 32 * MIB
    assert sizes[0] < 3 * 4 * MIB


def test_each_damaged_part_is_noticed_and_nothing_is_left_open(shop: Shop) -> None:
    shop.put(300, 3000)
    made, _ = shop.make()
    for number, name in enumerate(made.names):
        data = shop.shared.objects[name]
        at = shop.random.randrange(len(data))
        damaged = data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]
        for bad in (damaged, data[:-1], data + b"x", None):
            if bad is None:
                del shop.shared.objects[name]
            else:
                shop.shared.objects[name] = bad
            with pytest.raises(Corruption, match=name):
                shop.restore(
                    made, f"bad-{number}-{0 if bad is None else len(bad)}-{bad == damaged}"
                )
            shop.shared.objects[name] = data
    shop.restore(made)


def test_a_manifest_of_other_parts_is_noticed(shop: Shop) -> None:
    """All parts are whole, and they do not belong together."""
    shop.put(100, 1000)
    first, _ = shop.make()
    shop.put(100, 1000)
    second, _ = shop.make()
    for number, mixed in enumerate(
        (
            first._replace(stem=second.stem, tables=second.tables),
            second._replace(packs=first.packs),
            second._replace(packs=second.packs[1:]),
            second._replace(turn=second.turn + 1),
            second._replace(address=second.address + 1),
            second._replace(digests=first.digests),
        )
    ):
        with pytest.raises(Corruption):
            shop.restore(mixed, f"mixed-{number}")


def test_one_that_is_given_up_leaves_nothing_that_counts(shop: Shop) -> None:
    shop.put(300, 3000)
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise StoreClosed("the store is closed")

    threads = threading.active_count()
    with pytest.raises(StoreClosed):
        shop.make(check=check)
    assert threading.active_count() == threads
    assert list(shop.snapshots.newest_first()) == []
    leases = shop.store.folder / "leases"
    assert os.listdir(leases) == []


def test_an_object_store_that_fails_ends_the_copy_of_the_tables(shop: Shop) -> None:
    shop.put(300)

    class Failing(MemoryShared):
        def create(self, name: str, data: bytes) -> bool:
            if "tables" in name:
                raise IoError("no answer")
            return super().create(name, data)

    snapshots = Snapshots(Failing(), "memory", shop.store.store_id, 0.0)
    while shop.store.checkpoint():
        pass
    threads = threading.active_count()
    for part in (1000, 100_000):
        with pytest.raises(LogUnreachable, match="no answer"):
            make_snapshot(shop.store, snapshots, None, lambda: 1, part_bytes=part)
    assert threading.active_count() == threads


def test_a_forked_child_holds_no_snapshot_up(shop: Shop) -> None:
    """The child has both ends of the socket, until it ends."""
    shop.put(300)
    children: list[int] = []

    def fork() -> None:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        os.close(read)
        children.append(write)

    with background(lambda: shop.make(check=fork, part_bytes=50_000)) as (future,):
        made, _ = future.result(60)
    assert made.tables and children
    for write in children:  # each child has the ends of the earlier ones
        os.close(write)
    for _ in children:
        os.wait()
