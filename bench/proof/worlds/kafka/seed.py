"""Runs one seed of mode "kafka"'s simulated world: draws its settings, runs its workload, judges the history.

    seed ─▶ draw: hosts, placement, protocol, faults, tiny limits ─▶ KafkaWorld with a Workload: 200 transactions
              ─▶ healed, and at its end (quiesce.py) ─▶ history against logs (anomalies.py) ─▶ Played

Next: ../seed.py.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any
from unittest.mock import patch

from .....coordinator import logged_rows
from .....coordinator.kafka import states
from .....coordinator.kafka import transactions as coordinator
from .....proxy.kafka import idempotent_producer
from .....tablets.kafka import partition as partition
from ...simulator.kafka_world import QUICK, KafkaWorld
from ..final_invariants import replayed
from ..in_place.anomalies import exactly_once, find, visible
from ..in_place.quiesce import GROUP
from ..result import Played
from .coverage import watch
from .swarm import Settings, draw_settings
from .workload import Workload

REPLAYED = 20
"""One of this many seeds is replayed from its recorded inputs."""


def play(
    seed: int, transactions: int, settings: Settings | None = None
) -> tuple[Played, Workload, Counter[str]]:
    """Runs a seed; returns its result, its workload, and a count of the allowed anomalies by name.

    The same arguments give the same result, in any process.
    """
    settings = draw_settings(seed) if settings is None else settings
    violations: list[str] = []
    counts: Counter[str] = Counter()
    with _limits(settings.tiny):
        work = _workload(seed, settings)
        try:
            with watch() as reached:
                work.begin()
                work.finish(transactions)
            violations += judge(work, settings, counts)
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
        world.latest() if violations else [],
    )
    return result, work, counts


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
    return Workload(world, settings)


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
    with ExitStack() as stack:
        for module, name, value in limits if tiny else ():
            stack.enter_context(patch.object(module, name, value))
        yield


def judge(work: Workload, settings: Settings, counts: Counter[str]) -> Iterator[str]:
    """Yields the violations in the history; counts allowed anomalies in `counts`."""
    anomalies = find(work.history, work.logs)
    used = exactly_once(work.logs, work.inputs, work.outputs)
    if not (settings.settles and settings.fenced):  # it may end before all is used
        used["input lost"] = list(_passed_over(work))
        if not used["input lost"]:
            del used["input lost"]
    for names, allowed in ((anomalies, settings.allowed), (used, settings.used_wrongly)):
        for name, examples in names.items():
            if name in allowed:
                counts[name] += len(examples)
            else:
                yield f"{name}, {len(examples)} times: {examples[0][:500]}"
    for tablet in work.tablets:
        _, end, stable = work.meta(tablet)
        if stable < end:  # where this is not allowed, the world does not finish: B37
            counts["partition that hangs"] += 1


def _passed_over(work: Workload) -> Iterator[str]:
    """Yields inputs before the group's position that no worker has processed."""
    outputs = {value.split(b"/")[0] for t in work.outputs for _, value in visible(work.logs[t])}
    for tablet in work.inputs:
        position, _ = work.views[True].committed(tablet, GROUP)
        for offset, value in visible(work.logs[tablet]):
            if offset < (position or 0) and b"o" + value not in outputs:
                yield f"{value!r} at {offset}, the position is {position}"
