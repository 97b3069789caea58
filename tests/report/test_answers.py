"""Tests the first screen: an answer to each question, losses as plain as wins, promises, a busy machine."""

import re
from typing import Any

import comparisons
import pytest
from reports import NOTHING, Outline, undrawn

from planstep.bench.report.html.answers import Interval, answers, promises
from planstep.bench.report.html.sections import page
from planstep.bench.report.text.text_report import warnings

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def asked(summary: dict[str, Any]) -> dict[str, Any]:
    return summary | {"verdicts": comparisons.verdicts(), "promises": comparisons.promises()}


def test_each_standing_has_its_word_and_its_sentence(asked: dict[str, Any]) -> None:
    found = answers(asked)
    assert found is not None
    assert found.headline == (
        "This engine is ahead in 1, level in 1, behind in 1 and without a verdict in 1 of 4 questions, "
        "at durability full."
    )
    words = {(q.words, a.durability): a.word for q in found.questions for a in q.answers}
    assert list(words.values()) == ["ahead", "behind", "behind", "level", "no verdict"]
    assert len(found.questions) == 4 and [len(q.answers) for q in found.questions] == [2, 1, 1, 1]
    text = Outline(undrawn(page(asked, NOTHING))).text
    for verdict in asked["verdicts"][:5]:
        assert verdict["sentence"] in text
    for word in ("ahead", "behind", "level", "no verdict"):
        assert word in text


def test_an_unclear_standing_has_a_word_and_is_counted() -> None:
    ratio = {"median": 2.0, "low": 0.9, "high": 13.0}
    row = {**comparisons.verdicts()[0]["ratios"][1], "ratio": ratio, "repeats": 3}
    verdict = comparisons.verdict("small-one", "unclear", row, {**row, "ratio": None, "repeats": 0})
    summary = comparisons.summary(*comparisons.outcome("reshard"))
    found = answers(summary | {"verdicts": [verdict]})
    assert found is not None
    assert (
        found.headline
        == "This engine is without a clear standing in 1 of 1 question, at durability full."
    )
    (answer,) = found.questions[0].answers
    assert answer.word == "unclear"
    assert [one.side for one in answer.ratios] == ["level", "no verdict"]


def test_a_row_says_how_a_system_compares_with_this_engine(asked: dict[str, Any]) -> None:
    found = answers(asked)
    assert found is not None
    by_durability = {a.durability: a.ratios for a in found.questions[0].answers}
    own, kafka, sqlite = by_durability["os"]
    assert own.ratio == "this engine" and own.interval is None
    assert (kafka.name, kafka.ratio, kafka.side) == (
        *("kafka-style, separate", "2.70 × (2.50–3.00)"),
        "worse",
    )
    assert (sqlite.ratio, sqlite.side) == ("0.55 × (0.50–0.60)", "better")
    many = found.questions[1].answers[0].ratios[1]
    assert many.side == "better", "more transactions a second are better"
    level, endless = found.questions[2].answers[0].ratios[1:]
    assert level.side == "level" and endless.ratio == "250 × (4.00–∞)"
    assert found.questions[3].answers[0].ratios[1].side == "no verdict"


def test_an_interval_is_right_of_one_where_this_engine_is_better(asked: dict[str, Any]) -> None:
    found = answers(asked)
    assert found is not None
    rows = [row for q in found.questions for a in q.answers for row in a.ratios]
    for row in rows:
        if row.interval is None:
            continue
        low, middle, high, one = row.interval
        assert 0 <= low <= middle <= high <= 1 and 0 < one < 1
        assert row.side != "worse" or low > one
        assert row.side != "better" or high < one
        assert row.side != "level" or low <= one <= high
    assert isinstance(rows[1].interval, Interval)


@pytest.mark.parametrize("repeats, side", [(2, "no verdict"), (3, "worse")])
def test_too_few_rounds_make_no_verdict(repeats: int, side: str) -> None:
    row = {**comparisons.verdicts()[0]["ratios"][1], "repeats": repeats}
    verdict = comparisons.verdict("small-one", "unknown", row)
    summary = comparisons.summary(*comparisons.outcome("reshard"))
    found = answers(summary | {"verdicts": [verdict]})
    assert found is not None and found.headline == ""
    assert found.questions[0].answers[0].ratios[0].side == side


def test_questions_whose_workload_did_not_run_are_apart(asked: dict[str, Any]) -> None:
    found = answers(asked)
    assert found is not None
    assert [why for _, why in found.unasked] == [
        "workload faults did not run; --workload faults runs it"
    ]
    only = [one for one in asked["verdicts"] if one["workload"] == "nothing"]
    assert answers(asked | {"verdicts": only}) is None


def test_the_first_screen_comes_before_the_contents_and_the_rest(asked: dict[str, Any]) -> None:
    text = undrawn(page(asked, NOTHING))
    order = ["<h1>", 'id="answers"', 'id="promises"', "<nav", 'id="verification"']
    assert sorted(order, key=text.index) == order
    assert "Every run verified" in text[: text.index('id="answers"')]
    assert "a commit is answered</th>" not in text, "the board is for reports without answers"
    outline = Outline(text)
    assert {"#answers", "#promises"} <= set(outline.references) and outline.references[
        0
    ] == "#answers"


def test_errors_stand_above_the_answers(asked: dict[str, Any]) -> None:
    for placement in asked["systems"]["sqlite"]["reshard"]["full"].values():
        placement["verified"], placement["missing"] = False, 3
    text = undrawn(page(asked, NOTHING))
    heading = re.search("<h1>(.*?)</h1>", text)
    assert heading is not None and "did not verify" in heading[1]
    assert text.index("3 missing") < text.index('id="answers"')


def test_a_summary_without_verdicts_makes_a_report_as_well(summary: dict[str, Any]) -> None:
    content = page({**summary, "verdicts": [], "promises": []}, NOTHING)
    assert content.answers is None and content.promises is None
    text = undrawn(content)
    assert 'id="answers"' not in text and 'id="promises"' not in text
    assert "A commit was answered" in text, "the sentences of the verdict instead"


def test_without_a_verdict_the_head_is_that_of_the_proof(summary: dict[str, Any]) -> None:
    """Single runs have no verdicts; their figures are shown all the same."""
    text = undrawn(page(summary, NOTHING))
    assert "<h1>Every run verified" in text and "A commit was answered" in text
    assert text.index("A commit was answered") < text.index('id="answers"')


def test_promises_are_said_by_system_and_placement(asked: dict[str, Any]) -> None:
    table = promises(asked)
    assert table is not None
    assert table.columns == (
        *("system", "once it has answered, by durability", "atomic with tables", "readers wait"),
        *("anomalies found here", "memory, MB"),
    )
    assert [row[0] for row in table.rows] == ["deterministic, shared", "kafka-style, separate"]
    assert table.rows[0][1] == "full: it is on the disk\nos: the operating system has it"
    assert 'data-label="readers wait"' in undrawn(page(asked, NOTHING))


def test_a_busy_machine_is_told_in_the_head_once(summary: dict[str, Any]) -> None:
    load = {"busy": True, "sentence": "Other work kept 1.8 of 2 cores busy."}
    summary["machine"]["load"] = load
    text = undrawn(page(summary, NOTHING))
    assert text.count(load["sentence"]) == 1
    assert text.index(load["sentence"]) < text.index("<main")
    assert (
        warnings(summary | {"machine": {**summary["machine"], "load": {**load, "busy": False}}})
        == []
    )
    del summary["machine"]["load"]
    assert warnings(summary) == []


def test_text_of_answers_is_escaped(asked: dict[str, Any]) -> None:
    asked["verdicts"][0] |= {"words": EVIL, "sentence": EVIL, "why": f"{EVIL}!"}
    asked["verdicts"][0]["ratios"][0]["system"] = EVIL
    asked["promises"][0] |= {"system": EVIL, "durable": {"full": EVIL}}
    assert EVIL not in undrawn(page(asked, NOTHING))
