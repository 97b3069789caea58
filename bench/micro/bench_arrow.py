"""Reads 200,000 records of 100 B as Arrow and by iterating; writes them from columns and from lists.

Reads 10,000 in small batches as Arrow, and as lists of the same columns.
"""

from typing import Any

import pyarrow as pa
import pytest

import planstep

RECORDS, EACH = 200_000, 10_000
SMALL_RECORDS = 10_000
READ = {"max_records": RECORDS, "max_bytes": 1 << 30}


@pytest.fixture
def topic(db: planstep.Engine) -> planstep.Topic:
    topic = db.create_topic("t", partitions=4)
    for begin in range(0, RECORDS, EACH):
        keys = [b"user-%d" % (i * 7 % 5000) for i in range(begin, begin + EACH)]
        topic.write_batch([b"v" * 100] * EACH, keys=keys)
    return topic


@pytest.mark.benchmark(group="reading: 200,000 records of 100 B")
def test_to_arrow(benchmark: Any, topic: planstep.Topic) -> None:
    assert len(benchmark(lambda: topic.to_arrow())) == RECORDS


@pytest.mark.benchmark(group="reading: 200,000 records of 100 B")
def test_columns_as_lists(benchmark: Any, topic: planstep.Topic) -> None:
    def read() -> int:
        batch = topic.read(**READ)
        return len(batch.values) + len(batch.keys)

    assert benchmark(read) == 2 * RECORDS


@pytest.mark.benchmark(group="reading: 200,000 records of 100 B")
def test_iterating(benchmark: Any, topic: planstep.Topic) -> None:
    assert benchmark(lambda: sum(1 for _ in topic.read(**READ))) == RECORDS


@pytest.mark.parametrize("way", ["arrow", "lists"])
@pytest.mark.parametrize("each", [1, 10, 100])
@pytest.mark.benchmark(group="reading: 10,000 records of 100 B in small batches")
def test_small_batches(benchmark: Any, db: planstep.Engine, each: int, way: str) -> None:
    small = db.create_topic("small")
    for begin in range(0, SMALL_RECORDS, each):
        keys = [b"user-%d" % (i * 7 % 5000) for i in range(begin, begin + each)]
        small.write_batch([b"v" * 100] * each, keys=keys)
    batch = small.read(**READ)

    def read() -> int:
        columns = batch[:]  # keeps no lists
        if way == "arrow":
            return len(columns.to_arrow())
        lists = (columns.values, columns.keys, columns.offsets, columns.timestamps)
        return len(lists[0])

    assert benchmark(read) == SMALL_RECORDS


@pytest.mark.benchmark(group="reading: 200,000 records of 100 B")
def test_to_arrow_by_way_of_lists(benchmark: Any, topic: planstep.Topic) -> None:
    def read() -> int:
        batch = topic.read(**READ)
        return len(pa.table({"key": batch.keys, "value": batch.values}))

    assert benchmark(read) == RECORDS


@pytest.mark.parametrize("way", ["columns", "lists"])
@pytest.mark.benchmark(group="writing: 200,000 records of 100 B over 4 partitions")
def test_write(benchmark: Any, db: planstep.Engine, way: str) -> None:
    keys = [b"user-%d" % (i * 7 % 5000) for i in range(RECORDS)]
    values = [b"v" * 100] * RECORDS
    table = pa.table({"key": keys, "value": values})
    topic = db.create_topic("t", partitions=4)
    if way == "columns":
        benchmark.pedantic(
            lambda: topic.write_batch(table, key="key", value="value"), rounds=5, warmup_rounds=1
        )
    else:
        benchmark.pedantic(lambda: topic.write_batch(values, keys), rounds=5, warmup_rounds=1)
    assert topic.describe().records == 6 * RECORDS
