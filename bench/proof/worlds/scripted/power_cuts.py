"""Cuts the power of a simulated world's hosts at planned events; no other fault happens there.

    World, KafkaWorld ─ the fault of this turn? ─▶ PowerCuts: the number of the turn ─▶ Cut(event, moment, host)

An event is a turn with other inputs than ticks. Events are numbered as they come, so a run is determined by its
scenario and its cuts.

Next: runner.py.
"""

from typing import Literal, NamedTuple, TypeAlias

from .....host.inputs import Input, Tick
from ...simulator.hosts import Hosts

Moment: TypeAlias = Literal["before", "lost", "kept", "sent"]
MOMENTS: tuple[Moment, ...] = ("before", "lost", "kept", "sent")


class Cut(NamedTuple):
    """A host loses power at an event; at another host's event only `before` is possible."""

    event: int
    moment: Moment
    host: int


class PowerCuts(Hosts):
    """Replaces a world's drawn faults by planned power cuts. It must precede the world among the bases."""

    def _plan(self, cuts: tuple[Cut, ...], again: tuple[int, int] | None) -> None:
        self.cuts = cuts
        self.again = again
        """(events later, host): another cut follows the first one after so many events."""
        self.turns: list[int] = []
        """By event: the host whose turn it was."""
        self.reboots = 0
        self.violations: list[str] = []

    def _strike(self, number: int, inputs: list[Input]) -> str:
        if all(type(item) is Tick for item in inputs):
            return ""
        event, kind = len(self.turns), ""
        self.turns.append(number)
        for cut in self.cuts:
            if cut.event != event:
                continue
            if cut.host == number:
                kind = f"crash_{cut.moment}"
            else:
                self.crash(cut.host)
            if self.again is not None:
                later, host = self.again
                self.again = None
                self.cuts = (*self.cuts, Cut(event + 1 + later, "kept", host))
        return kind

    def _restart(self, number: int) -> None:
        self.reboots += 1
        super()._restart(number)
