"""Tests transactions of mode "pulsar" through the public face. Scenarios 12, 14, 15, 18 and 37-40 in part."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_kit import PLACES, opened

import planstep


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    hosts, placement = request.param
    with opened(hosts=hosts, placement=placement) as engine:
        engine.create_topic("one", partitions=1, format="utf8")
        engine.create_topic("three", partitions=3, format="utf8")
        yield engine


def values(db: planstep.Engine, topic: str, partition: int = 0) -> list[str]:
    """Returns all messages that a reader is shown."""
    return list(db.topic(topic).read(partition=partition).values)


def test_a_commit_shows_its_messages_in_every_partition_when_it_returns(
    db: planstep.Engine,
) -> None:
    with db.transaction() as tx:
        for partition in range(3):
            tx.write("three", f"{partition}", partition=partition)
    for partition in range(3):
        assert values(db, "three", partition) == [f"{partition}"]
    assert db.outcome(tx.id).state == "committed"


def test_an_open_transaction_hides_itself_and_what_is_behind_it(db: planstep.Engine) -> None:
    db.topic("one").write("before")
    tx = db.transaction()
    tx.write("one", "mine")
    tx.flush()
    db.topic("one").write("behind")
    assert values(db, "one") == ["before"]
    tx.commit()
    assert values(db, "one") == ["before", "mine", "behind"]


def test_an_aborted_transaction_is_never_shown(db: planstep.Engine) -> None:
    for n in range(10):
        db.topic("one").write(f"plain {n}")
        tx = db.transaction()
        tx.write("one", f"part of {n}")
        tx.flush()
        if n % 2:
            tx.commit()
        else:
            tx.rollback()
    db._runtime.hooks.wait_stable(db._runtime.names.topics["one"].partitions[0])
    shown = values(db, "one")
    expected = {f"plain {n}" for n in range(10)} | {f"part of {n}" for n in range(1, 10, 2)}
    assert len(shown) == 15 and set(shown) == expected
    assert values(db, "one") == shown, "also where it goes on in what it has read"


def test_transactions_may_be_open_beside_each_other(db: planstep.Engine) -> None:
    first, second = db.transaction(), db.transaction()
    for n in range(3):
        first.write("one", f"first {n}")
        first.flush()
        second.write("one", f"second {n}")
        second.flush()
    second.commit()
    assert values(db, "one") == []
    first.commit()
    assert [text for text in values(db, "one") if text.startswith("f")] == [
        f"first {n}" for n in range(3)
    ]
    assert len(values(db, "one")) == 6


@pytest.mark.parametrize("snapshots", ("single", "parts", "segmented"))
def test_what_was_shown_and_hidden_stays_so_when_it_is_opened_again(
    tmp_path: Path, snapshots: str
) -> None:
    own = {"snapshots": snapshots, "snapshot_transactions": 2, "snapshot_segment_bytes": 64}
    with opened(tmp_path / "s", **own) as db:
        db.create_topic("one", partitions=1, format="utf8")
        for n in range(30):
            tx = db.transaction()
            tx.write("one", f"{n}")
            tx.flush()
            if n % 3:
                tx.rollback()
            else:
                tx.commit()
    with opened(tmp_path / "s", **own) as db:
        assert values(db, "one") == [f"{n}" for n in range(0, 30, 3)]
        with db.transaction() as tx:
            tx.write("one", "last")
        assert values(db, "one")[-1] == "last"


def test_a_topic_is_dropped_while_a_transaction_writes_to_it(db: planstep.Engine) -> None:
    tx = db.transaction()
    tx.write("one", "never")
    tx.flush()
    db.drop_topic("one")
    tx.write("three", "never", partition=0)
    tx.rollback()
    assert values(db, "three") == []


def test_what_it_has_not_is_refused(db: planstep.Engine) -> None:
    with pytest.raises(planstep.NotSupported, match='mode "pulsar" has no tables'):
        db.create_table("t", shards=1, format="json")
    with pytest.raises(planstep.NotSupported, match='mode "pulsar" has no snapshots'):
        db.snapshot()
