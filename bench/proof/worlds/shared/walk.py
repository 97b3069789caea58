"""Walks through states at random: machines work, sleep, die, take over, trim; a judge looks at each step.

    walk(seed) ─▶ who is awake? ─▶ one of them ─▶ one of its moves ─▶ … ─▶ the walk's end: one machine is left alone

A machine sleeps for 10, 40 or 160 steps, wherever it is. The odds of faults, trims and sleep are drawn for each
walk. The same seed gives the same walk, in any process.

Next: stories.py, scenes.py.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from .....shared.entry import BEGIN
from .machine import OPEN, READ, TRIM, TURN, Machine
from .objects import GET, decoded
from .state import (
    BACK_UP,
    CONFLICT,
    CRASH,
    CUT,
    CUT_SHORT,
    EMPTY,
    GO,
    ITS_OWN,
    LAND,
    LEFT,
    PUT_BACK,
    REPEATED,
    STRAY,
    TIDY,
    UNANSWERED,
    Move,
    Scene,
    State,
)
from .world import World

STEPS = 600
SCENE = Scene("a walk")
_LAST = 40
_ALONE_MAX = 10_000
_SLEEPS = (10, 40, 160)
_IN_DANGER = 20.0
_FAULTS = (CRASH, EMPTY, PUT_BACK, LAND, CUT_SHORT)
_DOUBTS = {UNANSWERED: 2.0, ITS_OWN: 1.0, CONFLICT: 1.0, STRAY: 2.0, REPEATED: 2.0, CUT: 2.0}
_WEIGHTS = {GO: 20.0, TIDY: 20.0, OPEN: 5.0, TURN: 12.0, READ: 1.0, TRIM: 1.0, CRASH: 0.3}
_WEIGHTS |= {EMPTY: 0.1, BACK_UP: 0.3, PUT_BACK: 0.1, LEFT: 0.5}
_DOWN, _JANITOR, _STRAY, _CUT_SHORT = 0.1, 0.5, 0.3, 0.05
"""How often a machine that is down, a janitor, and the strays are chosen, beside 1 for a machine that is up."""


@dataclass
class Walked:
    """The result of a walk. `turns` and `terms`: in the history; `violations`: each with the moves before it."""

    seed: int
    steps: int = 0
    turns: int = 0
    terms: int = 0
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)


class _Walker:
    def __init__(self, seed: int, world: World) -> None:
        self.dice = random.Random(f"{seed}/shared")
        self.world = world
        self.awake_from = [0] * world.scene.machines
        self.faulty = self.dice.choice((0.0, 0.3, 1.0, 3.0))
        self.trims = self.dice.choice((0.3, 1.0, 3.0))
        self.sleepy = self.dice.choice((0.002, 0.005, 0.01))

    def move(self, state: State, step: int) -> Move | None:
        """Draws the next move; None if all that could move sleeps."""
        dice = self.dice
        for machine in state.machines:
            if self.awake_from[machine.number] <= step and dice.random() < self._sleepy(machine):
                self.awake_from[machine.number] = step + dice.choice(_SLEEPS)
        actors = [
            (1.0 if machine.up else _DOWN, machine.number)
            for machine in state.machines
            if self.awake_from[machine.number] <= step
        ]
        strays, janitors = [*self.world.of_strays(state)], [*self.world.of_janitors(state)]
        actors += [(_STRAY, -1)] * bool(strays) + [(_JANITOR, -2)] * bool(janitors)
        if not actors:
            return None
        (actor,) = dice.choices([who for _, who in actors], [weight for weight, _ in actors])
        if actor >= 0:
            return self._drawn([*self.world.of_machine(state, state.machines[actor])])
        if actor == -1:
            return dice.choice(strays)
        move = self._drawn(janitors)
        return move._replace(what=CUT_SHORT) if dice.random() < _CUT_SHORT else move

    def _sleepy(self, machine: Machine) -> float:
        """Returns the odds that a machine falls asleep: mostly around its BEGIN, and while it is in doubt."""
        process = machine.process
        if process is None or process.program != TURN:
            return self.sleepy
        in_danger = not process.content or process.call.what == GET
        return self.sleepy * (_IN_DANGER if in_danger else 1.0)

    def _drawn(self, moves: list[Move]) -> Move:
        return self.dice.choices(moves, [self._weight(move) for move in moves])[0]

    def _weight(self, move: Move) -> float:
        if move.kind in _DOUBTS:
            return _DOUBTS[move.kind] * self.faulty
        return _WEIGHTS[move.kind or move.what] * (self.trims if move.what == TRIM else 1.0)


def text(move: Move) -> str:
    who = f"machine {move.host}: " if move.host >= 0 else ""
    return who + move.what + (f" ({move.kind})" if move.kind else "")


def walk(seed: int, steps: int = STEPS) -> Walked:
    """Walks until a step is wrong, or for so many steps, and then leaves one machine alone."""
    world, walked = World(SCENE), Walked(seed)
    walker, state = _Walker(seed, world), world.first()
    last: list[str] = []
    for step in range(steps):
        move = walker.move(state, step)
        if move is None:
            continue
        state = world.take(state, move)
        walked.steps += 1
        if move.kind or move.what in _FAULTS:
            walked.faults[move.kind or move.what] += 1
        last.append(text(move))
        if state.wrong:
            break
    wrong = [*state.wrong] or alone(world, state)
    if wrong:
        lines = "\n".join(f"    {line}" for line in last[-_LAST:])
        walked.violations = [f"walk {seed}, step {len(last)}: {'; '.join(wrong)}\n{lines}"]
    walked.turns = len(state.history)
    walked.terms = sum(decoded(data).kind == BEGIN for data in state.history)
    walked.reached = world.reached
    return walked


def alone(world: World, state: State) -> list[str]:
    """Leaves machine 0 alone, without faults: it has to become the owner at its first try, and to commit."""
    reached = world.reached.copy()
    state = state._replace(left=SCENE.left, strays=(), janitors=())
    before = state.acknowledged
    state = state.with_machine(state.machines[0].down())
    for what in (OPEN, TURN):
        if what == TURN and state.machines[0].ownership is None:
            break
        state = world.take(state, Move(what, 0))
        for _ in range(_ALONE_MAX):
            if state.wrong or state.machines[0].process is None:
                break
            state = world.take(state, Move(GO, 0))
    world.reached = reached  # events of this trial do not count
    if not state.wrong and state.acknowledged <= before:
        return ["J8: a machine that is left alone does not commit"]
    return [*state.wrong]
