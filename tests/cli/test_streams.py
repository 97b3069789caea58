"""Tests the terminal, closed streams and damaged tables: data is never markup, and no command ends in a
traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
from kit import PLANSTEP, nested, python

import planstep
from planstep.cli.output import print_rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "s"
    with planstep.open(path) as db:
        db.create_topic("t", format="utf8").write("one")
        db.create_topic("deep", format="json").write(nested(511))
    return path


def test_data_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    print_rows("[/title]", ["value"], [["[/x]"], ["[bold]hi"]])
    out = capsys.readouterr().out
    assert all(text in out for text in ("[/title]", "[/x]", "[bold]hi"))


@pytest.mark.parametrize(
    ("redirection", "words", "status", "message"),
    [
        ("<&-", ["topic", "write", "STORE", "t"], 1, "stdin is closed"),
        ("<&-", ["topic", "list", "STORE"], 0, ""),
        (">&-", ["topic", "list", "STORE"], 0, ""),
        ("2>&-", ["topic", "list", "STORE"], 0, ""),
        ("<&- >&-", ["topic", "list", "STORE", "--json"], 0, ""),
    ],
)
def test_closed_streams(
    store: Path, redirection: str, words: list[str], status: int, message: str
) -> None:
    arguments = [str(store) if word == "STORE" else word for word in words]
    ended = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-c", PLANSTEP, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == status and message in ended.stderr
    assert "Traceback" not in ended.stderr and len(ended.stderr.splitlines()) <= 1


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_what_nests_deeply_is_shown(store: Path, extra: list[str]) -> None:
    assert "[" * 511 in python(PLANSTEP, "topic", "read", store, "deep", *extra).stdout


def test_verify_survives_tables_that_are_cut_off(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        for n in range(20):
            db.create_table("t", exist_ok=True).put(n, "x" * 500)
    data = tmp_path / "s" / "host-0" / "table" / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(8192)
    ended = python(PLANSTEP, "verify", tmp_path / "s", status=1)
    assert "Traceback" not in ended.stderr
    assert "data.mdb" in ended.stdout
