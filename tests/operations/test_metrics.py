"""Tests the counters of an engine, in `db.stats()` and in Prometheus."""

from pathlib import Path
from typing import Any

import pytest
from kit import python

import planstep


def conflict(db: planstep.Engine) -> None:
    """Makes two transactions read and write one row, so that the second one conflicts."""
    first, second = db.transaction(), db.transaction()
    for tx in (first, second):
        tx.get("totals", "u")
        tx.put("totals", "u", 1)
    first.commit()
    with pytest.raises(planstep.Conflict):
        second.commit()


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with planstep.open(tmp_path / "shop", hosts=2) as engine:
        engine.create_topic("clicks", partitions=2)
        engine.create_table("totals")
        yield engine


def test_stats_say_why_and_how_much(db: planstep.Engine) -> None:
    before = db.stats()
    conflict(db)
    db.write("clicks", b"x" * 100)
    view = db.snapshot()
    stats = db.stats()
    view.close()
    assert stats["transactions"]["aborted"] == {"key": 1}
    assert stats["transactions"]["committed"] - before["transactions"]["committed"] == 2
    assert stats["turns"]["seconds"]["count"] >= stats["turns"]["transactions"]["count"] >= 3
    assert stats["turns"]["transactions"]["sum"] >= 3
    sync = stats["turns"]["sync_seconds"]
    assert sync["count"] == stats["store"]["turns"] and 0 < sync["sum"]
    assert list(sync["buckets"].values()) == sorted(sync["buckets"].values())
    assert stats["turns"]["bytes"]["sum"] <= stats["store"]["log_bytes"]
    assert stats["memory"]["unsaved_keys"] > 0 and stats["memory"]["unsaved_bytes"] > 0
    assert stats["memory"]["admission_bytes"] == 0
    assert stats["snapshots"]["open"] == 1 and db.stats()["snapshots"]["open"] == 0
    assert stats["disk_bytes"]["log"] > 0 and stats["disk_bytes"]["tables"] > 0
    assert stats["checkpoint_age_seconds"] >= 0
    for node in db._runtime.nodes:
        node.host.store.checkpoint()
    assert db.stats()["memory"]["unsaved_bytes"] == 0


def test_a_store_in_memory_has_stats() -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("clicks")
        stats = db.stats()
        assert stats["checkpoint_age_seconds"] is None
        assert set(stats["disk_bytes"].values()) == {0}


def test_what_prometheus_scrapes(db: planstep.Engine) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    planstep.metrics.register(db, registry)
    planstep.metrics.register(db, registry)
    conflict(db)
    db.topic("clicks").write_batch([b"a", b"b", b"c"])
    with db.transaction() as tx:
        tx.read("clicks", "reader", max_records=1)
    other = planstep.open(":memory:")
    planstep.metrics.register(other, registry)

    def value(name: str, **labels: str) -> Any:
        return registry.get_sample_value(f"planstep_{name}", {"store": db.path, **labels})

    assert value("transactions_total", outcome="aborted", cause="key") == 1
    assert value("transactions_total", outcome="committed", cause="") > 3
    assert value("consumer_lag_records", topic="clicks", consumer="reader") == 2
    assert value("topic_records", topic="clicks") == 3
    # Without the first records; the engine's own turns may come between two reads, but not for long.
    assert any(value("sync_seconds_count") == value("syncs_total") - 2 for _ in range(1000))
    assert any(
        value("turn_seconds_bucket", le="+Inf") == value("turn_seconds_count") for _ in range(1000)
    )
    assert value("memory_bytes", kind="unsaved") > 0
    assert value("disk_bytes", kind="log") > 0
    text = prometheus.generate_latest(registry).decode()
    assert text.count("# TYPE planstep_step gauge") == 1
    assert 'store=":memory:"' in text
    other.close()
    assert 'store=":memory:"' not in prometheus.generate_latest(registry).decode()


def test_without_the_extra_the_pip_line_is_said() -> None:
    code = """
import sys
import planstep
assert "prometheus_client" not in sys.modules
sys.modules["prometheus_client"] = None
try:
    planstep.metrics.register(planstep.open(":memory:"))
except planstep.MissingExtra as error:
    print(error)
"""
    assert 'pip install "planstep[metrics]"' in python(code).stdout


def test_a_host_that_is_stopped_holds_up_no_scrape(db: planstep.Engine) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    planstep.metrics.register(db, registry)
    db.topic("clicks").create_consumer("all", "individual")
    db.topic("clicks").write_batch([b"a", b"b"])
    labels = {"store": db.path, "topic": "clicks", "consumer": "all"}
    assert registry.get_sample_value("planstep_consumer_lag_records", labels) == 2
    db._runtime.stop_host(1)
    assert registry.get_sample_value("planstep_step", {"store": db.path}) > 0
    db._runtime.start_host(1)
    assert registry.get_sample_value("planstep_consumer_lag_records", labels) == 2
