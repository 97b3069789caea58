"""Tests `planstep compare` as a command: its refusals and its output."""

import importlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

import typer
from comparing import SMALL, app, good

from planstep.bench.compare.cell import FAILED, IMPOSSIBLE, Cell, Result
from planstep.bench.compare.command import compare
from planstep.bench.compare.harness import Step, carry_out
from planstep.bench.compare.options import ComparisonOptions
from planstep.bench.compare.plan import plan
from planstep.bench.compare.time_plans import HEADLINES
from planstep.cli.output import errors

ROOT = Path(__file__).parents[2]


# output -------------------------------------------------------------------------------------------


def test_json_is_one_object_and_progress_goes_to_stderr(call: Any) -> None:
    ended = call(*SMALL, "--json")
    assert ended.exit_code == 0
    summary = json.loads(ended.stdout)
    assert set(summary["systems"]) == {"deterministic", "kafka"}
    assert summary["systems"]["kafka"]["small"]["full"]["separate"]["verified"] is True
    assert "[2/2] small, " in ended.stderr
    assert "small, deterministic, durability full, shared" in ended.stderr
    assert "[2/2]" in ended.stderr and " left" in ended.stderr


def test_words_without_json(call: Any) -> None:
    ended = call(*SMALL)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("planstep compare: 2 of 2 runs")
    assert "kafka-style (this engine)" in ended.stdout


def test_on_a_terminal_there_is_a_bar(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_force_terminal", True)
    ended = call(*SMALL)
    assert ended.exit_code == 0 and "[1/2] small" not in ended.stderr


@pytest.mark.parametrize(
    "changes, status",
    [
        ({}, 0),
        ({"status": IMPOSSIBLE, "verified": False, "reason": "no tables"}, 0),
        ({"verified": False, "missing": 1}, 1),
        ({"status": FAILED, "verified": False, "reason": "it died"}, 1),
    ],
)
def test_exit_1_when_anything_did_not_verify(
    call: Any, changes: dict[str, Any], status: int
) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        result = good(cell, folder)
        if cell.system == "kafka":
            for name, value in changes.items():
                setattr(result, name, value)
        return result

    ended = call(*SMALL, run=run)
    assert ended.exit_code == status
    assert (changes.get("reason") or "") in ended.stdout


def test_the_rate_is_searched_by_name(call: Any) -> None:
    rates: list[float | None] = []

    def run(cell: Cell, folder: Path) -> Result:
        result = good(cell, folder)
        rates.append(cell.shape.rate)
        result.sustained = None if cell.shape.rate is None else cell.shape.rate < 60
        result.throughput_mb_s = min(cell.shape.rate or 70.0, 65.0)
        return result

    words = ("--workload", "reshard", "--systems", "deterministic", "--durability", "full")
    words += ("--repeat", "1", "--placement", "shared")
    ended = call(*words, "--json", run=run)
    entry = json.loads(ended.stdout)["systems"]["deterministic"]["reshard"]["full"]["shared"]
    assert 50 < entry["highest_sustained_mb_s"] < 60
    assert rates[:2] == [5.0, None] and len(rates) <= 1 + 6

    def failing(cell: Cell, folder: Path) -> Result:
        if cell.shape.rate is None:
            return Result(cell, FAILED, "out of breath")
        return run(cell, folder)

    ended = call(*words, run=failing)
    assert ended.exit_code == 1
    assert "shared, as fast as it goes: NOT VERIFIED: out of breath" in " ".join(
        ended.stdout.split()
    )


def test_a_slow_machine_leaves_out_repeats_and_the_search_for_all_alike(tmp_path: Path) -> None:
    planned = plan(ComparisonOptions(systems=("deterministic", "kafka")))
    planned.limit = 1.0
    outcome = carry_out(planned, good, tmp_path)
    assert {result.cell.repeat for result in outcome.results} == {0, 1, 2}
    assert {result.cell.workload for result in outcome.results} == {*HEADLINES}
    assert outcome.verified and not outcome.interrupted
    what = [omission.what for omission in planned.left_out]
    assert what[:6] == [
        *(f"repeats of move and faults after {n}" for n in range(3)),
        *(f"repeats of reshard and small after {n}" for n in (3, 4)),
        "runs of the search for the highest rates",
    ]
    assert "plain at durability full" in what and len(what) == len(set(what))


def test_what_was_spare_runs_while_time_is_left(tmp_path: Path) -> None:
    """Runs take no time here, so that all of it is left."""
    planned = plan(ComparisonOptions(quick=True, systems=("deterministic", "kafka")))
    spare = {cell.name for block in planned.blocks if block.spare for cell in block.cells}
    steps: list[Step] = []
    outcome = carry_out(planned, good, tmp_path, steps.append)
    assert {result.cell.name for result in outcome.results} == {
        c.name for c in planned.cells
    } | spare
    assert planned.left_out == [] and steps[-1].number == steps[-1].total == len(outcome.results)
    assert all(step.remaining_s >= 0 for step in steps) and steps[0].total == len(planned.cells)


# wrong usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, message",
    [
        (("--workload", "reshrad"), "no 'reshrad'"),
        (("--systems", "kafka,,sqlite"), "no ''"),
        (("--systems", "oracle"), "no 'oracle'"),
        (("--rate", "fast"), "use MB/s, as in 20, or max"),
        (("--rate", "-1"), "--rate is at least"),
        (("--rate", "1e9"), "--rate is at most"),
        (("--duration", "1e9"), "--duration is at most"),
        (("--commit-interval", "inf"), "--commit-interval is at most"),
        (("--workload", "reshard", "--rate", "50000", "--duration", "5000"), "free on the disk"),
        (("--rate", "0.001", "--record-size", "1048576"), "less than a record of 1048576 bytes"),
        (("--hosts", "0"), "use 1 to 255, or spread"),
        (("--hosts", "many"), "use 1 to 255, or spread"),
        (("--placement", "apart"), "no 'apart'"),
        (("--durability", "none"), "no 'none'"),
        (("--partitions", "0"), "--partitions"),
        (("--record-size", "8"), "--record-size"),
        (("--keep-stores",), "needs --out DIR"),
    ],
)
def test_wrong_usage_is_said_before_anything_runs(
    call: Any, words: tuple[str, ...], message: str
) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        raise AssertionError("it ran")

    ended = call(*words, run=run)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert message in " ".join(ended.stderr.replace("│", " ").split())


def test_help_has_examples_and_explains_every_option(call: Any) -> None:
    ended = call("--help")
    assert ended.exit_code == 0 and "Examples:" in ended.stdout and "JSON:" in ended.stdout
    command: Any = typer.main.get_command(app)
    options = [p for p in command.params if p.name not in ("install_completion", "show_completion")]
    assert all(option.help for option in options if option.name != "help")
    page = (ROOT / "docs" / "compare.md").read_text() + ended.stdout
    assert all(option.opts[0] in page for option in options)


def test_planstep_has_the_command() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    target = project["entry-points"]["planstep.commands"]["compare"]
    name, _, attribute = target.partition(":")
    assert getattr(importlib.import_module(name), attribute) is compare
