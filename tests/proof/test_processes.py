"""Tests row `processes`: it is clean, its negative controls are noticed, and so is all that it compares."""

from pathlib import Path
from typing import Any

import pytest

from planstep.bench.proof.disks.copying import IN, LANES, LOG, NEVER, OUT, Looked, Wrote
from planstep.bench.proof.disks.sharers import Owns, State
from planstep.bench.proof.histories.sharing import SharedNumbers, given
from planstep.bench.proof.rows import processes
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.rows.struck_copies import Copies
from planstep.bench.proof.rows.struck_processes import Work


def test_the_row_is_clean(options: RowOptions) -> None:
    result = processes.run(options)
    assert result.violations == []
    assert result.runs == 50 and result.figures["owners"] > 10
    assert result.figures["moves"] > 10 and result.figures["copied"] > 100


def test_the_planted_bugs_are_noticed(options: RowOptions) -> None:
    result = processes.control(options)
    assert any(": real-time violation: " in text for text in result.violations)
    assert any(": repeated: " in text for text in result.violations)
    assert any(" times too often" in text for text in result.violations)
    assert "not_noticed" not in result.figures


@pytest.fixture
def two(tmp_path: Path) -> Any:
    """Two processes that say what they are told to."""
    course: Any = processes.processes_of(Work("one host", tmp_path, tmp_path, 0, 1))
    yield course
    course.children.clear()
    course.end()


def test_a_generation_of_two_owners_is_noticed(two: Any) -> None:
    two._take(3, Owns(7))
    two._take(3, Owns(7))
    assert two.wrongs == []
    two._take(4, Owns(7))
    assert two.wrongs == ["generation 7 has two owners: (3, 0) and 4"]


IDLE = State(3, False, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("left", ["waiting", "admitted", "under_way", "snapshots", "lag"])
def test_what_is_left_is_noticed(two: Any, left: str) -> None:
    states = {0: IDLE._replace(owns=True, attached=1), 1: IDLE}
    two.children = {number: Said(state) for number, state in states.items()}
    assert two._nothing_is_left() == 0 and two.wrongs == []
    two.children[1] = Said(IDLE._replace(**{left: 1}))
    two._nothing_is_left()
    assert [text[:19] for text in two.wrongs] == ["process 1 still has"]


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


# copies ---------------------------------------------------------------------------------------


class Copied:
    """Two transactions of a writer, copied; all is well until a test changes something. The first was looked at."""

    def __init__(self, tmp_path: Path, variant: str = "group") -> None:
        work = Work(variant, tmp_path, tmp_path, 0, 1)
        course = processes.processes_of(work)
        assert isinstance(course, Copies)
        self.course = course
        self.logs: dict[Any, list[tuple[int, str]]] = {lane: [] for lane in LANES}
        for n in range(2):
            self.logs[IN, 3].append((n, f"0.0/{n}"))
            self.logs[LOG, 0].append((n, f"0.0/{n}"))
            self.logs[OUT, 3].append((n, f"0.0/{n} 1.0"))
            course.wrote.append(Wrote("0.0", n, 10 * n, {(IN, 3): n, (LOG, 0): n}, n > 0))
        self.look(5, 1)
        self.look(15, 2)

    def look(self, begin: int, end: int, more: int = 0) -> None:
        ends = tuple(end if lane in ((IN, 3), (LOG, 0)) else 0 for lane in LANES)
        counts = tuple(number + more * bool(number) for number in ends)
        self.course.looks.append(Looked(begin, begin + 1, ends, counts))

    @property
    def wrong(self) -> list[str]:
        return list(self.course.compared(self.logs))


def test_good_copies_are_not_wrong(tmp_path: Path) -> None:
    assert Copied(tmp_path).wrong == []


@pytest.mark.parametrize(
    ("lane", "log", "words"),
    [
        ((IN, 3), ["0.0/0"], "was acknowledged at"),
        ((IN, 3), ["0.0/0", "0.0/1", "0.0/1"], "is there 2 times"),
        ((IN, 3), ["0.0/0", "0.0/1", NEVER], "was rolled back, and is there"),
        ((LOG, 0), ["0.0/0", "0.0/1", "0.0/2"], "torn: 0.0/2"),
        ((OUT, 3), ["0.0/0 1.0", "0.0/1 1.0", "0.0/0 2.0"], "0.0/0 was copied 1 times too often"),
        ((OUT, 3), ["0.0/0 1.0"], "0.0/1 was never copied"),
        ((OUT, 3), ["0.0/1 1.0", "0.0/0 1.0"], "in another order"),
        ((OUT, 4), ["0.0/1 1.0"], "0.0/1 was copied 1 times too often"),
    ],
)
def test_what_is_wrong_in_the_logs_is_noticed(
    tmp_path: Path, lane: tuple[str, int], log: list[str], words: str
) -> None:
    copied = Copied(tmp_path)
    copied.logs[lane] = list(enumerate(log))
    assert any(words in text for text in copied.wrong)


def test_what_was_refused_and_is_there_is_noticed(tmp_path: Path) -> None:
    copied = Copied(tmp_path)
    copied.course.refused.add("0.0/1")
    assert "0.0/1 was refused, and is there" in copied.wrong


def test_looks_that_go_back_are_noticed(tmp_path: Path) -> None:
    copied = Copied(tmp_path)
    copied.look(20, 1)
    assert any("was shown up to 1, after 2 was seen" in text for text in copied.wrong)


def test_a_look_at_what_is_no_more_is_noticed(tmp_path: Path) -> None:
    copied = Copied(tmp_path)
    copied.look(20, 2, more=1)
    assert any("had 3 records up to 2, and has 2 now" in text for text in copied.wrong)


@pytest.mark.parametrize(
    ("variant", "late"), [("group", {IN, LOG}), ("pulsar", {LOG}), ("kafka", set[str]())]
)
def test_an_answer_promises_what_its_mode_does(
    tmp_path: Path, variant: str, late: set[str]
) -> None:
    """The second transaction was answered at 10. In "kafka" only the first one's records are certain then."""
    copied = Copied(tmp_path, variant)
    del copied.course.looks[1]
    copied.look(11, 1)
    behind = [text for text in copied.wrong if "after 2 was answered" in text]
    assert len(behind) == len(late) and all(
        any(f"'{one}'" in text for text in behind) for one in late
    )


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        ([(0, 1, 2, 3), (4, 5, 6, 7)], ""),
        ([(0, 1, 2, 3, 4), (4, 5, 6, 7)], "partitions belong to"),
        ([(0, 1, 2), (4, 5, 6, 7)], "partitions belong to"),
    ],
)
def test_partitions_of_two_and_of_nobody_are_noticed(
    tmp_path: Path, lanes: list[tuple[int, ...]], words: str
) -> None:
    one, other = (IDLE._replace(lanes=mine) for mine in lanes)
    why = Copied(tmp_path).course.unsettled({0: one._replace(owns=True, attached=1), 1: other})
    assert why.startswith(words) and bool(why) == bool(words)
