"""Judges a state of the machines that share a log.

    J0   a machine ends with no error but those that its rules give
    J1   a slot has one content for ever. A deleted one gets these very bytes again, or a BEGIN below the floor
    J2   an acknowledged turn is in the history, and a fresh machine restores all of the history
    J3   each folder is a prefix of the history
    J4   a turn that is told to have no effect is not in the history, nor will it be
    J7   a confirmed read shows each turn that anybody had acknowledged when it began
    J8   a machine that is left alone becomes the owner, and commits

The history is the first entry of each slot, as long as there is no gap. J2 holds at every moment, since a fresh
machine is made after each change of the store. So two owners never acknowledge two turns of one number.

Next: world.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from .....shared.entry import BEGIN, NO_CHAIN
from .machine import OPEN, Call, Folder, Machine, Process, Run, known, opening
from .objects import chain, decoded
from .state import State


class _Fresh(Run):
    """A fresh machine that opens in one go."""

    def __init__(self, answer: Callable[[Call], Any]) -> None:
        super().__init__(Process(OPEN, bytes(16)), Folder(), None)
        self._answer = answer

    def call(self, what: str, name: str = "", data: Any = b"") -> Any:
        return self._answer(Call(what, name, data))


def contents(state: State, turns: int | None = None) -> tuple[bytes, ...]:
    """Returns what a folder with the first `turns` turns of the history holds."""
    return tuple(known(decoded(data)) for data in state.history[:turns])


def fresh(state: State, answer: Callable[[Call], Any]) -> Iterator[str]:
    """Checks that a fresh machine restores the history; `answer` carries out its calls."""
    run = _Fresh(answer)
    try:
        opening(run)
    except Exception as error:
        yield f"J2: a fresh machine ends with {error!r}"
        return
    if run.local.folder.turns != contents(state):
        yield (
            f"J2: a fresh machine restores {run.local.last_turn} turns, which are not the "
            f"{len(state.history)} of the history"
        )


def decided(state: State, data: bytes) -> Iterator[str]:
    """Checks an entry that becomes the next one of the history."""
    entry, turn = decoded(data), len(state.history) + 1
    before = chain(state.history[-1]) if state.history else NO_CHAIN
    if entry.before != before:
        yield f"J1: turn {turn} does not follow the turns before it"
    if entry.payload in state.fenced:
        yield f"J4: turn {turn} counts, though it was told to have no effect"
    if entry.payload and _has(state, entry.payload):
        yield f"J1: turn {turn} is there twice"


def created_again(state: State, turn: int, data: bytes) -> Iterator[str]:
    """Checks an object that was created in a slot of the history."""
    below = decoded(data).kind == BEGIN and turn < state.floor
    if data != state.history[turn - 1] and not below:
        yield f"J1: slot {turn} has held another entry before"


def acknowledged(state: State, turn: int, content: bytes) -> Iterator[str]:
    if turn > len(state.history) or decoded(state.history[turn - 1]).payload != content:
        yield f"J2: turn {turn} is acknowledged, and not in the history"


def without_effect(state: State, content: bytes) -> Iterator[str]:
    if _has(state, content):
        yield "J4: a turn of the history is told to have no effect"


def folder(state: State, machine: Machine) -> Iterator[str]:
    turns = machine.now.turns
    if turns != contents(state, len(turns)):
        yield f"J3: the folder of machine {machine.number} is no prefix of the history"


def read(machine: Machine, process: Process) -> Iterator[str]:
    if len(machine.now.turns) < process.noted:
        yield (
            f"J7: a confirmed read shows {len(machine.now.turns)} turns, though {process.noted} "
            "had been acknowledged"
        )


def _has(state: State, content: bytes) -> bool:
    return any(decoded(data).payload == content for data in state.history)
