"""Computes a store's allowed contents after a power loss: all acknowledged turns, with or without the one in
flight.

    durability "full"   [ acknowledged ]                                    + [ the one in flight ]
    durability "os"     [ surely kept, …, each that followed, acknowledged ] + [ the one in flight ]

Next: bare.py and steps.py, the workloads that record these events.
"""

from typing import Any

from .recorder import Event


class Allowed:
    """Follows a trace in step with the disk. `first` is the content of an empty store."""

    def __init__(self, durability: str, first: Any) -> None:
        self.full = durability == "full"
        self.history: list[Any] = [first]  # the first surely survives, the last is acknowledged
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
        elif kind == "kept":  # all but the newest n survive surely
            del self.history[: len(self.history) - 1 - event[1]]
        elif kind == "opened":
            self.history, self.flying = [event[1]], []

    def allows(self, found: Any) -> bool:
        return found in self.history or found in self.flying

    def judge(self, found: Any) -> str:
        """Returns why the content is not allowed, "" if it is."""
        if self.allows(found):
            return ""
        return "acknowledged turns are lost, or something is torn"


def is_said(event: Event) -> bool:
    """Returns whether the event comes from the workload, not from a change of the disk."""
    return event[0] in ("begin", "acknowledged", "refused", "kept", "opened", "lose")
