"""Tests `planstep consumer`: create, list, move, forget; a typo changes nothing."""

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, python

import planstep


def test_who_consumes(shop: Path, fields: Any, done: Any) -> None:
    assert fields("consumer", "list", shop, "clicks") == {
        "topic": "clicks",
        "consumers": [
            {"consumer": "mailer", "kind": "individual", "lag": 0, "missed": 0},
            {"consumer": "resharder", "kind": "cumulative", "lag": 1, "missed": 0},
        ],
    }
    assert done("consumer", "list", shop, "clicks").splitlines()[1] == "resharder\tcumulative\t1\t0"
    described = fields("consumer", "describe", shop, "clicks", "resharder")
    assert (described["consumer"], described["lag"]) == ("resharder", 1)
    assert described["partitions"][1] == {
        "partition": 1, "position": 0, "end": 1, "lag": 1, "missed": 0
    }  # fmt: skip
    assert done("consumer", "lag", shop, "clicks", "resharder") == "1\n"
    assert done("consumer", "lag", shop, "clicks") == "mailer\t0\nresharder\t1\n"
    assert fields("consumer", "lag", shop, "clicks") == {
        "topic": "clicks",
        "lag": 1,
        "consumers": [{"consumer": "mailer", "lag": 0}, {"consumer": "resharder", "lag": 1}],
    }


def test_created_where_it_shall_begin(shop: Path, fields: Any, refused: Any) -> None:
    result = fields("consumer", "create", shop, "clicks", "late", "--start", "latest")
    assert result == {
        "topic": "clicks",
        "consumer": "late",
        "kind": "cumulative",
        "partitions": [{"partition": 0, "position": 3}, {"partition": 1, "position": 1}],
    }
    one = fields(
        "consumer", "create", shop, "single", "one", "--start", "1", "--kind", "individual"
    )
    assert one["partitions"] == [{"partition": 0, "position": 1}]
    soon = fields("consumer", "create", shop, "clicks", "soon", "--start", "2999-01-01T00:00Z")
    assert [part["position"] for part in soon["partitions"]] == [3, 1]
    assert "--exist-ok" in refused("consumer", "create", shop, "clicks", "late")
    fields("consumer", "create", shop, "clicks", "late", "--exist-ok")
    assert "choose" in refused("consumer", "create", shop, "clicks", "new", "--kind", "shared")
    assert "--partition" in refused("consumer", "create", shop, "clicks", "new", "--start", "1")
    assert "outside" in refused("consumer", "create", shop, "single", "new", "--start", "7")


def test_moved_after_a_look(shop: Path, fields: Any, done: Any, refused: Any) -> None:
    words = ("consumer", "seek", shop, "clicks", "resharder", "--to")
    preview = fields(*words, "earliest", "--dry-run")
    moves = [{"partition": 0, "from": 3, "to": 0}, {"partition": 1, "from": 0, "to": 0}]
    assert preview == {
        "topic": "clicks", "consumer": "resharder", "dry_run": True, "partitions": moves
    }  # fmt: skip
    assert fields("consumer", "lag", shop, "clicks", "resharder")["lag"] == 1
    assert done(*words, "earliest") == "0\t3\t0\n1\t0\t0\n"
    assert fields("consumer", "lag", shop, "clicks", "resharder")["lag"] == 4
    assert done(*words, "2", "--partition", "0") == "0\t0\t2\n"
    now = datetime.now().isoformat()  # in this machine's time zone
    assert done(*words, now, "--partition", "0") == "0\t2\t3\n"
    assert "did you mean 'resharder'" in refused(
        "consumer", "seek", shop, "clicks", "reshader", "--to", "latest"
    )
    assert "partitions 0 to 1" in refused(*words, "latest", "--partition", "7")


def test_forgotten_when_told_twice(shop: Path, call: Any, fields: Any, refused: Any) -> None:
    status, _, err = call("consumer", "drop", shop, "clicks", "resharder")
    assert status == 2 and "--yes" in err
    assert "nobody" in refused("consumer", "drop", shop, "clicks", "nobody", "--yes")
    assert fields("consumer", "drop", shop, "clicks", "resharder", "--yes")["lag"] == 1
    consumers = fields("consumer", "list", shop, "clicks")["consumers"]
    assert [one["consumer"] for one in consumers] == ["mailer"]


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("y", 0)])
def test_a_terminal_is_asked(shop: Path, answer: str, status: int) -> None:
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        words = "consumer", "drop", shop, "clicks", "resharder"
        ended = python(PLANSTEP, *words, status=status, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert "1 record behind" in ended.stderr
    with planstep.open(shop) as db:
        assert ("resharder" in db.topic("clicks").consumers()) is (status != 0)


def test_the_store_of_the_environment(
    shop: Path, done: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANSTEP_STORE", str(shop))
    assert done("consumer", "lag", "clicks", "resharder") == "1\n"
    assert done("consumer", "lag", "clicks").startswith("mailer\t0")
    assert done("consumer", "lag", shop, "clicks").startswith("mailer\t0")
    assert done("consumer", "lag", shop, "clicks", "resharder") == "1\n"
    assert done("consumer", "seek", "clicks", "resharder", "--to", "latest", "--dry-run")
