"""Tests `planstep replicate status`: whose a store is, what its shared log holds, and what that costs."""

import time
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.runtime.replica_status import PRICES, Status, status_of
from planstep.shared.registry import open_shared_log
from planstep.shared.settings import Replicate


def filled(home: Path, name: str = "a", commits: int = 5, **settings: Any) -> planstep.Engine:
    """Opens a machine's store on the log at `home`, commits to it, and returns it open."""
    db = planstep.open(home / name, replicate=url_of(home), **settings)
    table = db.create_table("t", exist_ok=True)
    for n in range(commits):
        table.put(n, n)
    return db


def url_of(home: Path) -> str:
    return (home / "log").as_uri()


def test_it_names_the_owner_and_what_is_there(tmp_path: Path, fields: Any) -> None:
    with filled(tmp_path) as db:
        found = fields("replicate", "status", url_of(tmp_path))
        turn = db._runtime.nodes[0].host.store.last_turn
    assert (found["url"], found["mode"], found["term"]) == (url_of(tmp_path), "deterministic", 1)
    assert ", process " in found["owner"]["who"] and not found["owner"]["closed"]
    assert found["owner"]["since"].endswith("+00:00")
    assert (found["end"], found["floor"], found["snapshots"]) == (turn, 1, [])
    assert found["objects"] >= turn + 1 and found["bytes"] > 0
    assert found["puts_per_day"] is None
    assert found["usd_per_month"] == {"puts": None, "bytes": None}


def test_it_knows_a_store_that_was_closed_and_one_that_was_taken_over(
    tmp_path: Path, fields: Any
) -> None:
    filled(tmp_path).close()
    assert fields("replicate", "status", url_of(tmp_path))["owner"]["closed"]
    first = filled(tmp_path)
    with filled(tmp_path, "b", takeover=True):
        found = fields("replicate", "status", url_of(tmp_path))
        assert found["term"] == 3 and not found["owner"]["closed"]
        with pytest.raises(planstep.Fenced):
            first.table("t").put("k", 1)
    first.close()


def test_a_folder_does_not_say_that_a_commit_has_no_effect(tmp_path: Path, refused: Any) -> None:
    filled(tmp_path).close()
    assert "7-1 ended is not known here" in refused("tx", "explain", tmp_path / "a", "7-1")


def test_a_restore_ends_no_replication_by_the_way(tmp_path: Path, refused: Any) -> None:
    with filled(tmp_path) as db:
        db.backup(tmp_path / "backup")
    text = refused("restore", tmp_path / "backup", tmp_path / "a", "--force")
    assert "is replicated" in text and "replicate --stop" in text
    filled(tmp_path).close()


def test_the_begin_of_a_term_is_found_wherever_it_is(tmp_path: Path) -> None:
    for number, commits in enumerate((1, 2, 3, 20, 0), 1):
        filled(tmp_path, commits=commits).close()
        found = status_of(Replicate(url_of(tmp_path)))
        assert found.term == number and found.who is not None


def test_the_begin_is_found_below_the_floor_too(tmp_path: Path) -> None:
    with filled(tmp_path, commits=20) as db:
        turn = db._runtime.nodes[0].host.store.last_turn
        log, _ = open_shared_log(url_of(tmp_path), None)
        log.trim(turn - 2)
        log.close()
        found = status_of(Replicate(url_of(tmp_path)))
    assert (found.floor, found.end, found.term) == (turn - 2, turn, 1)
    assert found.who is not None


def test_a_log_without_turns_has_no_owner(tmp_path: Path, fields: Any, done: Any) -> None:
    filled(tmp_path, commits=0).close()
    for slot in (tmp_path / "log" / "log").iterdir():
        slot.unlink()
    found = fields("replicate", "status", url_of(tmp_path))
    assert (found["owner"], found["term"], found["end"]) == (None, None, None)
    assert "last turn\t–" in done("replicate", "status", url_of(tmp_path))


def test_puts_a_day_are_those_of_the_term(tmp_path: Path) -> None:
    with filled(tmp_path, commits=20) as db:
        turn = db._runtime.nodes[0].host.store.last_turn
        settings = Replicate(url_of(tmp_path))
        now = time.time()
        assert status_of(settings, now + 60).puts_per_day is None
        assert status_of(settings, now - 86_400).puts_per_day is None
        a_day = status_of(settings, now + 86_400).puts_per_day
        assert a_day is not None and turn - 1 <= a_day <= turn


def test_the_bill_is_by_list_prices() -> None:
    status = Status("", "kafka", 1, "x", 0.0, False, 9, 1, [], 9, 10**10, 1e6 / 30)
    assert status.dollars_per_month("s3") == pytest.approx((5.0, 0.23))
    assert status.dollars_per_month("file") == (None, None)
    assert set(PRICES) == {"s3", "gs", "az"}
    unknown = status._replace(puts_per_day=None, bytes=None)
    assert unknown.dollars_per_month("s3") == (None, None)


def test_people_get_lines(tmp_path: Path, done: Any) -> None:
    with filled(tmp_path):
        text = done("replicate", "status", url_of(tmp_path))
    lines = dict(line.split("\t") for line in text.splitlines())
    assert lines["term"] == "1" and ", process " in lines["owner"]
    assert {"store", "mode", "since", "last turn", "floor", "objects", "bytes"} <= set(lines)


def test_a_log_that_is_not_there_is_one_line(tmp_path: Path, refused: Any) -> None:
    assert "log" in refused("replicate", "status", tmp_path.as_uri())
    assert "file:///disk/shop" in refused("replicate", "status", "/disk/shop")
    assert list(tmp_path.iterdir()) == []
