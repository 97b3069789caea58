"""Tests row liveness by its negative control: a host that hears no frame stops the others."""

from planstep.bench.proof.rows import liveness
from planstep.bench.proof.rows.registry import RowOptions


def test_lost_frames_for_ever_are_noticed(options: RowOptions) -> None:
    assert any("B37" in text for text in liveness.control(options).violations)
