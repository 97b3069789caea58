"""Tests row liveness by its negative control: a host that hears no frame stops the others."""

from pathlib import Path

from planstep.bench.proof.rows import liveness
from planstep.bench.proof.rows.registry import RowOptions


def test_lost_frames_for_ever_are_noticed(tmp_path: Path) -> None:
    options = RowOptions(tmp_path, tmp_path, runs=15, workers=1)
    assert any("B37" in text for text in liveness.control(options).violations)
