"""Tests limits in mode "kafka": bytes under way, and a full disk."""

from pathlib import Path
from typing import Any

import pytest
from face_kit import new_store, open_store, until
from kit import FullDisk

import planstep
from planstep.errors import NoSpace, Overloaded

KB, MB = 1 << 10, 1 << 20


# bytes under way -----------------------------------------------------------------------------


def test_a_transaction_larger_than_the_room_goes_when_it_is_alone() -> None:
    with open_store() as db:
        topic = db.create_topic("a", partitions=4)
        db._runtime.admission.bytes_max = 2 * MB
        with db.transaction() as tx:
            tx.write_batch("a", [bytes(MB)] * 4, partition=list(range(4)))
        until(lambda: topic.describe().records == 8)  # four of them markers
        assert db._runtime.admission.bytes == 0


def test_what_found_no_room_holds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.runtime.admission.WAIT_SECONDS", 0.0)
    with open_store() as db:
        db.create_topic("a", partitions=4)
        admission = db._runtime.admission
        admission.bytes_max = 3 * MB
        admission.admit(b"another", MB, None)
        tx = db.transaction()
        with pytest.raises(Overloaded):
            tx.write_batch("a", [bytes(MB)] * 4, partition=list(range(4)))
            tx.commit()
        assert admission.bytes == MB


def test_what_a_failed_transaction_still_writes_is_let_go() -> None:
    with open_store(transaction_timeout_ms=20, abort_scan_ms=5) as db:
        db.create_topic("a")
        tx = db.transaction(worker="w")
        tx.write("a", b"x")
        until(lambda: db.topic("a").describe().records == 2)  # aborted: open too long
        for size in range(300):  # the first of these is refused, the others are not sent
            tx.write("a", bytes(KB + size))
        with pytest.raises(planstep.KafkaError):
            tx.commit()
        assert until(lambda: db._runtime.admission.bytes == 0)


# a full disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["shared", "separate"])
@pytest.mark.parametrize("version", [1, 2])
def test_transactions_without_space_leave_the_reserve_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, placement: str
) -> None:
    monkeypatch.setattr("planstep.runtime.open_stores.Files", FullDisk)
    monkeypatch.setattr(FullDisk, "full", False)
    with new_store(tmp_path / "s", protocol_version=version, placement=placement) as db:
        topic = db.create_topic("a")
        db.topic("in").write_batch(["x"] * 3, partition=[0, 0, 0])

        def copy(tx: planstep.Transaction) -> None:
            tx.write("a", tx.read("in", "c", max_records=1).values[0].encode() + bytes(100 * KB))

        db.run(copy, worker="w")
        monkeypatch.setattr(FullDisk, "full", True)
        for size in (4 * MB, 100 * KB, KB, 1):
            with pytest.raises(NoSpace):
                for _ in range(1_000):
                    topic.write(bytes(size))
        store: Any = db._runtime.nodes[0].host.store
        log = store._log
        trimmed = next(offset for offset in range(2, 60) if topic.trim(offset) and log.on_reserve)
        used, lag = log.offset, db.topic("in").lag("c")
        for _ in range(20):
            with pytest.raises(NoSpace):
                db.run(copy, worker="w")
        # Version 2 ends each failed transaction in its log, although nothing of it was written.
        assert log.offset - used < (1 if version == 1 else 40 * KB)
        assert db.topic("in").lag("c") == lag
        assert topic.trim(trimmed + 1) == 1
        monkeypatch.setattr(FullDisk, "full", False)
        db.run(copy, worker="w")
        until(lambda: db.topic("in").lag("c") == lag - 1)
