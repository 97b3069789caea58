"""Runs a notebook and keeps its outputs, without what belongs to one machine or one run.

    cells ─▶ a kernel of this Python, in a folder of its own ─▶ outputs ─▶ clean ─▶ text of the .ipynb file

Left out: what is written to stderr (warnings, Spark's log), times of execution, versions, dates. A path of this
machine becomes "…", and its name in an output is an error: the file is meant to be published.

Next: drawing.py, which makes the drawings small.
"""

import os
import re
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from planstep.errors import MissingExtra

CELL_SECONDS = 300
PATH = re.compile(r"(?<![\w/<.])/(?:[\w.+-]+/)+[\w.+-]*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?")


def execute(notebook: Any) -> None:
    """Runs all cells of a notebook (nbformat's), and puts their outputs in. MissingExtra without nbclient.

    RuntimeError names the cell that failed; ValueError an output that names this machine.
    """
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellControlSignal
    except ImportError:
        raise MissingExtra("nbclient", "notebooks") from None
    with tempfile.TemporaryDirectory(prefix="planstep-notebook-") as folder:
        before = {name: os.environ.get(name) for name in ("MPLBACKEND", "PYSPARK_PYTHON", "TMPDIR")}
        os.environ |= {"PYSPARK_PYTHON": sys.executable, "TMPDIR": folder}
        os.environ.pop("MPLBACKEND", None)  # the kernel's own shows drawings in the notebook
        try:
            resources = {"metadata": {"path": folder}}
            options: dict[str, Any] = {
                "timeout": CELL_SECONDS,
                "record_timing": False,
                "coalesce_streams": True,
            }
            NotebookClient(
                notebook, kernel_name="python3", resources=resources, **options
            ).execute()
        except CellControlSignal as error:
            raise RuntimeError(str(error)) from error
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                _clean(output) for output in cell.outputs if output.get("name") != "stderr"
            ]


def _clean(output: Any) -> Any:
    """Returns an output without paths and dates. ValueError where it names this machine."""
    if "text" in output:
        output["text"] = clean_text(output["text"])
    data = output.get("data", {})
    for kind in data:
        if kind.startswith("text/"):
            data[kind] = clean_text(data[kind])
    return output


def clean_text(text: str) -> str:
    """Returns a text without paths and dates. ValueError where it names this machine."""
    text = PATH.sub("…", _DATE.sub("(date)", text))
    for path in (tempfile.gettempdir(), str(Path.home())):  # a path of one name, too
        text = text.replace(path, "…") if len(path) > 1 else text
    if re.search(rf"\b{re.escape(socket.gethostname())}\b", text):
        raise ValueError(f"an output names this machine: {text[:200]!r}")
    return text
