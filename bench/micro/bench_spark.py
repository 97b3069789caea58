"""Reads 1,000,000 records of 1 KB in Spark, by the data source and from their Parquet export, in turns.

Both count the records and add up the lengths of their values, so both read every value. It prints records/s of
each, and their ratio, which other work on the machine changes little.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.bench.judges.spark import session

pytest.importorskip("pyspark")

RECORDS, PARTITIONS, EACH, ROUNDS = 1_000_000, 4, 10_000, 6


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Any]:
    spark = session.start("bench", tmp_path, "local[2]")
    yield spark
    spark.stop()


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "bench.planstep")
    with planstep.open(path) as db:
        topic = db.create_topic("t", partitions=PARTITIONS)
        for begin in range(0, RECORDS, EACH):
            content = os.urandom(1000 * EACH)
            values = [content[i : i + 1000] for i in range(0, len(content), 1000)]
            keys = [b"user-%d" % (i * 7 % 50_000) for i in range(begin, begin + EACH)]
            topic.write_batch(values, keys=keys)
    return path


def test_reading(spark: Any, path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "t.parquet")
    export = [sys.executable, "-m", "planstep", "export", path, "--topic", "t", "--to", file]
    subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
    source = spark.read.format("planstep").options(path=path, topic="t")
    frames = {
        "data source, all columns": source.load(),
        "data source, columns=value": source.option("columns", "value").load(),
        "parquet": spark.read.parquet(file),
    }
    best = dict.fromkeys(frames, float("inf"))
    for _ in range(ROUNDS):  # the first of each is cold
        for name, frame in frames.items():
            began = time.perf_counter()
            ((count, size),) = frame.selectExpr("count(*)", "sum(length(value))").collect()
            best[name] = min(best[name], time.perf_counter() - began)
            assert (count, size) == (RECORDS, 1000 * RECORDS)
    with capfd.disabled():
        print()
        for name, seconds in best.items():
            share = best["parquet"] / seconds
            print(f"{name:28} {RECORDS / seconds:>12,.0f} records/s   {share:.2f} x parquet")
