"""Tests that each run warms up with the same transactions, of which nothing is left in its trace and its costs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from planstep.bench.compare.cell import Cell
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.systems import DEFAULT, headline
from planstep.bench.compare.systems.base import Options, System
from planstep.bench.compare.warm_up import TRANSACTIONS, warm_up
from planstep.bench.compare.workloads.base import Shape
from planstep.bench.judges.trace import Trace


@pytest.mark.parametrize("name", DEFAULT)
def test_it_passes_records_on(name: str, opened: Callable[..., System]) -> None:
    done = warm_up(opened())
    assert 0 < done <= TRANSACTIONS
    written = opened(read_only=True).records("warmed", 0)
    assert sum(len(chunk.values) for chunk in written) == done


@pytest.mark.parametrize("name", DEFAULT)
def test_nothing_of_it_is_measured(name: str, tmp_path: Path) -> None:
    shape = Shape(rate=0.2, record_size=100, partitions=2, commit_interval=0.1, duration=0.2)
    result = run_cell(Cell("plain", name, Options(placement=headline(name)), shape), tmp_path / "x")
    assert result.verified, result.problems
    trace = Trace.load(tmp_path / "x" / "trace")
    assert not [lane for lane in trace.lanes if lane.name.startswith("warm")]
