"""`planstep compare` as a command: what it refuses, what it prints and keeps, how it ends."""

import importlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from planstep.bench import compare as module
from planstep.bench.cell import FAILED, IMPOSSIBLE, Cell, Result
from planstep.bench.compare import compare
from planstep.bench.harness import carry_out
from planstep.bench.keeping import Kept
from planstep.bench.plan import Asked, plan
from planstep.bench.runner import run_apart
from planstep.bench.workloads.base import Shape
from planstep.cli.command import Command
from planstep.cli.output import errors
from planstep.errors import PlanstepError

ROOT = Path(__file__).parents[2]
app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command(cls=Command)(compare)
SMALL = ("--workload", "transfer", "--systems", "deterministic,kafka", "--durability", "full")
PROGRAM = (
    "import typer; from planstep.cli.command import Command;"
    "from planstep.bench.compare import compare;"
    "app = typer.Typer(); app.command(cls=Command)(compare); app()"
)


def good(cell: Cell, folder: Path) -> Result:
    result = Result(cell, verified=True, records=100, transactions=10, seconds=1.0)
    result.throughput_mb_s = 5.0
    if cell.keep_trace:
        (folder / "trace").mkdir(parents=True)
        (folder / "trace" / "run.json").write_text("{}")
        result.trace = str(folder / "trace")
    if cell.keep_store:
        (folder / "store").mkdir(parents=True)
    return result


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`compare WORDS` with a runner that runs nothing."""

    def call(*words: object, run: Any = good) -> Any:
        monkeypatch.setattr(module, "run_apart", run)
        return CliRunner().invoke(app, [str(word) for word in words])

    return call


# what it prints -----------------------------------------------------------------------------------


def test_json_is_one_object_and_progress_goes_to_stderr(call: Any) -> None:
    ended = call(*SMALL, "--json")
    assert ended.exit_code == 0
    told = json.loads(ended.stdout)
    assert set(told["systems"]) == {"deterministic", "kafka"}
    assert told["systems"]["kafka"]["transfer"]["full"]["separate"]["verified"] is True
    assert "[1/2] transfer, deterministic, durability full, shared" in ended.stderr
    assert "[2/2]" in ended.stderr and "still" in ended.stderr


def test_words_without_json(call: Any) -> None:
    ended = call(*SMALL)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("planstep compare: 2 of 2 runs")
    assert "kafka-style (this engine)" in ended.stdout


def test_on_a_terminal_there_is_a_bar(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_force_terminal", True)
    ended = call(*SMALL)
    assert ended.exit_code == 0 and "[1/2] transfer" not in ended.stderr


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
    tried: list[float | None] = []

    def run(cell: Cell, folder: Path) -> Result:
        result = good(cell, folder)
        tried.append(cell.shape.rate)
        result.sustained = None if cell.shape.rate is None else cell.shape.rate < 60
        result.throughput_mb_s = min(cell.shape.rate or 70.0, 65.0)
        return result

    words = ("--workload", "reshard", "--systems", "deterministic", "--durability", "full")
    words += ("--repeat", "1", "--placement", "shared")
    ended = call(*words, "--json", run=run)
    entry = json.loads(ended.stdout)["systems"]["deterministic"]["reshard"]["full"]["shared"]
    assert 50 < entry["highest_sustained_mb_s"] < 60
    assert tried[:2] == [5.0, None] and len(tried) <= 1 + 6

    def failing(cell: Cell, folder: Path) -> Result:
        if cell.shape.rate is None:
            return Result(cell, FAILED, "out of breath")
        return run(cell, folder)

    ended = call(*words, run=failing)
    assert ended.exit_code == 1
    assert "searched at as fast as it goes: NOT VERIFIED: out of breath" in " ".join(
        ended.stdout.split()
    )


def test_on_a_slow_machine_repeats_are_left_out_for_all_alike(tmp_path: Path) -> None:
    planned = plan(Asked(systems=("deterministic", "kafka")))
    planned.limit = 1.0
    outcome = carry_out(planned, good, tmp_path)
    assert {result.cell.repeat for result in outcome.results} == {0}
    assert outcome.verified and not outcome.interrupted
    assert [left.what for left in planned.left_out] == ["repeats after 1"]


# wrong usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, said",
    [
        (("--workload", "reshrad"), "no 'reshrad'"),
        (("--systems", "kafka,,sqlite"), "empty name"),
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
    call: Any, words: tuple[str, ...], said: str
) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        raise AssertionError("it ran")

    ended = call(*words, run=run)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in " ".join(ended.stderr.replace("│", " ").split())


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


# what it keeps ------------------------------------------------------------------------------------


def test_out_keeps_results_report_and_traces_and_can_be_used_again(
    call: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert call(*SMALL, "--out", out).exit_code == 0
    told = json.loads((out / "results.json").read_text())
    assert told["report"]["traces"] == str(out / "traces")
    assert told["systems"]["deterministic"]["transfer"]["full"]["shared"]["traces"] == [
        "traces/transfer-deterministic-full-shared-0"
    ]
    assert (out / "report.txt").read_text().startswith("planstep compare: 2 of 2")
    assert sorted(path.name for path in out.iterdir()) == ["report.txt", "results.json", "traces"]
    assert len(list((out / "traces").iterdir())) == 2

    (out / "notes.txt").write_text("mine")
    again = call(*SMALL[:2], "--systems", "kafka", "--durability", "full", "--out", out)
    assert again.exit_code == 0
    assert [path.name for path in (out / "traces").iterdir()] == [
        "transfer-kafka-full-separate-0"
    ], "its own are replaced"
    assert (out / "notes.txt").read_text() == "mine"


def test_stores_are_kept_on_demand(call: Any, tmp_path: Path) -> None:
    assert call(*SMALL, "--out", tmp_path / "out", "--keep-stores").exit_code == 0
    kept = tmp_path / "out" / "stores"
    assert (kept / "transfer-kafka-full-separate-0" / "store").is_dir()


@pytest.mark.parametrize("file", ["notes.txt", "results.json"])
def test_a_folder_that_holds_something_else_is_refused(
    call: Any, tmp_path: Path, file: str
) -> None:
    (tmp_path / file).write_text("[1]")
    ended = call(*SMALL, "--out", tmp_path)
    assert ended.exit_code == 2 and "something else" in " ".join(ended.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert (tmp_path / file).read_text() == "[1]"


def test_without_out_nothing_is_left(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert call(*SMALL).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_still_written_to_is_removed(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, remove = [], shutil.rmtree

    def late(path: Path, **more: Any) -> None:
        remove(path, **more)
        if path.parent == tmp_path and not removed:
            removed.append(path)
            path.mkdir()  # by a process that has not ended yet

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.rmtree", late)
    assert call(*SMALL).exit_code == 0
    assert removed and list(tmp_path.iterdir()) == []


# how it ends --------------------------------------------------------------------------------------


def test_an_interrupted_comparison_tells_what_there_is(call: Any, tmp_path: Path) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        if cell.system == "kafka":
            raise KeyboardInterrupt
        return good(cell, folder)

    out = tmp_path / "out"
    ended = call(*SMALL, "--out", out, run=run)
    assert ended.exit_code == 130
    assert ended.stdout.startswith("INTERRUPTED")
    told = json.loads((out / "results.json").read_text())
    assert told["interrupted"] is True
    assert told["systems"]["deterministic"]["transfer"]["full"]["shared"]["verified"] is True
    entry = told["systems"]["kafka"]["transfer"]["full"]["separate"]
    assert (entry["status"], entry["verified"]) == ("interrupted", False)


def test_what_is_there_before_the_end_is_called_interrupted(call: Any, tmp_path: Path) -> None:
    seen: list[bool] = []

    def run(cell: Cell, folder: Path) -> Result:
        seen.append(json.loads((tmp_path / "results.json").read_text())["interrupted"])
        return good(cell, folder)

    assert call(*SMALL, "--out", tmp_path, run=run).exit_code == 0
    assert seen == [True, True]
    assert json.loads((tmp_path / "results.json").read_text())["interrupted"] is False


def test_nothing_is_called_verified_when_nothing_ran(call: Any) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        raise KeyboardInterrupt

    ended = call(*SMALL, run=run)
    assert "Nothing ran to its end" in ended.stdout and "was verified" not in ended.stdout


def test_the_command_that_is_printed_does_the_same_again(call: Any) -> None:
    words = (*SMALL, "--rate", "0.12345678", "--no-find-rate", "--partitions", "7")
    first = call(*words).stdout
    shown = first.partition("The same again:\n")[2].partition("\n\n")[0]
    again = shlex.split(shown.replace("\\\n", ""))
    assert again[:2] == ["planstep", "compare"] and "--no-find-rate" in again
    assert "0.12345678" in again and "7" in again
    assert call(*again[2:]).stdout.partition("The same")[2] == first.partition("The same")[2]


def test_a_folder_is_of_one_comparison_at_a_time(call: Any, tmp_path: Path) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        with pytest.raises(PlanstepError, match="in use by another comparison"):
            Kept(tmp_path).__enter__()
        return good(cell, folder)

    assert call(*SMALL, "--out", tmp_path, run=run).exit_code == 0
    assert call(*SMALL, "--out", tmp_path).exit_code == 0


def test_a_report_is_printed_in_any_encoding(tmp_path: Path) -> None:
    words = ["--workload", "plain", "--systems", "deterministic", "--durability", "full"]
    words += ["--duration", "0.1", "--rate", "1", "--partitions", "1", "--out", os.fspath(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "POSIX"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr.count(b"Traceback")) == (0, 0)
    assert ended.stdout.startswith(b"planstep compare: 1 of 1")
    assert "─" in (tmp_path / "report.txt").read_text(encoding="utf-8")


def test_modules_in_the_working_directory_are_no_concern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", os.fspath(tmp_path))])
    shape = Shape(rate=1.0, partitions=1, duration=0.1)
    result = run_apart(Cell("plain", "deterministic", shape=shape), tmp_path / "x")
    assert (result.status, result.reason) == ("ok", None)


def test_a_child_whose_parent_was_killed_ends_and_leaves_nothing(tmp_path: Path) -> None:
    spec, folder = tmp_path / "spec.json", tmp_path / "cell"
    cell = Cell("plain", "deterministic", shape=Shape(rate=1.0, partitions=1, duration=60.0))
    told = {"cell": cell.dump(), "folder": os.fspath(folder), "attended": True}
    spec.write_text(json.dumps(told))
    child = subprocess.Popen(
        [sys.executable, "-m", "planstep.bench.run", os.fspath(spec)], stdin=subprocess.PIPE
    )
    while not (folder / "store").exists():
        assert child.poll() is None
    assert child.stdin is not None
    child.stdin.close()  # as the end of its parent would
    assert child.wait(20) == 1
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_under_way(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    words = ["--workload", "plain", "--systems", "deterministic", "--duration", "60", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, "--rate", "1", "--out", os.fspath(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("[1/"):
            break
    process.send_signal(number)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(said)["interrupted"] is True
    assert not (out / "cells").exists()
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(os.fsencode(out) in command for command in commands), "the child is still there"


def test_a_child_that_dies_is_a_failed_run(tmp_path: Path) -> None:
    result = run_apart(Cell("no-such-workload", "deterministic"), tmp_path / "cells" / "x")
    assert result.status == FAILED and result.reason is not None
    assert "no-such-workload" in result.reason
    assert list((tmp_path / "cells").glob("*.json")) == []


def test_a_child_ends_in_good_order_or_says_why(tmp_path: Path) -> None:
    shape = Shape(rate=1.0, partitions=1, duration=0.1)
    spec = tmp_path / "spec.json"
    for workers, status in ((1, 0), (0, 1)):
        cell = Cell("plain", "deterministic", shape=replace(shape, workers=workers))
        told = {"cell": cell.dump(), "folder": os.fspath(tmp_path / "cell"), "attended": True}
        spec.write_text(json.dumps(told))
        child = subprocess.Popen(
            [sys.executable, "-m", "planstep.bench.run", os.fspath(spec)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert child.stdin is not None
        with child.stdin:
            assert child.wait(20) == status
    failed = run_apart(cell, tmp_path / "x")
    assert failed.reason is not None and failed.reason.startswith("exit status 1: ZeroDivision")


def test_a_child_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.bench.runner._PATIENCE_S", -599.5)
    cell = Cell("plain", "deterministic")
    slow = Cell.load({**cell.dump(), "shape": {**cell.dump()["shape"], "duration": 60, "rate": 1}})
    result = run_apart(slow, tmp_path / "x")
    assert result.status == FAILED and "had not ended" in str(result.reason)


def test_it_compares(tmp_path: Path) -> None:
    """The whole of it, on a small scale: real systems, real processes."""
    out = tmp_path / "out"
    words = "--workload reshard,plain --systems deterministic,kafka --durability full --rate 1 "
    words += (
        "--duration 0.5 --repeat 1 --partitions 4 --commit-interval 0.1 --no-find-rate --json --out"
    )
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split(), os.fspath(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told == json.loads((out / "results.json").read_text())
    for name in ("deterministic", "kafka"):
        for placement in ("shared", "separate"):
            entry = told["systems"][name]["reshard"]["full"][placement]
            assert entry["verified"] and entry["records"] > 0 and entry["missing"] == 0
    assert len(list((out / "traces").glob("*"))) == 4 + 2
    assert "Verification" in (out / "report.txt").read_text()
