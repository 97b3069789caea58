"""Tests several transaction coordinators a host through the public face: each takes up again what is its own."""

from pathlib import Path

import pytest
from engine_kit import opened
from kit import python, until

import planstep
from planstep import TxnID

_LEAVES_OPEN = """
import os, sys, planstep
db = planstep.open(sys.argv[1], pulsar=planstep.PulsarSettings(coordinators=4, transaction_timeout_ms=2_000))
for _ in range(4):
    db.run(lambda tx: tx.write("out", "seen"))
left = [db.transaction() for _ in range(4)]
for tx in left:
    tx.write("out", "never")
    tx.flush()
print(*(tx.txn_id for tx in left))
sys.stdout.flush()
os._exit(0)
"""


def begun(db: planstep.Engine, count: int) -> list[TxnID]:
    """Commits so many transactions, one after the other; returns their ids."""
    txs = [db.transaction() for _ in range(count)]
    for tx in txs:
        tx.write("out", "x")
        tx.commit()
    return [id for tx in txs if (id := tx.txn_id) is not None]


@pytest.mark.parametrize("hosts", (1, 3))
def test_coordinators_get_transactions_in_turn(hosts: int) -> None:
    with opened(hosts=hosts, coordinators=4) as db:
        db.create_topic("out", partitions=2, format="utf8")
        assert begun(db, 12) == [TxnID(n % 4, n // 4) for n in range(12)]
        assert [one.host for one in db.coordinator_stats()] == [n % hosts for n in range(4)]
        assert [one.highest for one in db.coordinator_stats()] == [2] * 4


@pytest.mark.parametrize(("coordinators", "seen"), [(None, 4), (2, 4), (6, 6)])
@pytest.mark.parametrize("hosts", (1, 3))
def test_each_goes_on_where_it_was_whatever_number_is_asked_for(
    tmp_path: Path, hosts: int, coordinators: int | None, seen: int
) -> None:
    with opened(tmp_path / "s", hosts=hosts, coordinators=4) as db:
        db.create_topic("out", partitions=1, format="utf8")
    left = python(_LEAVES_OPEN, tmp_path / "s").stdout.split()
    assert left == [f"({n},1)" for n in range(4)]
    with opened(tmp_path / "s", hosts=None, coordinators=coordinators) as db:
        assert len(db.coordinator_stats()) == seen
        until(lambda: not db.open_transactions())  # each has timed out its own
        db.topic("out").write("last")
        assert list(db.topic("out").read(timeout=30).values) == ["seen"] * 4 + ["last"]
        ids = begun(db, seen)
        assert ids == [TxnID(n, 2 if n < 4 else 0) for n in range(seen)]


def test_a_decided_one_of_any_coordinator_is_driven_on_by_the_next_process(tmp_path: Path) -> None:
    with opened(tmp_path / "s", coordinators=3) as db:
        db.create_topic("out", partitions=1, format="utf8")
    dies = """
import os, sys, planstep
from planstep.tablets.pulsar import partition
partition.Partition._end = lambda self, message: os._exit(7)
db = planstep.open(sys.argv[1], pulsar=planstep.PulsarSettings(coordinators=3))
txs = [db.transaction() for _ in range(3)]
for tx in txs:
    tx.write("out", "kept")
    tx.flush()
txs[int(sys.argv[2])].commit()
"""
    python(dies, tmp_path / "s", 2, status=7)
    with opened(tmp_path / "s", coordinators=1) as db:
        until(lambda: [one.coordinator for one in db.open_transactions()] in ([0, 1], [1, 0]))
        assert len(db.abort_left_open()) == 2
        assert list(db.topic("out").read(timeout=30).values) == ["kept"]
