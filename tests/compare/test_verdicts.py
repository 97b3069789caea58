"""Tests the answers to a reader's questions: pairs of one round, intervals, and when there is no verdict."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from planstep.bench.compare.cell import FAILED, INTERRUPTED, Cell, Result
from planstep.bench.compare.ranking import REPEATS_MIN
from planstep.bench.compare.systems import headline
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.verdicts import QUESTIONS, verdicts

OWN, OTHER, THIRD = "deterministic", "sqlite", "kafka"
ANSWERED = "this engine (deterministic, shared)"


def run(question: str, system: str, n: int, value: float | None) -> Result:
    """Makes a verified run whose answer to the question is `value`."""
    asked = next(one for one in QUESTIONS if one.id == question)
    cell = Cell(asked.workload, system, Options(placement=headline(system)), repeat=n)
    result = Result(cell, verified=True, transactions=100, seconds=10.0)
    result.cpu_ms_per_transaction = result.throughput_mb_s = value
    result.end_to_end_ms = None if value is None else {"p50": value}
    result.extra = {
        "concurrency": {
            "1": {"done_ms": result.end_to_end_ms, "transactions_per_second": value},
            "4": {"done_ms": None, "transactions_per_second": (value or 0.0) / 2},
        },
        "killed": {"time-out": {"first_commit_ms": 9e9}, "": {"first_commit_ms": value}, "lost": 0},
    }
    return result


def ask(question: str, values: Mapping[str, Iterable[float | None]]) -> dict[str, Any]:
    """Returns the verdict on systems with these answers, round by round."""
    results = [run(question, name, n, v) for name, own in values.items() for n, v in enumerate(own)]
    return next(one for one in verdicts(results) if one["question"] == question)


def test_a_loss_is_said_as_plainly_as_a_win() -> None:
    lost = ask("small-one", {OWN: (0.87, 0.80, 0.90), OTHER: (0.47, 0.47, 0.45)})
    assert (lost["standing"], lost["first"]) == ("behind", [OTHER])
    assert lost["sentence"] == (
        f"SQLite (1 per COMMIT) answers one small transaction in 0.47 ms, {ANSWERED} in 0.87 ms: "
        "1.9 times (1.7 to 2.0) as long."
    )
    won = ask("small-one", {OWN: (0.87, 0.80, 0.90), OTHER: (1.74, 1.64, 1.71)})
    assert (won["standing"], won["first"]) == ("first", [OWN])
    assert won["sentence"] == (
        f"T{ANSWERED[1:]} answers one small transaction in 0.87 ms, SQLite (1 per COMMIT), the next, in "
        "1.71 ms: 2.0 times (1.9 to 2.0) as long."
    )


def test_where_more_is_better_the_sentence_says_so() -> None:
    lost = ask("small-many", {OWN: (3000, 3000, 2800), OTHER: (13_800, 13_500, 13_900)})
    assert (lost["standing"], lost["better"]) == ("behind", "higher")
    assert lost["sentence"] == (
        "SQLite (1 per COMMIT) commits 13,800 small transactions a second at most, 4.6 times (4.5 to 5.0) as "
        f"many as {ANSWERED} with 3,000."
    )
    won = ask("move", {OWN: (200.0, 210.0, 190.0), OTHER: (100.0, 100.0, 100.0)})
    assert won["sentence"].endswith("as much as SQLite (1 per COMMIT) with 100 (the next).")


def test_ratios_are_of_one_round_so_a_slow_hour_is_no_difference() -> None:
    """Ranges of the two overlap, since the machine was slow in the last round; the ratio is the same in each."""
    told = ask("end-to-end", {OWN: (1.0, 1.1, 5.0), OTHER: (2.0, 2.2, 10.0)})
    assert told["standing"] == "first"
    own, other = told["ratios"]
    assert own["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert other["ratio"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert (other["system"], other["placement"]) == (OTHER, "shared")
    assert (other["value"], other["repeats"]) == (2.2, 3)


@pytest.mark.parametrize(
    "others",
    [
        (0.9, 1.2, 1.2),  # the interval has 1
        (1.02, 1.04, 1.06),  # the medians are too close
    ],
)
def test_no_verdict_where_a_difference_is_not_clear(others: tuple[float, ...]) -> None:
    told = ask("cost", {OWN: (1.0, 1.0, 1.0), OTHER: others})
    assert told["standing"] == "level"
    assert set(told["first"]) == {OWN, OTHER}
    assert "no clear difference" in told["sentence"]


def test_a_wide_interval_is_not_equality() -> None:
    """It may hide that one is many times as fast as the other."""
    told = ask("small-one", {OWN: (1.0,) * 3, OTHER: (0.9, 2.0, 13.0), THIRD: (0.7, 1.0, 1.0)})
    assert told["standing"] == "unclear"
    assert told["sentence"] == (
        f"T{ANSWERED[1:]} answers one small transaction in 1 ms, kafka-style (this engine), separate in 1 ms: "
        "not clear: between 0.70 and 1.00 times as long. As unclear: SQLite (1 per COMMIT)."
    )
    assert set(told["first"]) == {OWN, OTHER, THIRD}
    alone = ask("small-one", {OWN: (1.0,) * 3, OTHER: (0.9, 2.0, 13.0)})
    assert alone["sentence"].endswith("in 2 ms: not clear: between 0.90 and 13.0 times as long.")


def test_a_level_system_is_compared_though_another_is_second() -> None:
    """The second is clearly worse than this engine; a noisy third is not."""
    values = {OWN: (1.0,) * 3, OTHER: (1.2, 1.25, 1.3), THIRD: (0.9, 1.3, 1.3)}
    told = ask("small-one", values)
    assert (told["standing"], set(told["first"])) == ("unclear", {OWN, THIRD})
    assert "kafka-style (this engine), separate in 1.3 ms: not clear" in told["sentence"]
    assert "SQLite" not in told["sentence"]
    level = ask("small-one", values | {THIRD: (0.9, 1.23, 1.24)})
    assert (level["standing"], set(level["first"])) == ("level", {OWN, THIRD})
    assert level["sentence"].endswith(
        "in 1.23 ms: no clear difference (0.90 to 1.2 times as long)."
    )


def test_whoever_is_ahead_in_every_round_is_ahead_though_a_noisy_one_is_best() -> None:
    told = ask("small-one", {OWN: (1.0,) * 3, OTHER: (0.8,) * 3, THIRD: (0.5, 0.5, 3.0)})
    assert (told["standing"], told["first"]) == ("behind", [OTHER, THIRD])
    assert told["sentence"] == (
        f"SQLite (1 per COMMIT) answers one small transaction in 0.8 ms, {ANSWERED} in 1 ms: "
        "1.2 times (1.2 to 1.2) as long."
    )


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_systems_that_share_too_few_rounds_have_no_verdict(shared: int) -> None:
    """Each has three figures, but of rounds that the other lacks."""
    lacks, has = (None,) * (3 - shared), (5.0,) * 3
    pair = {OWN: (*has, *lacks), OTHER: (*lacks, *has)}
    told = ask("cost", pair | {THIRD: (*has, *has)})
    row = next(one for one in told["ratios"] if one["system"] == OTHER)
    assert row["repeats"] == shared
    assert (row["ratio"] is None) == (shared == 0), "no ratio is made up"
    why = f"SQLite (1 per COMMIT) shares {shared} of the 3 rounds with this engine that a verdict needs"
    assert (told["standing"], told["why"]) == ("level", why)
    assert set(told["first"]) == {OWN, THIRD}
    told = ask("cost", pair)
    assert (told["standing"], told["first"], told["why"]) == ("unknown", [], why)


def test_whoever_else_is_ahead_is_named() -> None:
    told = ask("fault", {OWN: (9.0,) * 3, OTHER: (1.0,) * 3, THIRD: (4.0, 5.0, 4.0)})
    assert told["first"] == [OTHER]
    assert told["sentence"].endswith("as long. Ahead as well: kafka-style (this engine), separate.")


def test_too_few_rounds_are_no_verdict() -> None:
    told = ask("move", {OWN: (1.0,) * 2, OTHER: (9.0,) * 2})
    assert (told["standing"], told["first"]) == ("unknown", [])
    assert told["why"].count(f"ran 2 of {REPEATS_MIN} times") == 1, "both systems in one clause"
    assert told["why"] in told["sentence"]


def test_nobody_wins_alone() -> None:
    told = ask("move", {OWN: (1.0,) * 3})
    assert (told["standing"], told["why"]) == ("unknown", "there is nothing to compare with")


def test_a_question_whose_workload_did_not_run_says_how_to_run_it() -> None:
    (told,) = (one for one in verdicts([]) if one["question"] == "fault")
    assert told["standing"] == "unknown" and told["ratios"] == []
    assert told["why"] == "workload faults did not run; --workload faults runs it"


def test_a_question_that_did_not_run_is_asked_at_the_durability_that_did() -> None:
    result = run("move", OWN, 0, 5.0)
    os_only = replace(result.cell, options=replace(result.cell.options, durability="os"))
    told = verdicts([replace(result, cell=os_only)])
    assert {one["durability"] for one in told} == {"os"}


def test_whoever_did_not_verify_takes_no_part() -> None:
    results = [run("move", name, n, 5.0) for name in (OWN, OTHER, THIRD) for n in range(3)]
    results[3].verified = False
    results[6].status, results[6].reason = FAILED, "it fell over"
    told = next(one for one in verdicts(results) if one["question"] == "move")
    assert told["standing"] == "unknown"
    assert told["why"] == (
        "SQLite (1 per COMMIT) gave no figure: a run did not verify; kafka-style (this engine), separate gave "
        "no figure: it fell over"
    )


def test_an_interrupted_run_takes_no_verdict_away() -> None:
    results = [run("move", name, n, v) for name, v in ((OWN, 5.0), (OTHER, 9.0)) for n in range(3)]
    results.append(Result(Cell("move", OTHER, Options(), repeat=3), INTERRUPTED, "interrupted"))
    (told,) = (one for one in verdicts(results) if one["question"] == "move")
    assert (told["standing"], told["first"]) == ("behind", [OTHER])


def test_a_late_run_counts_as_endless() -> None:
    results = [run("end-to-end", name, n, 5.0) for name in (OWN, OTHER) for n in range(3)]
    results[5].sustained = False
    told = next(one for one in verdicts(results) if one["question"] == "end-to-end")
    assert told["standing"] == "unclear", "two rounds were equal"
    assert told["ratios"][1]["ratio"] == {"median": 1.0, "low": 1.0, "high": None}
    results[4].sustained = False
    told = next(one for one in verdicts(results) if one["question"] == "end-to-end")
    assert told["why"] == "SQLite (1 per COMMIT) did not sustain the rate"


def test_a_late_run_has_no_cost() -> None:
    """It did less work than the others, so its CPU says nothing."""
    results = [run("cost", name, n, v) for name, v in ((OWN, 5.0), (OTHER, 9.0)) for n in range(4)]
    results[7].sustained = False
    told = next(one for one in verdicts(results) if one["question"] == "cost")
    assert told["standing"] == "first"
    assert told["ratios"][1]["ratio"] == {"median": 1.8, "low": 1.8, "high": 1.8}
    assert told["ratios"][1]["repeats"] == 3


def test_durabilities_have_verdicts_of_their_own() -> None:
    results = [run("move", name, n, 5.0) for name in (OWN, OTHER) for n in range(3)]
    for n in range(3):
        result = run("move", OWN, n, 50.0)
        result.cell = Cell("move", OWN, Options("os", "shared"), repeat=n)
        results.append(result)
    told = [one for one in verdicts(results) if one["question"] == "move"]
    assert [(one["durability"], one["standing"]) for one in told] == [
        ("full", "level"),
        ("os", "unknown"),
    ]
