"""Tests the files that `planstep compare --out DIR` keeps, and those that it leaves alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

from comparing import SMALL


def test_out_keeps_results_report_and_traces_and_can_be_used_again(
    call: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert call(*SMALL, "--out", out).exit_code == 0
    summary = json.loads((out / "results.json").read_text())
    assert summary["report"]["traces"] == str(out / "traces")
    assert summary["systems"]["deterministic"]["small"]["full"]["shared"]["traces"] == [
        "traces/small-deterministic-full-shared-0"
    ]
    assert (out / "report.txt").read_text().startswith("planstep compare: 2 of 2")
    names = ["png", "report.html", "report.txt", "results.json", "traces"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert summary["report"]["html"] == "report.html"
    assert all((out / name).is_file() for name in summary["report"]["png"])
    assert len(list((out / "traces").iterdir())) == 2

    (out / "notes.txt").write_text("mine")
    again = call(*SMALL, "--systems", "kafka", "--out", out)
    assert again.exit_code == 0
    assert [path.name for path in (out / "traces").iterdir()] == ["small-kafka-full-separate-0"], (
        "its own are replaced"
    )
    assert (out / "notes.txt").read_text() == "mine"


def test_stores_are_kept_on_demand(call: Any, tmp_path: Path) -> None:
    assert call(*SMALL, "--out", tmp_path / "out", "--keep-stores").exit_code == 0
    stores = tmp_path / "out" / "stores"
    assert (stores / "small-kafka-full-separate-0" / "store").is_dir()


@pytest.mark.parametrize("file", ["notes.txt", "results.json"])
def test_a_folder_that_holds_something_else_is_refused(
    call: Any, tmp_path: Path, file: str
) -> None:
    (tmp_path / file).write_text("[1]")
    ended = call(*SMALL, "--out", tmp_path)
    message = " ".join(ended.stderr.replace("│", " ").split())
    assert ended.exit_code == 2 and "something else" in message
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert (tmp_path / file).read_text() == "[1]"


def test_without_out_nothing_is_left(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert call(*SMALL).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_still_written_to_is_removed(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, remove = [], shutil.rmtree

    def late(path: Path, **more: Any) -> None:
        remove(path, **more)
        if path.parent == tmp_path and not removed:
            removed.append(path)
            path.mkdir()  # by a process that has not ended yet

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.rmtree", late)
    assert call(*SMALL).exit_code == 0
    assert removed and list(tmp_path.iterdir()) == []
