"""Calls `planstep compare` in tests, with a runner that runs nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from planstep.bench.compare import command as module
from planstep.bench.compare.cell import Cell, Result
from planstep.bench.compare.command import compare
from planstep.cli.command import Command

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command(cls=Command)(compare)
SMALL = (
    "--workload",
    "small",
    "--systems",
    "deterministic,kafka",
    "--durability",
    "full",
    "--repeat",
    "1",
)
PROGRAM = (
    "import typer; from planstep.cli.command import Command;"
    "from planstep.bench.compare.command import compare;"
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


def caller(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns a function that calls `compare WORDS` with a runner that runs nothing, and without Spark."""

    def call(*words: object, run: Any = good) -> Any:
        monkeypatch.setattr(module, "run_apart", run)
        arguments = ["--no-spark", *map(str, words)]
        return CliRunner().invoke(app, arguments)

    return call
