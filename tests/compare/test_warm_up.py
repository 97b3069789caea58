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
def test_it_passes_records_on_and_takes_others_back(
    name: str, opened: Callable[..., System]
) -> None:
    system = opened()
    system.prepare({"in": 2, "between": 2, "out": 2})
    done = warm_up(system, {"between": "in/a", "out": "between/b"})
    assert 0 < done <= TRANSACTIONS
    reader = opened(read_only=True)
    assert sum(len(chunk.values) for chunk in reader.records("warmed", 0)) == done
    for topic in ("between", "out"):
        assert not [chunk for n in range(2) for chunk in reader.records(topic, n) if chunk.values]


@pytest.mark.parametrize("name", DEFAULT)
def test_nothing_of_it_is_measured(name: str, tmp_path: Path) -> None:
    shape = Shape(rate=0.2, record_size=100, partitions=2, commit_interval=0.1, duration=0.2)
    result = run_cell(Cell("plain", name, Options(placement=headline(name)), shape), tmp_path / "x")
    assert result.verified, result.problems
    trace = Trace.load(tmp_path / "x" / "trace")
    assert not [lane for lane in trace.lanes if lane.name.startswith("warm")]


@pytest.mark.parametrize("name", DEFAULT)
def test_what_was_taken_back_is_in_no_result(name: str, tmp_path: Path) -> None:
    """The topic that a workload writes has been written before: its records begin behind what was taken back."""
    shape = Shape(rate=0.2, record_size=100, partitions=2, commit_interval=0.1, duration=0.2)
    cell = Cell("reshard", name, Options(placement=headline(name)), shape)
    result = run_cell(cell, tmp_path / "x")
    assert result.verified, result.problems
    assert result.records and not (result.missing or result.duplicated or result.violations)
