"""Tests what transactions of mode "pulsar" cost, and what is left by an engine that ends with one open.

With k partitions and s subscriptions: 2 + 2k + 2s requests, 2k + 2s messages, 3(k + s + 1) appends.
Shows a part of scenario 9.
"""

import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_kit import opened
from kit import client_settings

import planstep


@pytest.mark.parametrize("placement", ("shared", "separate"))
@pytest.mark.parametrize(("k", "s"), [(1, 0), (3, 0), (1, 1), (3, 1), (2, 2)])
def test_costs_of_one_transaction_alone(placement: str, k: int, s: int) -> None:
    with opened(placement=placement) as db:
        db.create_topic("in", partitions=2, format="utf8")
        db.create_topic("out", partitions=3, format="utf8")
        for partition in range(s):
            db.topic("in").write("x", partition=partition)
        db.topic("in").create_consumer("c")
        with db.transaction() as tx:  # a partition's first one takes a snapshot: one append more
            for partition in range(3):
                tx.write("out", "x", partition=partition)
        with db.transaction() as tx:
            for partition in range(s):
                assert tx.read("in", "c", partition=partition)
            for partition in range(k):
                tx.write("out", "x", partition=partition)
        costs = db._runtime.ledger.of(tx.life.tx)
        assert costs is not None
        counted = costs.requests, costs.messages, costs.appends
        assert counted == (2 + 2 * k + 2 * s, 2 * k + 2 * s, 3 * (k + s + 1))
        if (k, s) == (1, 0):  # of several, one may be registered when another was answered already
            hops = costs.hops, costs.hops_visible
            assert hops == ((6, 5) if placement == "separate" else (5, 5))


@pytest.mark.parametrize("batching", (False, True))
def test_every_commit_has_a_moment_when_it_became_visible(batching: bool) -> None:
    """Also one whose partition is held by an older transaction, and one that only acknowledges."""
    with opened(log_batching=batching, ack_log_batching=batching) as db:
        topic = db.create_topic("t", partitions=1, format="utf8")
        topic.create_consumer("c")
        topic.write("x")
        with db.transaction() as older:
            older.write("t", "first")
            older.flush()
            with db.transaction() as held:
                held.write("t", "second")
            assert topic.read().values == ["x"]
            with db.transaction() as acknowledges:
                assert acknowledges.read("t", "c")
        for tx in (older, held, acknowledges):
            phases, costs = db.phases(tx.id), db.costs(tx.id)
            assert phases.decided and phases.visible and phases.decided <= phases.visible
            assert 0 < costs.hops_visible <= costs.hops


def ten_minutes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the hosts' clock, which transactions time out by, ten minutes forward."""
    later = SimpleNamespace(
        time_ns=lambda: time.time_ns() + 600 * 10**9, perf_counter=time.perf_counter
    )
    monkeypatch.setattr("planstep.runtime.turn_loop.time", later)


def test_what_an_engine_left_open_ends_by_its_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as db:
        db.create_topic("t", partitions=1, format="utf8")
        tx = db.transaction()
        tx.write("t", "never")
        tx.flush()
        hooks: Any = db._runtime.hooks
        hooks.writing.open.clear()  # as if it had been killed: nobody aborts it
        db.topic("t").write("behind")
        assert db.topic("t").read().values == []
    ten_minutes_later(monkeypatch)
    with opened(tmp_path / "s") as db:
        assert db.topic("t").read(timeout=60).values == ["behind"]


def test_a_transaction_is_open_for_too_long() -> None:
    with opened() as db:
        db.create_topic("t", partitions=1, format="utf8")
        with client_settings(db, transaction_timeout_ms=200):
            tx = db.transaction()
            tx.write("t", "never")
        with suppress(planstep.PlanstepError):  # on a slow machine its time is over by now
            tx.flush()
        db.topic("t").write("behind")
        assert db.topic("t").read(timeout=60).values == ["behind"]
        # The client's own time-out ends later: until then a coordinator that has forgotten it leaves doubt.
        with (
            client_settings(db, operation_timeout_ms=200),
            pytest.raises((planstep.Aborted, planstep.Undetermined)),
        ):
            tx.commit()
        with db.transaction() as tx:
            tx.write("t", "next")
        assert db.topic("t").read().values == ["behind", "next"]


@pytest.mark.parametrize("ack", ("list", "each"))
def test_each_acknowledgement_of_its_own_costs_an_append_and_a_request(ack: Any) -> None:
    with opened() as db:
        for name in ("in", "out"):
            db.create_topic(name, partitions=1, format="utf8").write_batch(["x"] * 60)
        db.topic("in").create_consumer("c", kind="individual")
        for warm in (True, False):  # the first transaction of a partition takes a snapshot
            with db.reader("in", "c", max_records=20, ack=ack) as reader:
                tx, _ = reader.read() or pytest.fail("nothing to read")
                tx.write("out", "y")
                tx.commit()
                more = 19 if ack == "each" else 0
                costs = db.costs(tx.id)
                assert warm or (costs.requests, costs.appends) == (6 + more, 9 + more)
        assert db.topic("in").lag("c") == 20
        with db.reader("in", "c", ack=ack) as reader:
            first, _ = reader.read() or pytest.fail("nothing to read")
            other = db.transaction()
            assert len(other.read("in", "c")) == 20
            other.commit()
            first.write("out", "never")
            with pytest.raises(planstep.PulsarError, match="TransactionConflict"):
                first.commit()
        assert db._runtime.hooks.writing._each == {}


def test_what_cannot_be_acknowledged_one_by_one_is_named() -> None:
    with opened() as db:
        db.create_topic("in").create_consumer("c")
        with pytest.raises(planstep.NotSupported, match="individual"):
            db.reader("in", "c", ack="each")
        with pytest.raises(ValueError, match="list"):
            db.reader("in", "c", ack="all")  # type: ignore[arg-type]
    with planstep.open(":memory:") as other:
        other.create_topic("in")
        with pytest.raises(planstep.NotSupported, match="pulsar"):
            other.reader("in", "c", ack="each")
