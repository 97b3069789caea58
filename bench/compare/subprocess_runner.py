"""Runs one cell in a process of its own, so that it inherits no memory, threads or garbage.

    folder.json ─▶ python -m planstep.bench.compare.run_cell folder.json ─▶ folder/result.json, folder/trace/
                              │ takes too long, or dies ─▶ FAILED, with its last line of output
    Ctrl-C ─▶ the child's process group is ended; none of its processes outlives this one

Next: run_cell.py, the child.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .cell import FAILED, Cell, Result

RESULT = "result.json"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals: Ctrl-C; `timeout`, or a CI's time limit; a closed terminal."""
_PATIENCE_S = 120.0
_GRACE_S = 2.0


def run_apart(cell: Cell, folder: Path) -> Result:
    """Runs the cell in `folder`, which the child creates; returns a result also when the child failed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    spec, said = folder.with_name(folder.name + ".json"), folder.with_name(folder.name + ".txt")
    spec.write_text(
        json.dumps({"cell": cell.dump(), "folder": os.fspath(folder), "attended": True})
    )
    shape = cell.shape
    patience = _PATIENCE_S + 10 * (shape.duration + shape.commit_interval)
    patience += 100 * cell.options.rtt  # unmeasured parts send messages as well
    module = "planstep.bench.compare.run_cell"
    try:
        with (
            said.open("wb") as stream,
            attended(module, os.fspath(spec), stdout=stream, stderr=stream) as child,
        ):
            status = child.wait(patience)
        try:
            return Result.load(json.loads((folder / RESULT).read_text()))
        except (OSError, ValueError, TypeError, KeyError):
            return Result(cell, FAILED, f"exit status {status}: {last_words(said)}")
    except subprocess.TimeoutExpired:
        return Result(cell, FAILED, f"it did not end within {patience:.0f} s")
    finally:
        spec.unlink(missing_ok=True)
        said.unlink(missing_ok=True)


@contextlib.contextmanager
def attended(module: str, *words: str, **streams: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Runs a module of Python in a process group of its own, which is ended with the block.

    The child's stdin closes when this process ends, however it ends.
    """
    child = None
    try:
        with undivided():  # a signal before `child` is assigned would lose the child
            child = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                env=environment(),
                stdin=subprocess.PIPE,
                process_group=0,  # this process passes Ctrl-C on, to its children as well
                **streams,
            )
        yield child
    finally:
        if child is not None:
            with undivided():
                end_group(child)


def environment() -> dict[str, str]:
    """Returns an environment for `-m` that skips the working directory, where a user's random.py may be."""
    if {"", os.getcwd()} & set(sys.path):
        return dict(os.environ)  # this process searches it too: the package may be there
    return {**os.environ, "PYTHONSAFEPATH": "1"}


@contextlib.contextmanager
def handled(
    replaced: Callable[[Any], bool], handler: Callable[[int, Any], object]
) -> Iterator[dict[int, Any]]:
    """Handles those of ENDING whose handler is to be replaced; yields the former ones. Only in the main thread."""
    main = threading.current_thread() is threading.main_thread()
    former: dict[int, Any] = {number: signal.getsignal(number) for number in ENDING if main}
    former = {number: own for number, own in former.items() if replaced(own)}
    for number in former:
        signal.signal(number, handler)
    try:
        yield former
    finally:
        for number, own in former.items():
            signal.signal(number, own)


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """Delays signal handlers, which may raise, until the block is left."""
    came: list[tuple[int, Any]] = []
    former: dict[int, Any] = {}
    try:
        with handled(callable, lambda *signalled: came.append(signalled)) as former:
            yield
    finally:
        for number, frame in came[:1]:
            former[number](number, frame)


def last_words(said: Path) -> str:
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def end_group(child: "subprocess.Popen[Any]") -> None:
    """Ends the child's whole group, since a workload may have started processes and killed some."""
    if child.poll() is None:
        _signal(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    _signal(child, signal.SIGKILL)
    child.wait()
    if child.stdin is not None:
        child.stdin.close()


def _signal(child: "subprocess.Popen[Any]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
