"""Draws the settings of a world of processes that share a store from its seed: some faults off, others frequent.

Next: groups.py.
"""

import random
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from ...simulator.attached_world import SPARED, Fates
from ...simulator.streams import QUIET, Lines
from ..swarm import WORKLOADS

_Odds = TypeVar("_Odds", Lines, Fates)


@dataclass(frozen=True)
class Settings:
    """Holds all settings of a run. `processes`: how many are there at a time; `lanes`: of the consumer that they
    share, 0 for none."""

    seed: int
    transactions: int
    processes: int = 3
    lanes: int = 0
    pace_ms: float = 2.0
    lines: Lines = QUIET
    fates: Fates = SPARED
    weights: dict[str, float] = field(default_factory=lambda: {"mixed": 1.0})

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def draw_settings(seed: int, transactions: int) -> Settings:
    draw = random.Random(f"{seed}/attached")
    some = draw.sample(WORKLOADS, draw.randrange(1, len(WORKLOADS) + 1))
    mixed = ["mixed"] * (draw.random() < 0.5)  # it alone sends data ahead of a commit
    return Settings(
        seed,
        transactions,
        processes=draw.choice((2, 3, 3, 4)),
        lanes=draw.choice((0, 1, 3, 5)),
        pace_ms=draw.choice((0.3, 1.0, 3.0, 10.0)),
        lines=_some(draw, Lines()),
        fates=_some(draw, Fates()),
        weights={name: draw.choice((0.3, 1.0, 3.0)) for name in dict.fromkeys(some + mixed)},
    )


def _some(draw: random.Random, usual: _Odds) -> _Odds:
    """Draws odds around the usual ones, some of them zero."""
    often = draw.choice((0.0, 0.3, 1.0, 1.0, 2.0))
    odds = {
        one.name: 0.0
        if draw.random() < 0.25
        else min(0.5, getattr(usual, one.name) * often * draw.choice((0.3, 1.0, 3.0)))
        for one in fields(usual)
    }
    return type(usual)(**odds)
