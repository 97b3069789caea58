"""Tests the logs of mode "pulsar" through the face: their switches, their report, their metrics."""

from pathlib import Path
from typing import Any

import pytest
from engine_kit import opened
from kit import python

import planstep


def consume(db: planstep.Engine) -> None:
    """Commits a transaction that acknowledges, so that both kinds of logs have it."""
    db.topic("in").write("x")
    with db.transaction() as tx:
        tx.write_batch("out", tx.read("in", "c").values)


def batched(db: planstep.Engine) -> dict[str, bool | None]:
    return {f"{one.logs}: {one.owner}": one.report.batching for one in db.log_batches()}


def left(db: planstep.Engine) -> list[str]:
    """Returns the owners of logs that an earlier program could not read."""
    return [one.owner for one in db.log_batches() if one.report.last_batched is not None]


COORDINATORS = ["transactions: coordinator 0", "transactions: coordinator 1"]


def test_each_kind_has_its_switch_which_survives(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with opened(store, hosts=2) as db:
        db.switch_log_batching(True, "pending acks")  # before there is a topic
        for name in ("in", "out"):
            db.create_topic(name, format="utf8")
        consume(db)
        acks = ["pending acks: in[0] for c"]
        assert batched(db) == {**dict.fromkeys(COORDINATORS, False), **dict.fromkeys(acks, True)}
        assert left(db) == ["in[0] for c"]
        db.switch_log_batching(True, "transactions")
        db.switch_log_batching(False, "pending acks")
    with planstep.open(store) as db:
        assert batched(db) == {**dict.fromkeys(COORDINATORS, True), **dict.fromkeys(acks, False)}
        consume(db)
        counters = db.stats()["coordinator_logs"]
        assert sum(one["max_delay"] for one in counters["transactions"].values()) > 0
        assert [one["max_delay"] for one in counters["pending_acks"].values()] == [0]
        db.switch_log_batching(True)
        assert set(batched(db).values()) == {True}
        db.switch_log_batching(False)
        assert set(batched(db).values()) == {False}


def test_scenario_5_the_report_says_when_an_earlier_program_can_read_all(tmp_path: Path) -> None:
    with opened(tmp_path / "s", log_batching=True) as db:
        for name in ("in", "out"):
            db.create_topic(name, format="utf8")
        tx = db.transaction()
        tx.write("out", "y")
        tx.flush()
        look = """if True:
            import sys, planstep
            with planstep.open(sys.argv[1], read_only=True) as db:
                print(db.log_batches()[0].report.text)"""
        assert python(look, tmp_path / "s").stdout.startswith("batching is as its owner's settings")
        db.switch_log_batching(False)
        assert left(db) == ["coordinator 0"]
        (report,) = [one.report for one in db.log_batches()]
        assert f"{report.batched} batched, the last of them is {report.last_batched}" in report.text
        tx.commit()
        assert left(db) == [] and "no batched entries are left" in db.log_batches()[0].report.text


@pytest.mark.parametrize("logs", ["groups", "", None, 1])
def test_unknown_logs_are_refused(logs: Any) -> None:
    with opened() as db, pytest.raises(ValueError, match='"pending acks"'):
        db.switch_log_batching(True, logs)


def test_prometheus_has_each_coordinator_by_itself() -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    with opened(hosts=2, log_batching=True, ack_log_batching=True) as db:
        for name in ("in", "out"):
            db.create_topic(name, format="utf8")
        for _ in range(4):
            consume(db)
        planstep.metrics.register(db, registry)

        def value(name: str, **labels: str) -> float:
            name = f"planstep_txn_{name}"
            found = registry.get_sample_value(name, {"store": ":memory:", **labels})
            assert found is not None, name
            return float(found)

        writer = "tc_bufferedwriter_"
        records = [value(writer + "batch_records_sum", coordinator=c) for c in "01"]
        assert records == [10, 10], "NEW, two registrations, COMMITTING, COMMITTED, twice"
        batches = value(writer + "batch_records_count", coordinator="0")
        assert batches == value(writer + "flush_trigger_max_delay_total", coordinator="0") > 0
        seconds = value(writer + "batch_oldest_record_delay_seconds_sum", coordinator="0")
        assert 0 < seconds < 10
        top = value(writer + "batch_size_bytes_bucket", coordinator="0", le="+Inf")
        assert top == batches
        acks = "pending_ack_store_bufferedwriter_batch_records_sum"
        (host,) = {str(t >> 20 & 0xFF) for t in db.context.topic("in").partitions}
        assert value(acks, host=host) == 8, "ACK and COMMIT, four times"
