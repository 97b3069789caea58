"""Tests what an operator of mode "pulsar" sees, and aborts. Scenario 44."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_kit import PLACES, opened
from kit import python, until

import planstep
from planstep import PendingAck, TxnID, Waiting


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    hosts, placement = request.param
    with opened(hosts=hosts, placement=placement) as engine:
        engine.create_topic("in", partitions=1, format="utf8").write_batch(["a", "b", "c"])
        engine.create_topic("out", partitions=3, format="utf8")
        yield engine


def left_open(db: planstep.Engine, *values: str, partition: int = 0) -> planstep.Transaction:
    """Begins a transaction that has written and stays open."""
    tx = db.transaction()
    tx.write_batch("out", values, partition=partition)
    tx.flush()
    return tx


def aborted(db: planstep.Engine, tx: planstep.Transaction) -> None:
    """Aborts a transaction, and waits for its markers, as `rollback` does not."""
    db.abort_transaction(tx.id)
    tx.rollback()


def test_scenario_44_who_holds_a_partition_and_who_waits(db: planstep.Engine) -> None:
    assert db.open_transactions() == []
    db.topic("out").write("seen", partition=1)
    holds = left_open(db, "x", "y", partition=1)
    behind = left_open(db, "z", partition=1)
    db.topic("out").write("plain", partition=1)
    first, second = db.open_transactions()
    assert (first.tx, second.tx) == (str(holds.txn_id), str(behind.txn_id))
    assert (first.state, first.coordinator, first.timeout_seconds) == ("OPEN", 0, 30)
    assert first.age_seconds is not None and first.participants == ("out[1]",)
    assert first.waiting == (Waiting("out[1]", 1, 1, 4, ()),)
    assert second.waiting == (Waiting("out[1]", 3, 1, 4, ()),)
    other, stats, _ = db.buffer_stats("out")
    assert (other.max_read, other.held_by, other.records_behind) == (0, None, 0)
    assert (stats.partition, stats.state, stats.end, stats.max_read) == (1, "Ready", 5, 1)
    assert (stats.held_by, stats.records_behind, stats.ongoing) == (holds.txn_id, 4, 2)
    aborted(db, holds)
    db.abort_transaction(str(behind.txn_id))
    db.run(lambda tx: tx.write("out", "last", partition=1))
    (stats,) = [one for one in db.buffer_stats("out") if one.partition == 1]
    assert (stats.held_by, stats.ongoing, stats.aborted) == (None, 0, 2)
    assert db.open_transactions() == []


def test_slow_ones_are_those_that_have_run_for_long(db: planstep.Engine) -> None:
    tx = left_open(db, "x")
    assert [one.tx for one in db.slow_transactions(0)] == [str(tx.txn_id)]
    assert db.slow_transactions(20) == [], "its time-out of 30 seconds is no age"


def test_coordinators_count_by_state(db: planstep.Engine) -> None:
    hosts = db.stats()["hosts"]
    txs = [left_open(db, "x") for _ in range(hosts + 1)]
    first, *rest = db.coordinator_stats()
    assert (first.open, first.committing, first.highest, first.low_water_mark) == (2, 0, 1, -1)
    assert [one.open for one in rest] == [1] * (hosts - 1)
    assert [one.host for one in rest] == [*range(1, hosts)]
    assert first.oldest_seconds is not None
    txs[0].commit()
    first, *_ = db.coordinator_stats()
    assert (first.open, first.low_water_mark) == (1, 0)


@pytest.mark.parametrize("kind", ("individual", "cumulative"))
def test_what_is_pending_says_in_which_transaction(db: planstep.Engine, kind: str) -> None:
    topic = db.topic("in")
    topic.create_consumer("c", kind=kind)  # type: ignore[arg-type]

    def state(offset: int) -> str:
        return str(db.position_state("in", "c", offset))

    db.run(lambda tx: tx.read("in", "c", max_records=1))
    assert [state(n) for n in range(4)] == ["acknowledged", "free", "free", "not shown"]
    (tablet,) = db.context.topic("in").partitions
    client = db.context.runtime.turns.client
    tx = left_open(db, "x")
    with client.locked():
        position, ranges = (None, ((1, 2),)) if kind == "individual" else (2, ())
        client.core.acknowledge(tx.life.tx, tablet, "c", ranges, position)
    client.deliver()
    until(lambda: db.pending_acks("in", "c"))
    id = tx.txn_id
    assert id is not None
    assert db.pending_acks("in", "c") == [PendingAck(0, id, 1, 2, kind == "cumulative")]
    assert [state(n) for n in (1, 2)] == [f"pending in {id}", "free"]
    (open_one,) = db.open_transactions()
    assert set(open_one.participants) == {"out[0]", "in[0] for c"}
    (waits,) = [one for one in open_one.waiting if one.participant == "in[0]"]
    assert (waits.first_offset, waits.positions) == (None, ("c [1, 2)",))
    db.abort_transaction(id)
    assert db.pending_acks("in", "c") == [] and state(1) == "free"


def test_markers_and_aborted_messages_are_not_shown(db: planstep.Engine) -> None:
    db.topic("out").create_consumer("c", kind="individual")
    aborted(db, left_open(db, "x"))
    db.run(lambda tx: tx.write("out", "y", partition=0))
    states = [db.position_state("out", "c", n, partition=0).state for n in range(5)]
    assert states == ["not shown", "not shown", "free", "not shown", "not shown"]


def test_an_abort_is_durable_and_tells_the_owner(db: planstep.Engine) -> None:
    tx = left_open(db, "never")
    id = tx.txn_id
    assert db.abort_transaction(tx.id) == id == db.abort_transaction(str(id)), "again"
    assert db.outcome(tx.id).state == "aborted"
    with pytest.raises(planstep.PulsarError, match="InvalidTxnStatus"):
        tx.commit()
    assert db.topic("out").read(partition=0).values == []
    assert tx.txn_id == id and db.outcome(tx.id).state == "aborted"


def test_what_has_ended_is_never_changed(db: planstep.Engine) -> None:
    tx = left_open(db, "stays")
    assert tx.commit().txn_id == tx.txn_id == (0, 0)
    with pytest.raises(planstep.PulsarError, match=r"TransactionNotFound: \(0,0\)"):
        db.abort_transaction(TxnID(0, 0))
    assert db.resolve(tx.id).state == "committed"
    assert db.topic("out").read(partition=0).values == ["stays"]


def test_resolve_aborts_what_is_open(db: planstep.Engine) -> None:
    tx, other = left_open(db, "never"), left_open(db, "never")
    assert db.resolve(tx.id).state == "aborted"
    (listed,) = db.open_transactions()
    assert db.outcome(listed.tx) == db.outcome(other.id) and db.outcome(other.id).state == "open"
    assert db.resolve(listed.tx).state == db.outcome(listed.tx).state == "aborted"
    assert db.open_transactions() == [] and db.resolve("(0,99)").state == "unknown"
    with pytest.raises(ValueError, match="no transaction id"):
        db.resolve("(0")
    nothing = db.transaction()
    assert nothing.txn_id is None and db.resolve(nothing.id).state == "unknown"


@pytest.mark.parametrize("txn", ["(0,9)", "(9,0)", "(0", "", (0,), (0, -1), 5, None, "9-9"])
def test_wrong_ids_are_refused(txn: object) -> None:
    with opened() as db, pytest.raises((planstep.PulsarError, ValueError), match=r".") as raised:
        db.abort_transaction(txn)  # type: ignore[arg-type]
    names = {"(0,9)": "TransactionNotFound", "(9,0)": "TransactionCoordinatorNotFound"}
    assert getattr(raised.value, "name", None) == names.get(str(txn))


KILLED = """
import os, sys
import planstep
db = planstep.open(sys.argv[1], mode="pulsar", hosts=2)
db.create_topic("in", format="utf8").write_batch(["a", "b"])
db.create_topic("state", format="json")
db.topic("in").create_consumer("c", kind="individual")
for _ in range(2):
    tx = db.transaction()
    tx.write("state", {"n": 1}, key="k")
    tx.flush()
os._exit(0)
"""


def test_what_a_killed_process_left_open_is_aborted_at_once(tmp_path: Path) -> None:
    store = tmp_path / "s"
    python(KILLED, store)
    with planstep.open(store, read_only=True) as db:
        assert [one.tx for one in db.open_transactions()] == ["(0,0)", "(1,0)"]
        assert db.buffer_stats("state")[0].held_by == (0, 0)
        with pytest.raises(planstep.NotSupported, match="read_only"):
            db.abort_left_open()
    with planstep.open(store) as db:
        own = db.transaction()
        own.write("in", "mine")
        own.flush()
        assert db.abort_left_open() == (TxnID(0, 0), TxnID(1, 0))
        assert db.abort_left_open() == ()
        own.commit()
        changelog = db.changelog("state")  # restored at once: its transactions had a minute
        assert db.run(lambda tx: changelog.get(tx, "k")) is None
        assert db.topic("in").read().values == ["a", "b", "mine"]


def test_a_backup_keeps_snapshots_and_its_open_transactions_can_be_aborted(tmp_path: Path) -> None:
    with opened() as db:
        db.create_topic("out", format="utf8")
        aborted(db, left_open(db, "x"))
        left_open(db, "y")
        db.backup(tmp_path / "copy")
    with planstep.open(tmp_path / "copy") as db:
        assert db.buffer_stats("out")[0].snapshots == "single"
        assert db.outcome("(0,1)").state == "open" and db.resolve("(0,1)").state == "aborted"
        db.topic("out").write("z")
        assert db.topic("out").read().values == ["z"]


def test_tasks_look_and_abort_too() -> None:
    async def look() -> None:
        async with planstep.open_async(":memory:", mode="pulsar") as db:
            await db.create_topic("out", format="utf8")
            tx = db.transaction()
            await tx.write("out", "x")
            await tx.flush()
            (open_one,) = await db.open_transactions()
            assert open_one.tx == str(tx.txn_id)
            assert (await db.buffer_stats("out"))[0].held_by == tx.txn_id
            assert await db.abort_transaction(open_one.tx) == tx.txn_id
            assert await db.slow_transactions(0) == []
            assert len(await db.log_batches()) == 1 == len(await db.coordinator_stats())
            await tx.rollback()

    asyncio.run(look())


def test_other_modes_say_which_one_has_it() -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("in")
        calls = (db.coordinator_stats, db.abort_left_open, lambda: db.buffer_stats("in"))
        for call in calls:
            with pytest.raises(planstep.NotSupported, match='mode "pulsar"'):
                call()
        assert db.slow_transactions(0) == [] and db.transaction().txn_id is None


def test_unknown_names_are_refused() -> None:
    with opened() as db:
        db.create_topic("in", partitions=2).create_consumer("mailer")
        with pytest.raises(planstep.UnknownName, match="did you mean 'mailer'"):
            db.pending_acks("in", "mailr")
        with pytest.raises(planstep.UnknownName):
            db.buffer_stats("on")
        with pytest.raises(ValueError, match="partition="):
            db.position_state("in", "mailer", 0)
