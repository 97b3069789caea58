"""What one seed came to: the same for every mode, so that rows and mutants need not know which it was.

Next: seed.py.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Played:
    """`settings`: what the seed drew; `violations`: a text each, with the invariant's name in front;
    `events`: of the world; `faults`: how often each class struck; `reached`: transitions of state tables
    taken, "table: from -> to"; `digest`: hex, over all recorded changes; `last`: the newest events as text.
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
