"""Tests the model task as a Spark job, as batches and as a stream: each event once, in order, and counted."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from planstep.api.open_engine import Mode
from planstep.bench.proof.rows.spark import Lane, load, settle
from planstep.reshard.verify import verify
from planstep.spark import reshard


def check(store: Path, source: Any) -> None:
    settle(store)
    verdict = verify(str(store), source)
    assert verdict["ok"], verdict
    assert not (store / "spark").exists()


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_batches(spark: Any, tmp_path: Path, mode: Mode) -> None:
    store, source = load(Lane(tmp_path, mode, "batch", 1, (), "", events=90))
    assert reshard.run_batches(str(store), 60) == 2
    assert reshard.run_batches(str(store), 60) == 0
    check(store, source)


def run_stream(spark: Any, store: Path) -> None:
    """Runs the stream; again where Spark gave its source's process up, which has ten seconds to start."""
    for _ in range(20):
        try:
            reshard.run_stream(spark, str(store), 60)
            return
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    raise AssertionError("no process of Spark's started in time, twenty times")


def test_a_stream_that_goes_on(spark: Any, tmp_path: Path) -> None:
    store, source = load(Lane(tmp_path, "kafka", "stream", 1, (), "", events=90))
    run_stream(spark, store)
    run_stream(spark, store)
    check(store, source)
