"""Row `oom`: makes allocations fail: the caller gets an error or the engine stops; nothing is lost or torn.

    a warm parent ─ fork for each position ─▶ memory.py: one action; its n-th allocation fails, or 100 from it,
                                              or 100,000: as good as for ever

An error before anything was sent is the caller's; any other stops the engine. A process that hangs in the
start of a thread is killed, and its store checked like any other.

The row counts an action's allocations. Two thirds of the positions are spread over all of them, a third over
the last eighth, where an action shows, replies and releases. The figures say how many failed in which stage;
a full run must have failed in each. The control takes a turn that found no memory for durable.

Next: ../disks/memory.py.
"""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from ..disks.contents import Contents
from ..disks.forked import apart
from ..disks.memory import (
    ACTIONS,
    COMMITTED,
    HANG_SECONDS,
    STAGES,
    Lived,
    Position,
    allocations,
    check_reopened,
    hooks,
    hung_in,
    is_start,
    live,
)
from ..disks.sample import KINDS, Sample, make, quickly
from ..disks.verdict import look
from ..parallel import gather
from .registry import RowOptions, RowResult

POSITIONS = 2_400
COUNTS = {1: "one", 100: "100 in a row", 100_000: "100,000 in a row"}
_OF_CONTROL = 60
_PIECE = 10


@dataclass(frozen=True)
class _Task:
    folder: Path
    sample: Sample
    whole: Contents
    positions: list[Position]
    careless: bool


def run(options: RowOptions) -> RowResult:
    return _run(options, ACTIONS, careless=False)


def control(options: RowOptions) -> RowResult:
    """Acknowledges turns that were not written: some positions must show it."""
    few = replace(options, runs=options.runs or _OF_CONTROL)
    result = _run(few, ("commit",), careless=True)
    return result if result.skipped else result.planted("an acknowledged commit is gone")


def _run(options: RowOptions, actions: tuple[str, ...], careless: bool) -> RowResult:
    if hooks() is None:
        return RowResult(skipped="this Python has no _testcapi, whose hooks make allocations fail")
    sample = make(KINDS[0], options.memory / "made", options.seed)
    store = options.memory / "whole"
    sample.planted(store)
    whole = apart(_reader_contents, store).value
    random = Random(options.seed)
    positions, figures = list[Position](), dict[str, int]()
    each = max(1, options.of(POSITIONS) // (len(COUNTS) * len(actions)))
    for action in actions:
        ended = apart(allocations, (sample, action, options.memory / "counted"))
        if ended.why:
            raise AssertionError(f"the allocations of {action} could not be counted: {ended.why}")
        figures[f"allocations_of_{action}"] = ended.value
        end = ended.value * 7 // 8
        late = each if careless else each // 3
        parts = ((0, each - late), (end, late))
        positions += [
            Position(
                action, first + int((n + random.random()) * (ended.value - first) / many), count
            )
            for count in COUNTS
            for first, many in parts
            for n in range(many)
        ]
    pieces = [
        _Task(options.memory / f"{n}", sample, whole, positions[n : n + _PIECE], careless)
        for n in range(0, len(positions), _PIECE)
    ]
    result = gather(options, _piece, pieces)
    result.figures |= figures
    if result.runs >= POSITIONS * 4 // 5:
        stages = result.figures["failed_in"]
        result.reaches(
            (f"failures in {name}", stages[name], 1)
            for name in (f"{action}: {stage}" for action in actions for stage in STAGES[action])
        )
    return result


def _reader_contents(store: Path) -> Contents:
    quickly()
    return look(store).shown["reader"]


def _piece(task: _Task) -> RowResult:
    result, ends, stages = RowResult(len(task.positions)), Counter[str](), Counter[str]()
    for position in task.positions:
        store = task.folder
        first = apart(live, (task.sample, task.whole, position, store, task.careless), HANG_SECONDS)
        lived = first.value or Lived(acknowledged=position.action in COMMITTED)
        wrong = first.why or lived.wrong
        hung = bool(first.why) and is_start(hung_in(store).read_text())
        if hung:
            lived.raised, wrong = "Thread.start hung", ""
        if hung or not first.why:
            second = apart(check_reopened, (task.sample, task.whole, position, store, lived))
            wrong = wrong or second.why or second.value
        result.faults[COUNTS[position.count]] += 1
        ends[lived.raised or "went well"] += 1
        stages.update([f"{position.action}: {lived.stage}"] * bool(lived.stage))
        result.must(not wrong, f"{position}, in {lived.stage or 'none'}: {wrong}")
    result.figures = {"ends": ends, "failed_in": stages}
    return result
