"""Tests read-only openers while an owner commits, is killed and returns: they always see one step of all hosts."""

import random
from pathlib import Path

import pytest
from kit import Child

import planstep

OWNER = """
import sys
import planstep

db = planstep.open(sys.argv[1], hosts=int(sys.argv[2]))
db.create_topic("a", partitions=3, exist_ok=True)
db.create_topic("b", partitions=3, exist_ok=True)
db.create_table("t", shards=4, exist_ok=True)
n = db.table("t").get("k0", 0)
futures = []
while True:
    n += 1
    tx = db.transaction()
    for key in range(8):
        tx.put("t", f"k{key}", n)
    tx.write("a", b"%d" % n, partition=n % 3)
    tx.write("b", b"%d" % n, partition=n % 2)
    futures.append(tx.submit())
    if len(futures) > 4:
        futures.pop(0).result()
        print(n - 5, flush=True)
    if n % 100 == 0:  # else it is thousands ahead of a slow reader, and each look reads all of them
        sys.stdin.readline()
"""


def common_number(db: planstep.Engine) -> int:
    with db.snapshot() as view:
        return number_of(view)


def number_of(view: planstep.SnapshotView) -> int:
    """Returns the number that all tables and topics must agree on."""
    rows = {view.get("t", f"k{key}") for key in range(8)}
    assert len(rows) == 1, rows
    n = int(rows.pop())
    for topic in ("a", "b"):
        values = [int(r.value) for p in range(3) for r in view.read(topic, 0, p, 10**6)]
        assert sorted(values) == list(range(1, n + 1)), topic
    return n


@pytest.mark.parametrize("hosts", [1, 4])
def test_readers_of_a_live_store_see_one_step(tmp_path: Path, hosts: int) -> None:
    store = tmp_path / "s"
    rng = random.Random(hosts)
    last = 0
    for _ in range(3):
        with Child(OWNER, store, hosts) as child:
            for _ in range(8):
                child.tell()
                for _ in range(rng.randrange(1, 20)):
                    known = int(child.line())
                with planstep.open(store, read_only=True) as db:
                    n = common_number(db)
                assert n >= max(last, known)
                last = n
        # After a kill everything acknowledged or seen is still there.
        with planstep.open(store, read_only=True) as db:
            dead = common_number(db)
            assert dead >= last
            with pytest.raises(planstep.NotSupported):
                db.table("t").put("k0", 0)
        with planstep.open(store) as db:
            last = common_number(db)
            assert last >= dead


@pytest.mark.parametrize("hosts", [1, 4])
def test_a_reader_follows_owners_that_are_killed(tmp_path: Path, hosts: int) -> None:
    store = tmp_path / "s"
    planstep.open(store, hosts=hosts).close()
    rng = random.Random(hosts)
    last = 0
    with planstep.open(store, read_only=True) as db:
        for _ in range(3):
            with Child(OWNER, store, hosts) as child:
                for _ in range(8):
                    child.tell()
                    for _ in range(rng.randrange(1, 20)):
                        known = int(child.line())
                    n = common_number(db)
                    assert n >= max(last, known)
                    last = n
            dead = common_number(db)
            assert dead >= last
            last = dead


def test_a_snapshot_stands_still_while_the_owner_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with Child(OWNER, store, 4) as child:
        child.line()
        with planstep.open(store, read_only=True) as db, db.snapshot() as view:
            n = number_of(view)
            for line in range(200):
                if line % 50 == 0:
                    child.tell()
                child.line()
            assert number_of(view) == n < common_number(db)
