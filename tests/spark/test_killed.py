"""Tests a driver and its JVM killed before and after the sink's commit; another driver then repeats the batch."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job import write

import planstep


def run(path: str, kill: str, environment: dict[str, str]) -> int:
    program = [sys.executable, "-m", "job", path, kill]
    done = subprocess.run(program, env=environment, stdout=subprocess.DEVNULL, timeout=300)
    return done.returncode


@pytest.mark.parametrize("kill, there", [("before", 0), ("after", 1000)])
def test_the_batch_counts_once(
    spark: Any, path: str, spark_environment: dict[str, str], kill: str, there: int
) -> None:
    with planstep.open(path, hosts=2) as db:
        db.create_topic("t", partitions=2, format="utf8")
    assert run(path, kill, spark_environment) == -signal.SIGKILL
    staged = list(Path(path, "spark").glob("*")) if kill == "before" else []
    assert len(staged) == (kill == "before")
    with planstep.open(path) as db:  # it is an ordinary store, whatever was left
        assert db.topic("t").describe().records == there
    write(spark, path, "no")
    with planstep.open(path) as db:
        assert sorted(map(int, db.topic("t").to_arrow()["value"].to_pylist())) == list(range(1000))
    assert not Path(path, "spark").exists()
