"""Runs one seed of mode "pulsar"'s simulated world: draws its settings, runs its workload, judges the history.

    seed ─▶ draw: hosts, placement, consumers, faults, tiny limits ─▶ PulsarWorld with a Workload: 200 transactions
              ─▶ healed, and at its end (../in_place/quiesce.py) ─▶ history against logs ─▶ Played

The judge is mode kafka's (../in_place/anomalies.py): a marker ends the transaction of its id, and not all of its
producer. Beside it: an individual acknowledgement is committed once. Next: ../seed.py.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from unittest.mock import patch

from .....tablets import log_space
from .....tablets.pulsar import partition, transaction_buffer
from ...simulator.pulsar_world import QUICK, PulsarWorld
from ..final_invariants import replayed
from ..in_place.anomalies import NOT_TOLD, exactly_once, find, not_told, visible
from ..result import Played
from .coverage import ALLOWED_ANOMALY, watch
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
    reached: Counter[str] = Counter()
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
            reached.update({f"{ALLOWED_ANOMALY}: {name}": n for name, n in (+counts).items()})
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
        coordinators=settings.coordinators,
        deduplication=settings.deduplication,
        log_batching=settings.log_batching,
        ack_log_batching=settings.ack_log_batching,
        snapshots=settings.snapshots,
        snapshot_segment_bytes=settings.segment_bytes,
        ended_kept=settings.ended_kept,
        max_active_transactions=settings.active_max,
        participant_requests=settings.participant_requests,
    )
    world = PulsarWorld(
        seed,
        settings.hosts,
        settings.separate,
        pulsar,
        settings.faults,
        switches=settings.switches,
        inputs_max=settings.inputs_max,
        changes=settings.changes,
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
    counts.update(work.allowed)
    counts[NOT_TOLD] += not_told(work.history, work.logs)
    yield from _acknowledged_twice(work)


def _acknowledged_twice(work: Workload) -> Iterator[str]:
    """Yields inputs that two committed transactions have acknowledged individually."""
    committed = {value for log in work.logs.values() for _, value in visible(log)}
    times: Counter[tuple[int, int]] = Counter()
    for tx, tablet, ranges in work.individual_acks:
        if tx.end == "committed" or not committed.isdisjoint(tx.values()):
            times.update((tablet, at) for low, high in ranges for at in range(low, high))
    for (tablet, at), n in times.items():
        if n > 1:
            yield f"acknowledged individually {n} times: {at} in {tablet:#x}"
