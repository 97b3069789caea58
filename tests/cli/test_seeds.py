"""Tests `planstep replicate STORE URL`, its --stop and --reseed, and `planstep restore --from URL`."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planstep


@pytest.fixture
def run(call: Any) -> Callable[..., str]:
    """Runs a command that must end with a status; returns what it printed."""

    def run(*words: object, status: int = 0) -> str:
        ended, out, err = call(*words)
        assert ended == status, (out, err)
        return str(out) + str(err)

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with planstep.open(tmp_path / "a") as db:
        db.create_table("t").put("k", 1)
    return tmp_path / "a"


def value(path: Path, **settings: Any) -> Any:
    with planstep.open(path, **settings) as db:
        return db.table("t").get("k")


def test_a_store_is_replicated_and_that_is_ended(
    store: Path, url: str, tmp_path: Path, run: Any, fields: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fields("replicate", store, url)
    assert (done["path"], done["url"]) == (str(store), url) and done["turn"] > 0
    assert value(tmp_path / "b", replicate=url) == 1
    assert "without a terminal" in run("replicate", "--stop", store, status=2)
    assert fields("replicate", store, "--stop", "--yes")["url"] is None
    assert value(store) == 1
    assert "not replicated" in run("replicate", store, "--stop", "--yes", status=1)
    monkeypatch.setenv("PLANSTEP_STORE", str(store))
    assert "is replicated to" in run("replicate", (tmp_path / "log-2").as_uri())


@pytest.mark.parametrize(
    "words", [["S"], ["S", "U", "--stop"], ["S", "--reseed"], ["S", "--stop", "--reseed"]]
)
def test_words_that_do_not_fit_are_refused(
    store: Path, url: str, run: Any, words: list[str]
) -> None:
    places = {"S": store, "U": url}
    run("replicate", *(places.get(word, word) for word in words), "--yes", status=2)
    assert value(store) == 1


def test_a_log_that_was_put_back_is_reseeded(
    store: Path, url: str, tmp_path: Path, run: Any
) -> None:
    run("replicate", store, url)
    shutil.copytree(tmp_path / "log", tmp_path / "yesterday")
    with planstep.open(store, replicate=url) as db:
        db.table("t").put("k", 2)
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "yesterday").rename(tmp_path / "log")
    assert "choose another URL" not in run("replicate", store, url, status=1)
    run("replicate", store, url, "--reseed", "--yes")
    assert value(tmp_path / "b", replicate=url) == 2


def test_a_store_is_restored_from_a_log(
    store: Path, url: str, tmp_path: Path, run: Any, fields: Any
) -> None:
    turn = fields("replicate", store, url)["turn"]
    with planstep.open(store, replicate=url) as db:
        db.table("t").put("k", 2)
    assert fields("restore", "--from", url, tmp_path / "now")["turn"] > turn
    done = fields("restore", "--from", url, "--turn", turn, tmp_path / "then")
    assert done == {"path": str(tmp_path / "then"), "url": url, "turn": turn}
    assert (value(tmp_path / "now"), value(tmp_path / "then")) == (2, 1)
    assert "exists" in run("restore", "--from", url, tmp_path / "now", status=1)
    assert "is not there yet" in run(
        "restore", "--from", url, tmp_path / "x", "--turn", 999, status=1
    )
    said = run("restore", "--from", url, status=2)
    assert "give the STORE to be made" in said and "--force" not in said
    assert "replaces nothing" in run("restore", "--from", url, "--force", tmp_path / "x", status=2)
    assert "in place of FROM" in run("restore", "--from", url, store, tmp_path / "x", status=2)
    run("restore", "--turn", 5, store, tmp_path / "x", status=2)
    run("restore", store, status=2)
    assert not (tmp_path / "x").exists()


def test_the_store_of_the_environment_is_made_unless_one_is_given(
    store: Path, url: str, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("replicate", store, url)
    monkeypatch.setenv("PLANSTEP_STORE", str(tmp_path / "made"))
    run("restore", "--from", url)
    run("restore", "--from", url, tmp_path / "another")
    assert (value(tmp_path / "made"), value(tmp_path / "another")) == (1, 1)


def test_the_help_begins_with_the_short_form(run: Any) -> None:
    said = run("replicate", "--help")
    assert "planstep replicate STORE URL" in " ".join(said.split())
    assert "planstep replicate STORE --stop" in " ".join(said.split())


def test_a_restore_is_told_where_snapshots_are(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic has no room for them, so a log that was trimmed cannot be restored without."""
    given: list[Any] = []
    monkeypatch.setattr(
        "planstep.cli.backups.restore_from", lambda *args: (given.append(args), 7)[1]
    )
    run("restore", "--from", "kafka://k1:9092/shop", "--snapshots", "s3://b/shop", tmp_path / "x")
    assert given[0][0].snapshots == "s3://b/shop"
    run("restore", "--snapshots", "s3://b/shop", tmp_path / "x", tmp_path / "y", status=2)
