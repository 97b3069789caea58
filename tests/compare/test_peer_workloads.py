"""Runs workloads on peers, each once and for a short time, judged as every run is."""

from collections.abc import Callable
from pathlib import Path

import pytest
from peers import long, needs

from planstep.bench.compare.cell import OK, Cell
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.systems import headline
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.workloads import small
from planstep.bench.compare.workloads.base import Shape

SHAPE = Shape(
    rate=1.0, record_size=256, partitions=3, commit_interval=0.05, duration=0.5, workers=3
)
PEERS = [pytest.param(name, marks=needs(name)) for name in ("postgresql", "apache-kafka")]


@long
@pytest.mark.parametrize("system", PEERS)
@pytest.mark.parametrize("workload", ["small", "reshard", "move", "contention"])
def test_it_verifies_on_a_peer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: Callable[[str], str],
    workload: str,
    system: str,
) -> None:
    monkeypatch.setattr(small, "THREADS", (1, 2, 6))
    options = Options(placement=headline(system), server=address(system))
    result = run_cell(Cell(workload, system, options, SHAPE), tmp_path / "cell")
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    assert result.records > 0 and result.transactions > 0
    assert result.judged, "its history, too"
