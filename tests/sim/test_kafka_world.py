"""Tests seeds of the simulated world of mode "kafka": forbidden anomalies never happen.

At the end the world heals, everything finishes, and the history is compared with the logs.
PLANSTEP_SEEDS multiplies the seeds; `planstep check sim` runs hundreds.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from planstep.bench.proof.simulator.client_world import Faults
from planstep.bench.proof.simulator.kafka_world import QUICK, KafkaWorld
from planstep.bench.proof.worlds.in_place.anomalies import ALLOWED, exactly_once, find, visible
from planstep.bench.proof.worlds.in_place.quiesce import GROUP
from planstep.bench.proof.worlds.kafka.swarm import WITH_LATE_REQUESTS, Settings
from planstep.bench.proof.worlds.kafka.workload import Workload
from planstep.coordinator.kafka import states, transactions
from planstep.proxy.kafka import idempotent_producer

SEEDS = int(os.environ.get("PLANSTEP_SEEDS", "1"))
USUAL, LATE, ANY_LATE = Faults(), Faults(late=0.3), Faults(late=0.05, any_late=True)


def run(
    seed: int,
    hosts: int = 1,
    separate: bool = False,
    version: int = 1,
    *,
    faults: Faults = USUAL,
    fenced: bool = True,
    late: str = "",
    transactions: int = 80,
) -> Workload:
    """Runs a seed, which decides the batching of the coordinators' logs, the batches in flight, and expiry."""
    settings = replace(
        QUICK,
        protocol_version=version,
        log_batching=seed % 3 == 1,
        max_in_flight=1 if seed % 5 == 2 else 5,
        transactional_id_expiration_ms=120,
    )
    world = KafkaWorld(seed, hosts, separate, settings, faults, switches=seed % 3 == 2)
    work = Workload(world, Settings(version, fenced=fenced, late=late, expires=seed % 4 == 2))
    work.begin()
    work.finish(transactions)
    return work


def wrong(work: Workload, allowed: tuple[str, ...] = ALLOWED) -> dict[str, list[str]]:
    anomalies = find(work.history, work.logs)
    return {name: examples for name, examples in anomalies.items() if name not in allowed}


def used(work: Workload) -> dict[str, list[str]]:
    return exactly_once(work.logs, work.inputs, work.outputs)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_fenced_workers_process_exactly_once(
    seed: int, separate: bool, hosts: int, version: int
) -> None:
    work = run(8 * seed + 4 * (hosts > 1) + 2 * separate + version - 1, hosts, separate, version)
    assert wrong(work) == {}
    assert used(work) == {}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_unfenced_workers_lose_nothing(seed: int, version: int) -> None:
    """They may use an input twice: test_kafka_anomalies.py asserts that they do."""
    work = run(2 * seed + version - 1, 1 + seed % 2, version=version, fenced=False)
    assert wrong(work) == {}
    outputs = {value.split(b"/")[0] for t in work.outputs for _, value in visible(work.logs[t])}
    for tablet in work.inputs:  # they may be unfinished, since positions fall
        position, _ = work.views[True].committed(tablet, GROUP)
        for offset, value in visible(work.logs[tablet]):
            assert offset >= (position or 0) or b"o" + value in outputs


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_producers_that_run_out_of_epochs(
    seed: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "EPOCH_MAX", 6)
    monkeypatch.setattr(states, "EPOCH_MAX", 6)
    monkeypatch.setattr(idempotent_producer, "EPOCHS_MAX", 5)
    work = run(2 * seed + version - 1, 1 + seed % 2, version=version)
    assert wrong(work) == {}
    assert used(work) == {}


@pytest.mark.parametrize("faults", [LATE, ANY_LATE], ids=["ends", "any"])
@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_late_requests_change_nothing_in_version_2(seed: int, hosts: int, faults: Faults) -> None:
    work = run(2 * seed + (hosts > 1), hosts, version=2, faults=faults)
    assert work.world.faulted["request late"]
    assert wrong(work) == {}
    assert used(work) == {}


@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_late_ends_of_version_1_leave_the_logs_whole(seed: int) -> None:
    work = run(seed, version=1, faults=LATE, late="ends")
    assert wrong(work, WITH_LATE_REQUESTS) == {}


def test_the_faults_happened() -> None:
    works = [run(seed, 4, version=1 + seed % 2, transactions=120) for seed in range(4)]
    faults = sum((work.world.faulted for work in works), Counter())
    for what in (
        "turn failed",
        "host crash before the sync",
        "host crash at the sync",
        "host crash after the sync",
        *(f"{what} lost" for what in ("request", "answer", "frame")),
        *(f"{what} delayed" for what in ("request", "answer", "frame")),
        *(f"{what} reordered" for what in ("request", "answer", "frame")),
    ):
        assert faults[what] > 2, what
    assert sum(work.world.switched for work in works) > 10
    ends = Counter(tx.end for work in works for tx in work.history.txs)
    assert min(ends["committed"], ends["aborted"]) > 50 and ends["unknown"]
    errors = sum((work.errors for work in works), Counter())
    assert {"", "PRODUCER_FENCED", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"} <= errors.keys()
    assert sum(max(work.incarnations.values()) for work in works) > 8


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("hosts", "separate"), [(1, False), (1, True), (4, False)])
def test_recorded_inputs_replay_byte_for_byte(version: int, hosts: int, separate: bool) -> None:
    """Seed 8 switches the logs' batching during the run."""
    world = run(8, hosts, separate, version).world
    changes = [turn.changes for turn in world.recorded]
    assert any(changes) and world.switched and sum(world.lives)
    assert world.replay() == changes
