"""Tests `open(group_commit=False)`: each turn takes one input, and nothing but the number of syncs differs."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from kit import until

import planstep

COMMITS = 24


def submit_together(db: planstep.Engine) -> list["Future[Any]"]:
    """Submits commits while no turn can run, so that all of them are in the inbox when the first one does."""
    topic = db.create_topic("t", partitions=1, format="utf8")
    transactions = [db.transaction() for _ in range(COMMITS)]
    for number, tx in enumerate(transactions):
        tx.write(topic.name, str(number))
    with db._runtime.nodes[0].lock:
        return [tx.submit() for tx in transactions]


@pytest.mark.parametrize("together", [True, False])
def test_a_turn_takes_all_inputs_or_one(together: bool) -> None:
    with planstep.open(":memory:", group_commit=together) as db:
        before = db.costs().syncs
        for future in submit_together(db):
            future.result(30)
        syncs = db.costs().syncs - before
        assert sorted(map(int, db.topic("t").read(max_records=100).values)) == [*range(COMMITS)]
    assert syncs < COMMITS / 2 if together else syncs >= COMMITS


@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
@pytest.mark.parametrize("hosts", [1, 3])
def test_what_is_committed_does_not_depend_on_it(tmp_path: Path, mode: Any, hosts: int) -> None:
    with planstep.open(tmp_path / "s", mode=mode, hosts=hosts, group_commit=False) as db:
        db.create_topic("t", partitions=4, format="utf8")
        for number in range(4):
            with db.transaction() as tx:
                for part in range(4):
                    tx.write("t", f"{number}-{part}", partition=part)
    with planstep.open(tmp_path / "s", group_commit=True) as db:
        until(lambda: len(db.topic("t").read(max_records=100)) == 16)  # kafka: markers follow
        values = sorted(db.topic("t").read(max_records=100).values)
    assert values == sorted(f"{number}-{part}" for number in range(4) for part in range(4))


def test_an_engine_has_one_setting(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", group_commit=False):
        planstep.open(tmp_path / "s").close()
        with pytest.raises(planstep.WrongMode, match="group_commit=False, not True"):
            planstep.open(tmp_path / "s", group_commit=True)
