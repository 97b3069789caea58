"""Tests reading a topic without a consumer: all of it, piece by piece, from where a batch ended."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

import planstep

RECORDS = 30_000


@pytest.fixture(scope="module", params=["deterministic", "two hosts", "kafka"])
def large(request: pytest.FixtureRequest) -> Iterator[planstep.Topic]:
    settings: Any = {"mode": "kafka"} if request.param == "kafka" else {}
    hosts = 2 if request.param == "two hosts" else 1
    with planstep.open(":memory:", hosts=hosts, **settings) as db:
        topic = db.create_topic("t", partitions=5)
        for at in range(0, RECORDS, 1_500):
            values = [b"%d" % i for i in range(at, at + 1_500)]
            # Partition 4 is empty; the others have their records in long stretches.
            topic.write_batch(values, partition=random.Random(at).randrange(4))
        yield topic


def numbers(batches: list[planstep.ReadBatch]) -> list[int]:
    return sorted(int(value) for batch in batches for value in batch.values)


def test_a_bare_read_gives_all_there_is(large: planstep.Topic) -> None:
    batch = large.read()
    assert numbers([batch]) == list(range(RECORDS)) and not batch.more
    assert batch.ends.keys() == {0, 1, 2, 3, 4} and batch.partition is None
    assert not large.read(batch.ends) and large.read(batch.ends).ends == batch.ends


@pytest.mark.parametrize("limits", [{"max_records": 1_777}, {"max_bytes": 20_000}])
def test_reading_on_loses_nothing(large: planstep.Topic, limits: dict[str, int]) -> None:
    batches = [large.read(**limits)]
    while batches[-1].more:
        batches.append(large.read(batches[-1].ends, **limits))
        assert len(batches) < 10_000
    assert numbers(batches) == list(range(RECORDS)) and len(batches) > 5
    assert all(batch.ends.keys() == {0, 1, 2, 3, 4} for batch in batches)


def test_piece_by_piece(large: planstep.Topic) -> None:
    batches = list(large.iter_batches(max_records=1_777))
    assert numbers(batches) == list(range(RECORDS))
    assert {len(batch) for batch in batches[:-1]} == {1_777}
    assert [batch.more for batch in batches] == [True] * (len(batches) - 1) + [False]
    assert not large.read(batches[-1].ends)
    middle = batches[len(batches) // 2]
    rest = numbers([large.read(middle.ends)])
    assert rest == numbers(batches[len(batches) // 2 + 1 :])
    assert numbers(list(large.iter_batches(start=middle.ends))) == rest
    one = list(large.iter_batches(partition=2, max_bytes=10_000))
    assert [batch.partition for batch in one] == [2] * len(one)
    assert numbers(one) == numbers([large.read(partition=2)])


def test_of_a_part_of_a_batch_too(large: planstep.Topic) -> None:
    batch = large.read(max_records=20_000)
    for begin, end in ((0, 0), (0, 7), (3, 9_000), (5_000, 20_000), (0, 20_000)):
        part = batch[begin:end]
        assert numbers([batch[:end], large.read(part.ends)]) == list(range(RECORDS))
        assert part.more or end == 20_000


def test_what_was_asked_for_is_told() -> None:
    with planstep.open(":memory:") as db:
        topic = db.create_topic("t", partitions=3)
        empty = topic.read()
        assert (empty.ends, empty.more, empty.partition) == ({0: 0, 1: 0, 2: 0}, False, None)
        assert (topic.read(partition=1).ends, topic.read(partition=1).partition) == ({1: 0}, 1)
        topic.write_batch([b"a", b"b"], partition=1)
        assert list(topic.iter_batches(partition=0)) == []
        batch = topic.read({0: 0, 1: 1})
        assert (batch.values, batch.ends) == ([b"b"], {0: 0, 1: 2})
        assert topic.read(max_records=1).more and not topic.read(max_records=2).more
        with db.snapshot() as view:
            topic.write(b"c", partition=1)
            assert view.read("t").ends == {0: 0, 1: 2, 2: 0}
            assert [b.values for b in view.iter_batches("t", max_records=1)] == [[b"a"], [b"b"]]
        with db.transaction() as tx:
            first = tx.read("t", "c", max_records=2)
            assert first.more and first.partition == 1
            assert not tx.read("t", "c", max_records=1).more
        topic.create_consumer("each", kind="individual")
        with db.transaction() as tx:
            tx.consume("t", "each", 1, 1, 2)
            assert tx.read("t", "each", max_records=1).more
            assert not tx.read("t", "each", max_records=1).more
        odd: list[Any] = [0, -1, True, "1"]
        for wrong in odd:
            with pytest.raises((TypeError, ValueError)):
                topic.read(max_records=wrong)
            with pytest.raises((TypeError, ValueError)):
                topic.iter_batches(max_records=wrong)
