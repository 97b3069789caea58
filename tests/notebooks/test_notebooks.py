"""Runs every notebook from top to bottom (nbmake): it draws, and leaves nothing behind.

A notebook asserts what it claims, so one that is wrong fails here. The kernel is this very interpreter; nothing of
the user's Jupyter, IPython or matplotlib is read or written.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.notebooks.__main__ import SOURCES, ipynb

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("jupytext")
pytest.importorskip("nbmake")

CELL_SECONDS = 300
# Clears settings of the test's user: pytest's options, and a backend that would draw no output.
OTHERS = ("MPLBACKEND", "PYTEST_ADDOPTS", "PYTHONWARNINGS", "PLANSTEP_STORE")


def at_home_in(home: Path) -> dict[str, str]:
    """Returns an environment in which a kernel keeps all its files below `home`."""
    kernel = home / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    (home / "tmp").mkdir()
    return {k: v for k, v in os.environ.items() if k not in OTHERS} | {
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter-config"),
        "JUPYTER_DATA_DIR": str(home / "jupyter"),
        "JUPYTER_PATH": str(home / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(home / "jupyter-runtime"),
        "MPLCONFIGDIR": str(home / "matplotlib"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(home / "tmp"),
    }


def run(notebook: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs a notebook in its folder, and replaces it by the result with outputs."""
    plain = ["-q", "--color=no", "-c", os.devnull, f"--rootdir={notebook.parent}"]
    plain += ["-p", "no:cacheprovider", "-p", "nbmake.pytest_plugin"]
    options = ["--nbmake", f"--nbmake-timeout={CELL_SECONDS}", "--overwrite", str(notebook)]
    child = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *options],
        cwd=notebook.parent,
        env=at_home_in(home),
        capture_output=True,
        text=True,
        timeout=2 * CELL_SECONDS,
        check=False,
    )
    child.stdout = re.sub(r"\x1b\[[\d;]*m", "", child.stdout)  # tracebacks are coloured
    return child


def outputs(notebook: Path) -> list[Any]:
    cells = nbformat.read(notebook, as_version=4).cells
    return [output for cell in cells for output in cell.get("outputs", ())]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


def test_there_are_notebooks() -> None:
    assert [source.name[:3] for source in SOURCES][:2] == ["01_", "02_"]


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_the_notebook_runs(source: Path, desk: Path, tmp_path: Path) -> None:
    notebook = desk / f"{source.stem}.ipynb"
    notebook.write_text(ipynb(source), encoding="utf-8")
    child = run(notebook, tmp_path / "home")
    assert child.returncode == 0, child.stdout + child.stderr
    results = outputs(notebook)
    assert not [output for output in results if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in results), "it draws nothing"
    assert list(desk.iterdir()) == [notebook]
    assert not list((tmp_path / "home" / "tmp").iterdir()), "temporary files are left"


def test_a_notebook_runs_as_plain_python_and_says_its_drawings(tmp_path: Path) -> None:
    env = os.environ | {"MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(SOURCES[0])]
    child = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=CELL_SECONDS
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.count("[drawing: ") == 2
    assert not list(tmp_path.iterdir())


def test_a_false_claim_fails_and_its_cell_is_named(desk: Path, tmp_path: Path) -> None:
    notebook = desk / "wrong.ipynb"
    cells = ["import sys\nprint(sys.executable)", "claimed = 3\nassert 1 + 1 == claimed"]
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(content, notebook)
    child = run(notebook, tmp_path / "home")
    assert child.returncode == 1, child.stdout + child.stderr
    assert cells[1] in child.stdout and "AssertionError" in child.stdout
    assert "Cell In[2], line 2" in child.stdout
    printed, raised = outputs(notebook)
    assert printed.text == f"{sys.executable}\n"  # this interpreter's kernel
    assert raised.ename == "AssertionError"
