"""Tests transactions under way: seen in this process, and by another one through the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, python, until

import planstep
from planstep.proto.records_pb2 import LinkFrame


@pytest.fixture
def db(tmp_path: Path) -> Iterator[planstep.Engine]:
    """Opens two hosts; both have a shard of "totals" and a partition of "clicks"."""
    with planstep.open(tmp_path / "shop", hosts=2) as engine:
        engine.create_topic("clicks", partitions=2)
        engine.create_table("totals", shards=2)
        yield engine


def listed(store: Path, *options: str) -> list[dict[str, Any]]:
    ended = python(PLANSTEP, "tx", "list", store, "--json", *options)
    transactions: list[dict[str, Any]] = json.loads(ended.stdout)["transactions"]
    return transactions


def write_everywhere(tx: planstep.Transaction) -> None:
    for i in range(8):
        tx.get("totals", i)
        tx.put("totals", i, 1)


def wait_for_planned(db: planstep.Engine, count: int) -> None:
    def planned() -> int:
        return sum(tx.state == "planned" and len(tx.held) == 2 for tx in db.open_transactions())

    until(lambda: planned() >= count)


def test_a_planned_transaction_delays_another(db: planstep.Engine) -> None:
    """Plans no longer reach host 1: its vote is missing, and later transactions wait."""
    runtime = db._runtime
    send, cut = runtime.turns.network.send, True

    def without_plans(source: int, target: int, data: bytes) -> None:
        frame = LinkFrame()
        frame.ParseFromString(data)
        if cut and target == 1:
            del frame.messages[:]
        send(source, target, frame.SerializeToString())

    runtime.turns.network.send = without_plans
    first, second = db.transaction(), db.transaction()
    write_everywhere(first)
    write_everywhere(second)
    future = first.submit()
    wait_for_planned(db, 1)
    behind = second.submit()
    wait_for_planned(db, 2)
    one, two = db.open_transactions()
    assert (one.tx, two.tx) == (first.id, second.id)
    assert one.place is not None and two.place is not None and one.place < two.place
    assert sorted(one.participants) == ["table totals/0", "table totals/1"]
    assert one.delays == (two.tx,) and two.waits_for == (one.tx,)
    here = next(held for held in one.held if held.state == "planned")
    there = next(held for held in one.held if held.state == "prepared")
    assert here.votes_missing == (there.participant,)
    assert here.keys + there.keys == 8 and one.bytes > 0
    assert one.age_seconds is not None and one.age_seconds >= 0
    outside = listed(Path(db.path), "--open")
    assert [(tx["tx"], tx["state"]) for tx in outside] == [(one.tx, "planned"), (two.tx, "planned")]
    assert outside[0]["delays"] == [two.tx]
    cut = False
    future.result()
    with pytest.raises(planstep.Conflict):
        behind.result()
    assert db.open_transactions() == []


def test_a_host_that_is_stopped_is_told_apart(db: planstep.Engine) -> None:
    """The stopped host's part is not visible; transactions that wait for it are, with the age of the call."""
    tx = db.transaction()
    write_everywhere(tx)
    db._runtime.stop_host(1)
    future = tx.submit()
    until(lambda: (transactions := db.open_transactions()) and transactions[0].held)
    transactions = db.open_transactions()
    assert [(f.tx, f.state) for f in transactions] == [(tx.id, "prepared")]
    assert len(transactions[0].held) == 1 and transactions[0].age_seconds is not None
    db._runtime.start_host(1)
    future.result()
    assert db.open_transactions() == []
    db._runtime.stop_host(0)
    with pytest.raises(planstep.HostStopped, match="host 0"):
        db.open_transactions()
    db._runtime.start_host(0)


def test_data_sent_ahead_is_seen(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "shop") as db:
        db.create_topic("clicks")
        tx = db.transaction()
        for _ in range(10):
            tx.write_batch("clicks", [b"x" * 1_000_000])
        (staged,) = db.open_transactions()
        assert (staged.tx, staged.state, staged.place) == (tx.id, "staged", None)
        assert staged.participants == ("topic clicks/0",) and staged.bytes >= 8_000_000
        assert staged.age_seconds is not None and staged.delays == ()
        (outside,) = listed(tmp_path / "shop", "--open")
        assert outside["tx"] == tx.id and outside["held"][0]["bytes"] == staged.bytes
        tx.rollback()


def test_ended_ones_are_listed_with_names(db: planstep.Engine) -> None:
    with db.transaction() as tx:
        write_everywhere(tx)
    newest = listed(Path(db.path), "--limit", "1")[0]
    assert (newest["tx"], newest["state"]) == (tx.id, "committed")
    assert sorted(newest["participants"]) == ["table totals/0", "table totals/1"]
    assert newest["age_seconds"] >= 0
    assert listed(Path(db.path), "--open") == []
