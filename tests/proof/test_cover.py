"""Tests row `cover`: counts, failures and skips, with a small set of real tests, really measured."""

from pathlib import Path

import pytest

from planstep.bench.proof.rows import cover
from planstep.bench.proof.rows.cover import Counted, control, measure, sum_of
from planstep.bench.proof.rows.registry import RowOptions


def test_percents_are_of_statements_and_branches_together() -> None:
    counted = {"tablets": Counted(6, 5, 4, 3), "engine/planstep": Counted(10, 10)}
    assert sum_of(counted, ("tablets",)).percent == 80.0
    assert sum_of(counted, ("tablets",)).branch_percent == 75.0
    assert sum_of(counted, ("engine", "tablets")) == Counted(16, 15, 4, 3)
    assert sum_of(counted, ("bench",)).percent == 0.0


def test_tests_that_do_nothing_cover_nothing(options: RowOptions) -> None:
    result = control(options)
    assert result.runs == 1
    assert len(result.violations) == 1 and "98.0 % are to be reached" in result.violations[0]


def test_what_is_measured_is_what_was_run_and_a_test_that_fails_is_a_violation(
    tmp_path: Path, options: RowOptions
) -> None:
    failing = tmp_path / "test_failing.py"
    failing.write_text("def test_failing():\n    assert False\n")
    group = ("tests/tablets/test_intervals.py", str(failing))
    result = measure(options, (group,), whole=False)
    assert len(result.violations) == 2 and "FAILED" in result.violations[0]
    assert 0 < result.figures["tablets_percent"] < cover.CORES_PERCENT
    # Its modules that the runtime imports are loaded, and do nothing.
    assert result.figures["coordinator_percent"] < result.figures["tablets_percent"] / 2


def test_what_is_installed_has_no_tests_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: RowOptions
) -> None:
    monkeypatch.setattr(cover, "__file__", str(tmp_path / "site" / "planstep" / "bench" / "a.py"))
    result = cover.run(options)
    assert result.skipped and not result.violations
