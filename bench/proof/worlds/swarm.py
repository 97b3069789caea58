"""Draws the settings of a world from its seed: some fault classes off, some limits tiny (swarm testing).

    seed/swarm ─▶ hosts, placement, variants · odds of each fault class · weights of workloads · pace, limits

With fixed odds in every run, no fault class would ever occur alone, and none would ever be frequent.
Next: workloads.py.
"""

import random
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..simulator.faults import HEALED, Faults

WORKLOADS = (
    "mixed",
    "transform",
    "zombie",
    "bank",
    "ring",
    "lists",
    "pair",
    "contention",
    "drops",
)


@dataclass(frozen=True)
class Drawn:
    """Holds all settings of a run; shrinking takes some of them away."""

    seed: int
    transactions: int
    hosts: int = 1
    separate: bool = False
    rtt_ms: float = 0.0
    merge: bool = True
    at_once: bool = True
    turn_inputs: int = 1_000
    tick_ms: float = 100.0
    pace_ms: float = 2.0
    faults: Faults = HEALED
    weights: dict[str, float] = field(default_factory=lambda: {"mixed": 1.0})

    def describe(self) -> dict[str, Any]:
        """Returns the settings as data, without the fault classes that are off."""
        settings = asdict(self)
        settings["faults"] = {name: odds for name, odds in settings["faults"].items() if odds}
        return settings


def draw(seed: int, transactions: int) -> Drawn:
    draw = random.Random(f"{seed}/swarm")
    hosts = draw.choice((1, 1, 2, 3, 4))
    separate = draw.random() < 0.3
    usual = Faults()
    calm = draw.random() < 0.05
    often = draw.choice((0.3, 1.0, 1.0, 3.0))
    odds = {}
    for one in fields(Faults):
        base = getattr(usual, one.name)
        off = draw.random() < 0.25
        odds[one.name] = 0.0 if off or calm else base * often * draw.choice((0.3, 1.0, 3.0))
    some = draw.sample(WORKLOADS, draw.randrange(1, len(WORKLOADS) + 1))
    return Drawn(
        seed,
        transactions,
        hosts,
        separate,
        draw.choice((0.0, 0.0, 5.0)),
        draw.random() < 0.5,
        draw.random() < 0.5,
        draw.choice((1, 3, 1_000, 1_000)),
        draw.choice((20.0, 100.0, 100.0)),
        draw.choice((0.1, 1.0, 3.0, 10.0)),
        Faults(**odds),
        {name: draw.choice((0.3, 1.0, 3.0)) for name in some},
    )
