"""What a store may hold after a power loss: what was acknowledged, and all or nothing of what was in flight.

    durability "full"   [ acknowledged ]                                    + [ the one in flight ]
    durability "os"     [ surely kept, …, each that followed, acknowledged ] + [ the one in flight ]

Next: bare.py and player.py, the workloads that say what they do.
"""

from typing import Any

from .recorder import Event


class Allowed:
    """Follows a trace beside the disk. `first` is what an empty store shows."""

    def __init__(self, durability: str, first: Any) -> None:
        self.full = durability == "full"
        self.history: list[Any] = [first]  # the first is surely there, the last acknowledged
        self.flying: list[Any] = []

    def step(self, event: Event) -> None:
        kind = event[0]
        if kind == "begin":
            self.flying = [event[1]]
        elif kind == "acknowledged":
            self.history = self.flying if self.full else [*self.history, *self.flying]
            self.flying = []
        elif kind == "refused":
            self.flying = []
        elif kind == "kept":  # but for the newest
            del self.history[: len(self.history) - 1 - event[1]]
        elif kind == "opened":
            self.history, self.flying = [event[1]], []

    def allows(self, found: Any) -> bool:
        return found in self.history or found in self.flying

    def judge(self, found: Any) -> str:
        """What is wrong with it; "" when nothing is."""
        if self.allows(found):
            return ""
        return "acknowledged turns are lost, or something is torn"


def is_said(event: Event) -> bool:
    """By the workload: no change of the disk."""
    return event[0] in ("begin", "acknowledged", "refused", "kept", "opened", "lose")
