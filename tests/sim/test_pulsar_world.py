"""Tests seeds of the simulated world of mode "pulsar": forbidden anomalies never happen.

At the end the world heals, everything finishes, and the history is compared with the logs.
PLANSTEP_SEEDS multiplies the seeds; `planstep check sim` runs hundreds.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from planstep.bench.proof.rows.mutants import BY_NAME
from planstep.bench.proof.simulator.client_world import Faults
from planstep.bench.proof.worlds.mutants.mutant import planted
from planstep.bench.proof.worlds.pulsar.coverage import HALF_SEEN, TABLES, TWICE
from planstep.bench.proof.worlds.pulsar.seed import play
from planstep.bench.proof.worlds.pulsar.swarm import Settings
from planstep.bench.proof.worlds.pulsar.workload import Workload

SEEDS = int(os.environ.get("PLANSTEP_SEEDS", "1"))
USUAL, ANY_LATE = Faults(), Faults(late=0.05, any_late=True)


def run(seed: int, settings: Settings, transactions: int = 80) -> tuple[Workload, Counter[str]]:
    played, work, allowed = play(seed, transactions, settings)
    assert played.violations == []
    return work, allowed


@pytest.mark.parametrize("kind", ["individual", "lanes", "shared"])
@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_consumers_lose_nothing(seed: int, separate: bool, hosts: int, kind: str) -> None:
    """Inputs count once with individual acknowledgements."""
    batching = bool(seed % 2)
    settings = Settings(
        hosts, separate, kind, log_batching=batching, ack_log_batching=batching, faults=USUAL
    )
    work, _ = run(4 * seed + 2 * (hosts > 1) + separate, settings)
    assert sum(tx.end == "committed" for tx in work.history.txs) > 20


@pytest.mark.parametrize("snapshots", ["single", "parts", "segmented"])
def test_late_requests_change_nothing(snapshots: str) -> None:
    settings = Settings(2, snapshots=snapshots, trims=True, deserts=True, faults=ANY_LATE)
    work, _ = run(1, settings)
    assert work.world.faulted["request late"]


def test_without_deduplication_messages_are_repeated() -> None:
    settings = Settings(deduplication=False, faults=Faults(lose=0.05, repeat=0.1))
    allowed = sum((run(seed, settings)[1] for seed in range(3)), Counter())
    assert allowed["duplicate"]


def test_shared_cumulative_consumers_use_inputs_twice() -> None:
    settings = Settings(kind="shared", waits=False, faults=USUAL)
    assert any(run(seed, settings)[1][TWICE] for seed in range(8))


def test_recorded_inputs_replay_byte_for_byte() -> None:
    work, _ = run(8, Settings(2, switches=True, changes=True, faults=Faults(crash=0.02)))
    changes = [turn.changes for turn in work.world.recorded]
    assert any(changes) and work.world.switched and sum(work.world.lives)
    assert work.world.replay() == changes


MIXED = Settings(2, kind="shared", mixes=True, plain=True, ended_kept=5, changes=True, faults=USUAL)


def test_all_habits_at_once_and_what_is_allowed_is_counted() -> None:
    settings = replace(
        MIXED, poison=True, active_max=3, participant_requests=2, deserts=True, raises=True
    )
    work, allowed = run(1, settings, 150)
    assert allowed[TWICE] and allowed[HALF_SEEN] and work.individual_acks
    assert work.world.faulted["client dead before the answer to NewTxn"]
    assert work.world.faulted["coordinators raised"] == 1 and len(work.world.coordinators) == 4
    assert set(+allowed) <= set(TABLES["allowed anomaly"])


@pytest.mark.parametrize(
    ("mutant", "said"),
    [
        ("individual-not-applied", "are committed, there is"),
        ("snapshot-stays-at-work", "took no snapshot"),
        ("ids-begin-again", "was over"),
        ("ack-outlives", "is over, and open in"),
        ("copy-not-advanced", "shows a reader aborted ids"),
        ("acknowledged-unchecked", "acknowledged individually 2 times"),
        ("never-told", "new transactions ended with"),
    ],
)
def test_what_a_check_is_for_is_noticed(mutant: str, said: str) -> None:
    settings = Settings(ended_kept=0) if mutant == "never-told" else MIXED
    with planted(BY_NAME[mutant]):
        found = (text for seed in range(1, 20) for text in play(seed, 150, settings)[0].violations)
        assert any(said in text for text in found)
