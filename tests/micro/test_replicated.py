"""Tests that the comparison of replicated and local stores runs, and keeps to what no clock decides."""

import json
from pathlib import Path

import pytest

from planstep.bench.micro import replicated


def test_it_measures_each_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "_MANY", 8)
    monkeypatch.setattr(replicated, "_CLIENTS", 4)
    words = ["--folder", str(tmp_path), "--rounds", "1", "--seconds", "0.3"]
    said: list[str] = []
    replicated.main([*words, "--json"], said.append)
    found = json.loads(said[0])
    assert all(value >= 0 for each in found["figures"].values() for value in each.values())
    ratios = found["ratios"]
    assert 0 < ratios["puts a second x linger"] <= 1.2  # the first put of a time waits for nothing
    assert 0.5 < ratios["bytes sent per byte logged, with runs"] < 3
    assert list(tmp_path.iterdir()) == []
    said.clear()
    replicated.main(words, said.append)
    assert len(said) == len(found["figures"]) + len(ratios)
