"""Loads a million transactions of about four operations from Parquet, and judges them.

`make bench` prints both times; the bound is 10 s for judging, building its columns included.
"""

from pathlib import Path
from typing import Any

import pytest

from planstep.bench.judges.python import PLANNED, judge
from planstep.bench.judges.python.generate import FEEDS, Mix, generate
from planstep.bench.judges.trace import Trace, without_gc

TRANSACTIONS = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    with without_gc():
        generate(TRANSACTIONS, seed=1, mix=Mix(consumed_max=1)).save(folder)
    return folder


@pytest.mark.benchmark(group="a trace of 1,000,000 transactions")
def test_load(benchmark: Any, folder: Path) -> None:
    trace = benchmark.pedantic(Trace.load, args=(folder,), rounds=1)
    assert len(trace.transactions) == TRANSACTIONS


@pytest.mark.benchmark(group="a trace of 1,000,000 transactions")
@pytest.mark.parametrize("fed", (False, True), ids=("places", "places, and what feeds what"))
def test_judge(benchmark: Any, folder: Path, fed: bool) -> None:
    trace = Trace.load(folder)
    feeds = FEEDS if fed else {}
    findings = benchmark.pedantic(
        judge, args=(trace,), kwargs={"mode": PLANNED, "feeds": feeds}, rounds=3
    )
    assert not findings.counts
    benchmark.extra_info.update(findings.looked_at, operations=len(trace.operations))
