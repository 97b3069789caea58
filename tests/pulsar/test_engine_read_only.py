"""Tests that another process reads a moving store of mode "pulsar": max read and aborted ids are of one view."""

from pathlib import Path
from random import Random

import pytest
from engine_kit import opened, tablet_of
from kit import Child

import planstep

COUNT = 150
READER = """
import sys, planstep
end, looks, most = int(sys.argv[2]), 0, 0
print("reads", flush=True)
with planstep.open(sys.argv[1], read_only=True) as db:
    while most < end:
        batch = db.topic("in").read()
        assert batch.values == [f"{n}" for n in range(len(batch))], batch.values
        assert len(batch) >= most, (len(batch), most)
        if batch.values and not most:
            print("sees some", flush=True)
        most, looks = len(batch), looks + 1
        more = db.topic("in").read(batch.ends, timeout=0.01)  # moves on to a newer view
        assert "never" not in more.values
    print(looks, db.topic("in").lag("c"), db.topic("in").consumer("c").partitions[0].missed)
"""


@pytest.mark.parametrize("hosts", (1, 3))
@pytest.mark.parametrize("snapshots", ("single", "parts", "segmented"))
def test_another_process_reads_a_prefix_of_what_was_committed(
    tmp_path: Path, hosts: int, snapshots: str
) -> None:
    """Committed, aborted and open transactions are mixed; snapshots of the ids are taken and sealed meanwhile."""
    rng, path = Random(f"{hosts} {snapshots}"), tmp_path / "s"
    own = {"snapshots": snapshots, "snapshot_transactions": 5, "snapshot_segment_bytes": 64}
    with opened(path, hosts=hosts, **own) as db:
        topic = db.create_topic("in", partitions=1, format="utf8")
        topic.create_consumer("c")
        with Child(READER, path, COUNT) as child:
            assert child.line() == "reads"
            left: list[planstep.Transaction] = []
            for n in range(COUNT):
                if n == COUNT // 2:  # it has looked in between, on a busy machine too
                    assert child.line() == "sees some"
                left.append(db.transaction())
                left[-1].write_batch("in", ["never"] * rng.randrange(1, 4))
                left[-1].flush()
                topic.write(f"{n}") if n % 3 else db.run(lambda tx, n=n: tx.write("in", f"{n}"))
                while len(left) > rng.randrange(4):
                    left.pop(rng.randrange(len(left))).rollback()
            for tx in left:
                tx.rollback()
            db._runtime.hooks.wait_stable(tablet_of(db))
            with db.transaction() as tx:
                assert len(tx.read("in", "c", max_records=100)) == 100
            looks, lag, missed = map(int, child.end().split())
        assert looks > 1 and lag in (COUNT, COUNT - 100) and missed == 0
