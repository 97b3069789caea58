"""Tests flush: flushed writes are durable and invisible, waiters for a topic are woken, phases are timed."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kit import background, in_threads, until

import planstep
from planstep import KafkaSettings
from planstep.api.transaction.snapshot_reader import Reading

SETUPS = [
    ("deterministic", "shared", 1, 1),
    ("deterministic", "separate", 1, 1),
    ("deterministic", "shared", 2, 1),
    ("kafka", "shared", 1, 1),
    ("kafka", "separate", 1, 2),
    ("kafka", "shared", 2, 2),
]


@pytest.fixture(params=SETUPS, ids=lambda setup: "-".join(map(str, setup)))
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    mode, placement, hosts, version = request.param
    quick = KafkaSettings(marker_retry_ms=20, retry_backoff_ms=5, concurrent_backoff_ms=5)
    own: Any = {"protocol_version": version, "kafka": quick} if mode == "kafka" else {}
    with planstep.open(":memory:", mode=mode, placement=placement, hosts=hosts, **own) as engine:
        engine.create_topic("in", partitions=2)
        engine.create_topic("out", partitions=3)
        yield engine


def values(db: planstep.Engine, topic: str) -> list[bytes]:
    return sorted(db.topic(topic).read().values)


def test_what_is_flushed_waits_for_its_commit(db: planstep.Engine) -> None:
    with db.transaction(worker="w") as tx:
        for n in range(3):
            tx.write_batch("out", [b"%d-%d" % (n, p) for p in range(3)], partition=[0, 1, 2])
            tx.flush()
        assert values(db, "out") == []
        tx.write("out", b"last", partition=0)
        tx.flush()
        tx.flush()  # nothing left to do
    expected = sorted([*(b"%d-%d" % (n, p) for n in range(3) for p in range(3)), b"last"])
    until(lambda: values(db, "out") == expected)


def test_what_is_flushed_and_rolled_back_is_never_seen(db: planstep.Engine) -> None:
    tx = db.transaction(worker="w")
    tx.write("out", b"gone", partition=0)
    tx.flush()
    tx.rollback()
    with db.transaction(worker="w") as following:
        following.write("out", b"stays", partition=0)
    until(lambda: values(db, "out") == [b"stays"])


def test_flushing_nothing_and_flushing_after_the_end(db: planstep.Engine) -> None:
    with db.transaction(worker="w") as tx:
        tx.flush()
        tx.write("out", b"x")
    with pytest.raises(planstep.TransactionClosed):
        tx.flush()


def test_reads_alone_are_no_reason_to_wait(db: planstep.Engine) -> None:
    db.topic("in").write(b"x", partition=0)
    with db.transaction(worker="w") as tx:
        assert tx.read("in", "c", timeout=10).values == [b"x"]
        tx.flush()


def test_a_flushed_transaction_that_is_refused_runs_again(db: planstep.Engine) -> None:
    """Transactions that read the same records, or have one worker's name, succeed one at a time."""
    db.topic("in").write_batch([b"%d" % n for n in range(8)], partition=0)

    def move(tx: planstep.Transaction) -> int:
        batch = tx.read("in", "c", max_records=1, partition=0)
        if batch:
            tx.write_batch("out", batch.values, partition=1)
            tx.flush()
        return len(batch)

    def work() -> None:
        while db.run(move, attempts=1000):
            pass

    if db.mode == "kafka":  # no conflicts: two unfenced workers would both commit
        work()
    else:
        in_threads([work] * 2)
    out = db.topic("out")
    if db.mode == "kafka":  # a commit is answered before its markers are written
        until(lambda: len(out.read(partition=1)) == 8)
    assert out.read(partition=1).values == [b"%d" % n for n in range(8)]


def test_reading_a_topic_waits_for_a_record(db: planstep.Engine) -> None:
    topic = db.topic("out")
    with background(lambda: topic.read(timeout=30)) as (reading,):
        with db.transaction(worker="w") as tx:
            tx.write("out", b"x", partition=2)
    batch: planstep.ReadBatch = reading.result()
    assert batch.values == [b"x"]
    assert topic.read({2: batch.ends[2]}, timeout=0).values == []
    assert topic.read({2: batch.ends[2]}, timeout=0.001).values == []


def test_phases_come_in_order(db: planstep.Engine) -> None:
    db.topic("in").write(b"x", partition=0)
    begun = time.monotonic_ns()
    with db.transaction(worker="w") as tx:
        tx.read("in", "c", timeout=10)
        tx.write_batch("out", [b"1", b"2"], partition=[0, 1])
    until(lambda: db.phases(tx.id).visible)
    until(lambda: values(db, "out") == [b"1", b"2"])
    planned, decided, visible = db.phases(tx.id)
    assert visible is not None and decided is not None
    assert begun < decided <= visible <= time.monotonic_ns()
    assert planned is None if db.mode == "kafka" else planned is not None and planned <= decided
    with pytest.raises(ValueError, match="newest"):
        db.phases("77-1")


def test_a_conflict_found_at_its_place_was_planned_and_decided() -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("in")
        db.topic("in").write(b"x")
        first, second = db.transaction(), db.transaction()
        for tx in (first, second):
            tx.read("in", "c")
            tx.write("in", b"y")
        first.commit()
        with pytest.raises(planstep.Conflict):
            second.commit()
        planned, decided, _ = db.phases(second.id)
        assert planned is not None and decided is not None and planned <= decided


def test_what_is_aborted_is_visible_at_no_time(db: planstep.Engine) -> None:
    db.topic("in").write(b"x", partition=0)
    first, second = db.transaction(worker="a"), db.transaction(worker="b")
    for tx in (first, second):
        tx.read("in", "c", timeout=10)
        tx.write_batch("out", [b"1", b"2"], partition=[0, 1])
        tx.flush()
    first.commit()
    if db.mode == "kafka":
        second.rollback()
    else:
        with pytest.raises(planstep.Conflict):
            second.commit()
    with db.transaction(worker="b") as following:  # after the former owner's transactions
        following.write("out", b"3", partition=0)
        following.flush()
    assert db.phases(second.id).visible is None
    until(lambda: db.phases(first.id).visible)


def test_durable_steps_are_counted_by_what_made_them(tmp_path: Path) -> None:
    """Placement "separate": counts each tablet's durable steps for a transaction with two inputs and two
    outputs."""

    def counted(mode: Any, version: Any) -> dict[str, dict[str, int]]:
        with planstep.open(
            tmp_path / f"{mode}-{version}",
            mode=mode,
            placement="separate",
            protocol_version=version,
        ) as db:
            db.create_topic("in", partitions=1)
            db.create_topic("out", partitions=2)
            db.topic("in").write(b"x")
            db.run(lambda tx: tx.write("out", b"first", partition=0), worker="w")
            until(
                lambda: (
                    "EndTxn" not in str(db.stats()["steps"]) or "Marked" in str(db.stats()["steps"])
                )
            )
            before = db.stats()["steps"]
            with db.transaction(worker="w") as tx:
                tx.read("in", "c", timeout=10)
                tx.write_batch("out", [b"1", b"2"], partition=[0, 1])
                tx.flush()
            topic = db.topic("out")
            until(lambda: topic.read(partition=1).values == [b"2"])
            with db.transaction(worker="w") as following:  # the transaction before has ended
                following.write("in", b"y")
                following.flush()
                after = db.stats()["steps"]
        return {
            kind: {
                name: times - before.get(kind, {}).get(name, 0)
                for name, times in steps.items()
                if times != before.get(kind, {}).get(name, 0)
            }
            for kind, steps in after.items()
        }

    steps = counted("deterministic", None)
    assert steps["partition"]["Stage"] == 2 + 1  # `following` has staged one
    assert steps["partition"]["Propose"] == 3
    assert steps["partition"]["Plan"] == 3
    assert steps["coordinator"]["PlanRequest"] == 1
    steps = counted("kafka", 1)
    assert steps["partition"] == {"Produce": 2 + 1, "Marker": 2}
    assert steps["group coordinator"] == {"TxnOffsetCommit": 1, "Marker": 1}
    assert steps["transaction coordinator"] == {
        "AddPartitions": 1 + 1,
        "AddOffsets": 1,
        "EndTxn": 1,
        "Marked": 1,
    }


def test_what_comes_while_a_reader_looks_is_not_waited_for(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If reads use no snapshot, a record may arrive after the read and before the end is looked up."""
    extra: list[bytes] = []

    def late(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **named: Any) -> Any:
            result = read(*args, **named)
            if len(extra) < 1:
                extra.append(b"x")
                db.topic("out").write(b"x", partition=0)
            return result

        return reading

    never = Mock(side_effect=AssertionError("it waits, and there is a record"))
    monkeypatch.setattr(db._runtime, "wait_published", never)
    with monkeypatch.context() as patch:
        patch.setattr(Reading, "inspect", late(Reading.inspect))
        assert db.topic("out").read(timeout=20).values == extra
    extra.clear()
    with db.transaction(worker="w") as tx:
        tx.consume("out", "c", 0, 0, db.topic("out").describe().partitions[0].end)
    with monkeypatch.context() as patch, db.transaction(worker="w") as tx:
        patch.setattr(planstep.Transaction, "_read_on", late(planstep.Transaction._read_on))
        assert tx.read("out", "c", timeout=20).values == extra


def test_an_error_of_a_flush_is_told_also_when_the_engine_is_closed(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(tx: bytes) -> None:
        db.close()
        raise planstep.Aborted("it cannot be written")

    tx = db.transaction(worker="w")
    tx.write("out", b"x", partition=0)
    monkeypatch.setattr(db._runtime.hooks, "flush", refused)
    with pytest.raises(planstep.Aborted, match="cannot be written"):
        tx.flush()


def test_what_was_flushed_is_no_step_that_a_commit_waits_for(db: planstep.Engine) -> None:
    """In both modes, hops count only the messages that lead to the reply, however often the writes were flushed."""
    hops = []
    for flushes in (1, 4):
        with db.transaction(worker="w") as tx:
            for _ in range(flushes):
                tx.write_batch("out", [b"1", b"2"], partition=[0, 1])
                tx.flush()
        hops.append(db.costs(tx.id).hops)
    assert hops[0] == hops[1] > 0


def stopped(db: planstep.Engine) -> None:
    """Stops the engine as a host does that finds a bug."""
    error = RuntimeError("made to stop")
    for node in db._runtime.nodes:
        node.host.stopped = error
    db._runtime.turns.stop_everything(error)
    db._runtime.replies.answer()


def test_a_flush_of_an_engine_that_stops_is_in_no_doubt(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit was requested, so there is no outcome to ask for."""
    answered = db._runtime.threads.wait_for

    def stops(*args: Any) -> None:
        stopped(db)
        answered(*args)

    tx = db.transaction(worker="w")
    monkeypatch.setattr(
        db._runtime.turns, "turn", lambda node: None
    )  # or it might be answered earlier
    tx.write("out", b"x", partition=0)
    monkeypatch.setattr(db._runtime.threads, "wait_for", stops)
    with pytest.raises(planstep.HostStopped, match="made to stop"):
        tx.flush()


def test_nobody_follows_an_engine_that_has_stopped(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No records come any more: the wait fails at once."""
    monkeypatch.setattr("planstep.runtime.runtime._LOOK_SECONDS", 0.01)
    threading.Timer(0.02, stopped, (db,)).start()
    with pytest.raises(planstep.HostStopped, match="made to stop"):
        db.topic("out").read(timeout=60)
    with pytest.raises(planstep.HostStopped), db.transaction() as tx:
        tx.read("in", "c", timeout=60)
