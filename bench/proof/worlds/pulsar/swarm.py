"""Draws the settings of a world of mode "pulsar" from its seed: some fault classes off, some limits tiny.

    seed/swarm ─▶ hosts, placement, kind of consumers · odds of each fault class · logs, snapshots ─▶ Settings

Next: workload.py.
"""

import random
from dataclasses import dataclass

from ...simulator.client_world import NONE, Faults
from ..in_place.anomalies import ALLOWED
from ..kafka.swarm import draw_faults, some_of
from .coverage import REPEATS, TWICE

KINDS = "individual", "lanes", "shared"


@dataclass(frozen=True)
class Settings:
    """Holds all settings of a run.

    `kind`: "individual" acknowledgements of all workers; or cumulative ones: "lanes", a worker has an input of its
    own, or "shared". `mixes`: workers of these acknowledge some inputs individually, too. `plain`: some inputs are
    acknowledged outside of transactions, beside what is pending. `waits`: a cumulative worker reads nothing while
    an acknowledgement is pending. `drops`: scratch partitions and subscriptions are dropped; `meddles`: how often a
    client is crashed or replaced; `deserts`: some transactions are left open for ever; `changes`: each life of a
    host stores aborted ids in another way; `poison`: some requests cannot be logged; `coordinators`: None for one a
    host; `raises`: there are more after a restart of all hosts.
    """

    hosts: int = 1
    separate: bool = False
    kind: str = "individual"
    mixes: bool = False
    plain: bool = False
    waits: bool = True
    deduplication: bool = True
    drops: bool = False
    switches: bool = False
    log_batching: bool = False
    ack_log_batching: bool = False
    snapshots: str = "single"
    segment_bytes: int = 80
    changes: bool = False
    poison: bool = False
    coordinators: int | None = None
    raises: bool = False
    ended_kept: int = 0
    active_max: int = 0
    participant_requests: int = 1_000
    inputs_max: int = 1 << 20
    meddles: float = 0.04
    deserts: bool = False
    trims: bool = False
    faults: Faults = NONE
    settles: bool = True

    @property
    def fenced(self) -> bool:
        """Says that positions never fall, so that a run ends with all inputs used."""
        return True

    @property
    def allowed(self) -> tuple[str, ...]:
        return ALLOWED if self.deduplication else (*ALLOWED, *REPEATS)

    @property
    def used_wrongly(self) -> tuple[str, ...]:
        """The anomalies allowed for inputs: some acknowledgements that overlap do not conflict (A6, A10)."""
        return () if self.kind == "individual" and not self.plain else (TWICE,)


def draw_settings(seed: int) -> Settings:
    draw = random.Random(f"{seed}/swarm")
    some = some_of(draw)
    late = draw.choice(("", "", "ends", "any"))
    faults = draw_faults(some, late)
    return Settings(
        draw.randint(1, 4),
        separate=draw.random() < 0.4,
        kind=draw.choice(("individual", *KINDS)),
        mixes=draw.random() < 0.4,
        plain=draw.random() < 0.3,
        waits=draw.random() < 0.5,
        deduplication=draw.random() < 0.7,
        drops=draw.random() < 0.4,
        switches=draw.random() < 0.3,
        log_batching=draw.random() < 0.4,
        ack_log_batching=draw.random() < 0.4,
        snapshots=draw.choice(("single", "parts", "segmented")),
        segment_bytes=draw.choice((64, 80, 120)),
        changes=draw.random() < 0.3,
        poison=draw.random() < 0.3,
        coordinators=draw.choice((None, None, 1, 6)),
        raises=draw.random() < 0.3,
        ended_kept=draw.choice((0, 0, 5, 1_000)),
        active_max=draw.choice((0, 0, 0, 3)),
        participant_requests=draw.choice((2, 1_000)),
        inputs_max=draw.choice((1, 2, 8, 1 << 20, 1 << 20)),
        meddles=some(0.08, 0.1),
        deserts=draw.random() < 0.5,
        trims=draw.random() < 0.5,
        faults=faults,
    )
