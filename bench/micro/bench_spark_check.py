"""Judges a million transactions of about four operations with Spark: the bound is 90 s on two cores.

PLANSTEP_BENCH_TRANSACTIONS sets another number. The time includes compilation by Spark's Java, not Spark's start.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.judges.python import PLANNED
from planstep.bench.judges.python.generate import FEEDS, Mix, generate
from planstep.bench.judges.spark.loading import Traces
from planstep.bench.judges.spark.prove import Proof, settings
from planstep.bench.judges.spark.session import end, start
from planstep.bench.judges.trace import without_gc

TRANSACTIONS = int(os.environ.get("PLANSTEP_BENCH_TRANSACTIONS", "1000000"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("comparison")
    with without_gc():
        trace = generate(TRANSACTIONS, seed=1, mix=Mix(consumed_max=2))
        trace.about |= {"history": PLANNED, "feeds": FEEDS}
        trace.save(folder / "traces" / "one")
    return folder


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start("bench", tmp_path_factory.mktemp("spark"))
    yield session
    end(session)


@pytest.mark.benchmark(group=f"a trace of {TRANSACTIONS:,} transactions")
def test_prove(benchmark: Any, spark: Any, folder: Path) -> None:
    proof = Proof(Traces.of(spark, folder), None, lambda line: None)

    def check() -> None:
        with settings(spark):
            proof.read()
            proof.check()
            proof.percentiles()

    benchmark.pedantic(check, rounds=1)
    assert not proof.by_run()
    benchmark.extra_info.update({job["name"]: job["seconds"] for job in proof.jobs})
