"""One cell in a process of its own, so that none inherits another one's memory, threads or garbage.

    folder.json ─▶ python -m planstep.bench.run folder.json ─▶ folder/result.json, folder/trace/
                              │ says nothing for too long, dies ─▶ FAILED, with its last words
    Ctrl-C ─▶ the child and all that it started are ended; nothing of theirs outlives this process

Next: run.py, the child.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from .cell import FAILED, Cell, Result

RESULT = "result.json"
_PATIENCE_S = 120.0
_GRACE_S = 2.0


def run_apart(cell: Cell, folder: Path) -> Result:
    """Runs it in `folder`, which the child makes; what it came to, also when the child failed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    spec, said = folder.with_name(folder.name + ".json"), folder.with_name(folder.name + ".txt")
    spec.write_text(json.dumps({"cell": cell.dump(), "folder": os.fspath(folder)}))
    patience = _PATIENCE_S + 10 * cell.shape.duration
    try:
        with said.open("wb") as stream:
            child = subprocess.Popen(
                [sys.executable, "-m", "planstep.bench.run", os.fspath(spec)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                process_group=0,  # Ctrl-C is ours to pass on, to the child's children as well
            )
            try:
                status = child.wait(patience)
            except subprocess.TimeoutExpired:
                return Result(cell, FAILED, f"it had not ended after {patience:.0f} s")
            finally:
                _end(child)
        try:
            return Result.load(json.loads((folder / RESULT).read_text()))
        except (OSError, ValueError, TypeError, KeyError):
            return Result(cell, FAILED, f"exit status {status}: {_last_words(said)}")
    finally:
        spec.unlink(missing_ok=True)
        said.unlink(missing_ok=True)


def _last_words(said: Path) -> str:
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def _end(child: "subprocess.Popen[bytes]") -> None:
    """The whole group: a workload may have started processes, and killed some."""
    if child.poll() is None:
        _signal(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    _signal(child, signal.SIGKILL)
    child.wait()


def _signal(child: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
