"""Plants each of ten kinds of anomalies in a clean history, and checks that it alone is found."""

from pathlib import Path

import pytest

from planstep.bench.judges.python import IN_PLACE, NONE, PLANNED, Findings, judge
from planstep.bench.judges.python.findings import INCONSISTENT_OFFSET, OFFSET_GAP
from planstep.bench.judges.python.generate import FEEDS, Mix, generate
from planstep.bench.judges.python.plant import (
    IN_STORES,
    IN_TRACES,
    KINDS,
    WITHOUT_PLACES,
    plant,
)
from planstep.bench.judges.trace import Trace

MOVED = ("lost", "repeated", "torn")
"""Kinds after which later records have other offsets than their commits were told."""


@pytest.fixture(scope="module")
def clean() -> Trace:
    return generate(100_000, seed=1)


@pytest.fixture(scope="module")
def small() -> list[Trace]:
    """Makes small clean histories from several seeds."""
    mix = Mix(inputs=2, outputs=3, rows=20, undetermined=0.02)
    return [generate(500, seed, mix) for seed in range(6)]


def judge_planted(trace: Trace, kind: str) -> Findings:
    findings = judge(trace, mode=PLANNED)
    assert findings.counts.pop(kind, 0) == 1, (kind, findings.examples)
    assert kind in MOVED or not findings.counts, findings.examples
    assert set(findings.counts) <= {INCONSISTENT_OFFSET, OFFSET_GAP}, findings.examples
    return findings


def test_a_clean_history_has_nothing_wrong(clean: Trace) -> None:
    findings = judge(clean, mode=PLANNED, feeds=FEEDS)
    assert findings.clean and not findings.problems() and not findings.counts
    assert findings.looked_at["transactions"] == 100_000
    for what in ("records", "reads", "ranges", "published", "seen"):
        assert findings.looked_at[what] > 90_000, what


@pytest.mark.parametrize("kind", IN_TRACES)
def test_each_kind_is_found_among_100_000(clean: Trace, kind: str) -> None:
    judge_planted(plant(clean, kind, seed=1), kind)


def test_small_clean_histories_have_nothing_wrong(small: list[Trace]) -> None:
    assert [judge(clean, mode=PLANNED, feeds=FEEDS).counts for clean in small] == [{}] * len(small)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_from_many_seeds(small: list[Trace], kind: str) -> None:
    for seed, clean in enumerate(small):
        judge_planted(plant(clean, kind, seed), kind)


@pytest.mark.parametrize("kind", MOVED)
def test_a_plant_at_the_end_of_a_lane_leaves_the_next_lane_alone(kind: str) -> None:
    clean = generate(300, 5)
    for seed in range(60):
        records = plant(clean, kind, seed).records
        lanes = dict.fromkeys(records.lane)
        for lane in lanes:
            first = min(o for o, of in zip(records.offset, records.lane, strict=True) if of == lane)
            assert first >= 0, (seed, lane)


@pytest.mark.parametrize("mode", (IN_PLACE, NONE))
def test_without_places_the_records_are_still_judged(mode: str) -> None:
    clean = generate(500, 3)
    assert judge(clean, mode=mode, feeds=FEEDS).counts == {}
    for kind in IN_STORES:
        assert judge(plant(clean, kind, 5), mode=mode).forbidden[kind] == 1
    for kind in WITHOUT_PLACES:
        assert judge(plant(clean, kind, 5), mode=mode).forbidden == {kind: 1}


@pytest.mark.parametrize("kind", ("lost", "repeated", "reordered"))
def test_records_that_name_no_transaction(kind: str) -> None:
    """The consumed ranges tell whose they are."""
    clean = generate(500, 4, Mix(passed_on=True))
    assert judge(clean, mode=PLANNED, feeds=FEEDS).counts == {}
    assert judge(plant(clean, kind, 6), mode=PLANNED, feeds=FEEDS).counts[kind] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_from_files_is_judged_alike(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    spoiled = plant(generate(300, 5), kind, 7)
    spoiled.save(tmp_path)
    loaded = Trace.load(tmp_path)
    assert loaded.operations == spoiled.operations and loaded.lanes == spoiled.lanes
    in_memory, from_files = (judge(trace, mode=PLANNED) for trace in (spoiled, loaded))
    assert in_memory == from_files and in_memory.counts[kind] == 1


def test_the_same_seed_makes_the_same_history() -> None:
    one, same, other = generate(200, 1), generate(200, 1), generate(200, 2)
    assert one.operations == same.operations and one.transactions == same.transactions
    assert one.operations != other.operations
