"""Runs one cell in a process of its own, so that it inherits no memory, threads or garbage.

    folder.json ─▶ python -m planstep.bench.compare.run_cell folder.json ─▶ folder/result.json, folder/trace/
                              │ takes too long, or dies ─▶ FAILED, with its last line of output
    Ctrl-C ─▶ the child's process group is ended; none of its processes outlives this one

Next: run_cell.py, the child.
"""

import json
import os
import subprocess
from pathlib import Path

from ..children import Children, last_words, module
from .cell import FAILED, Cell, Result
from .time_plans import overhead_of

RESULT = "result.json"
_PATIENCE_S = 120.0
_SLOWER = 10
"""A machine may be so many times slower than the one whose times were planned."""


def run_apart(cell: Cell, folder: Path) -> Result:
    """Runs the cell in `folder`, which the child creates; returns a result also when the child failed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    spec, output = folder.with_name(folder.name + ".json"), folder.with_name(folder.name + ".txt")
    spec.write_text(
        json.dumps({"cell": cell.dump(), "folder": os.fspath(folder), "attended": True})
    )
    patience = patience_s(cell)
    try:
        with output.open("wb") as stream, Children() as children:
            child = children.start(
                module("planstep.bench.compare.run_cell", spec),
                stdin=subprocess.PIPE,  # closes with this process: see run_cell.py
                stdout=stream,
                stderr=stream,
            )
            status = child.wait(patience)
        try:
            return Result.load(json.loads((folder / RESULT).read_text()))
        except (OSError, ValueError, TypeError, KeyError):
            return Result(cell, FAILED, f"exit status {status}: {last_words(output)}")
    except subprocess.TimeoutExpired:
        return Result(cell, FAILED, f"it did not end within {patience:.0f} s")
    finally:
        spec.unlink(missing_ok=True)
        output.unlink(missing_ok=True)


def patience_s(cell: Cell) -> float:
    """Returns the seconds that a run may take: what it starts counts, such as a server that it kills."""
    planned = cell.shape.duration + cell.shape.commit_interval + overhead_of(cell)
    # Unmeasured parts send messages as well.
    return _PATIENCE_S + _SLOWER * planned + 100 * cell.options.rtt
