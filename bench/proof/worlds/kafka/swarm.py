"""Draws the settings of a world of mode "kafka" from its seed: some fault classes off, some limits tiny.

    seed/swarm ─▶ hosts, placement, protocol · odds of each fault class · habits of clients · limits ─▶ Settings

The allowed anomalies depend on the draw: more than Kafka's own list may happen only in version 1 with late
requests (`allowed`).

Next: workload.py.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from ...simulator.client_world import NONE, Faults
from ..in_place.anomalies import ALLOWED

WITH_LATE_REQUESTS = (
    *ALLOWED,
    "torn transaction",
    "lost write",
    "aborted read",
    "precommitted read",
    "aborted write counts",
    "unseen",
)
"""Anomalies that late requests cause in version 1. "unseen": a batch that arrives after its transaction's end makes
its partition hang, so no reader reaches the end. Inputs are used twice or lost as a consequence."""
USED_WRONGLY = "input used twice", "input lost", "output of nothing"


@dataclass(frozen=True)
class Settings:
    """Holds all settings of a run.

    `fenced`: workers are members of a group, and commit with its generation; `late`: "", "ends" or "any": requests
    that arrive during their producer's next transaction; `expires`: idle producers and transactional ids are soon
    forgotten; `drops`: scratch partitions are dropped; `tiny`: limits that are otherwise hardly reached are low;
    `meddles`: how often a client is crashed or replaced; `deserts`: some transactions are left open for ever.
    """

    version: int = 2
    hosts: int = 1
    separate: bool = False
    fenced: bool = True
    late: str = ""
    expires: bool = False
    drops: bool = False
    switches: bool = False
    log_batching: bool = False
    max_in_flight: int = 5
    inputs_max: int = 1 << 20
    tiny: bool = False
    meddles: float = 0.04
    deserts: bool = False
    faults: Faults = NONE
    strict: bool = False
    """Allows no further anomalies for late requests, so that the judge reports them."""

    @property
    def settles(self) -> bool:
        """False if a late request may make a partition hang, so that the run may not finish."""
        return self.version == 2 or not self.late

    @property
    def allowed(self) -> tuple[str, ...]:
        return ALLOWED if self.settles or self.strict else WITH_LATE_REQUESTS

    @property
    def used_wrongly(self) -> tuple[str, ...]:
        """The anomalies allowed for inputs: none with fenced workers, unless requests are late."""
        if not self.settles and not self.strict:
            return USED_WRONGLY
        return () if self.fenced else ("input used twice",)


def some_of(draw: random.Random) -> Callable[..., float]:
    """Returns a function that draws a probability up to `most`, or none."""

    def some(most: float, off: float = 0.3) -> float:
        return 0.0 if draw.random() < off else draw.uniform(0, most)

    return some


def draw_faults(some: Callable[..., float], late: str, jumps: bool = True) -> Faults:
    """Draws the odds of each fault class; `late`: "ends", "any" or "", `jumps`: clocks may jump."""
    return Faults(
        lose=some(0.06),
        repeat=some(0.1),
        slow=some(0.2),
        crash=some(0.008),
        fail=some(0.02),
        late={"": 0.0, "ends": 0.3, "any": 0.05}[late],
        any_late=late == "any",
        sluggish=some(0.1),
        pause=some(0.06),
        full=some(0.06),
        jump=some(0.1) if jumps else 0.0,
        clog=some(0.15),
        cut=some(0.06),
        stop=some(0.06),
    )


def draw_settings(seed: int) -> Settings:
    draw = random.Random(f"{seed}/swarm")
    some = some_of(draw)
    version, hosts = draw.choice((1, 2, 2)), draw.randint(1, 4)
    late = (
        draw.choice(("", "", "", "ends", "any"))
        if version == 1
        else draw.choice(("", "ends", "any"))
    )
    expires = draw.random() < 0.25
    faults = draw_faults(some, late, jumps=not expires)  # expiry needs clocks that can be trusted
    return Settings(
        version,
        hosts,
        separate=draw.random() < 0.4,
        fenced=draw.random() < 0.8,
        late=late,
        expires=expires,
        drops=draw.random() < 0.4,
        switches=draw.random() < 0.3,
        log_batching=draw.random() < 0.4,
        max_in_flight=draw.choice((1, 5, 5)),
        inputs_max=draw.choice((1, 2, 8, 1 << 20, 1 << 20)),
        tiny=draw.random() < 0.25,
        meddles=some(0.08, 0.1),
        deserts=draw.random() < 0.5,
        faults=faults,
    )
