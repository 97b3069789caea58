"""Tests row `leak`: growing figures are named, flat ones are not; a soak of seconds with a leak in it."""

from pathlib import Path

import pytest

import planstep
from planstep.bench.proof.rows import growth
from planstep.bench.proof.rows.leak import BOUNDS, Sample, control, grown
from planstep.bench.proof.rows.registry import RowOptions, RowResult
from planstep.bench.proof.rows.transient_rows import COUNTS, transient

SECONDS, SEGMENT = 100.0, 1 << 20


def samples(name: str = "", a_second: float = 0.0) -> list[Sample]:
    made = []
    for at in range(100):
        one = {"at": float(at), "transactions": 10.0 * at, **dict.fromkeys(BOUNDS, 5.0)}
        if name:
            one[name] += a_second * at
        made.append(one)
    return made


def test_flat_is_clean() -> None:
    assert list(grown(samples(), SECONDS, SEGMENT)) == []


@pytest.mark.parametrize("name", BOUNDS)
def test_what_grows_is_named(name: str) -> None:
    bound = BOUNDS[name]
    room = bound.constant + 1000 * bound.transaction + bound.segments * SEGMENT
    assert [text.split()[0] for text in grown(samples(name, room / 30), SECONDS, SEGMENT)] == [name]
    assert list(grown(samples(name, room / 100), SECONDS, SEGMENT)) == []


def test_what_only_a_reader_kept_may_come_and_go() -> None:
    made = samples()
    for one in made[36:60]:
        one["log_bytes"] = 1e12
    assert list(grown(made, SECONDS, SEGMENT)) == []


def test_a_soak_that_does_nothing_proves_nothing() -> None:
    made = samples()
    for one in made:
        one["transactions"] = 7.0
    assert list(grown(made, SECONDS, SEGMENT)) == ["nothing was done"]
    assert "too few samples" in next(grown(made[:10], SECONDS, SEGMENT))


def test_snapshots_that_nobody_closes_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    result = control(RowOptions(tmp_path, tmp_path / "memory", quick=True, runs=6))
    for name in ("snapshots", "cpu_us", "own"):
        assert any(f"{name} has grown" in text for text in result.violations)
    assert result.faults["reader killed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]


def test_a_transaction_that_costs_as_before_is_clean(tmp_path: Path) -> None:
    result = RowResult()
    options = RowOptions(tmp_path, tmp_path)
    growth.watch(options, result, {"deterministic": 400, "kafka": 200, "pulsar": 200})
    assert [text for text in result.violations if "cpu_us" not in text] == []  # so few prove little
    assert result.events == 800 and result.figures["kafka own old"] > 1 << 20
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_fails_has_measured_nothing(tmp_path: Path) -> None:
    result = RowResult()
    growth.watch(RowOptions(tmp_path, tmp_path), result, {"no mode": 10})
    assert result.violations == ["no mode: nothing was measured over 10 transactions"]


def test_what_a_transaction_keeps_until_it_ends_is_counted() -> None:
    with planstep.open(":memory:", mode="pulsar") as db:
        db.create_topic("t").write(b"1")
        db.topic("t").create_consumer("c", start="earliest")
        assert transient(db) == dict.fromkeys(COUNTS, 0)
        tx = db.transaction()
        tx.write("t", b"2")
        tx.flush()
        during = transient(db)
        tx.rollback()
        db.context.runtime.hooks.wait_stable(db.context.runtime.names.topics["t"].partitions[0])
        assert during["transaction_rows"] >= 3 and during["log_entries"] >= 2
        assert transient(db)["aborted_ids"] == 1


def test_modes_that_keep_nothing_count_nothing() -> None:
    with planstep.open(":memory:") as db:
        assert transient(db) == dict.fromkeys(COUNTS, 0)
