"""Tests what `planstep compare` prints at its end: 25 lines, failures first, and the way to all the rest."""

import shlex
from pathlib import Path
from typing import Any

import comparisons
import pytest

from planstep.bench.compare.cell import FAILED, Result
from planstep.bench.report.text.blocks import WIDTH
from planstep.bench.report.text.terminal import LINES, terminal


@pytest.fixture
def summary() -> dict[str, Any]:
    """Returns a comparison of all workloads, at both durabilities, with a verdict for each question."""
    options, outcome = comparisons.outcome(durability="both", repeat=3)
    return comparisons.summary(options, outcome)


def lines(summary: dict[str, Any], out: Path | None = None) -> list[str]:
    text = terminal(summary, out)
    assert text.endswith("\n")
    found = text.splitlines()
    assert len(found) <= LINES and max(map(len, found)) <= WIDTH, text
    return found


def test_each_question_has_its_answer(summary: dict[str, Any]) -> None:
    text = " ".join(" ".join(lines(summary)).split())
    full = [v for v in summary["verdicts"] if v["durability"] == "full" and v["first"]]
    assert len(full) > 1 and all(verdict["sentence"] in text for verdict in full)
    assert "Durability os: level in" in text


def test_many_long_answers_leave_room_for_the_end(summary: dict[str, Any], tmp_path: Path) -> None:
    (verdict, *_) = (v for v in summary["verdicts"] if v["first"])
    summary["verdicts"] = [verdict | {"sentence": "Word by word, " * 20 + "."}] * 9
    summary["machine"]["load"] = {"busy": True, "sentence": "WARNING: the machine was busy."}
    summary["report"]["html"] = "report.html"
    *_, report, figures, about, repeat = lines(summary, tmp_path)
    assert report == f"Report: {tmp_path / 'report.html'}" and about.startswith("To repeat")
    assert figures == "Every figure: --details, or report.txt there"
    assert repeat.strip().startswith("planstep compare --")
    text = terminal(summary, tmp_path)
    assert "WARNING: the machine was busy." in text and "more: --details" in text


def test_what_failed_comes_first(summary: dict[str, Any]) -> None:
    options, outcome = comparisons.outcome(durability="full")
    outcome.results = [Result(r.cell, FAILED, "it died " * 90) for r in outcome.results]
    outcome.interrupted = True
    failed = comparisons.summary(options, outcome)
    failed["spark"] |= {"ran": True, "version": "4", "master": "local", "rows_read": 1}
    failed["spark"] |= {"disagreements": ["lost 1 by Spark"], "agrees_with_python": False}
    first, *_ = found = lines(failed)
    assert first.startswith("INTERRUPTED: planstep compare:") and " verified " not in first
    assert found.index("NOT all runs verified. These have no figures:") < 4
    assert "- lost 1 by Spark" in found


def test_without_verdicts_there_are_medians(summary: dict[str, Any]) -> None:
    options, outcome = comparisons.outcome("reshard", "chain", durability="both")
    found = lines(comparisons.summary(options, outcome))
    for title in ("reshard, full", "reshard, os", "chain, full"):
        assert any(line.startswith(title) for line in found)
    row = next(line for line in found if line.startswith("deterministic"))
    assert row.split()[1] == "shared" and "5.00" in row


def test_with_nothing_there_is_still_the_way_to_repeat_it() -> None:
    options, outcome = comparisons.outcome("chain", seed=7)
    outcome.results, outcome.interrupted = [], True
    found = lines(comparisons.summary(options, outcome))
    assert " verified" not in found[0]
    words = shlex.split(
        "".join(found[found.index("To repeat the comparison:") + 1 :]).replace("\\", "")
    )
    assert words[:2] == ["planstep", "compare"] and words[-2:] == ["--seed", "7"]
    assert "--rate" not in words, "defaults need no words"


def test_runs_that_were_left_out_do_not_look_like_failures(summary: dict[str, Any]) -> None:
    done, cells = summary["plan"]["done"], summary["plan"]["cells"]
    assert f"{done} of {cells} runs verified in" in lines(summary)[0]
    summary["plan"]["cells"] = done + 7
    assert f"{done} runs verified (7 were left out) in" in lines(summary)[0]
    summary["interrupted"] = True
    assert f"{done} of {done + 7} runs" in lines(summary)[0]
