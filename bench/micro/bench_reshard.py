"""Reshards records of 1 KB, 100 partitions to 100, and compares with bare durable appends of the same bytes."""

from collections.abc import Callable
from typing import Any

import pytest

import planstep

PARTITIONS = 100
BATCHES, RECORDS = 20, 2000


@pytest.mark.benchmark(group="40 MB of 1 KB records")
def test_reshard(benchmark: Any, db: planstep.Engine) -> None:
    db.create_topic("in", partitions=PARTITIONS)
    db.create_topic("out", partitions=PARTITIONS)
    keys = [f"user-{i * 7 % 5000}" for i in range(RECORDS)]
    for p in range(BATCHES):
        db.topic("in").write_batch([b"v" * 1024] * RECORDS, keys=keys, partition=p)
    before = db.stats()["store"]

    def reshard() -> None:
        for p in range(BATCHES):
            with db.transaction() as tx:
                batch = tx.read("in", "c", max_records=RECORDS, max_bytes=1 << 26, partition=p)
                assert len(batch) == RECORDS
                tx.write_batch("out", batch.values, keys=batch.keys)

    benchmark.pedantic(reshard, rounds=1)
    after = db.stats()["store"]
    payload = after["payload_bytes"] - before["payload_bytes"]
    written = after["log_bytes"] - before["log_bytes"]
    benchmark.extra_info["bytes_written_per_payload_byte"] = written / payload


@pytest.mark.benchmark(group="40 MB of 1 KB records")
def test_bare_appends(benchmark: Any, append: Callable[[bytes], None]) -> None:
    data = b"v" * (1024 * RECORDS)

    def run() -> None:
        for _ in range(BATCHES):
            append(data)

    benchmark.pedantic(run, rounds=1)
