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
from collections.abc import Iterator
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
    try:
        with said.open("wb") as stream:
            child = None
            try:
                with undivided():  # a signal before `child` is assigned would lose the child
                    child = subprocess.Popen(
                        [sys.executable, "-m", "planstep.bench.compare.run_cell", os.fspath(spec)],
                        env=environment(),
                        stdin=subprocess.PIPE,  # closes with this process: see run_cell.py
                        stdout=stream,
                        stderr=stream,
                        process_group=0,  # this process passes Ctrl-C on, to its children as well
                    )
                status = child.wait(patience)
            except subprocess.TimeoutExpired:
                return Result(cell, FAILED, f"it had not ended after {patience:.0f} s")
            finally:
                if child is not None:
                    with undivided():
                        end_group(child)
        try:
            return Result.load(json.loads((folder / RESULT).read_text()))
        except (OSError, ValueError, TypeError, KeyError):
            return Result(cell, FAILED, f"exit status {status}: {last_words(said)}")
    finally:
        spec.unlink(missing_ok=True)
        said.unlink(missing_ok=True)


def environment() -> dict[str, str]:
    """Returns an environment for `-m` that skips the working directory, where a user's random.py may be."""
    if {"", os.getcwd()} & set(sys.path):
        return dict(os.environ)  # this process searches it too: the package may be there
    return {**os.environ, "PYTHONSAFEPATH": "1"}


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """Delays signal handlers, which may raise, until the block is left."""
    came: list[tuple[Any, Any]] = []
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former: dict[Any, Any] = {n: signal.getsignal(n) for n in ENDING}
    former = {number: handler for number, handler in former.items() if callable(handler)}
    for number in former:
        signal.signal(number, lambda *signalled: came.append(signalled))
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
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
