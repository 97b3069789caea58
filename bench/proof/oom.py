"""Allocations fail: whatever was under way happens wholly or not at all, and the engine goes on or says no.

    a warm parent ─ fork for each position ─▶ memory.py: one action, its n-th allocation fails, or 100 from it

How many allocations an action makes is found by asking: the highest position at which it still fails. The
positions are spread over all of them. The control shows rows before they are in the log.

Next: disks/memory.py.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from .disks.apart import apart
from .disks.judging import look
from .disks.kept import Contents
from .disks.memory import ACTIONS, Lived, Position, hooks, live, reopened
from .disks.sample import KINDS, Sample, make, quickly
from .rows import Asked, Found
from .spread import spread

POSITIONS = 2_400
BURST = 100
_PIECE = 10
_HIGHEST = 1 << 20


@dataclass(frozen=True)
class _Task:
    folder: Path
    sample: Sample
    whole: Contents
    positions: list[Position]
    early: bool


def run(asked: Asked) -> Found:
    return _run(asked, ACTIONS, early=False)


def control(asked: Asked) -> Found:
    """Where the commit shows its rows before its record is appended, some positions must tell."""
    short = Asked(
        asked.folder, asked.memory, True, asked.seed, asked.runs, asked.workers, asked.tell
    )
    return _run(short, ("commit",), early=True)


def _run(asked: Asked, actions: tuple[str, ...], early: bool) -> Found:
    if hooks() is None:
        return Found(skipped="this Python has no _testcapi, whose hooks make allocations fail")
    asked.memory.mkdir(parents=True, exist_ok=True)
    sample = make(KINDS[0], asked.memory / "made", asked.seed)
    store = asked.memory / "whole"
    sample.planted(store)
    whole = apart(_shown, store).value
    random = Random(asked.seed)
    positions: list[Position] = []
    each = max(1, asked.of(POSITIONS) // (2 * len(actions)))
    for action in actions:
        asked.tell(f"how often does {action} allocate?")
        highest = _highest(asked, sample, whole, action)
        for count in (1, BURST):
            step = highest / each
            positions += [
                Position(action, int(n * step + random.random() * step), count) for n in range(each)
            ]
    pieces = [
        _Task(asked.memory / f"{n}", sample, whole, positions[n : n + _PIECE], early)
        for n in range(0, len(positions), _PIECE)
    ]
    found, ends = Found(seeds=(asked.seed, asked.seed)), Counter[str]()
    for _, results in spread(_piece, pieces, asked.workers):
        for position, lived, wrong in results:
            found.runs += 1
            found.faults["one" if position.count == 1 else f"{BURST} in a row"] += 1
            ends[lived.raised or "went well"] += 1
            ends["closed afterwards"] += not (lived.probe or lived.held)
            ends["held by a process that could not let go"] += lived.held
            if wrong:
                found.violations.append(f"{position}: {wrong}")
        asked.tell(f"{found.runs:,} positions, {len(found.violations)} violations")
    found.figures = {name.replace(" ", "_"): n for name, n in sorted(ends.items()) if n}
    return found


def _shown(store: Path) -> Contents:
    quickly()
    return look(store).shown["reader"]


def _highest(asked: Asked, sample: Sample, whole: Contents, action: str) -> int:
    """About the number of the last allocation whose failure (with those behind it) is felt."""
    low, high = 1, 64
    felt = _Felt(asked, sample, whole, action)
    while high < _HIGHEST and felt(high):
        low, high = high, 2 * high
    while high - low > max(8, low // 20):
        middle = (low + high) // 2
        low, high = (middle, high) if felt(middle) else (low, middle)
    return high


class _Felt:
    """Whether the action ends otherwise when allocations from the n-th on fail."""

    def __init__(self, asked: Asked, sample: Sample, whole: Contents, action: str) -> None:
        self._of = sample, whole, asked.memory / "felt"
        self._action = action

    def __call__(self, n: int) -> bool:
        sample, whole, store = self._of
        ended = apart(live, (sample, whole, Position(self._action, n, BURST), store, False))
        return bool(ended.why) or bool(ended.value.raised)


def _piece(task: _Task) -> list[tuple[Position, Lived, str]]:
    told = []
    for position in task.positions:
        first = apart(live, (task.sample, task.whole, position, task.folder, task.early))
        lived = first.value or Lived()
        wrong = first.why or lived.wrong
        if not first.why:
            second = apart(reopened, (task.sample, task.whole, position, task.folder, lived))
            wrong = wrong or second.why or second.value
        told.append((position, lived, wrong))
    return told
