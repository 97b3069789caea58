"""Tests row determinism: bytes are equal under two hash seeds, and dependence on a set's order is noticed."""

from pathlib import Path

import pytest

from planstep.bench.proof.rows import determinism
from planstep.bench.proof.rows.registry import Asked


@pytest.mark.again
def test_seeds_are_the_same_in_two_processes(tmp_path: Path) -> None:
    found = determinism.compared(Asked(tmp_path, tmp_path, runs=4), ("deterministic",))
    assert found.violations == []
    assert found.figures["equal"] == found.runs == 4 and found.events > 100


def test_the_order_of_a_set_is_noticed(tmp_path: Path) -> None:
    found = determinism.control(Asked(tmp_path, tmp_path))
    assert found.violations
