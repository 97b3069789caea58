"""Tests that `python -m planstep.bench.notebooks DIR` writes valid notebooks, and overwrites none unasked."""

import subprocess
import sys
from pathlib import Path

import pytest

from planstep.bench.notebooks.__main__ import SOURCES, main

NAMES = [f"{source.stem}.ipynb" for source in SOURCES]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_valid_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("jupytext")
    folder = tmp_path / "not yet" / "made"
    assert main([str(folder)]) == 0
    *written, how = capsys.readouterr().out.splitlines()
    assert written == [str(folder / name) for name in NAMES]
    assert how.endswith(f"jupyter lab '{folder}'")
    assert names_in(folder) == NAMES
    for source, name in zip(SOURCES, NAMES, strict=True):
        notebook = nbformat.read(folder / name, as_version=4)
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == "python3"
        assert notebook.cells[0].cell_type == "markdown"
        assert notebook.cells[0].source.startswith("# ")
        text = source.read_text(encoding="utf-8")
        assert len(notebook.cells) == text.count("\n# %%")
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        assert code and all(cell in text for cell in code)
        assert not any(cell.get("outputs") for cell in notebook.cells)


def test_nothing_is_overwritten_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jupytext")
    mine = tmp_path / NAMES[1]
    mine.write_text("my own work")
    assert main([str(tmp_path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1 and str(mine) in output.err and "--force" in output.err
    assert names_in(tmp_path) == [NAMES[1]] and mine.read_text() == "my own work"
    assert main([str(tmp_path), "--force"]) == 0
    assert names_in(tmp_path) == NAMES and mine.read_text().startswith("{")


def test_a_folder_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jupytext")
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and str(tmp_path / "file") in errors


def test_without_jupytext_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jupytext", None)
    assert main([str(tmp_path / "new")]) == 1
    assert capsys.readouterr().err == (
        'error: this needs jupytext: pip install "planstep[notebooks]"\n'
    )
    assert not (tmp_path / "new").exists()


def test_the_page_says_what_each_shows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "notebooks.md").read_text(
        encoding="utf-8"
    )
    assert [source.stem for source in SOURCES if f"| `{source.stem}` |" not in page] == []


def test_it_is_a_command(tmp_path: Path) -> None:
    pytest.importorskip("jupytext")
    command = [sys.executable, "-m", "planstep.bench.notebooks"]
    subprocess.run([*command, "lab"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert names_in(tmp_path / "lab") == NAMES
    wrong = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and "DIR" in wrong.stderr
