"""Tests `planstep topic redrive` on a store that nobody has open; tests/processes has one beside a service."""

from pathlib import Path
from typing import Any

import planstep

LETTER = {"planstep-topic": "clicks", "planstep-error": "KeyError: 1", "agent": "shell"}


def test_letters_go_back_once(shop: Path, fields: Any, done: Any) -> None:
    with planstep.open(shop) as db:
        letters = db.create_topic("failed", format="utf8", partitions=2)
        letters.write_batch(["u", "v", "w"], keys=["k", None, "l"], headers=[LETTER] * 3)
    words = ("topic", "redrive", shop, "failed")
    assert done(*words, "--dry-run", "--limit", "2") == "clicks\t2\n"
    assert fields(*words) == {
        "topic": "failed",
        "dry_run": False,
        "records": 3,
        "topics": [{"topic": "clicks", "records": 3}],
    }
    assert fields(*words)["records"] == 0
    assert fields(*words, "--consumer", "second", "--to", "single")["topics"] == [
        {"topic": "single", "records": 3}
    ]
    with planstep.open(shop, read_only=True) as db:
        back = [one for one in db.topic("clicks").read() if one.value in ("u", "v", "w")]
        assert sorted((one.value, one.key) for one in back) == [("u", "k"), ("v", None), ("w", "l")]
        assert all(one.headers == {"agent": "shell"} for one in back)
        assert db.topic("failed").describe().records == 3


def test_what_is_no_letter_is_refused(shop: Path, done: Any, refused: Any) -> None:
    with planstep.open(shop) as db:
        db.create_topic("raw")
        db.create_topic("gone", format="utf8").write("x", headers={"planstep-topic": "click"})
    words = ("topic", "redrive", shop, "clicks")
    assert "offset 0 of partition 0 has no header planstep-topic" in refused(*words)
    assert "has the letters" in refused(*words, "--to", "clicks")
    assert "format bytes" in refused(*words, "--to", "raw")
    assert "did you mean 'clicks'" in (line := refused("topic", "redrive", shop, "gone"))
    assert "--to" in line
    assert done("consumer", "lag", shop, "clicks") == "mailer\t0\nresharder\t1\n", (
        "none was consumed"
    )
