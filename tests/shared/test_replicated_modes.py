"""Tests takeovers of what programs do: transactions of mode kafka, and exactly-once processing.

The numbers are those of the scenarios that replication is accepted by.
"""

import threading
from typing import Any

import pytest
import replica_kit
from kit import until
from replica_kit import Machines, rows

import planstep

machines = replica_kit.machines


def test_33_mode_kafka_over_a_takeover(machines: Machines) -> None:
    old = machines.open("a", mode="kafka")
    old.create_topic("out", format="utf8")
    with old.transaction(worker="w") as tx:
        tx.write("out", "first")
    tx = old.transaction(worker="w")
    tx.write("out", "never")
    tx.flush()
    (before,) = old.transactional_ids()
    assert before.open
    with machines.take_over("b") as db:
        (there,) = db.transactional_ids()
        assert there.open and there.epoch == before.epoch
        with db.transaction(worker="w") as new:
            new.write("out", "second")
        until(lambda: not db.transactional_ids(only_open=True))
        (after,) = db.transactional_ids()
        assert after.producer == before.producer
        assert after.epoch > before.epoch
        shows(db, ["first", "second"])
        with pytest.raises(planstep.PlanstepError):
            tx.commit()
        with pytest.raises(planstep.Fenced):
            old.transaction(worker="w").write("out", "never")
        assert _values(db) == ["first", "second"]
    old.close()


def _values(db: planstep.Engine) -> list[Any]:
    return list(db.topic("out").read(0).values)


def shows(db: planstep.Engine, values: list[str]) -> None:
    until(lambda: _values(db) == values)


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_each_mode_goes_on_elsewhere(machines: Machines, mode: Any) -> None:
    for turn, name in enumerate("abcab"):
        with machines.open(name, mode=mode) as db:
            db.create_topic("out", exist_ok=True, format="utf8").write(str(turn))
            with db.transaction() as tx:
                batch = tx.read("out", "reader", timeout=60)
                assert batch.values == [str(turn)]
            shows(db, [str(n) for n in range(turn + 1)])


class Processing:
    """An engine that processes topic `in` on a thread of its own, until it is stopped or fenced."""

    def __init__(self, db: planstep.Engine) -> None:
        self.db = db
        self.worked = threading.Event()
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.db.process(self._each, "in", "c", max_records=5, stop=self._stop)
        except planstep.PlanstepError as error:
            self.error = error

    def _each(self, tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        counted(tx, batch)
        self.worked.set()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.db.close()


def counted(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    tx.add("t", "count", len(batch))
    tx.write_batch("out", batch.values)


@pytest.mark.parametrize("placement", ["shared", "separate"])
def test_34_process_is_exactly_once_over_20_takeovers(machines: Machines, placement: Any) -> None:
    records = [f"{p}-{n}" for p in range(4) for n in range(100)]
    with machines.open("first", placement=placement) as db:
        db.create_topic("in", partitions=4, format="utf8")
        db.create_topic("out", format="utf8")
        db.create_table("t")
        for p in range(4):
            db.topic("in").write_batch(records[100 * p : 100 * p + 100], partition=p)
    running: list[Processing] = []
    for number in range(20):
        db = machines.take_over(f"machine-{number % 6}", placement=placement)
        left = len(records) - rows(db).get("count", 0)
        running.append(Processing(db))
        assert not left or running[-1].worked.wait(60)
        if number >= 3:
            running[-4].end()
    with machines.take_over("last", placement=placement) as db:
        db.process(counted, "in", "c", until_idle=True)
        assert rows(db) == {"count": len(records)}
        assert sorted(_values(db)) == sorted(records)
    for one in running[-3:]:
        one.end()
    kinds = {type(one.error) for one in running if one.error is not None}
    assert kinds and kinds <= {planstep.Fenced, planstep.Undetermined}


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_a_commit_in_doubt_says_what_helps_in_its_mode(machines: Machines, mode: Any) -> None:
    with machines.open_local("a", mode=mode) as db, pytest.raises(planstep.PlanstepError) as failed:
        db.create_topic("t", format="json")
        with machines.take_over("b") as other:
            other.topic("t").write(1)
            with db.transaction() as tx:
                tx.write("t", 2)
    if mode == "deterministic":
        assert failed.type is planstep.Fenced
        return
    assert failed.type is planstep.Undetermined
    assert "look for its effects" in str(failed.value) and "outcome" not in str(failed.value)
