"""Carries out a list of steps on the real engine, and tracks the acknowledged content.

    steps ─▶ begin: what will be shown ─▶ the call ─▶ acknowledged ─▶ held        each is passed to `say`, as is
                                                                                  an opened engine's content

`states` computes the same without an engine: the content after each step. So a play that a kill ended can be
resumed: the store holds the state of the steps that had returned, or of one more.

Next: scripts.py, the lists of steps.
"""

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ....api.engine import Engine
from .contents import difference
from .engines import WORKER, Shown, abandon, end_what_was_open, shown, wait_stable
from .recorder import Event
from .steps import Call, Step


def planned(step: Step, held: Shown) -> tuple[Shown, Call]:
    """Returns (the content after the step, the step's call); `held` stays as it is."""
    after = copy.deepcopy(held)
    return after, step.plan(after)


def states(steps: Iterable[Step]) -> list[Shown]:
    """Returns the content before the first step, and after each."""
    held: Shown = {}
    return [held, *(held := planned(step, held)[0] for step in steps)]


class Player:
    """Plays steps on an engine, with its store in `folder` and the backup next to it. Invariant: `held` is the
    acknowledged content, which is what the engine shows.
    """

    def __init__(
        self,
        folder: Path,
        opened: Callable[[], Engine],
        say: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.folder, self.backup = folder, folder.with_name("backup")
        self.opened, self.say = opened, say
        self.held: Shown = {}
        self.open()

    def open(self) -> None:
        self.db = self.opened()
        end_what_was_open(self.db)

    def play(self, steps: Iterable[Step]) -> None:
        """Carries out all steps, then abandons the engine as a killed process would."""
        self.look()
        for step in steps:
            self.carry_out(step)
        abandon(self.db)

    def carry_out(self, step: Step) -> None:
        after, call = planned(step, self.held)
        if after == self.held:
            call(self)
            return
        self.say(("begin", after))
        call(self)
        self.say(("acknowledged",))
        self.held = after

    def look(self) -> None:
        """Raises AssertionError if the engine shows anything but `held`."""
        found = shown(self.db)
        assert found == self.held, f"it shows {difference(self.held, found)}"
        self.say(("opened", found))

    def transaction(self) -> Any:
        return self.db.transaction(worker=WORKER)

    def wait_stable(self) -> None:
        wait_stable(self.db)
