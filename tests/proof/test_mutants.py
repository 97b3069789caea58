"""Tests that each planted bug fits the source, is active while planted, and gone afterwards."""

from dataclasses import replace

import pytest

from planstep.bench.proof.rows import mutants
from planstep.bench.proof.rows.determinism import UNORDERED
from planstep.bench.proof.rows.mutants import BY_NAME, MUTANTS, SAME, Hunt, hunt_down
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.worlds.final_invariants import check_at_end
from planstep.bench.proof.worlds.mutants.mutant import Mutant, Rotten, function_of, mutate, planted
from planstep.bench.proof.worlds.phases import drive, settle
from planstep.bench.proof.worlds.seed import world_of
from planstep.bench.proof.worlds.swarm import draw
from planstep.bench.proof.worlds.workloads import NamedWorkloads
from planstep.proto.messages import ADD
from planstep.tablets.shard import evaluate


def test_there_are_enough_of_them() -> None:
    assert len(BY_NAME) == len(MUTANTS) >= 24
    assert sum(bool(mutant.source) for mutant in MUTANTS) >= mutants.PUBLISHED_LEAST
    assert set(mutants.KNOWN) <= set(BY_NAME)


@pytest.mark.parametrize("mutant", [*MUTANTS, SAME, UNORDERED], ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_source(mutant: Mutant) -> None:
    function = function_of(mutant)
    before = function.__code__
    assert mutate(mutant).co_code != before.co_code or mutate(mutant).co_consts != before.co_consts
    with planted(mutant):
        assert function.__code__ is not before
    assert function.__code__ is before


def test_whoever_has_the_function_has_the_bug() -> None:
    with planted(BY_NAME["update-lost"]):
        assert evaluate(ADD, b"\x02", b"\x01") == b"\x01"
    assert evaluate(ADD, b"\x02", b"\x01") == b"\x03"


def test_it_is_gone_although_the_world_raises() -> None:
    before = evaluate.__code__
    with pytest.raises(ValueError, match="ended"), planted(BY_NAME["update-lost"]):
        raise ValueError("ended")
    assert evaluate.__code__ is before


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"old": "what was never there"}, "0 times"),
        ({"old": "a"}, "not once"),
        ({"function": "tablets.shard:ADD", "old": "1"}, "no function"),
    ],
)
def test_a_mutant_that_fits_no_more_says_so(change: dict[str, str], why: str) -> None:
    with pytest.raises(Rotten, match=why):
        mutate(replace(BY_NAME["update-lost"], **change))


def test_a_bug_is_caught_by_a_seed_and_the_same_one_again() -> None:
    hunt = Hunt(BY_NAME["vote-not-awaited"], tuple(range(1, 6)), 30)
    first, again = hunt_down(hunt), hunt_down(hunt)
    assert first == again
    assert first.seed is not None and first.why


def test_what_is_wrong_without_it_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "_wrong_anyway", lambda *_: True)
    hunted = hunt_down(Hunt(BY_NAME["vote-not-awaited"], tuple(range(1, 6)), 30))
    assert hunted.seed is None and hunted.wrong_anyway > 0


def test_the_row_counts_what_it_has_caught(options: RowOptions) -> None:
    result = mutants.run(replace(options, runs=2))
    assert not result.violations
    assert (result.runs, result.figures["caught"]) == (2, 2)


def test_a_mutant_that_changes_nothing_is_caught_by_none(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "CONTROL_SEEDS", 2)
    monkeypatch.setattr(mutants, "QUICK_TRANSACTIONS", 20)
    result = mutants.control(options)
    assert "same: not caught by 2 seeds" in result.violations[0]


def test_an_answer_that_names_other_offsets_is_noticed() -> None:
    drawn = draw(3, 30)
    world = world_of(drawn)
    work = NamedWorkloads(world, drawn.weights)
    drive(world, work, drawn)
    settle(world, work)
    assert check_at_end(world, work) == []
    for result in world.results.values():
        result.details = {tablet: (0, 1_000) for tablet in result.details}
    wrong = check_at_end(world, work)
    assert wrong and all("B20" in text for text in wrong)
