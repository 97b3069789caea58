"""Tests the counters of a replicated store's shared log, in `db.stats()` and in Prometheus."""

from typing import Any

import pytest
import replica_kit
from kit import background
from replica_kit import Hooks, Line, Machines
from shared_kit import Backing, filled, read_all

import planstep
from planstep.shared.counts import Counts

machines = replica_kit.machines
hooks = replica_kit.hooks
line = replica_kit.line


def test_requests_and_bytes_are_counted(backing: Backing) -> None:
    log = backing.open()
    mine, theirs = log.counts, Counts()
    (entry,) = filled(backing, 1)
    log.append(entry)
    assert mine.requests["put"] == 1 and mine.sent_bytes == len(entry.data)
    assert read_all(log) == [entry]
    assert mine.requests["get"] >= 2 and mine.requests["list"] >= 1
    assert mine.received_bytes >= len(entry.data)
    log.count_into(theirs)
    before = dict(mine.requests)
    log.trim(2)
    assert theirs.requests["put"] == 1 and theirs.floor == 2
    assert mine.requests == before and mine.floor == 1


def test_an_unreplicated_store_has_no_shared_log() -> None:
    with planstep.open(":memory:") as db:
        assert "shared_log" not in db.stats()


def test_stats_of_an_owner(machines: Machines) -> None:
    with machines.open("a") as db:
        db.create_table("t")
        before = db.stats()["shared_log"]
        db.table("t").put("k", "v" * 1_000)
        after = db.stats()["shared_log"]
    assert (after["role"], after["term"], after["floor"]) == ("owner", 1, 1)
    assert after["requests"]["put"] - before["requests"]["put"] == 1
    assert after["sent_bytes"] - before["sent_bytes"] > 1_000
    assert after["append_seconds"]["count"] - before["append_seconds"]["count"] == 1
    assert after["append_seconds"]["sum"] > before["append_seconds"]["sum"]
    assert (after["waiting_seconds"], after["fences"], after["mine_after_doubt"]) == (0.0, 0, 0)


def test_a_doubt_that_ended_well_is_counted(machines: Machines, line: Line) -> None:
    with machines.open("a") as db:
        db.create_table("t")
        line.failing, line.arrives = 1, True
        db.table("t").put("k", 1)
        assert db.stats()["shared_log"]["mine_after_doubt"] == 1


def test_an_append_under_way_waits(machines: Machines, hooks: Hooks) -> None:
    seen: list[float] = []
    with machines.open("a") as db:
        hooks.before = lambda _: seen.append(db.stats()["shared_log"]["waiting_seconds"])
        with background(lambda: db.create_table("t")):
            pass
        hooks.before = replica_kit.nothing
    assert seen[0] > 0


def test_a_fence_is_counted(machines: Machines) -> None:
    with machines.open("a") as zombie:
        zombie.create_table("t")
        with machines.take_over("b") as db:
            with pytest.raises(planstep.Fenced):
                zombie.table("t").put("k", 1)
            assert zombie.stats()["shared_log"]["fences"] == 1
            assert db.stats()["shared_log"]["term"] == 2


def test_stats_of_a_follower(machines: Machines) -> None:
    with machines.open("a") as owner:
        owner.create_table("t")
        with planstep.follow(machines.folder("b"), machines.url) as me:
            place = owner.table("t").put("k", 1)
            me.snapshot(at_least=place).close()
            stats = me.db.stats()["shared_log"]
    assert (stats["role"], stats["term"], stats["lag_turns"]) == ("follower", 1, 0)
    assert stats["lag_seconds"] >= 0 and stats["requests"]["get"] > 0


def test_snapshots_are_counted_with_their_owner(machines: Machines) -> None:
    settings = planstep.Replicate(machines.url, snapshot_bytes=1)
    with planstep.open(machines.folder("a"), replicate=settings) as db:
        db.create_table("t").put("k", "v" * 100_000)
        runtime = db._runtime
        before = db.stats()["shared_log"]["requests"]["put"]
        runtime.snapshotter._make(1)
        assert runtime.snapshotter._newest
        assert db.stats()["shared_log"]["requests"]["put"] >= before + 2  # tables, manifest


def test_what_prometheus_scrapes(machines: Machines) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    with machines.open("a") as db:
        planstep.metrics.register(db, registry)
        db.create_table("t").put("k", 1)

        def value(name: str, **labels: str) -> Any:
            name = f"planstep_shared_log_{name}"
            return registry.get_sample_value(name, {"store": db.path, **labels})

        stats = db.stats()["shared_log"]
        assert value("requests_total", kind="put") == stats["requests"]["put"] > 1
        assert value("sent_bytes_total") == stats["sent_bytes"]
        assert value("append_seconds_count") == stats["append_seconds"]["count"]
        assert value("append_seconds_bucket", le="+Inf") == stats["append_seconds"]["count"]
        assert (value("term"), value("floor"), value("role", role="owner")) == (1, 1, 1)
        assert (value("fences_total"), value("waiting_seconds"), value("lag_turns")) == (0, 0, None)
