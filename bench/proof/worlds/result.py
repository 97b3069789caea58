"""Defines the result of a seed, which is the same for every mode.

Next: seed.py.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Played:
    """Holds the result of a seed.

    `settings`: the values drawn; `violations`: texts that begin with the invariant's name; `events`: the number of
    simulated events; `faults`: a count by class; `reached`: transitions taken, "table: from -> to"; `digest`: hex,
    over all recorded changes; `last`: the newest events as text.
    """

    seed: int
    mode: str
    settings: dict[str, Any]
    violations: list[str]
    events: int
    faults: Counter[str]
    reached: Counter[str]
    digest: str
    last: list[str]

    def report(self, *notes: str) -> str:
        """Formats a failing run as text: the violation, `notes`, a line each, its settings, its last events."""
        first = self.violations[0] if self.violations else "failed once, and not when played again"
        lines = [f"seed {self.seed}, mode {self.mode}: {first}", *notes]
        return "\n".join([*lines, f"  drawn: {self.settings}", *self.last[-12:]])
