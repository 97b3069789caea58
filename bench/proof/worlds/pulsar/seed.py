"""Runs one seed of mode "pulsar"'s simulated world: draws its settings, runs its workload, judges the history.

    seed ─▶ draw: hosts, placement, consumers, faults, tiny limits ─▶ PulsarWorld with a Workload: 200 transactions
              ─▶ healed, and at its end (../in_place/quiesce.py) ─▶ history against logs ─▶ Played

The judge is mode kafka's (../in_place/anomalies.py): a marker ends the transaction of its id, and not all of its
producer. Next: ../seed.py.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from unittest.mock import patch

from .....tablets import log_space
from .....tablets.pulsar import partition, transaction_buffer
from ...simulator.pulsar_world import QUICK, PulsarWorld
from ..final_invariants import replayed
from ..in_place.anomalies import exactly_once, find
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
    with (
        patch.object(partition, "TRIM_SLICES_MAX", 3 if seed % 2 else log_space.TRIM_SLICES_MAX),
        patch.object(transaction_buffer, "RECOVERED_MAX", 5 if seed % 3 == 0 else 10_000),
    ):
        work = workload(seed, settings)
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
        "pulsar",
        asdict(settings),
        violations,
        world.events,
        +world.faulted,
        reached,
        world.digest(),
        world.latest() if violations else [],
    )
    return result, work, counts


def workload(seed: int, settings: Settings) -> Workload:
    pulsar = replace(
        QUICK,
        deduplication=settings.deduplication,
        log_batching=settings.log_batching,
        ack_log_batching=settings.ack_log_batching,
        snapshots=settings.snapshots,
        ended_kept=settings.ended_kept,
    )
    world = PulsarWorld(
        seed,
        settings.hosts,
        settings.separate,
        pulsar,
        settings.faults,
        switches=settings.switches,
        inputs_max=settings.inputs_max,
    )
    return Workload(world, settings)


def judge(work: Workload, settings: Settings, counts: Counter[str]) -> Iterator[str]:
    """Yields the violations in the history; counts allowed anomalies in `counts`."""
    anomalies = find(work.history, work.logs)
    used = exactly_once(work.logs, work.inputs, work.outputs, by_place=True)
    for names, allowed in ((anomalies, settings.allowed), (used, settings.used_wrongly)):
        for name, examples in names.items():
            if name in allowed:
                counts[name] += len(examples)
            else:
                yield f"{name}, {len(examples)} times: {examples[0][:500]}"
