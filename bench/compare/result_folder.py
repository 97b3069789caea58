"""Keeps a comparison's results: in --out DIR, or in a temporary folder that is removed.

    DIR/results.json   the summary, whole after each run, so that it can be read however this process ends
        report.txt     the same in words
        report.html    the same for reading, with drawings; png/, the drawings alone
        spark.json     Spark's findings and figures
        traces/<run>/  each run's trace: see ../judges/trace.py
        stores/<run>/  with --keep-stores; else until Spark has read some
        cells/         of the run under way; servers/, of peers' servers; .spark-…/, of Spark

In a folder with results.json of a comparison the new one replaces its files; any other folder must be empty.

Next: ../judges/spark_process.py, command.py.
"""

import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from planstep.errors import PlanstepError

from ..judges.spark_process import RESULT as SPARK
from .summary import KIND

RESULTS, REPORT, TRACES, STORES = "results.json", "report.txt", "traces", "stores"
PAGE, PICTURES = "report.html", "png"
_PAUSES_S = (0.05, 0.2, 1.0)
_OURS = (RESULTS, REPORT, TRACES, STORES, "cells", "servers", PAGE, PICTURES, SPARK)


class ResultFolder:
    """The folder of the results. Within `with`, `path` exists, without earlier results."""

    def __init__(self, out: Path | None) -> None:
        """Checks the folder. ValueError if it holds something else; nothing is changed before `with`."""
        self.out = out
        self._lock: int | None = None
        if out is not None and out.exists():
            if not out.is_dir():
                raise ValueError(f"--out {out} is no folder")
            if any(out.iterdir()) and not _is_comparison(out):
                raise ValueError(
                    f"--out {out} holds something else; name a new folder, an empty one, or one that "
                    "an earlier comparison made"
                )

    def __enter__(self) -> "ResultFolder":
        """Locks the folder, removes earlier results. PlanstepError while another comparison has it."""
        if self.out is None:
            self.path = Path(tempfile.mkdtemp(prefix="planstep-compare-"))
        else:
            self.path = self.out
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock_folder(self.path)
            self.save({"kind": KIND, "interrupted": True})
            for name in _OURS[1:]:
                _remove(self.path / name)
            for scratch in self.path.glob(".spark-*"):  # left by a comparison that was killed
                _remove(scratch)
        return self

    def __exit__(self, *exc: object) -> None:
        _remove(self.path if self.out is None else self.path / "cells")
        if self._lock is not None:
            os.close(self._lock)

    @property
    def traces(self) -> str | None:
        """Returns the folder of the traces, None where none are kept."""
        has_traces = self.out is not None and (self.path / TRACES).is_dir()
        return os.fspath(self.path / TRACES) if has_traces else None

    def drop_stores(self) -> None:
        """Removes the stores, which were kept for Spark only."""
        _remove(self.path / STORES)

    def save(self, summary: dict[str, Any], words: str | None = None) -> None:
        """Replaces results.json atomically, and the report; does nothing without --out."""
        if self.out is not None:
            replace_file(self.path / RESULTS, json.dumps(summary, indent=1) + "\n")
            if words is not None:
                replace_file(self.path / REPORT, words)


def _lock_folder(folder: Path) -> int:
    """Returns a descriptor that locks the folder for this process, until the process ends."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise PlanstepError(
            f"--out {folder} is in use by another comparison; name another folder, or wait for its end"
        ) from None
    except OSError:
        pass  # a file system without locks
    return lock


def _is_comparison(folder: Path) -> bool:
    try:
        content = json.loads((folder / RESULTS).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("kind") == KIND


def replace_file(path: Path, text: str) -> None:
    """Writes a text file; readers see the former text or the new one, never a part."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for pause in _PAUSES_S:  # a process of a killed run may still be ending
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(pause)
