"""Tests `planstep check`: its options, its output, its exit codes; short rows stand in for the real ones."""

import json
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from planstep.bench.proof import command
from planstep.bench.proof.parallel import gather
from planstep.bench.proof.rows import registry
from planstep.bench.proof.rows.registry import ROWS, Row, RowOptions, RowResult
from planstep.cli.command import Command

FIELDS = {
    "row",
    "title",
    "reach",
    "runs",
    "events",
    "faults",
    "violations",
    "examples",
    "skipped",
    "seconds",
    "seeds",
    "figures",
}


app = typer.Typer()
app.command("check", cls=Command)(command.check)


def ask(*words: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, list(words))
    return ended.exit_code, ended.stdout, ended.stderr


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Registers a row "mine", whose module has a `run` for tests."""
    module: Any = ModuleType("planstep.bench.proof.rows.mine")
    module.calls = []

    def run(options: RowOptions) -> RowResult:
        module.calls.append(options)
        (options.folder / "left").write_text("x")
        (options.memory / "left").write_text("x")
        return RowResult(3, 7, Counter(lost=2), seeds=(1, 3), figures={"kills": 1000})

    def control(options: RowOptions) -> RowResult:
        return RowResult(1, violations=[f"violation {n}" for n in range(30)])

    module.run, module.control = run, control
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.BY_NAME, "mine", Row("mine", "a row", "3 runs"))
    registered: ModuleType = module
    return registered


def test_a_clean_row_says_what_it_counted(row: Any) -> None:
    code, output, _ = ask("mine")
    assert code == 0
    line = "mine        3 runs, 7 events, 2 faults, kills 1,000, 0 violations (0 s)\n"
    assert output == line
    (options,) = row.calls
    assert not options.folder.exists() and not options.memory.exists()


def test_the_json_is_a_contract(row: Any) -> None:
    code, output, _ = ask("mine", "--json", "--quick", "--seed", "9", "--runs", "4")
    printed = json.loads(output)
    assert code == 0
    assert printed.keys() == {"rows", "negative", "machine"}
    (one,) = printed["rows"]
    assert one.keys() == FIELDS
    assert one | {"seconds": 0} == {
        "row": "mine",
        "title": "a row",
        "reach": "3 runs",
        "runs": 3,
        "events": 7,
        "faults": {"lost": 2},
        "violations": 0,
        "examples": [],
        "skipped": None,
        "seconds": 0,
        "seeds": [1, 3],
        "figures": {"kills": 1000},
    }
    (options,) = row.calls
    assert (options.quick, options.seed, options.runs) == (True, 9, 4)


def test_a_violation_is_exit_1_and_so_is_the_negative_control(row: Any) -> None:
    code, output, _ = ask("mine", "--negative")
    assert code == 1
    assert "30 violations" in output
    assert "violation 19" in output and "violation 20" not in output
    code, output, _ = ask("mine", "--negative", "--json")
    assert code == 1
    printed = json.loads(output)
    assert printed["negative"] and printed["rows"][0]["violations"] == 30
    assert len(printed["rows"][0]["examples"]) == 20


def test_what_a_row_raises_is_a_violation(row: Any) -> None:
    def run(options: RowOptions) -> RowResult:
        raise KeyError("unexpected")

    row.run = run
    code, output, _ = ask("mine")
    assert code == 1
    assert "the check itself ended with KeyError('unexpected')" in output


@pytest.mark.parametrize(
    ("system", "skippable", "code"),
    [
        ("linux", True, 0),
        ("linux", False, 3),
        ("darwin", False, 0),
    ],
)
def test_a_skip_is_exit_3_unless_allowed(
    row: Any, monkeypatch: pytest.MonkeyPatch, system: str, skippable: bool, code: int
) -> None:
    row.run = lambda options: RowResult(skipped="there is no strace")
    monkeypatch.setitem(registry.BY_NAME, "mine", Row("mine", "a row", "3 runs", skippable))
    monkeypatch.setattr(sys, "platform", system)
    ended, output, _ = ask("mine")
    assert ended == 3 and "skipped: there is no strace" in output
    assert ask("mine", "--allow-skips")[0] == code


def test_figures_of_several_parts_have_lines_of_their_own(row: Any) -> None:
    figures = {"unreached": ["a -> b", "c -> d"], "sends": {"one": 1000, "two": {"x": 2}}, "n": 3}
    row.run = lambda options: RowResult(figures=figures)
    lines = ask("mine")[1].splitlines()
    assert lines[0].startswith("mine        0 runs, n 3, 0 violations")
    assert lines[1:] == ["    unreached: a -> b; c -> d", "    sends: one 1,000, two (x 2)"]


def test_scratch_is_made_where_it_is_told(row: Any, tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    assert ask("mine", "--scratch", os.fspath(place))[0] == 0
    (options,) = row.calls
    assert options.folder.parent == options.memory.parent == place
    assert list(place.iterdir()) == []


def test_an_unknown_row_is_named_with_the_nearest() -> None:
    code, _, errors = ask("powerlos")
    assert code == 2
    assert "no row 'powerlos'; do you mean powerloss?" in " ".join(errors.replace("│", " ").split())


def test_the_list_has_every_row() -> None:
    code, output, _ = ask("list")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == [row.name for row in ROWS]
    assert len(json.loads(ask("list", "--json")[1])["rows"]) == len(ROWS)


def test_every_row_has_a_run_and_a_control() -> None:
    for one in ROWS:
        module = one.module()
        assert callable(module.run) and callable(module.control)


def test_all_runs_each_row_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        command, "ROWS", (registry.BY_NAME["format"], registry.BY_NAME["determinism"])
    )
    code, output, _ = ask("all", "--quick", "--runs", "1", "--json")
    rows = json.loads(output)["rows"]
    assert [one["row"] for one in rows] == ["format", "determinism"]
    assert code == 0 and all(one["runs"] for one in rows)


def test_a_row_whose_process_dies_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ROWS", (Row("no-such-row", "a row", "nothing"),))
    monkeypatch.setitem(registry.BY_NAME, "no-such-row", command.ROWS[0])
    code, output, _ = ask("all")  # its process knows no such row
    assert code == 1
    assert "ended with exit code 2 and said nothing" in output


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "os._exit(3)", "os._exit(1)"])
@pytest.mark.parametrize("negative", [False, True])
def test_a_row_whose_process_dies_behind_its_result_is_not_clean(
    monkeypatch: pytest.MonkeyPatch, ending: str, negative: bool
) -> None:
    monkeypatch.setattr(command, "ROWS", (registry.BY_NAME["model"],))
    options = RowOptions(row="model", negative=negative, workers=1)
    result = command._result(options, RowResult(5, violations=["noticed"] * negative), 1.0)
    text = json.dumps({"rows": [result]})
    program = f"import os; print({text!r}, flush=True); {ending}"
    monkeypatch.setattr(command, "_PROGRAM", program)
    code, printed, _ = ask("all", "--json", *["--negative"] * negative)
    (one,) = json.loads(printed)["rows"]
    if negative and "(1)" in ending:  # ends like a control that noticed its bug
        assert code == 1 and one["violations"] == 1
        return
    why = "the row's process gave its result and ended with exit code"
    if negative:
        assert code == 3 and why in one["skipped"] and not one["violations"]
    else:
        assert code == 1 and one["runs"] == 5 and one["violations"] == 1
        assert why in one["examples"][0] and "check model --seed 1" in one["examples"][0]


def test_long_is_ten_times_as_much_and_no_quick() -> None:
    options = registry.RowOptions(Path(), Path(), long=True, row="sim")
    assert options.of(7) == 70 and options.again() == "  again: planstep check sim --long --seed 1"
    code, _, errors = ask("model", "--quick", "--long")
    assert code == 2 and "leave one of --quick and --long out" in " ".join(errors.split())


def test_each_violation_names_the_command_that_shows_it_again(row: Any) -> None:
    def run(options: RowOptions) -> RowResult:
        return RowResult(violations=[f"one\n{options.again(7)}", "two"])

    row.run, row.control = run, run
    words = ["mine", "--quick", "--seed", "5", "--runs", "4"]
    lines = ask(*words)[1].splitlines()[1:]
    own, whole = "--seed 7 --runs 1", "--quick --seed 5 --runs 4"
    assert lines == [
        "    one",
        f"      again: planstep check mine {own}",
        "    two",
        f"      again: planstep check mine {whole}",
    ]
    whole = "--quick --negative --seed 5 --runs 4"
    lines = ask(*words, "--negative")[1].splitlines()[1:]
    assert {lines[1], lines[3]} == {f"      again: planstep check mine {whole}"}


def test_a_control_that_notices_something_else_has_noticed_nothing(row: Any) -> None:
    row.control = lambda options: RowResult(3, violations=["it did not open"]).planted("stale read")
    code, output, _ = ask("mine", "--negative")
    assert code == 0
    assert "not noticed: stale read" in output and "said instead: it did not open" in output
    row.control = lambda options: RowResult(violations=["a stale read"]).planted("stale read")
    assert ask("mine", "--negative")[0] == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_added_up_and_violations_come_in_the_order_of_the_items(workers: int) -> None:
    lines: list[str] = []
    options = RowOptions(workers=workers, seed=4, tell=lines.append)
    items = [[f"of {n}"] for n in range(40)]
    result = gather(
        options, partial(RowResult, 2, 3, Counter(lost=1)), items, lambda item: f"again {item[0]}"
    )
    assert (result.runs, result.events, result.faults["lost"]) == (80, 120, 40)
    assert result.seeds == (4, 4)
    assert result.violations == [f"of {n}\nagain of {n}" for n in range(40)]
    assert lines[-1] == "40 of 40: 80 runs, 40 violations"


def test_figures_are_added_up_and_the_largest_of_the_most_stays() -> None:
    result = RowResult(figures={"n": 1}, most={"seconds": 2.5})
    result.add(RowResult(figures={"n": 2, "names": ["a"]}, most={"seconds": 1.5, "MiB": 7}))
    result.add(RowResult(figures={"names": ["b"]}))
    assert result.figures == {"n": 3, "names": ["a", "b"]}
    assert result.most == {"seconds": 2.5, "MiB": 7}


def test_what_work_raises_is_raised() -> None:
    with pytest.raises(OSError):
        gather(RowOptions(workers=2), os.listdir, ["/no/such/folder"])


def test_a_process_that_dies_is_a_violation_with_what_it_was_at() -> None:
    result = gather(RowOptions(workers=2), os._exit, [3])
    assert result.violations == ["a process died at one of [3]"]


def test_a_quick_run_is_a_twentieth(tmp_path: Path) -> None:
    options = RowOptions(tmp_path, tmp_path, quick=True, seed=5)
    assert options.of(10_000) == 500 and options.of(10, least=3) == 3
    assert options.seeds(200) == range(5, 15)
    assert RowOptions(tmp_path, tmp_path).of(10_000) == 10_000
    assert RowOptions(tmp_path, tmp_path, runs=7).of(10_000) == 7


def test_less_than_was_to_be_reached_is_a_violation() -> None:
    result = RowResult()
    result.reaches([("kills", 10, 10), ("images", 3, 1_000)])
    assert result.violations == ["only 3 images: 1,000 are to be reached"]
