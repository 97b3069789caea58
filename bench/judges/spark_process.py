"""Has Spark judge a comparison in a process of its own, which may use much memory, or fail.

    DIR/results.json, traces/, stores/ ─▶ python -m planstep.bench.judges.spark DIR ─▶ DIR/spark.json
                                                 │ each line of its stderr is progress
    cannot start, dies, takes too long ─▶ {"ran": False, "why_not": …}: Python's verdicts stand
    cannot judge a trace ─▶ the same, and a disagreement

Next: spark/__main__.py, the child.
"""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..children import Child, Children, module, undivided

RESULT = "spark.json"
WRONG, CANNOT_START = 1, 3
"""Exit statuses of the child; its last line gives the reason."""
_PROGRESS = "Spark: "
_PATIENCE_S, _GRACE_S = 3600.0, 10.0


def without(why: str) -> dict[str, Any]:
    """Returns the verdict for a comparison that Spark did not judge."""
    return {
        "ran": False,
        "why_not": why,
        "version": None,
        "master": None,
        "java": None,
        "seconds": 0.0,
        "jobs": [],
        "rows_read": 0,
        "agrees_with_python": None,
        "checks": [],
        "disagreements": [],
    }


def prove_apart(
    folder: Path, master: str | None = None, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Returns {"spark": …, "figures": …}, the latter only if Spark finished. KeyboardInterrupt ends Spark.

    master   None: local[*]
    """
    (folder / RESULT).unlink(missing_ok=True)
    words = module("planstep.bench.judges.spark", folder.resolve())
    if master is not None:
        words += ["--master", master]
    lines: list[str] = []
    reading = None
    try:
        with Children() as children:
            child = children.start(
                [*words, "--attended"],
                stdin=subprocess.PIPE,  # closes with this process
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            reading = threading.Thread(target=_read, args=(child, lines, tell), daemon=True)
            reading.start()
            status = child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return {"spark": without(f"it did not end within {_PATIENCE_S:.0f} s")}
    finally:
        with undivided():
            for scratch in folder.glob(".spark-*"):  # left by a child that died
                shutil.rmtree(scratch, ignore_errors=True)
        if reading is not None:  # Python's workers have their own group; they end with their Java
            reading.join(_GRACE_S)
    last = lines[-1] if lines else "it printed nothing"
    if status == CANNOT_START:
        return {"spark": without(last)}
    try:
        report = json.loads((folder / RESULT).read_text())
        return {"spark": report["spark"], "figures": report["figures"]}
    except (OSError, ValueError, KeyError):
        verdict = without(f"it ended with status {status}: {last}")
        if status == WRONG:  # a trace that cannot be judged counts as a disagreement
            verdict |= {"agrees_with_python": False, "disagreements": [last]}
        return {"spark": verdict}


def _read(child: Child, lines: list[str], tell: Callable[[str], None]) -> None:
    assert child.stderr is not None
    with child.stderr:
        for line in child.stderr:
            if line.strip():
                lines.append(line.strip())
                if line.startswith(_PROGRESS):  # other lines are Java's
                    tell(lines[-1])
