"""Tests what the engine leaves to Python's garbage collector."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import planstep


@pytest.fixture
def collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


def transact(db: planstep.Engine, number: int) -> None:
    with db.transaction() as tx:
        tx.read("in", "c", max_records=1)
        tx.write("out", b"y")
        tx.put("rows", number % 100, number)
        tx.add("counts", "all", 1)


@pytest.mark.usefixtures("collector")
def test_commits_make_no_cycles(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", durability="os") as db:
        db.create_topic("in").write_batch([b"x"] * 10_000)
        db.create_topic("out")
        db.create_table("rows")
        db.create_table("counts")
        for number in range(200):
            transact(db, number)
        gc.collect()
        for number in range(9_000):
            transact(db, number)
        submitted = []
        for _ in range(1_000):
            tx = db.transaction()
            tx.write("out", b"z")
            submitted.append(tx.submit())
        for future in submitted:
            future.result()
        del submitted, future, tx
        assert gc.collect() == 0
        assert db.table("counts").get("all") == 9_200


@pytest.mark.usefixtures("collector")
def test_freeze_keeps_what_is_there_out_of_collections() -> None:
    with planstep.open(":memory:"):
        assert gc.get_freeze_count() == 0
    with planstep.open(":memory:", gc="freeze"):
        assert gc.get_freeze_count() > 0


def test_the_collector_is_left_alone_or_frozen() -> None:
    settings: dict[str, Any] = {"gc": "off"}
    with pytest.raises(ValueError, match="gc='off': choose one of None, 'freeze'"):
        planstep.open(":memory:", **settings)
