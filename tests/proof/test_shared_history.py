"""Tests row `shared-history`: it is clean, and its negative control is noticed."""

from planstep.bench.proof.rows import shared_history
from planstep.bench.proof.rows.registry import RowOptions


def test_the_row_is_clean(options: RowOptions) -> None:
    result = shared_history.run(options)
    assert result.violations == []
    assert result.runs >= 5_000
    assert result.faults["freeze"] == 2 and result.faults["kill"] == 4


def test_an_owner_that_does_not_ask_whether_it_still_is_one_is_noticed(options: RowOptions) -> None:
    result = shared_history.control(options)
    assert any(text.startswith("local: real-time violation") for text in result.violations)
