"""Lists small worlds of machines that share a log, for a search of all their states.

    a story's moves ─▶ the first state ─▶ every order of what is left: openings, commits, faults, a trim

Each scene begins where it becomes dangerous: a taker that sleeps before its BEGIN, an owner that sleeps before its
put, or behind it, a trim under way. Machines are three at most.

Next: ../exhaustive/search.py, ../../rows/shared_model.py.
"""

from .machine import OPEN, TRIM, TURN
from .objects import LIST, PUT
from .state import GO, STRAY, TIDY, UNANSWERED, Left, Move, Scene, State
from .stories import Teller
from .walk import alone
from .world import World

_NONE = Left(0, 0, 0, 0, 0, 0, 0)
_PUTS: dict[str, tuple[str, ...]] = {PUT: (UNANSWERED, STRAY)}
_Step = Move | tuple[int, str] | tuple[int, str, str]


def _moves(*steps: _Step) -> tuple[Move, ...]:
    """Returns the moves of a story: each step is one, or a program of a machine, to its end or a call."""
    tell = Teller()
    for step in steps:
        if isinstance(step, Move):
            tell.take(step)
        else:
            tell.begin(*step)
    return tuple(tell.moves)


_OWNED: tuple[_Step, ...] = ((0, OPEN), (0, TURN))
_LATE_TAKER: tuple[_Step, ...] = (*_OWNED, (1, OPEN, PUT))
_TAKEN: tuple[_Step, ...] = ((2, OPEN), (2, TURN))

SCENES: tuple[tuple[Scene, int], ...] = (
    # (scene, states at most); a scene that ends below it was explored completely
    (
        Scene(
            "two takers, a doubt, a crash",
            2,
            _NONE._replace(opens=3, commits=1, doubts=1, crashes=1),
            _PUTS,
        ),
        100_000,
    ),
    (
        Scene("three takers, a doubt", 3, _NONE._replace(opens=3, commits=1, doubts=1), _PUTS),
        100_000,
    ),
    (
        Scene(
            "a late taker, a trim, a doubt",
            2,
            _NONE._replace(commits=2, trims=1, doubts=1),
            _PUTS,
            _moves(*_LATE_TAKER, (0, TURN)),
        ),
        60_000,
    ),
    (
        Scene(
            "a late taker, an owner in doubt, a trim",
            3,
            _NONE._replace(commits=1, trims=1, doubts=1),
            _PUTS,
            _moves(*_LATE_TAKER, (0, TURN, PUT), Move(GO, 0, UNANSWERED), *_TAKEN),
        ),
        100_000,
    ),
    (
        Scene(
            "a taker behind its BEGIN, an owner before its put, a trim",
            3,
            _NONE._replace(commits=1, trims=1, doubts=1),
            _PUTS,
            _moves(*_LATE_TAKER, Move(GO, 1), (0, TURN, PUT), *_TAKEN),
        ),
        100_000,
    ),
    (
        Scene(
            "a late taker, two trims",
            3,
            _NONE._replace(commits=1, trims=1, doubts=1),
            _PUTS,
            _moves(*_LATE_TAKER, (0, TURN), Move(TRIM, 0), Move(TIDY), *_TAKEN),
        ),
        150_000,
    ),
    (
        Scene(
            "an empty folder beside a trim",
            2,
            _NONE._replace(opens=1, trims=1, folders=1),
            {},
            _moves(*_OWNED, (0, TURN), (1, OPEN, LIST)),
        ),
        100_000,
    ),
    (
        Scene(
            "reads beside a taker",
            2,
            _NONE._replace(opens=1, commits=2, reads=2, doubts=1),
            _PUTS,
            _moves(*_OWNED),
        ),
        100_000,
    ),
)


class SmallShared(World):
    """A small world, as a search needs it."""

    def judge(self, state: State, before: State | None = None) -> list[str]:
        return [*state.wrong]

    def is_quiet(self, state: State) -> bool:
        return not state.janitors and all(machine.process is None for machine in state.machines)

    def ends(self, state: State) -> list[str]:
        return alone(self, state)

    def note(self, state: State) -> None:
        """Counts nothing: moves have been counted when they were taken."""
