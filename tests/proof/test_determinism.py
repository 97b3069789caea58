"""Tests row determinism by its negative control: dependence on a set's order is noticed."""

from planstep.bench.proof.rows import determinism
from planstep.bench.proof.rows.registry import RowOptions


def test_the_order_of_a_set_is_noticed(options: RowOptions) -> None:
    result = determinism.control(options)
    assert result.violations
