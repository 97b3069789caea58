"""One cell in a process of its own, so that none inherits another one's memory, threads or garbage.

    folder/spec.json ─▶ python -m planstep.bench.run folder/spec.json ─▶ folder/result.json, folder/trace/
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

SPEC, RESULT, SAID = "spec.json", "result.json", "said.txt"
_PATIENCE_S = 120.0
_GRACE_S = 2.0


def run_cell(cell: Cell, folder: Path) -> Result:
    """Runs it in `folder`, made if need be; what it came to, also when the child failed."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / SPEC
    spec.write_text(json.dumps(cell.dump()))
    patience = _PATIENCE_S + 10 * cell.shape.duration
    with (folder / SAID).open("wb") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "planstep.bench.run", os.fspath(spec)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            process_group=0,  # Ctrl-C is ours to pass on, to the child's children as well
        )
        try:
            status = child.wait(patience)
        except subprocess.TimeoutExpired:
            return _failed(cell, f"it had not ended after {patience:.0f} s")
        finally:
            _end(child)
    try:
        return Result.load(json.loads((folder / RESULT).read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        return _failed(cell, f"exit status {status}: {_last_words(folder / SAID)}")


def _failed(cell: Cell, reason: str) -> Result:
    return Result(cell, FAILED, reason)


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
