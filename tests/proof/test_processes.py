"""Tests row `processes`: it is clean, its negative controls are noticed, and so is what is left at the end."""

from pathlib import Path
from typing import Any

import pytest

from planstep.bench.proof.histories.sharing import Owns, SharedNumbers, State, given
from planstep.bench.proof.rows import processes
from planstep.bench.proof.rows.processes import Processes, Work
from planstep.bench.proof.rows.registry import RowOptions


def test_the_row_is_clean(options: RowOptions) -> None:
    result = processes.run(options)
    assert result.violations == []
    assert result.runs == 50 and result.figures["owners"] > 10


def test_old_marks_and_repeats_are_noticed(options: RowOptions) -> None:
    result = processes.control(options)
    assert any(": real-time violation: " in text for text in result.violations)
    assert any(": repeated: " in text for text in result.violations)
    assert "not_noticed" not in result.figures


@pytest.fixture
def two(tmp_path: Path) -> Any:
    """Two processes that say what they are told to."""
    course: Any = Processes(Work(0, tmp_path, tmp_path, 0, 1))
    yield course
    course._children.clear()
    course.end()


def test_a_generation_of_two_owners_is_noticed(two: Any) -> None:
    two._take(3, Owns(7))
    two._take(3, Owns(7))
    assert two.history.wrong == []
    two._take(4, Owns(7))
    assert two.history.wrong == ["generation 7 has two owners: (3, 0) and 4"]


IDLE = State(3, False, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("left", ["waiting", "admitted", "under_way", "snapshots"])
def test_what_is_left_is_noticed(two: Any, left: str) -> None:
    states = {0: IDLE._replace(owns=True, attached=1), 1: IDLE}
    two._children = {number: Said(state) for number, state in states.items()}
    assert two._nothing_is_left() == 0 and two.history.wrong == []
    two._children[1] = Said(IDLE._replace(**{left: 1}))
    two._nothing_is_left()
    assert [text[:19] for text in two.history.wrong] == ["process 1 still has"]


class Said:
    """Stands for a process that always says the same."""

    def __init__(self, state: State) -> None:
        self.state = state

    def tell(self) -> None: ...

    def lines(self) -> Any:
        yield self.state


def test_numbers_are_given_once(tmp_path: Path) -> None:
    one, other = SharedNumbers(tmp_path / "n"), SharedNumbers(tmp_path / "n")
    taken = [next(numbers) for _ in range(100) for numbers in (one, other)]
    assert len(set(taken)) == 200
    with open(tmp_path / "n", "rb") as file:
        assert given(file.fileno()) > max(taken)
