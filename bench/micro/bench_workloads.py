"""Runs each workload of the comparison on each system, the systems of a workload side by side.

A workload's duration is given, so it would be a pointless figure. The column shows the workload's own figure
(FIGURES) from its result, as seconds. The rest of the result is in `extra_info`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.cell import Cell, Result
from planstep.bench.compare.subprocess_runner import run_apart
from planstep.bench.compare.systems import ENTRIES, headline
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.workloads.base import Shape

SHAPE = Shape(rate=2.0, partitions=20, commit_interval=0.2, duration=3.0)


def _end_to_end(result: Result) -> float | None:
    return None if result.end_to_end_ms is None else result.end_to_end_ms["p50"] / 1000


FIGURES: dict[str, tuple[str, Callable[[Result], float | None]]] = {
    "reshard": ("end to end, p50", _end_to_end),
    "plain": ("end to end, p50", _end_to_end),
    "chain": ("end to end, p50", _end_to_end),
    "plain-beside": ("end to end of a plain write, p50", _end_to_end),
    "held-open": (
        "end to end while another one is open, p50",
        lambda result: result.extra["while_held"]["p50"] / 1000,
    ),
    "small": (
        "seconds a transaction",
        lambda result: 1 / result.extra["concurrency"]["1"]["transactions_per_second"],
    ),
    "contention": (
        "seconds a transaction of the hot consumer",
        lambda result: 1 / result.extra["hot_consumer"]["per_second"],
    ),
    "interval": (
        "seconds a megabyte, commits each 100 ms",
        lambda result: 1 / result.extra["100"]["mb_s"],
    ),
}


class _Figure:
    """A clock whose time is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


figure = _Figure()


@pytest.mark.benchmark(timer=figure)
@pytest.mark.parametrize("system", ENTRIES)
@pytest.mark.parametrize("workload", FIGURES)
def test_workload(benchmark: Any, tmp_path: Path, workload: str, system: str) -> None:
    name, read = FIGURES[workload]
    benchmark.group = f"{workload}: {name}"
    cell = Cell(
        workload,
        system,
        Options(placement=headline(system)),
        SHAPE,
        keep_trace=False,
    )
    result = run_apart(cell, tmp_path / "cell")
    assert result.verified, result.reason or result.problems
    seconds = read(result)
    assert seconds is not None, "the rate was not sustained: there is no figure to show"

    def tell() -> None:
        figure.now += seconds

    benchmark.pedantic(tell, rounds=1)
    benchmark.extra_info.update(
        (key, value) for key, value in result.dump().items() if key not in ("cell", "settings")
    )
