"""Tests that the notebooks that are kept with their outputs are their sources', and that a code host may show them.

`make notebooks` makes bench/notebooks/*.ipynb, from a sample of traces that comes with the package.
"""

import base64
import json
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.plan import BY_NAME
from planstep.bench.compare.systems import DEFAULT
from planstep.bench.compare.workloads import WORKLOADS
from planstep.bench.notebooks import __main__ as command
from planstep.bench.notebooks.__main__ import SOURCES, ipynb
from planstep.bench.notebooks.execute import PATH, clean_text
from planstep.bench.notebooks.sample import OPTIONS, SAMPLE, unpack

PICTURE_BYTES, ALL_BYTES, SAMPLE_BYTES = 100_000, 2_000_000, 1_500_000
KEPT = [source.with_suffix(".ipynb") for source in SOURCES]


def cells(text: str) -> list[Any]:
    cells: list[Any] = json.loads(text)["cells"]
    return cells


def outputs(notebook: Path) -> list[Any]:
    return [o for cell in cells(notebook.read_text("utf-8")) for o in cell.get("outputs", ())]


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_the_cells_are_those_of_the_source(source: Path) -> None:
    pytest.importorskip("jupytext")
    kept, now = (
        [(cell["id"], cell["cell_type"], "".join(cell["source"])) for cell in cells(text)]
        for text in (source.with_suffix(".ipynb").read_text("utf-8"), ipynb(source))
    )
    assert kept == now, "the source was changed: make notebooks"


@pytest.mark.parametrize("notebook", KEPT, ids=[notebook.stem for notebook in KEPT])
def test_it_was_run_and_its_drawings_are_small_and_described(notebook: Path) -> None:
    code = [cell for cell in cells(notebook.read_text("utf-8")) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    pictures = [o for o in outputs(notebook) if "image/png" in o.get("data", {})]
    assert pictures
    for picture in pictures:
        assert len(base64.b64decode("".join(picture["data"]["image/png"]))) < PICTURE_BYTES
        assert len(picture["metadata"]["image/png"]["alt"]) > 40
    assert sum(path.stat().st_size for path in KEPT) < ALL_BYTES


@pytest.mark.parametrize("notebook", KEPT, ids=[notebook.stem for notebook in KEPT])
def test_no_output_names_a_machine_or_is_an_error(notebook: Path) -> None:
    for output in outputs(notebook):
        assert output["output_type"] != "error" and output.get("name") != "stderr"
        data = output.get("data", {})
        texts = [output.get("text", ""), *(data[kind] for kind in data if kind.startswith("text/"))]
        for text in ("".join(text) for text in texts):
            assert not PATH.search(text), text


def test_paths_and_dates_are_left_out_and_a_host_name_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f"in {tempfile.gettempdir()}/lab/a.b at 2026-01-02 03:04:05, 1/2 <td>a</td> /srv/data/x"
    assert clean_text(text) == "in … at (date), 1/2 <td>a</td> …"
    monkeypatch.setattr(socket, "gethostname", lambda: "ada-laptop")
    with pytest.raises(ValueError, match="names this machine"):
        clean_text("Spark at ada-laptop:4040")


def test_execute_keeps_outputs_and_names_a_cell_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("jupytext")
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    source = tmp_path / "1.py"
    monkeypatch.setattr(command, "SOURCES", [source])
    source.write_text(
        "# %%\nimport sys\nprint('seen', 6 * 7)\nprint('a warning', file=sys.stderr)\n"
    )
    assert command.main([str(tmp_path / "lab"), "--execute"]) == 0
    (output,) = outputs(tmp_path / "lab" / "1.ipynb")
    assert "".join(output["text"]) == "seen 42\n"
    source.write_text("# %%\nassert 6 * 7 == 43\n")
    assert command.main([str(tmp_path / "other"), "--execute"]) == 1
    assert "assert 6 * 7 == 43" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_the_sample_has_every_workload_on_every_system(tmp_path: Path) -> None:
    folder = unpack(tmp_path)
    runs = [json.loads(path.read_text()) for path in folder.glob("traces/*/run.json")]
    there = {(run["cell"]["workload"], run["cell"]["system"]) for run in runs}
    named = [name for name in WORKLOADS if name not in BY_NAME and not WORKLOADS[name].unpaced]
    assert f"--workload {','.join(named)} " in OPTIONS
    assert {(workload, system) for workload in named for system in DEFAULT} <= there
    for path in folder.rglob("*.json"):
        content = path.read_text()
        assert not PATH.search(content) and "kernel" not in content, path
    assert SAMPLE.stat().st_size < SAMPLE_BYTES
