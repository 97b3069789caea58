"""Tests row `history`: its negative control; errors planted into the readers' looks are found."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import python

from planstep.bench.proof.histories.journal import Full, MmapJournal, entries, used
from planstep.bench.proof.histories.judge import _logs, judge_looks
from planstep.bench.proof.histories.run import make
from planstep.bench.proof.histories.schema import PARTITIONS, Observation, World
from planstep.bench.proof.histories.tapes import History, Plan, new_history
from planstep.bench.proof.rows.history import control
from planstep.bench.proof.rows.registry import RowOptions


def options(folder: Path, runs: int | None = None) -> RowOptions:
    (folder / "memory").mkdir()
    return RowOptions(folder, folder / "memory", quick=True, runs=runs, workers=1)


def test_votes_that_do_not_look_and_outcomes_that_run_ahead_are_noticed(tmp_path: Path) -> None:
    result = control(options(tmp_path, 1_000))
    assert any(text.startswith("blind: stale read") for text in result.violations)
    assert any("the accounts hold" in text for text in result.violations)
    assert any(text.startswith("ahead: real-time violation") for text in result.violations)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("history")
    return make(options(folder), Plan("one", 1, 600, 1, World(50, 20, 20)))


def _changed(column: str, at: int, by: int) -> Callable[[Observation], Observation]:
    def change(one: Observation) -> Observation:
        values = list(getattr(one, column))
        values[at] += by
        return one._replace(**{column: values})

    return change


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda one: one._replace(total=one.total + 1), "the accounts hold"),
        (lambda one: one._replace(ringed=19), "a ring of 19 keys"),
        (_changed("versions", 3, -1), "1 rows are not as the last writers left them"),
        (_changed("ends", 0, -1), "ends at"),
        (_changed("positions", 2, -1), "the consumer stands at"),
        (_changed("counts", 2, 1), "taken"),
    ],
)
def test_what_no_order_explains_is_found_in_a_look(
    history: History, change: Callable[[Observation], Observation], text: str
) -> None:
    assert history.wrong == [] and list(judge_looks(history)) == []
    honest = history.looks["the end"]
    history.looks["the end"] = [change(honest[0])]
    try:
        assert any(text in wrong for wrong in judge_looks(history))
    finally:
        history.looks["the end"] = honest


def test_a_list_that_lost_an_element_is_found(history: History) -> None:
    key = max(history.lists, key=lambda key: history.lists[key][0])
    honest = history.lists[key]
    history.lists[key] = (honest[0], honest[1][:-1])
    try:
        assert [text[:5] for text in judge_looks(history)] == ["list "]
    finally:
        history.lists[key] = honest


@pytest.mark.parametrize("end", [0, 1])
def test_a_first_record_without_a_place_may_be_on_either_side_of_a_look(end: int) -> None:
    """Its writer was killed, so that nobody knows its place."""
    history: Any = new_history(Plan("one", 1, 0, 0, World(1, 1, 1)))
    world = history.plan.world
    [lane, *_] = world.topic_lanes().values()
    history.trace.records = SimpleNamespace(lane=[lane], tx=[7])
    lanes = len(world.topic_lanes()) * PARTITIONS
    ends = [end] + [0] * (lanes - 1)
    history.looks["a reader"] = [Observation(0, 1, 12, 0, 0, [], [], ends, [])]
    assert list(_logs(history, {})) == []
    [wrong] = _logs(history, {7: (12 + end, 0)})
    assert f"ends at {end}" in wrong


_KILLED = """
import os, signal, sys
from pathlib import Path
from planstep.bench.proof.histories.journal import MmapJournal
tape = MmapJournal(Path(sys.argv[1]), 1000)
for n in range(7):
    tape.add([n, n * n])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_tape_outlives_its_process(tmp_path: Path) -> None:
    path = tmp_path / "tape"
    python(_KILLED, path, status=-signal.SIGKILL)
    assert [list(words) for words in entries(path)] == [[n, n * n] for n in range(7)]


def test_a_tape_that_is_full_keeps_what_it_has(tmp_path: Path) -> None:
    tape = MmapJournal(tmp_path / "tape", 8)
    tape.add([5, 6])
    with pytest.raises(Full):
        tape.add([1, 2, 3, 4])
    assert used(tmp_path / "tape") == 4
    assert [list(words) for words in entries(tmp_path / "tape")] == [[5, 6]]
