"""Runs one seed of mode "kafka"'s simulated world: draws its settings, runs its workload, judges the history.

    seed ─▶ draw: hosts, placement, protocol, faults, tiny limits ─▶ KafkaWorld with a Workload: 200 transactions
              ─▶ healed, and at its end (quiesce.py) ─▶ history against logs (anomalies.py) ─▶ Played

Swarm testing: each run draws its own probabilities, and turns some classes of faults off. The allowed anomalies
depend on the draw: more than Kafka's own list may happen only in version 1 with late requests (`allowed`).

Next: ../seed.py.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from .....coordinator import logged_rows
from .....coordinator.kafka import states
from .....coordinator.kafka import transactions as coordinator
from .....proxy.kafka import idempotent_producer
from .....tablets.kafka import partition as partition
from ...simulator.kafka_world import QUICK, Faults, KafkaWorld
from ..final_invariants import replayed
from ..result import Played
from .anomalies import ALLOWED, exactly_once, find, visible
from .coverage import watching
from .quiesce import GROUP
from .workload import Workload

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
LAST = 200
"""The number of recent events that a failure report prints."""
REPLAYED = 20
"""One of this many seeds is replayed from its recorded inputs."""


@dataclass(frozen=True)
class Settings:
    """The drawn settings. `late`: "", "ends" or "any": requests that arrive during their producer's next
    transaction. `tiny`: lowers limits that are otherwise hardly ever reached."""

    version: int
    hosts: int
    separate: bool
    fenced: bool
    late: str
    expires: bool
    drops: bool
    switches: bool
    log_batching: bool
    max_in_flight: int
    inputs_max: int
    tiny: bool
    meddles: float
    deserts: bool
    faults: Faults
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


def drawn(seed: int) -> Settings:
    draw = random.Random(f"{seed}/swarm")

    def some(most: float, off: float = 0.3) -> float:
        return 0.0 if draw.random() < off else draw.uniform(0, most)

    version, hosts = draw.choice((1, 2, 2)), draw.randint(1, 4)
    late = (
        draw.choice(("", "", "", "ends", "any"))
        if version == 1
        else draw.choice(("", "ends", "any"))
    )
    expires = draw.random() < 0.25
    faults = Faults(
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
        # Expiry needs clocks that can be trusted.
        jump=0.0 if expires else some(0.1),
        clog=some(0.15),
        cut=some(0.06),
        stop=some(0.06),
    )
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


def play_kafka(seed: int, transactions: int = 200) -> Played:
    """Runs a seed; the same arguments give the same Played, in any process."""
    return played(seed, transactions)[0]


def played(
    seed: int, transactions: int, settings: Settings | None = None
) -> tuple[Played, Workload, Counter[str]]:
    """Runs a seed; returns its result, its workload, and a count of the allowed anomalies by name."""
    settings = drawn(seed) if settings is None else settings
    violations: list[str] = []
    seen: Counter[str] = Counter()
    with _limits(settings.tiny):
        work = _workload(seed, settings)
        try:
            with watching() as reached:
                work.begin()
                work.finish(settles=settings.settles, transactions=transactions)
            violations += _judged(work, settings, seen)
            if seed % REPLAYED == 0:
                violations += replayed(work.world)
        except Exception as error:  # an assertion of a core, or a failed check
            violations.append(f"{type(error).__name__}: {error}")
    world = work.world
    result = Played(
        seed,
        "kafka",
        asdict(settings),
        violations,
        world.events,
        +world.faulted,
        reached,
        world.digest(),
        list(_last(world)) if violations else [],
    )
    return result, work, seen


def _workload(seed: int, settings: Settings) -> Workload:
    kafka = replace(
        QUICK,
        protocol_version=settings.version,
        log_batching=settings.log_batching,
        max_in_flight=settings.max_in_flight,
        transactional_id_expiration_ms=120 if settings.expires else 60_000,
    )
    world = KafkaWorld(
        seed,
        settings.hosts,
        settings.separate,
        kafka,
        settings.faults,
        switches=settings.switches,
        inputs_max=settings.inputs_max,
    )
    return Workload(
        world,
        1 << 30,
        fenced=settings.fenced,
        expires=settings.expires,
        drops=settings.drops,
        meddles=settings.meddles,
        deserts=settings.deserts,
    )


@contextmanager
def _limits(tiny: bool) -> Iterator[None]:
    """If `tiny`, lowers limits: epochs and blocks of producer ids run out, trims take several pieces."""
    limits: list[tuple[Any, str, int]] = [
        (coordinator, "EPOCH_MAX", 6),
        (states, "EPOCH_MAX", 6),
        (idempotent_producer, "EPOCHS_MAX", 5),
        (logged_rows, "PRODUCER_IDS_BLOCK", 2),
        (partition, "TRIM_SLICES_MAX", 3),
    ]
    before = [getattr(module, name) for module, name, _ in limits]
    try:
        for module, name, value in limits if tiny else ():
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(limits, before, strict=True):
            setattr(module, name, value)


def _judged(work: Workload, settings: Settings, seen: Counter[str]) -> Iterator[str]:
    """Yields the violations in the history; counts allowed anomalies in `seen`."""
    found = find(work.history, work.logs)
    used = exactly_once(work.logs, work.inputs, work.outputs)
    if not (settings.settles and settings.fenced):  # it may end before all is used
        used["input lost"] = list(_passed_over(work))
        if not used["input lost"]:
            del used["input lost"]
    for names, allowed in ((found, settings.allowed), (used, settings.used_wrongly)):
        for name, examples in names.items():
            if name in allowed:
                seen[name] += len(examples)
            else:
                yield f"{name}, {len(examples)} times: {examples[0][:500]}"
    for tablet in work.tablets:
        _, end, stable = work.meta(tablet)
        if stable < end:  # where this is not allowed, the world does not finish: B37
            seen["partition that hangs"] += 1


def _passed_over(work: Workload) -> Iterator[str]:
    """Yields inputs before the group's position that no worker has processed."""
    made = {value.split(b"/")[0] for t in work.outputs for _, value in visible(work.logs[t])}
    for tablet in work.inputs:
        position, _ = work.views[True].committed(tablet, GROUP)
        for offset, value in visible(work.logs[tablet]):
            if offset < (position or 0) and b"o" + value not in made:
                yield f"{value!r} at {offset}, the position is {position}"


def _last(world: KafkaWorld) -> Iterator[str]:
    """Formats the newest turns, one line for each input."""
    lines = [
        f"{turn.now_ms} ms, host {turn.host}, life {turn.life}: {item}"[:400]
        for turn in world.recorded[-LAST:]
        for item in turn.inputs
    ]
    yield from lines[-LAST:]
