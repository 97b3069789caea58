"""Tests row determinism by its negative control: dependence on a set's order is noticed."""

from pathlib import Path

from planstep.bench.proof.rows import determinism
from planstep.bench.proof.rows.registry import RowOptions


def test_the_order_of_a_set_is_noticed(tmp_path: Path) -> None:
    result = determinism.control(RowOptions(tmp_path, tmp_path))
    assert result.violations
