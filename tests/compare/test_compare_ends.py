"""Tests how `planstep compare` ends: by itself, interrupted, or with its parent."""

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import Child, python

pytest.importorskip("typer")

from comparing import PROGRAM, SMALL, good

from planstep.bench.compare.cell import FAILED, Cell, Result
from planstep.bench.compare.result_folder import ResultFolder
from planstep.bench.compare.subprocess_runner import patience_s, run_apart
from planstep.bench.compare.systems import ENTRIES
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.time_plans import STARTS_WITH_KILLS
from planstep.bench.compare.workloads.base import Shape
from planstep.errors import PlanstepError


def test_an_interrupted_comparison_tells_what_there_is(call: Any, tmp_path: Path) -> None:
    begun: list[Cell] = []

    def run(cell: Cell, folder: Path) -> Result:
        begun.append(cell)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return good(cell, folder)

    out = tmp_path / "out"
    ended = call(*SMALL, "--out", out, run=run)
    assert ended.exit_code == 130
    assert ended.stdout.startswith("INTERRUPTED")
    summary = json.loads((out / "results.json").read_text())
    assert summary["interrupted"] is True
    first, second = (
        summary["systems"][cell.system]["small"]["full"][cell.options.placement] for cell in begun
    )
    assert (first["status"], first["verified"]) == ("ok", True)
    assert (second["status"], second["verified"]) == ("interrupted", False)


def test_what_is_there_before_the_end_is_called_interrupted(call: Any, tmp_path: Path) -> None:
    flags: list[bool] = []

    def run(cell: Cell, folder: Path) -> Result:
        flags.append(json.loads((tmp_path / "results.json").read_text())["interrupted"])
        return good(cell, folder)

    assert call(*SMALL, "--out", tmp_path, run=run).exit_code == 0
    assert flags == [True, True]
    assert json.loads((tmp_path / "results.json").read_text())["interrupted"] is False


def test_nothing_is_called_verified_when_nothing_ran(call: Any) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        raise KeyboardInterrupt

    ended = call(*SMALL, "--details", run=run)
    assert "No run has ended." in ended.stdout and "was verified" not in ended.stdout


def test_the_command_that_is_printed_does_the_same_again(call: Any) -> None:
    words = (*SMALL, "--rate", "0.12345678", "--no-find-rate", "--partitions", "7")
    first = call(*words, "--details").stdout
    command = first.partition("To repeat the comparison:\n")[2].partition("\n\n")[0]
    again = shlex.split(command.replace("\\\n", ""))
    assert again[:2] == ["planstep", "compare"] and "--no-find-rate" in again
    assert "0.12345678" in again and "7" in again
    assert (
        call(*again[2:], "--details").stdout.partition("To repeat")[2]
        == first.partition("To repeat")[2]
    )
    short = call(*words).stdout.partition("To repeat the comparison:\n")[2]
    again = shlex.split(short.replace("\\\n", ""))
    assert "--workers" not in again and len(short.splitlines()) < len(command.splitlines())
    assert (
        call(*again[2:], "--details").stdout.partition("To repeat")[2]
        == first.partition("To repeat")[2]
    )


def test_a_folder_is_of_one_comparison_at_a_time(call: Any, tmp_path: Path) -> None:
    def run(cell: Cell, folder: Path) -> Result:
        with pytest.raises(PlanstepError, match="in use by another comparison"):
            ResultFolder(tmp_path).__enter__()
        return good(cell, folder)

    assert call(*SMALL, "--out", tmp_path, run=run).exit_code == 0
    assert call(*SMALL, "--out", tmp_path).exit_code == 0


def test_a_report_is_printed_in_any_encoding(tmp_path: Path) -> None:
    words = ["--workload", "plain", "--systems", "deterministic", "--durability", "full"]
    words += ["--duration", "0.1", "--rate", "1", "--partitions", "1", "--no-spark"]
    words += ["--out", os.fspath(tmp_path)]
    posix = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "POSIX"}
    ended = python(PROGRAM, *words, env=posix)
    assert "Traceback" not in ended.stderr
    assert ended.stdout.startswith("planstep compare: 1 of 1")
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


def attended(tmp_path: Path, cell: Cell) -> Any:
    """Starts a child that runs a cell, and ends with its stdin."""
    spec = tmp_path / "spec.json"
    cell_spec = {"cell": cell.dump(), "folder": os.fspath(tmp_path / "cell"), "attended": True}
    spec.write_text(json.dumps(cell_spec))
    command = [sys.executable, "-m", "planstep.bench.compare.run_cell", os.fspath(spec)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_a_child_whose_parent_was_killed_ends_and_leaves_nothing(tmp_path: Path) -> None:
    cell = Cell("plain", "deterministic", shape=Shape(rate=1.0, partitions=1, duration=60.0))
    child, folder = attended(tmp_path, cell), tmp_path / "cell"
    while not (folder / "store").exists():
        assert child.poll() is None
    child.stdin.close()  # like the end of its parent
    assert child.wait(100) == 1
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_under_way(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    words = ["--workload", "plain", "--systems", "deterministic", "--duration", "60", "--json"]
    words += ["--rate", "1", "--out", os.fspath(out)]
    with Child(PROGRAM, *words, stderr=subprocess.PIPE) as child:
        while not child.process.stderr.readline().startswith("[1/"):
            pass
        child.process.send_signal(number)
        output, _ = child.process.communicate(timeout=60)
    assert child.process.returncode == 130
    assert json.loads(output)["interrupted"] is True
    assert not (out / "cells").exists()
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(os.fsencode(out) in command for command in commands), "the child is still there"


def test_a_child_that_dies_is_a_failed_run(tmp_path: Path) -> None:
    shape = Shape(rate=1.0, partitions=1, duration=0.1, workers=0)
    cell = Cell("plain", "deterministic", shape=shape)
    result = run_apart(cell, tmp_path / "cells" / "x")
    assert result.status == FAILED and result.reason is not None
    assert result.reason.startswith("exit status 1: ZeroDivision")
    assert list((tmp_path / "cells").glob("*.json")) == []


def test_a_child_ends_in_good_order_or_says_why(tmp_path: Path) -> None:
    shape = Shape(rate=1.0, partitions=1, duration=0.1)
    for workers, status in ((1, 0), (0, 1)):
        cell = Cell("plain", "deterministic", shape=replace(shape, workers=workers))
        child = attended(tmp_path, cell)
        with child.stdin:
            assert child.wait(100) == status


def test_a_child_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.bench.compare.subprocess_runner.patience_s", lambda cell: 0.5)
    slow = Cell("plain", "deterministic", shape=Shape(duration=60, rate=1))
    result = run_apart(slow, tmp_path / "x")
    assert result.status == FAILED and "did not end within" in str(result.reason)


def test_a_run_that_kills_its_server_is_given_time_for_each_start() -> None:
    cell = Cell("faults", "apache-kafka", Options(transaction_timeout_ms=1000), Shape(duration=1.0))
    slow_machine = 3 * STARTS_WITH_KILLS * ENTRIES[cell.system].start_s
    ours = replace(cell, system="deterministic")
    assert patience_s(cell) - patience_s(ours) > slow_machine


def test_it_compares(tmp_path: Path) -> None:
    """Runs a whole comparison on a small scale: real systems, real processes."""
    out = tmp_path / "out"
    words = "--workload reshard,plain --systems deterministic,kafka --durability full --rate 1 "
    words += "--duration 0.5 --repeat 1 --partitions 4 --commit-interval 0.1 --no-find-rate --json"
    ended = python(PROGRAM, *words.split(), "--out", out)
    summary = json.loads(ended.stdout)
    assert summary == json.loads((out / "results.json").read_text())
    for name in ("deterministic", "kafka"):
        for placement in ("shared", "separate"):
            entry = summary["systems"][name]["reshard"]["full"][placement]
            assert entry["verified"] and entry["records"] > 0 and entry["missing"] == 0
    assert len(list((out / "traces").glob("*"))) == 4 + 2
    assert "Verification" in (out / "report.txt").read_text()
    spark = summary["spark"]
    assert spark["ran"] and spark["agrees_with_python"], spark["why_not"] or spark["disagreements"]
    by_name = {check["name"]: check for check in spark["checks"]}
    assert by_name["stores: as traced"]["rows"] > 0 and not (out / "stores").exists()
    assert (out / "report.html").is_file() and summary["report"]["png"]
    assert not list(out.glob(".*"))
