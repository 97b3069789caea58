"""Runs `planstep check ROW`: one row of RELIABILITY.md, or all of them.

    ROW ─▶ Row.run, or with --negative Row.control ─▶ Found ─▶ a line, or --json
    all ─▶ a child process for each row: a crash is a violation, and the next row follows; rows that mostly
           wait run in the background

Exit 0 clean, 1 violations, 2 wrong usage, 3 a row was skipped, or a control failed by itself.

Next: a row's module, such as rows/sim.py.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from ...cli.output import Json, errors, print_json, say
from ..compare.machine import cpus
from ..compare.progress import in_minutes, terminated_as_interrupted
from .rows.registry import AGAIN, BY_NAME, LONGER, ROWS, Asked, Found

_EXAMPLES = 20
"""The number of a row's violations that are printed."""
SECONDS_MAX = 3600
"""The time after which a row of `all` counts as hanging."""
_PROGRAM = "import sys; from planstep.cli import main; sys.argv[0] = 'planstep'; main()"


@dataclass(frozen=True)
class Options:
    quick: bool
    long: bool
    negative: bool
    seed: int
    runs: int | None
    workers: int
    scratch: Path | None


def check(
    row: Annotated[
        str,
        typer.Argument(
            metavar="ROW",
            help="One of: " + ", ".join(BY_NAME) + "; all; or list, which says what each is.",
        ),
    ],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="About a twentieth of each figure, a soak of seconds.")
    ] = False,
    long: Annotated[
        bool,
        typer.Option(
            "--long",
            help="Ten times each number that is drawn from a seed (worlds, images, kills), for a night.",
        ),
    ] = False,
    negative: Annotated[
        bool,
        typer.Option(
            "--negative",
            help="The negative control in its place: a planted bug or a bad setting, which the row must "
            "notice. Exits 1 when it did; with all, when every row did.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The first seed of those that are drawn from.")
    ] = 1,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="So many runs in place of the row's own number: with --seed, one to see again.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Processes at once (default: one a core).", show_default=False
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where stores are made, in a folder that is removed again. Default: the system's own for "
            "such things, and memory where the disk does not matter.",
            show_default=False,
        ),
    ] = None,
    allow_skips: Annotated[
        bool,
        typer.Option(
            "--allow-skips",
            help="Exit 0 also where a row was skipped that this machine has no means for: oom, which takes "
            "CPython's _testcapi; on other systems than Linux any.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Runs a row of RELIABILITY.md: a proof of the engine under faults, with what it counted.

    Each violation names the command that shows it again.

    JSON: rows, a list of {row, title, reach, runs, events, faults (by class), violations (how many),
    examples (of them, as text), skipped (why, or null), seconds, seeds (first and last, or null),
    figures (further numbers)}; negative; machine (cores, python, version).

    Exits 0 when all is well, 1 on violations, 3 when a row was skipped. Parts that take strace, root or Spark are
    left out where these are missing, and figures say so.

    Examples:

        planstep check sim --quick

        planstep check sim --seed 4711 --runs 1

        planstep check powerloss --negative

        planstep check all --json
    """
    if quick and long:
        raise typer.BadParameter("leave one of --quick and --long out", param_hint="--long")
    options = Options(quick, long, negative, seed, runs, workers or cpus(), scratch)
    if row == "list":
        _list(as_json)
        return
    if row != "all" and row not in BY_NAME:
        near = get_close_matches(row, [*BY_NAME, "all"], n=1)
        hint = f"; do you mean {near[0]}?" if near else ""
        raise typer.BadParameter(f"there is no row {row!r}{hint} See `planstep check list`.")
    with terminated_as_interrupted():
        told = _all(options) if row == "all" else [_here(row, options)]
    if as_json:
        print_json({"rows": told, "negative": negative, "machine": _machine()})
    else:
        for found in told:
            _print(found)
    if code := _exit_code(told, negative, allow_skips):
        raise typer.Exit(code)


def _exit_code(told: list[dict[str, Any]], negative: bool, allow_skips: bool) -> int:
    noticed = [bool(found["violations"]) for found in told]
    if all(noticed) if negative else any(noticed):
        return 1
    if any(found["skipped"] and not (allow_skips and _may_skip(found)) for found in told):
        return 3
    return 0


def _here(name: str, options: Options) -> dict[str, Any]:
    row = BY_NAME[name]
    began = time.monotonic()
    with _folders(options.scratch) as (folder, memory), _telling(name) as tell:
        asked = replace(_asked(name, options), folder=folder, memory=memory, tell=tell)
        try:
            found = row.control(asked) if options.negative else row.run(asked)
        except Exception as error:
            # An unexpected exception is a violation; in a control it proves nothing.
            trace = "".join(traceback.format_exception(error)[-6:])
            why = f"the check itself ended with {error!r}\n{trace}"
            found = Found(skipped=why) if options.negative else Found(violations=[why])
    return _told(name, found, time.monotonic() - began, options)


def _asked(name: str, options: Options) -> Asked:
    """Returns a row's options without folders: only a row that runs in this process has them."""
    return Asked(
        Path(),
        Path(),
        options.quick,
        options.long,
        options.seed,
        options.runs,
        options.workers,
        row=name,
        negative=options.negative,
    )


def _may_skip(told: dict[str, Any]) -> bool:
    return BY_NAME[told["row"]].skippable or sys.platform != "linux"


def _told(name: str, found: Found, seconds: float, options: Options) -> dict[str, Any]:
    row, again = BY_NAME[name], _asked(name, options).again()
    return {
        "row": name,
        "title": row.title,
        "reach": row.reach,
        "runs": found.runs,
        "events": found.events,
        "faults": dict(sorted(found.faults.items())),
        "violations": len(found.violations),
        "examples": [
            text if AGAIN in text else f"{text}\n{again}" for text in found.violations[:_EXAMPLES]
        ],
        "skipped": found.skipped,
        "seconds": round(seconds, 1),
        "seeds": None if found.seeds is None else list(found.seeds),
        "figures": found.figures,
    }


def _all(options: Options) -> list[dict[str, Any]]:
    """Runs all rows one after the other; rows that mostly wait start first and are reported in their order."""
    begun: dict[str, Apart] = {}
    try:
        for one in ROWS:
            if one.waits:
                say(f"{one.name}, beside the others: {one.title}")
                begun[one.name] = Apart(one.name, options)
        told = []
        for number, one in enumerate(ROWS, 1):
            say(f"[{number}/{len(ROWS)}] {one.name}: {one.title}")
            if one.name not in begun:
                begun[one.name] = Apart(one.name, options)
            told.append(begun[one.name].told())
            say(_line(told[-1]))
        return told
    finally:
        for row in begun.values():
            row.end()


class Apart:
    """Runs a row in a process of its own, so that a crash, hang or leak is clearly that row's."""

    def __init__(self, name: str, options: Options) -> None:
        words = ["check", name, "--json", "--allow-skips", "--seed", str(options.seed)]
        words += ["--workers", str(options.workers)]
        words += ["--quick"] * options.quick + ["--long"] * options.long
        words += ["--negative"] * options.negative
        words += [] if options.runs is None else ["--runs", str(options.runs)]
        words += [] if options.scratch is None else ["--scratch", os.fspath(options.scratch)]
        self._name, self._options = name, options
        self._began = time.monotonic()
        self._said = tempfile.TemporaryFile()  # a pipe would fill up while other rows run
        command = [sys.executable, "-c", _PROGRAM, *words]
        self._child = subprocess.Popen(command, stdout=self._said)

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        self._said.close()

    def told(self) -> dict[str, Any]:
        """Waits for the process to end, and returns its result or the way it failed."""
        name, options, child = self._name, self._options, self._child
        most = SECONDS_MAX * (LONGER if options.long else 1)
        try:
            child.wait(max(0.0, self._began + most - time.monotonic()))
            self._said.seek(0)
            told: dict[str, Any] = json.loads(self._said.read())["rows"][0]
            if child.returncode == _exit_code([told], options.negative, allow_skips=True):
                return told
            why = f"the row's process gave its result and ended with exit code {child.returncode}"
            if not options.negative:  # its violations still count
                found = Found(violations=[why, *told["examples"]])
                examples = _told(name, found, 0.0, options)["examples"]
                return told | {"violations": told["violations"] + 1, "examples": examples}
        except subprocess.TimeoutExpired:
            why = f"the row has not ended after {most} s"
        except (ValueError, LookupError):
            why = f"the row's process ended with exit code {child.returncode} and said nothing"
        finally:
            self.end()
        found = Found(skipped=why) if options.negative else Found(violations=[why])
        return _told(name, found, time.monotonic() - self._began, options)


@contextmanager
def _folders(scratch: Path | None) -> Iterator[tuple[Path, Path]]:
    """Makes two folders, (on disk, in memory if the system has such a place), and removes them afterwards."""
    shared = Path("/dev/shm")
    places = [scratch, scratch if scratch or not os.access(shared, os.W_OK) else shared]
    made: list[Path] = []
    try:
        for place in places:
            if place is not None:
                place.mkdir(parents=True, exist_ok=True)
            made.append(Path(tempfile.mkdtemp(prefix="planstep-check-", dir=place)))
        yield made[0], made[1]
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _telling(name: str) -> Iterator[Any]:
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


def _print(told: dict[str, Any]) -> None:
    print(_line(told))
    for name, value in told["figures"].items():
        if isinstance(value, (list, dict)):
            print(f"    {name.replace('_', ' ')}: {_listed(value)}")
    for example in told["examples"]:
        print("    " + example.replace("\n", "\n    "))


def _line(told: dict[str, Any]) -> str:
    parts = [f"{told['runs']:,} runs"]
    if told["events"]:
        parts.append(f"{told['events']:,} events")
    if told["faults"]:
        parts.append(f"{sum(told['faults'].values()):,} faults")
    parts += [
        f"{name.replace('_', ' ')} {_number(n)}"
        for name, n in told["figures"].items()
        if not isinstance(n, (list, dict))
    ]
    parts.append(f"{told['violations']:,} violations")
    if told["skipped"]:
        parts.append(f"skipped: {told['skipped']}")
    return f"{told['row']:<12}{', '.join(parts)} ({in_minutes(told['seconds'])})"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _listed(value: list[Any] | dict[str, Any]) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return ", ".join(
        f"{name} ({_listed(n)})" if isinstance(n, dict) else f"{name} {_number(n)}"
        for name, n in value.items()
    )


def _list(as_json: bool) -> None:
    if as_json:
        print_json({"rows": [{"row": r.name, "title": r.title, "reach": r.reach} for r in ROWS]})
        return
    for row in ROWS:
        print(f"{row.name:<12}{row.title} ({row.reach})")


def _machine() -> dict[str, Any]:
    import platform

    import planstep

    return {
        "cores": cpus(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "version": planstep.__version__,
    }
