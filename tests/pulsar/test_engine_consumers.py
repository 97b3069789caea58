"""Tests consumers of mode "pulsar" through the public face. Scenarios 37 and 40 in part."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_kit import opened
from kit import until

import planstep
from planstep.api.transaction.snapshot_reader import Reading
from planstep.runtime.client_schema import ClientSchema

PLACES = [(1, "shared"), (3, "separate")]


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    hosts, placement = request.param
    with opened(hosts=hosts, placement=placement) as engine:
        engine.create_topic("in", partitions=2, format="utf8")
        engine.create_topic("out", partitions=1, format="utf8")
        yield engine


def numbers(db: planstep.Engine, count: int, partition: int = 0) -> list[str]:
    """Writes messages, each in a transaction, with an aborted one between every two; returns their values."""
    for n in range(count):
        for end in ("commit", "rollback"):
            tx = db.transaction()
            tx.write("in", f"{n}" if end == "commit" else "never", partition=partition)
            tx.flush()
            getattr(tx, end)()
    db._runtime.hooks.wait_stable(db._runtime.names.topics["in"].partitions[partition])
    return [f"{n}" for n in range(count)]


def test_consume_transform_produce_counts_each_message_once(db: planstep.Engine) -> None:
    expected = numbers(db, 12)
    while True:
        with db.transaction() as tx:
            batch = tx.read("in", "c", max_records=5)
            if not batch:
                break
            for value in batch.values:
                tx.write("out", value)
    assert db.topic("out").read().values == expected
    assert db.topic("in").lag("c") == 0


def test_lag_counts_what_is_shown(db: planstep.Engine) -> None:
    numbers(db, 5)
    topic = db.topic("in")
    topic.create_consumer("c", start="earliest")
    assert topic.lag("c") == 5
    with db.transaction() as tx:
        assert tx.read("in", "c", max_records=2)
    assert topic.lag("c") == 3


def test_what_a_rolled_back_transaction_has_read_is_read_again(db: planstep.Engine) -> None:
    numbers(db, 3)
    tx = db.transaction()
    assert tx.read("in", "c").values == ["0", "1", "2"]
    tx.write("out", "never")
    tx.flush()
    tx.rollback()
    with db.transaction() as tx:
        assert tx.read("in", "c").values == ["0", "1", "2"]


def test_two_that_read_the_same_conflict(db: planstep.Engine) -> None:
    numbers(db, 3)
    first, second = db.transaction(), db.transaction()
    assert first.read("in", "c").values == second.read("in", "c").values
    first.write("out", "first")
    second.write("out", "second")
    first.commit()
    with pytest.raises(planstep.Aborted) as caught:
        second.commit()
    assert getattr(caught.value, "name", "") == "TransactionConflict"
    assert getattr(caught.value, "retryable", False)
    assert db.topic("out").read().values == ["first"]


def test_individual_consumers_take_any_message_and_gaps_pile_up_nowhere(
    db: planstep.Engine,
) -> None:
    db.topic("in").create_consumer("c", kind="individual")
    expected = numbers(db, 10)
    with db.reader("in", "c", max_records=1) as a, db.reader("in", "c", max_records=1) as b:
        seen = []
        while True:
            first, second = a.read(), b.read()
            if first is None and second is None:
                break
            for leased in (second, first):
                if leased is not None:
                    tx, batch = leased
                    seen += list(batch.values)
                    tx.commit()
    assert sorted(seen, key=int) == expected
    assert db.topic("in").lag("c") == 0
    tablet = db._runtime.names.topics["in"].partitions[0]
    cursor = db._runtime.views.cursor(tablet, "c")
    assert cursor is not None and cursor.ranges == ()


def test_a_reader_goes_to_the_end(db: planstep.Engine) -> None:
    expected = numbers(db, 7) + numbers(db, 4, partition=1)
    seen: list[str] = []
    db.process(lambda tx, batch: seen.extend(batch.values), "in", "c", until_idle=True)
    assert sorted(seen) == sorted(expected)
    assert db.topic("in").lag("c") == 0


@pytest.mark.parametrize("kind", ("cumulative", "individual"))
def test_workers_count_each_message_once(db: planstep.Engine, kind: str) -> None:
    db.topic("in").create_consumer("c", kind=kind)  # type: ignore[arg-type]
    expected = numbers(db, 20) + numbers(db, 20, partition=1)

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        for value in batch.values:
            tx.write("out", value)

    db.process(copy, "in", "c", workers=3, max_records=3, until_idle=True)
    assert sorted(db.topic("out").read().values) == sorted(expected)
    assert db.topic("in").lag("c") == 0


def test_a_poison_message_moves_to_the_dead_letters_in_one_transaction(
    db: planstep.Engine,
) -> None:
    numbers(db, 5)
    db.create_topic("dead", partitions=1, format="utf8")

    def fail_for_3(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        for value in batch.values:
            if value == "3":
                raise ValueError(value)
            tx.write("out", value)

    db.process(fail_for_3, "in", "c", dead_letter="dead", attempts=2, until_idle=True)
    assert db.topic("out").read().values == ["0", "1", "2", "4"]
    assert db.topic("dead").read().values == ["3"]


def test_state_in_a_changelog_is_restored(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as db:
        db.create_topic("state", partitions=1, format="json")
        log = db.changelog("state", worker="w")
        for _ in range(3):
            with db.transaction(worker="w") as tx:
                log.add(tx, "n", 1)
    with opened(tmp_path / "s") as db:
        log = db.changelog("state", worker="w")
        with db.transaction(worker="w") as tx:
            log.add(tx, "n", 1)
        log.restore()
        assert dict(log.items()) == {"n": 4}


def test_seek_and_drop(db: planstep.Engine) -> None:
    numbers(db, 3)
    with db.transaction() as tx:
        tx.read("in", "c")
    db.topic("in").seek("c", 0, partition=0)
    with db.transaction() as tx:
        assert tx.read("in", "c").values == ["0", "1", "2"]
    db.topic("in").drop_consumer("c")
    assert db.topic("in").consumers() == {}
    with db.transaction() as tx:
        assert tx.read("in", "c").values == ["0", "1", "2"]


@pytest.mark.parametrize("kind", ["cumulative", "individual"])
def test_a_consumer_that_is_dropped_before_the_commit_is_not_made_again(
    db: planstep.Engine, kind: Any
) -> None:
    numbers(db, 3)
    db.topic("in").create_consumer("there", kind=kind)
    tx = db.transaction()
    assert tx.read("in", "there").values == ["0", "1", "2"]
    tx.write("out", "never")
    db.topic("in").drop_consumer("there")
    with pytest.raises(planstep.PulsarError, match="SubscriptionNotFound") as refused:
        tx.commit()
    assert refused.value.retryable and db.topic("in").consumers() == {}
    assert db.topic("out").read().values == []


def test_a_transaction_commits_without_what_it_wrote_to_a_topic_that_was_dropped(
    db: planstep.Engine,
) -> None:
    numbers(db, 3)
    tx = db.transaction()
    tx.write("in", "gone", partition=0)
    tx.write("out", "stays")
    tx.flush()
    db.drop_topic("in")
    tx.commit()
    assert db.topic("out").read().values == ["stays"] and db.open_transactions() == []


@pytest.mark.parametrize("how", ["topic", "cumulative", "individual"])
def test_a_read_that_a_trim_overtakes_goes_on_behind_it(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    numbers(db, 6)
    topic = db.topic("in")
    (_, fourth) = topic.read(partition=0).offsets[3]
    if how != "topic":
        topic.create_consumer("c", kind=how)
    name = "starts" if how == "topic" else "segments"
    step = getattr(Reading, name)

    def overtaken(*args: Any) -> Any:
        monkeypatch.undo()
        found = step(*args) if how == "topic" else None
        assert topic.trim(fourth, 0) > 0
        return found or step(*args)

    monkeypatch.setattr(Reading, name, overtaken)
    with db.transaction() as tx:
        batch = topic.read(partition=0) if how == "topic" else tx.read("in", "c", partition=0)
    assert batch.values == ["3", "4", "5"]
    assert how == "topic" or topic.lag("c") == 0


def test_positions_outlast_the_process(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as db:
        db.create_topic("in", partitions=1, format="utf8")
        db.topic("in").write_batch([f"{n}" for n in range(10)])
        with db.transaction() as tx:
            tx.read("in", "c", max_records=4)
    with opened(tmp_path / "s") as db, db.transaction() as tx:
        assert tx.read("in", "c").values == [f"{n}" for n in range(4, 10)]


@pytest.mark.parametrize("mode", ["kafka", "pulsar"])
def test_who_accepts_a_consumer_that_is_being_created_waits_for_its_positions(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the creator would take back what the other one has consumed."""
    with planstep.open(":memory:", mode=mode) as db:
        topic = db.create_topic("t", format="utf8")
        topic.write_batch(["a", "b"])

        def consume() -> None:
            topic.create_consumer("c", exist_ok=True)
            with db.transaction(worker="w") as tx:
                assert tx.read("t", "c", max_records=1).values == ["a"]

        other, move = threading.Thread(target=consume), ClientSchema._move

        def move_late(*args: Any) -> None:
            other.start()
            other.join(0.5)
            move(*args)

        monkeypatch.setattr(ClientSchema, "_move", move_late)
        topic.create_consumer("c")
        other.join()
        until(lambda: topic.position("c") == {0: 1})  # mode "kafka": behind the answer
