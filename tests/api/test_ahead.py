"""Tests staging: large transactions write to the store before their commit, invisibly, and leave nothing without
it."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from kit import python

import planstep
from planstep.host.tablet_space import stored_tablets

RECORDS = [b"%05d" % n + bytes(95) for n in range(400)]


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the size from which writes are staged from 8 MiB to 2,000 bytes."""
    monkeypatch.setattr("planstep.api.transaction.transaction.AHEAD_BYTES", 2_000)


@pytest.fixture(params=[1, 3])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    with planstep.open(tmp_path / "s", hosts=request.param) as engine:
        engine.create_topic("a", partitions=4)
        engine.create_table("t", shards=2)
        yield engine


def staged_keys(db: planstep.Engine) -> list[bytes]:
    """Returns the keys of all rows that belong to open transactions."""
    return [
        key
        for node in db._runtime.nodes
        for prefix in stored_tablets(node.host.store, node.host.number)
        for key, _ in node.host.store.scan(prefix + b"s", prefix + b"u")
        if prefix[0] >> 4 == 3
    ]


def written(db: planstep.Engine) -> list[bytes]:
    return [r.value for p in range(4) for r in db.topic("a").read(partition=p, max_records=10_000)]


def write_much(tx: planstep.Transaction) -> None:
    for begin in range(0, len(RECORDS), 10):
        values = RECORDS[begin : begin + 10]
        tx.write_batch("a", values, keys=[value[:5] for value in values], headers=[{"h": "1"}] * 10)


def wait_until_nothing_is_staged(db: planstep.Engine) -> None:
    for n in range(2_000):
        if not staged_keys(db):
            return
        db.table("t").put("again", n)
    raise AssertionError(staged_keys(db))


def test_it_commits_whole_and_in_order(db: planstep.Engine) -> None:
    with db.transaction() as tx:
        write_much(tx)
        tx.put("t", "k", 1)
        assert staged_keys(db) and written(db) == []
        pending = tx.pending("a")
        assert sorted(r.value for r in pending) == RECORDS
        assert {r.headers["h"] for r in pending} == {"1"}
        assert db.table("t").get("k") is None
    assert [r.value for r in pending] == written(db) and not staged_keys(db)
    for p in range(4):
        batch = db.topic("a").read(partition=p, max_records=1000)
        assert batch.values == sorted(batch.values)
        assert batch.keys == [value[:5] for value in batch.values]
        assert batch.offsets == [(p, n) for n in range(len(batch))]
    assert db.table("t").get("k") == 1


def test_little_of_it_is_left_for_the_commit(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    admit = db._runtime.admission.admit

    def measure(tx: bytes, size: int, timeout: float | None) -> None:
        sizes.append(size)
        admit(tx, size, timeout)

    monkeypatch.setattr(db._runtime.admission, "admit", measure)
    with db.transaction() as tx:
        write_much(tx)
    assert len(sizes) > 10 and max(sizes) < 8_000 < sum(sizes)
    assert db._runtime.admission.bytes == 0


def test_rolled_back_it_is_gone(db: planstep.Engine) -> None:
    tx = db.transaction()
    write_much(tx)
    tx.rollback()
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        write_much(tx)
        raise ZeroDivisionError
    wait_until_nothing_is_staged(db)
    assert written(db) == []


def test_with_a_conflict_it_is_gone(db: planstep.Engine) -> None:
    tx = db.transaction()
    tx.get("t", "k")
    write_much(tx)
    db.table("t").put("k", 2)
    with pytest.raises(planstep.Conflict):
        tx.commit()
    wait_until_nothing_is_staged(db)
    assert written(db) == []
    db.run(lambda tx: (tx.get("t", "k"), write_much(tx)))
    assert sorted(written(db)) == RECORDS


def test_forgotten_it_is_gone(db: planstep.Engine) -> None:
    tx = db.transaction()
    write_much(tx)
    assert staged_keys(db)
    del tx
    gc.collect()
    db.transaction()
    wait_until_nothing_is_staged(db)


def test_closing_takes_it_back(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("a", partitions=4)
        db.create_table("t")
        tx = db.transaction()
        write_much(tx)
    with planstep.open(tmp_path / "s") as db:
        assert not staged_keys(db) and written(db) == []


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_killed_engines_is_gone_when_the_next_opens(tmp_path: Path, hosts: int) -> None:
    program = (
        "import sys, planstep\n"
        "import planstep.api.transaction.transaction as t\n"
        "t.AHEAD_BYTES = 2000\n"
        f"db = planstep.open(sys.argv[1], hosts={hosts})\n"
        "db.create_topic('a', partitions=4); db.create_table('t')\n"
        "with db.transaction() as tx: tx.write_batch('a', [bytes(100)] * 100)\n"
        "tx = db.transaction()\n"
        "for p in range(4): tx.write_batch('a', [bytes(100)] * 100, partition=p)\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    python(program, tmp_path / "s", status=-signal.SIGKILL)
    with planstep.open(tmp_path / "s") as db:
        wait_until_nothing_is_staged(db)
        assert len(written(db)) == 100


def test_a_host_may_restart_in_between(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", hosts=3) as db:
        db.create_topic("a", partitions=4)
        with db.transaction() as tx:
            write_much(tx)
            for host in (1, 2):
                db._runtime.stop_host(host)
                db._runtime.start_host(host)
        assert sorted(written(db)) == RECORDS


def test_what_was_lost_ends_the_transaction(db: planstep.Engine) -> None:
    tx = db.transaction()
    write_much(tx)
    db._runtime.transactions.rollback(tx.life.tx)
    wait_until_nothing_is_staged(db)
    with pytest.raises(planstep.Aborted, match="run it again"):
        tx.commit()
    assert written(db) == []


def test_without_room_the_transaction_ends(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = db.transaction()
    tx.write_batch("a", RECORDS[:100])
    with monkeypatch.context() as patch:
        patch.setattr(db._runtime.admission, "admit", Mock(side_effect=planstep.Overloaded("full")))
        with pytest.raises(planstep.Overloaded):
            tx.write_batch("a", RECORDS[100:200])
    with pytest.raises(planstep.TransactionClosed):
        tx.commit()
    wait_until_nothing_is_staged(db)
    assert written(db) == []
