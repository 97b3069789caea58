"""Runs `planstep check ROW`: one row of RELIABILITY.md, or all of them.

    ROW ─▶ Row.run, with --negative the row's control ─▶ RowResult ─▶ a line, or --json
    all ─▶ a child process for each row: a crash is a violation, and the next row follows; rows that mostly
           wait run in the background

Exit 0 clean, 1 violations, 2 wrong usage, 3 a row was skipped, or a control failed by itself.

Next: a row's module, such as rows/sim.py.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import typer

import planstep

from ...cli.output import Json, errors, print_json, say
from ..children import Child, Children, end_group
from ..compare.machine import cpus
from ..compare.progress import in_minutes, terminated_as_interrupted
from .rows.registry import AGAIN, BY_NAME, LONGER, ROWS, RowOptions, RowResult

_EXAMPLES = 20
"""The number of a row's violations that are printed."""
SECONDS_MAX = 3600
"""The time after which a row of `all` counts as hanging."""
_PROGRAM = "import sys; from planstep.cli import main; sys.argv[0] = 'planstep'; main()"


def check(
    row: Annotated[
        str,
        typer.Argument(
            metavar="ROW",
            help="The row to run: "
            + ", ".join(BY_NAME)
            + ". `all` runs every row; `list` describes them.",
        ),
    ],
    *,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Runs a twentieth of each figure, and soaks for seconds."),
    ] = False,
    long: Annotated[
        bool,
        typer.Option(
            "--long",
            help="Runs ten times as many worlds, images and kills as usual, which takes a night.",
        ),
    ] = False,
    negative: Annotated[
        bool,
        typer.Option(
            "--negative",
            help="Runs the negative control instead: it plants a bug or a bad setting, which the row must "
            "detect. Exits 1 if it does; with `all`, if every row does.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Sets the first random seed.")] = 1,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Replaces the row's own number of runs. With --seed, 1 repeats a single run "
            "(row powerloss: 100).",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Limits the number of worker processes (default: one for each core).",
            show_default=False,
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Puts the stores into a temporary folder in DIR. By default they are in the system's "
            "temporary folder, and in memory where the disk does not matter.",
            show_default=False,
        ),
    ] = None,
    allow_skips: Annotated[
        bool,
        typer.Option(
            "--allow-skips",
            help="Exits 0 even if this machine cannot run a row: oom needs CPython's _testcapi, and only "
            "Linux can run every row.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Runs a row of RELIABILITY.md: it proves the engine under faults, and prints its counts.

    Each violation names the command that repeats it.

    JSON: rows, a list of {row, title, reach, runs, events, faults (by class), violations (how many),
    examples (of them, as text), skipped (why, or null), seconds, seeds (first and last, or null),
    figures (further numbers)}; negative; machine (cores, python, version).

    Exits 0 if all is well, 1 if there are violations, 3 if a row was skipped. Some parts need strace, root or
    Spark. Without these they are left out, and the figures say so.

    Examples:

        planstep check sim --quick

        planstep check sim --seed 4711 --runs 1

        planstep check powerloss --negative

        planstep check all --json
    """
    if quick and long:
        raise typer.BadParameter("leave one of --quick and --long out", param_hint="--long")
    if row == "list":
        _list(as_json)
        return
    if row != "all" and row not in BY_NAME:
        near = get_close_matches(row, [*BY_NAME, "all"], n=1)
        hint = f"; do you mean {near[0]}?" if near else ""
        raise typer.BadParameter(f"there is no row {row!r}{hint} See `planstep check list`.")
    options = RowOptions(
        quick=quick,
        long=long,
        seed=seed,
        runs=runs,
        workers=workers or cpus(),
        row=row,
        negative=negative,
        scratch=scratch,
    )
    with terminated_as_interrupted():
        results = _all(options) if row == "all" else [_run_here(options)]
    if as_json:
        print_json({"rows": results, "negative": negative, "machine": _machine()})
    else:
        for result in results:
            _print(result)
    if code := _exit_code(results, negative, allow_skips):
        raise typer.Exit(code)


def _exit_code(results: list[dict[str, Any]], negative: bool, allow_skips: bool) -> int:
    wrong = [bool(result["violations"]) for result in results]
    if all(wrong) if negative else any(wrong):
        return 1
    if any(result["skipped"] and not (allow_skips and _may_skip(result)) for result in results):
        return 3
    return 0


def _may_skip(result: dict[str, Any]) -> bool:
    return BY_NAME[result["row"]].skippable or sys.platform != "linux"


def _run_here(options: RowOptions) -> dict[str, Any]:
    """Runs a row in this process."""
    row = BY_NAME[options.row]
    began = time.monotonic()
    with _folders(options.scratch) as (folder, memory), _progress(row.name) as tell:
        options = replace(options, folder=folder, memory=memory, tell=tell)
        try:
            result = row.run(options)
        except Exception as error:
            trace = "".join(traceback.format_exception(error)[-6:])
            result = _failure(options, f"the check itself ended with {error!r}\n{trace}")
    return _result(options, result, time.monotonic() - began)


def _failure(options: RowOptions, why: str) -> RowResult:
    """Makes a row's own failure a violation; a control's proves nothing, so it counts as skipped."""
    return RowResult(skipped=why) if options.negative else RowResult(violations=[why])


def _result(options: RowOptions, result: RowResult, seconds: float) -> dict[str, Any]:
    row = BY_NAME[options.row]
    return {
        "row": row.name,
        "title": row.title,
        "reach": row.reach,
        "runs": result.runs,
        "events": result.events,
        "faults": dict(sorted(result.faults.items())),
        "violations": len(result.violations),
        "examples": [
            text if AGAIN in text else f"{text}\n{options.again()}"
            for text in result.violations[:_EXAMPLES]
        ],
        "skipped": result.skipped,
        "seconds": round(seconds, 1),
        "seeds": None if result.seeds is None else list(result.seeds),
        "figures": result.figures | result.most,
    }


def _all(options: RowOptions) -> list[dict[str, Any]]:
    """Runs all rows one after the other; rows that mostly wait start first and are reported in their order."""
    started: dict[str, _RowProcess] = {}
    with Children() as children:
        for row in ROWS:
            if row.waits:
                say(f"{row.name}, beside the others: {row.title}")
                started[row.name] = _start(children, replace(options, row=row.name))
        results = []
        for number, row in enumerate(ROWS, 1):
            say(f"[{number}/{len(ROWS)}] {row.name}: {row.title}")
            if row.name not in started:
                started[row.name] = _start(children, replace(options, row=row.name))
            results.append(_wait(started[row.name]))
            say(_line(results[-1]))
        return results


class _RowProcess(NamedTuple):
    """A row in a process of its own, so that a crash, hang or leak is clearly that row's."""

    options: RowOptions
    child: Child
    output: IO[bytes]
    began: float


def _start(children: Children, options: RowOptions) -> _RowProcess:
    words = [sys.executable, "-c", _PROGRAM, "check", options.row, "--json", "--allow-skips"]
    words += [*options.words(), "--workers", str(options.workers)]
    words += [] if options.scratch is None else ["--scratch", os.fspath(options.scratch)]
    output = tempfile.TemporaryFile()  # a pipe would fill up while other rows run
    return _RowProcess(options, children.start(words, stdout=output), output, time.monotonic())


def _wait(started: _RowProcess) -> dict[str, Any]:
    """Waits for the process to end, and returns its result or the way it failed."""
    options, child, output, began = started
    most = SECONDS_MAX * (LONGER if options.long else 1)
    with output:
        try:
            child.wait(max(0.0, began + most - time.monotonic()))
            output.seek(0)
            result: dict[str, Any] = json.loads(output.read())["rows"][0]
            if child.returncode == _exit_code([result], options.negative, allow_skips=True):
                return result
            why = f"the row's process gave its result and ended with exit code {child.returncode}"
            if not options.negative:  # its violations still count
                more = _result(options, RowResult(violations=[why, *result["examples"]]), 0.0)
                violations = result["violations"] + 1
                return result | {"violations": violations, "examples": more["examples"]}
        except subprocess.TimeoutExpired:
            why = f"the row has not ended after {most} s"
        except (ValueError, LookupError):
            why = f"the row's process ended with exit code {child.returncode} and said nothing"
        finally:
            end_group(child)
    return _result(options, _failure(options, why), time.monotonic() - began)


@contextmanager
def _folders(scratch: Path | None) -> Iterator[tuple[Path, Path]]:
    """Makes two folders, (on disk, in memory if the system has such a place), and removes them afterwards."""
    shared = Path("/dev/shm")
    memory = scratch or (shared if os.access(shared, os.W_OK) else None)
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    temporary = partial(
        tempfile.TemporaryDirectory, prefix="planstep-check-", ignore_cleanup_errors=True
    )
    with temporary(dir=scratch) as on_disk, temporary(dir=memory) as in_memory:
        yield Path(on_disk), Path(in_memory)


@contextmanager
def _progress(name: str) -> Iterator[Any]:
    """Yields a function that shows a row's progress: one changing line on a terminal, else one every 10 s."""
    if errors.is_terminal:
        with errors.status(name) as status:
            yield lambda line: status.update(f"{name}: {line}".replace("[", "\\["))
        return
    last = time.monotonic()

    def tell(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            say(f"{name}: {line}")

    yield tell


def _print(result: dict[str, Any]) -> None:
    print(_line(result))
    for name, value in result["figures"].items():
        if isinstance(value, (list, dict)):
            print(f"    {name.replace('_', ' ')}: {_text(value)}")
    for example in result["examples"]:
        print("    " + example.replace("\n", "\n    "))


def _line(result: dict[str, Any]) -> str:
    parts = [f"{result['runs']:,} runs"]
    if result["events"]:
        parts.append(f"{result['events']:,} events")
    if result["faults"]:
        parts.append(f"{sum(result['faults'].values()):,} faults")
    parts += [
        f"{name.replace('_', ' ')} {_number(n)}"
        for name, n in result["figures"].items()
        if not isinstance(n, (list, dict))
    ]
    parts.append(f"{result['violations']:,} violations")
    if result["skipped"]:
        parts.append(f"skipped: {result['skipped']}")
    return f"{result['row']:<11} {', '.join(parts)} ({in_minutes(result['seconds'])})"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _text(value: list[Any] | dict[str, Any]) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return ", ".join(
        f"{name} ({_text(n)})" if isinstance(n, dict) else f"{name} {_number(n)}"
        for name, n in value.items()
    )


def _list(as_json: bool) -> None:
    if as_json:
        print_json({"rows": [{"row": r.name, "title": r.title, "reach": r.reach} for r in ROWS]})
        return
    for row in ROWS:
        print(f"{row.name:<11} {row.title} ({row.reach})")


def _machine() -> dict[str, Any]:
    return {
        "cores": cpus(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "version": planstep.__version__,
    }
