"""Tests that no batch of mode "kafka" is larger than batch_bytes, however the face collects records."""

import random
from typing import Any

import pytest
from face_kit import open_store, until

import planstep
from planstep.proto.batch import Batch, encode_batch
from planstep.proto.ids import PARTITION, kind_of
from planstep.runtime.batch_cutting import bounded


@pytest.mark.parametrize("seed", range(20))
def test_records_stay_what_they_are(seed: int) -> None:
    draw = random.Random(seed)
    count, size_max = draw.randint(1, 400), draw.choice((1, 200, 1_000, 16_384))

    def column(absent: float, longest: int) -> list[Any]:
        return [
            None if draw.random() < absent else draw.randbytes(draw.randint(0, longest))
            for _ in range(count)
        ]

    values = column(0, draw.choice((0, 20, 3_000)))
    keys, headers = (draw.choice((None, column(share, 30))) for share in (0, 0.3))
    data = encode_batch(values, keys, headers, 77)
    (pieces,) = bounded({5: ((data, count),)}, size_max).values()
    parts = [Batch.decode(piece) for piece, _ in pieces]
    assert [batch.count for batch in parts] == [records for _, records in pieces]
    assert all(len(piece) <= size_max or records == 1 for piece, records in pieces)
    assert [item for batch in parts for item in batch.values] == values
    assert [item for batch in parts for item in batch.keys] == (keys or [None] * count)
    assert [item for batch in parts for item in batch.header_bytes] == (headers or [None] * count)
    assert {batch.timestamp_ms for batch in parts} == {77}
    if size_max >= 1_000 and len(data) > 2 * size_max and max(map(len, values)) <= 20:
        assert len(pieces) <= 2 + len(data) // (size_max - 200), "not smaller than need be"


def batches(db: planstep.Engine) -> list[tuple[int, int]]:
    """Returns (bytes, records) of each batch in the partitions' logs."""
    sizes = []
    for node in db._runtime.nodes:
        for key, row in node.host.store.scan(b"", b"\xff" * 12):
            if kind_of(int.from_bytes(key[:4], "big")) == PARTITION and key[4:5] == b"b":
                sizes += [(row[1], row[2])] if row[6] < 2 else []
    return sizes


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("version", [1, 2])
def test_every_way_of_writing_is_bounded(hosts: int, version: int) -> None:
    with open_store(hosts=hosts, protocol_version=version, batch_bytes=2_000) as db:
        topic = db.create_topic("t", partitions=2)
        values = [bytes([n % 251]) * (n % 700) for n in range(300)]
        large = b"x" * 5_000
        topic.write_batch(values, partition=0)
        with db.transaction() as tx:
            tx.write_batch("t", values, partition=1)
            tx.flush()
            tx.write_batch("t", [*values, large], partition=1)
        with topic.writer(producer="p") as writer:
            for value in values:
                writer.write(value, partition=0)
        until(lambda: len(topic.read(max_records=10_000)) == 4 * len(values) + 1)
        assert sorted(topic.read(max_records=10_000).values) == sorted([*values * 4, large])
        sizes = batches(db)
        assert all(size <= 2_000 or records == 1 for size, records in sizes)
        assert sum(records for _, records in sizes) == 4 * len(values) + 1
        assert sum(size > 2_000 for size, _ in sizes) == 1


# linger ------------------------------------------------------------------------------------------


def test_what_lingers_is_gathered_into_one_batch_until_a_flush_or_the_commit() -> None:
    with open_store(linger_ms=60_000) as db:
        db.create_topic("t", partitions=2)
        tx = db.transaction()
        for before, end in ((0, tx.flush), (2, tx.commit)):
            for n in range(30):
                tx.write("t", b"%d" % n, partition=n % 2)
            assert len(batches(db)) == before
            assert not db._runtime.hooks.client.outstanding(tx.life.tx)
            end()
        assert [records for _, records in batches(db)] == [15] * 4


def test_a_full_batch_leaves_at_once() -> None:
    with open_store(linger_ms=60_000, batch_bytes=1_000) as db:
        db.create_topic("t", partitions=2)
        with db.transaction() as tx:
            tx.write("t", b"x" * 900, partition=0)
            assert not db._runtime.hooks.client.outstanding(tx.life.tx)
            tx.write("t", b"x" * 1_200, partition=0)
            until(lambda: len(batches(db)) == 2)


def test_what_has_lingered_leaves_with_the_next_write() -> None:
    with open_store(linger_ms=1) as db:
        db.create_topic("t")
        with db.transaction() as tx:
            until(lambda: tx.write("t", b"x") or batches(db))
    assert not db._runtime.hooks.lingering


def test_a_write_by_itself_does_not_linger() -> None:
    with open_store(linger_ms=60_000) as db:
        topic = db.create_topic("t")
        topic.write(b"x")
        with topic.writer() as writer:
            writer.write(b"y")
        until(lambda: topic.read().values == [b"x", b"y"])
