"""Tests ACID for topics: one test for each letter of each operation, read back through the face.

docs/acid.md has the table, and names the tests of the same under crashes, power loss and lost messages.
"""

import signal
from pathlib import Path

import pytest
from kit import Child

import planstep


def consumed(db: planstep.Engine) -> int:
    return sum(db.topic("clicks").position("c").values())


@pytest.fixture
def filled(shop: planstep.Engine) -> planstep.Engine:
    shop.topic("clicks").write_batch([b"1", b"2", b"3"], keys=["a", "b", "c"])
    return shop


def test_a_write_is_atomic(filled: planstep.Engine) -> None:
    """If the transaction cannot commit, no write of it exists in any partition, topic or table."""
    with filled.transaction() as tx:
        for n in range(20):
            tx.write("by-user", b"x", key=str(n))  # all partitions
        tx.put("totals", "row", tx.get("totals", "other", 0))
        filled.table("totals").put("other", 1)
        with pytest.raises(planstep.Conflict):
            tx.commit()
    assert filled.topic("by-user").describe().records == 0
    assert filled.table("totals").get("row") is None


def test_a_write_is_isolated(filled: planstep.Engine) -> None:
    """Before the commit its writes are invisible; any later snapshot sees all of them."""
    with filled.transaction() as tx:
        tx.write("by-user", b"x", partition=0)
        tx.write("by-user", b"y", partition=1)
        assert len(filled.topic("by-user").read()) == 0
        with filled.transaction() as other:
            assert not other.read("by-user", consumer="d")
        before = filled.snapshot()
        tx.commit()
    with before, filled.snapshot() as after:
        assert len(before.read("by-user")) == 0
        assert sorted(after.read("by-user").values) == [b"x", b"y"]


def test_a_move_is_atomic(filled: planstep.Engine) -> None:
    """All positions that a transaction moves, and all its writes, take effect together or not at all."""

    def move(tx: planstep.Transaction) -> None:
        batch = tx.read("clicks", consumer="c")
        tx.write_batch("by-user", batch.values, keys=batch.keys)

    with pytest.raises(RuntimeError), filled.transaction() as tx:
        move(tx)
        raise RuntimeError
    assert consumed(filled) == 0 and filled.topic("by-user").describe().records == 0
    filled.run(move)
    assert consumed(filled) == 3 and filled.topic("by-user").describe().records == 3


def test_a_move_is_consistent(filled: planstep.Engine) -> None:
    """Two transactions cannot both consume a range, or overlapping parts of it."""
    with filled.transaction() as one, filled.transaction() as two:
        assert len(one.read("clicks", consumer="c")) == 3
        assert len(two.read("clicks", consumer="c", max_records=1)) == 1
        one.write("by-user", b"one")
        two.write("by-user", b"two")
        one.commit()
        with pytest.raises(planstep.Conflict) as caught:
            two.commit()
    assert caught.value.consumer == "c" and caught.value.retryable
    assert filled.topic("by-user").read().values == [b"one"]


def test_a_move_is_isolated(filled: planstep.Engine) -> None:
    """New positions are invisible until they are committed; readers do not wait for them."""
    with filled.transaction() as tx:
        assert len(tx.read("clicks", consumer="c")) == 3
        assert consumed(filled) == 0 and filled.topic("clicks").lag("c") == 3
        tx.commit()
    assert consumed(filled) == 3 and filled.topic("clicks").lag("c") == 0


PROGRAM = """
import sys, time, planstep
db = planstep.open(sys.argv[1], hosts=int(sys.argv[2]))
db.create_topic("clicks", partitions=4)
db.create_topic("by-user", partitions=3)
db.topic("clicks").write_batch([b"1", b"2", b"3"], keys=["a", "b", "c"])
with db.transaction() as tx:
    batch = tx.read("clicks", consumer="c")
    tx.write_batch("by-user", batch.values, keys=batch.keys)
print("committed", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("hosts", ["1", "3"])
def test_writes_and_moves_are_durable(tmp_path: Path, hosts: int) -> None:
    """Once commit has returned, a crash loses nothing of it."""
    with Child(PROGRAM, tmp_path / "s", hosts) as child:
        assert child.line() == "committed"
        assert child.kill() == -signal.SIGKILL
    with planstep.open(tmp_path / "s") as db:
        assert sorted(db.topic("by-user").read().values) == [b"1", b"2", b"3"]
        assert consumed(db) == 3
