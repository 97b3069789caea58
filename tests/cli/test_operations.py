"""Tests backup, restore and stats from another process while the store is in use."""

import json
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child, python

import planstep


def run(*arguments: object, status: int = 0) -> str:
    ended = python(PLANSTEP, *arguments, status=status)
    return ended.stderr if status else ended.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with planstep.open(tmp_path / "shop", hosts=2) as db:
        db.create_topic("clicks", partitions=2).write_batch([b"a", b"b", b"c"])
        db.create_table("totals").put("u", 1)
        with db.transaction() as tx:
            tx.read("clicks", "reader", max_records=1)
        yield db


def test_backup_and_restore(shop: planstep.Engine, tmp_path: Path) -> None:
    result = json.loads(run("backup", shop.path, tmp_path / "copy", "--json"))
    assert result == {
        "path": str(tmp_path / "copy"),
        "step": shop.stats()["step"],
        "hosts": 2,
        "records": 3,
        "rows": 1,
        "bytes": result["bytes"],
    }
    assert "0 problems" in run("verify", tmp_path / "copy")
    assert "exists" in run("backup", shop.path, tmp_path / "copy", status=1)
    assert "in use" in run("restore", tmp_path / "copy", shop.path, "--force", status=1)
    assert "3 records" in run("restore", tmp_path / "copy", tmp_path / "new")
    assert "--force" in run("restore", tmp_path / "copy", tmp_path / "new", status=1)
    run("restore", tmp_path / "copy", tmp_path / "new", "--force")
    with planstep.open(tmp_path / "new") as db:
        assert db.topic("clicks").lag("reader") == 2
    assert "not a store" in run("backup", tmp_path / "nope", tmp_path / "x", status=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "new", "shop"]


def test_stats_of_a_live_store(shop: planstep.Engine) -> None:
    stats = json.loads(run("stats", shop.path, "--json"))
    assert stats["topics"] == {"clicks": 3} and stats["tables"] == {"totals": 1}
    assert stats["consumers"] == [{"topic": "clicks", "consumer": "reader", "lag": 2, "missed": 0}]
    assert stats["bytes_on_disk"]["log"] > 0 and stats["step"] == shop.stats()["step"]
    assert "consumer reader of clicks\t2 behind" in run("stats", shop.path)


def test_stats_again_and_again(shop: planstep.Engine) -> None:
    words = "--watch", "0.05", "--looks", "2000", "--json"
    with Child(PLANSTEP, "stats", shop.path, *words) as watching:
        first = json.loads(watching.line())
        assert first["per_second"] is None and "tables" not in first
        shop.write("clicks", b"d")
        while (stats := json.loads(watching.line()))["topics"]["clicks"] != 4:
            pass
        assert stats["per_second"]["records"]["clicks"] > 0
        assert stats["per_second"]["steps"] > 0
    lines = run("stats", shop.path, "--watch", "0.05", "--looks", "2").splitlines()
    assert sum("\ttopic clicks\t" in line for line in lines) == 2
