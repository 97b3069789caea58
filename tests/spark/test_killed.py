"""Tests a driver and its JVM killed before the sink's commit; another driver then repeats the batch.

What is killed at other phases: test_killed_sink.py, and row `spark` of `planstep check`.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from job import write

import planstep
from planstep.spark.owners import is_gone


def run(path: str, kill: str, environment: dict[str, str]) -> int:
    program = [sys.executable, "-m", "job", path, kill]
    done = subprocess.run(program, env=environment, stdout=subprocess.DEVNULL, timeout=300)
    return done.returncode


def own_copy(frame: Any) -> str:
    copy: str = frame.schema["key"].metadata["planstep"]["copy"]
    return copy


def becomes(true: Callable[[], bool]) -> bool:
    """Waits, with a bound that no slow machine reaches, for what another process does."""
    for _ in range(6000):
        if true():
            return True
        time.sleep(0.01)
    return False


def test_the_batch_counts_once(spark: Any, path: str, spark_environment: dict[str, str]) -> None:
    with planstep.open(path, hosts=2) as db:
        db.create_topic("t", partitions=2, format="utf8")
        db.create_table("totals").put("a", 1)
    assert run(path, "before", spark_environment) == -signal.SIGKILL
    assert len(list(Path(path, "spark").glob("*"))) == 1
    with planstep.open(path) as db:  # it is an ordinary store, whatever was left
        assert db.topic("t").describe().records == 0
    copy, snapshot = map(Path, Path(path + ".left").read_text().splitlines())
    assert copy.is_file() and copy.is_relative_to(path + ".local"), "Java did not remove it"
    assert becomes(lambda: is_gone(copy.parent)), "Java, which was killed last, has not ended"
    frame = spark.read.format("planstep").options(path=path, table="totals").load()
    assert not copy.parent.exists(), "the next load removes what was left"
    assert becomes(lambda: not snapshot.exists()), "a shell removes it"
    owner = json.loads(Path(own_copy(frame)).with_name(".owner").read_text())
    assert owner[3] == spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    write(spark, path, "no")
    with planstep.open(path) as db:
        assert sorted(map(int, db.topic("t").to_arrow()["value"].to_pylist())) == list(range(1000))
    assert not Path(path, "spark").exists()
