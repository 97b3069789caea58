"""Tests who ends what a process has left open in modes "kafka" and "pulsar", once it is gone, and when."""

from pathlib import Path

import pytest
from kit import until
from process_kit import Code, Other

import planstep

_LONG = 900_000
"""Milliseconds after which a coordinator would end a transaction by itself: no wait here lasts so long."""
_LEAVES = "tx = db.transaction(); tx.write('t', b'left'); tx.flush()"


def test_a_transaction_of_a_killed_process_ends_at_once(tmp_path: Path) -> None:
    """Without a worker it has a producer of the process's own pool, which the owner fences."""
    kafka = planstep.KafkaSettings(transaction_timeout_ms=_LONG)
    with (
        planstep.open(tmp_path / "s", mode="kafka", kafka=kafka) as db,
        Other(tmp_path / "s") as other,
    ):
        db.create_topic("t")
        other.run(_LEAVES)
        db.topic("t").write(b"behind")
        assert db.topic("t").read().values == []
        other.kill()
        until(lambda: db.topic("t").read().values == [b"behind"])


def test_a_transaction_of_a_killed_owner_ends_at_once(tmp_path: Path) -> None:
    kafka = Code(f"planstep.KafkaSettings(transaction_timeout_ms={_LONG})")
    owner = Other(tmp_path / "s", mode="kafka", kafka=kafka)
    owner.run(f"db.create_topic('t'); {_LEAVES}")
    with planstep.open(tmp_path / "s") as db:
        db.topic("t").write(b"behind")
        owner.kill()
        until(lambda: db.topic("t").read().values == [b"behind"])
        assert db.owner is not None


def test_readers_of_a_killed_process_leave_their_group(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", mode="kafka") as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        other.run("db.topic('t').write(b'a'); r = db.reader('t', consumer='c'); r.__enter__()")
        other.run("r.read(timeout=30)")
        with pytest.raises(planstep.KafkaError):  # its group has a member
            db.topic("t").seek("c", 0)
        other.kill()

        def moved() -> bool:
            try:
                db.topic("t").seek("c", 0)
            except planstep.KafkaError:
                return False
            return True

        until(moved)


def test_only_transactions_of_processes_that_are_gone_are_left_open(tmp_path: Path) -> None:
    """A living process's transaction is older than the owner, and is none of an earlier process."""
    before = Other(tmp_path / "s", mode="pulsar")
    before.run(f"db.create_topic('t'); {_LEAVES}")
    before.kill()
    owner = Other(tmp_path / "s")
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        tx = db.transaction()
        tx.write("t", b"ours")
        tx.flush()
        owner.kill()
        other.run("db.topic('t').write(b'plain')")
        tx.flush()
        assert len(other("db.open_transactions()")) == 2
        (ended,) = other("db.abort_left_open()")
        assert ended != tx.txn_id
        tx.commit()
        until(lambda: db.topic("t").read().values == [b"ours", b"plain"])
