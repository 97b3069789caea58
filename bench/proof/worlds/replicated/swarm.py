"""Draws the settings of a world of machines that share a log from its seed: some faults off, others frequent.

Next: seed.py.
"""

import random
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from ...simulator.bucket import NONE, Ways
from ...simulator.fate import SPARED, Fates
from ...simulator.faults import HEALED, Faults
from ..swarm import WORKLOADS

_Odds = TypeVar("_Odds", Faults, Ways, Fates)
_NEVER = {"fail": 0.0, "full": 0.0, "echo": 0.0, "crash_at": 0.0}
"""Faults of a store in memory; here the stores are real."""


@dataclass(frozen=True)
class Settings:
    """Holds all settings of a run. `timeout_s`: the shared log's; `keep`: how many snapshots stay; `rare`: how
    often clients use another machine than the one that led last."""

    seed: int
    transactions: int
    machines: int = 3
    timeout_s: float = 1.0
    keep: int = 2
    rare: float = 0.1
    separate: bool = False
    merge: bool = True
    at_once: bool = True
    turn_inputs: int = 1_000
    pace_ms: float = 2.0
    faults: Faults = HEALED
    ways: Ways = NONE
    fates: Fates = SPARED
    weights: dict[str, float] = field(default_factory=lambda: {"mixed": 1.0})

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def draw_settings(seed: int, transactions: int) -> Settings:
    draw = random.Random(f"{seed}/shared")
    faults = replace(_some(draw, Faults()), **_NEVER)
    some = draw.sample(WORKLOADS, draw.randrange(1, len(WORKLOADS) + 1))
    return Settings(
        seed,
        transactions,
        machines=draw.choice((2, 3, 3, 4)),
        timeout_s=draw.choice((0.1, 1.0, 1.0, 60.0)),
        keep=draw.choice((1, 1, 2)),
        rare=draw.choice((0.0, 0.1, 0.4)),
        separate=draw.random() < 0.2,
        merge=draw.random() < 0.5,
        at_once=draw.random() < 0.5,
        turn_inputs=draw.choice((1, 3, 1_000, 1_000)),
        pace_ms=draw.choice((3.0, 10.0, 30.0)),
        faults=faults,
        ways=_some(draw, Ways()),
        fates=_some(draw, Fates()),
        weights={name: draw.choice((0.3, 1.0, 3.0)) for name in some},
    )


def _some(draw: random.Random, usual: _Odds) -> _Odds:
    """Draws odds around the usual ones, some of them zero."""
    often = draw.choice((0.0, 0.3, 1.0, 1.0, 3.0))
    odds = {
        one.name: 0.0
        if draw.random() < 0.25
        else getattr(usual, one.name) * often * draw.choice((0.3, 1.0, 3.0))
        for one in fields(usual)
    }
    return type(usual)(**odds)
