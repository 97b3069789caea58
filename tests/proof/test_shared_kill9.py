"""Tests row "shared-kill9": its negative controls, and that its judge can say each of its sentences."""

from typing import Any

import pytest

from planstep.bench.proof.disks.owners import COUNT, Found
from planstep.bench.proof.rows import shared_kill9
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.rows.shared_kill9 import Striker, Work


def test_the_row_is_clean(options: RowOptions) -> None:
    result = shared_kill9.run(options)
    assert result.violations == []
    assert result.runs == 50 and result.figures["terms"] >= 5


def test_both_planted_bugs_are_noticed(options: RowOptions) -> None:
    result = shared_kill9.control(options)
    assert any("acknowledged lost" in text for text in result.violations)
    assert "not_noticed" not in result.figures


LABELS = ["0.1.0.0.0", "0.1.0.0.1", "0.1.0.0.2"]
ROWS = {COUNT: 3, **dict.fromkeys(LABELS, 1)}
TOLD = {f"id of {label}": "committed" for label in LABELS}
WHOLE = Found([LABELS, []], ROWS, TOLD, [])


def judged(options: RowOptions, found: Found, other: Found = WHOLE) -> list[str]:
    """Judges what a fresh machine found; three were sent: one was acknowledged, one got no answer, one refused."""
    striker: Any = Striker(Work(1, options.folder, 0, 1))
    striker.sent = {label: f"id of {label}" for label in [*LABELS, "0.1.0.0.3"]}
    striker.acknowledged, striker.refused = {*LABELS[:2]}, {"0.1.0.0.3"}
    striker._look = lambda machine, ids: found if machine.folder.name == "fresh" else other
    striker.judge()
    return [text.partition(": ")[2] for text in striker.result.violations]


def test_what_is_whole_is_well(options: RowOptions) -> None:
    assert judged(options, WHOLE) == []
    fewer = Found([LABELS[:2], []], {COUNT: 2, LABELS[0]: 1, LABELS[1]: 1}, {}, [])
    outcomes = {f"id of {label}": "committed" for label in LABELS[:2]}
    fewer = fewer._replace(outcomes=outcomes | {f"id of {LABELS[2]}": "unknown"})
    assert judged(options, fewer, fewer) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (WHOLE._replace(logs=[LABELS[1:], []]), "1 acknowledged lost: 0.1.0.0.0"),
        (WHOLE._replace(logs=[[*LABELS, "0.1.0.0.3"], []]), "1 refused, and there: 0.1.0.0.3"),
        (WHOLE._replace(logs=[[*LABELS], ["0.1.0.1.0"]]), "1 there, and never sent: 0.1.0.1.0"),
        (WHOLE._replace(logs=[LABELS, LABELS[:1]]), "1 there twice: 0.1.0.0.0"),
        (WHOLE._replace(rows={COUNT: 3}), "3 there in part: 0.1.0.0.0, 0.1.0.0.1, 0.1.0.0.2"),
        (WHOLE._replace(rows={**ROWS, COUNT: 4}), "3 transactions were counted 4 times"),
        (WHOLE._replace(outcomes={}), "3 of another outcome than its records: 0.1.0.0.0, "),
        (WHOLE._replace(logs=[LABELS[::-1], []]), "0.1.0.0.2 is behind number -1 of its writer"),
    ],
)
def test_each_wrong_content_is_noticed(options: RowOptions, found: Found, words: str) -> None:
    assert any(text.startswith(words) for text in judged(options, found))


def test_a_folder_of_another_content_is_noticed(options: RowOptions) -> None:
    other = WHOLE._replace(rows={**ROWS, COUNT: 4})
    assert judged(options, WHOLE, other) == ["machine 0 has another content than a fresh one"]


def test_two_owners_of_a_term_are_noticed(options: RowOptions) -> None:
    striker: Any = Striker(Work(1, options.folder, 0, 1))
    for _ in range(2):
        striker._take_line("o 7 0.1")
    assert striker.result.violations == ["1 owners, strike 0: term 7 has two owners"]
