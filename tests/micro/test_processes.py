"""Tests that the comparison of attached processes with the owner runs, and gives each figure."""

from pathlib import Path

from planstep.bench.micro import processes


def test_it_measures_each_way(tmp_path: Path) -> None:
    (figures,) = processes.measure(64, 1, tmp_path)
    assert all(value > 0 for name, value in figures.items() if name != "difference")
    assert figures["difference"] == figures["attached_p50"] - figures["own_p50"]
    assert list(tmp_path.iterdir()) == []
