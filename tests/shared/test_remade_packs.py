"""Tests a snapshot that makes some packs anew and takes over others: its packs follow one another, and are read."""

import random
from pathlib import Path

import planstep
from planstep.shared.manifest import PACK
from planstep.shared.memory_log import MemoryShared
from planstep.shared.snapshots import Snapshots
from planstep.store.snapshot_making import make_snapshot

PART = 20_000


def test_packs_beside_those_that_stay(tmp_path: Path) -> None:
    draw = random.Random(1)
    shared = MemoryShared()
    with planstep.open(tmp_path / "s") as db:
        store = db._runtime.nodes[0].host.store
        snapshots = Snapshots(shared, "memory", store.store_id, 0.0)
        topic = db.create_topic("t")
        before, kept, remade = None, 0, 0
        for number in range(12):
            for _ in range(10):
                topic.write_batch([draw.randbytes(1000) for _ in range(3)], partition=0)
            topic.trim(12 * number, 0)
            while store.checkpoint():
                pass
            made, _ = make_snapshot(store, snapshots, before, lambda: 1, part_bytes=PART)
            assert next(snapshots.newest_first()) == made, "it is the newest whole one"
            ends = [0, *(pack.end for pack in made.packs)]
            assert all(pack.begin >= end for pack, end in zip(made.packs, ends[:-1], strict=True))
            live = sum(store.table.live().values())
            assert sum(pack.payload for pack in made.packs) < 2 * live + PART
            if before is not None:
                kept += bool({*made.packs} & {*before.packs})
                remade += made.packs[0] not in before.packs and made.packs[0].begin > 0
            before = made
        assert kept > 5 and remade > 2
        assert any(name.startswith(PACK) for name in shared.objects)
