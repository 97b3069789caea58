"""Tests `planstep replicate STORE URL`, its --stop and --reseed, and `planstep restore --from URL`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.proto.keys import encode_key
from planstep.runtime import follower


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


# comparing -----------------------------------------------------------------------------------


def test_two_folders_and_the_log_are_compared_as_of_one_turn(
    store: Path,
    url: str,
    tmp_path: Path,
    run: Any,
    fields: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("replicate", store, url)
    planstep.follow(tmp_path / "g", url).close()
    with planstep.open(store, replicate=url) as db, planstep.follow(tmp_path / "g", url) as me:
        wrong_rows(monkeypatch)
        db.create_topic("c", partitions=2).write_batch([b"x"] * 9)
        for n in range(300):
            db.table("t").put(f"k{n}", n)
        turn = db.turn
        db.close()
        me.snapshot(at_least=turn + 1).close()
    monkeypatch.undo()
    planstep.follow(tmp_path / "f", url).close()
    same = fields("replicate", "diff", store, tmp_path / "f")
    assert same == {
        **{"path": str(store), "other": str(tmp_path / "f"), "turn": same["turn"]},
        **{"rows": 0, "tablet": None, "key": None, "where": None},
    }
    assert same["turn"] > 300
    for path in (store, tmp_path / "f"):
        assert "no row differs" in run("replicate", "diff", path, url)
    assert "2 rows differ, first 'k7' of table t/2 (differs)" in run(
        "replicate", "diff", store, tmp_path / "g", status=1
    )
    said = run("replicate", "diff", tmp_path / "g", url, "--json", status=1)
    assert json.loads(said)["rows"] == 2 and json.loads(said)["where"] == "differs"
    with planstep.open(store, replicate=url) as db:
        db.table("t").put("k", 2)
    assert "is at turn" in run("replicate", "diff", store, tmp_path / "f", status=1)
    run("replicate", "diff", tmp_path / "f", url)
    run("replicate", "diff", tmp_path / "g", url, status=1)


def test_what_cannot_be_compared_is_said(store: Path, url: str, tmp_path: Path, run: Any) -> None:
    assert "is not replicated" in run("replicate", "diff", store, url, status=1)
    run("replicate", store, url)
    other = (tmp_path / "other-log").as_uri()
    planstep.open(tmp_path / "other", replicate=other).close()
    for wrong in (other, tmp_path / "other"):
        assert "another store" in run("replicate", "diff", store, wrong, status=1)
    assert "is not a store" in run("replicate", "diff", store, tmp_path / "x", status=1)


def wrong_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes followers change a row, and leave another one out."""
    really = follower._Shown._commit

    def commit(folder: Any, turn: Any) -> None:
        for key in list(turn.overlay):
            if key[4:] == b"r" + encode_key("k7"):
                turn.overlay[key] = (*turn.overlay[key][:2], b"wrong")
            elif key[4:] == b"r" + encode_key("k8"):
                del turn.overlay[key]
        really(folder, turn)

    monkeypatch.setattr(follower._Shown, "_commit", commit)
