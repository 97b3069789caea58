"""Tests seeds of the simulated world: transfers, consumers, counters under loss, repeats, delays, crashes.

After every run the world heals and everything must end. The stored rows must be those that exactly the committed
transactions make, executed one after the other in the order of their places.

`planstep check sim` runs thousands of seeds, with more workloads and faults.
"""

import os
from collections import Counter
from typing import Any

import pytest

from planstep.bench.proof.simulator.faults import CLASSES, HEALED, Faults
from planstep.bench.proof.simulator.world import World
from planstep.bench.proof.worlds.mixed import Workload
from planstep.bench.proof.worlds.serial_model import Serial, stored_rows
from planstep.proto.ids import PARTITION, tablet_id, tablet_prefix
from planstep.proto.messages import PartitionPart

SEEDS = int(os.environ.get("PLANSTEP_SEEDS", "1"))
"""Multiplies the number of seeds."""


def run(seed: int, hosts: int, **settings: Any) -> tuple[World, Workload]:
    world = World(seed, hosts, **settings)
    work = Workload(world)
    for _ in range(40):
        work.submit()
        world.run(work.random.randrange(1, 12))
    world.settle()
    return world, work


def check(world: World, work: Workload) -> None:
    serial = Serial(world, work.requests)
    assert serial.wrong == []
    assert stored_rows(world) == serial.model


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("seed", range(14 * SEEDS))
def test_a_world_ends_as_its_committed_transactions_one_by_one(seed: int, hosts: int) -> None:
    world, work = run(seed, hosts, merge=seed % 3 != 0, at_once=seed % 3 == 1)
    check(world, work)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("seed", range(7 * SEEDS))
def test_where_every_tablet_is_a_server_of_its_own(seed: int, hosts: int) -> None:
    rtt_ms = 5.0 * (seed % 2)
    world, work = run(seed, hosts, separate=True, rtt_ms=rtt_ms)
    check(world, work)
    assert world.results


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_clients_at_a_distance(seed: int, hosts: int) -> None:
    world, work = run(seed, hosts, rtt_ms=5.0)
    check(world, work)


@pytest.mark.parametrize("seed", range(4))
def test_deciding_at_once_is_what_the_messages_would_have_done(seed: int) -> None:
    """Runs the same inputs through `InlineDecisions.decide`, and through plans, votes and answers."""
    world, _ = run(seed, 1)
    slow = World(seed, 1, at_once=False)
    results = {}
    for turn in world.recorded:
        while slow.lives[0] < turn.life:
            slow.crash(0)
        if turn.failed:
            continue
        released = slow.nodes[0].run(turn.inputs, turn.now_ms)
        results |= {result.tx: result for result in released.results}
    answered = {tx: r for tx, r in world.results.items() if r.reason != (0, "failed")}
    assert {tx: results[tx] for tx in answered} == answered
    assert resolved(slow) == resolved(world)


def resolved(world: World) -> dict[bytes, Any]:
    """Returns all rows, with payloads in place of their addresses, which an aborted transaction's staging
    changes."""
    (store,) = world.stores
    return {
        key: (store.read_payload(*value[:2]), *value[2:]) if key[4:5] == b"b" else value
        for key, value in store.scan(b"\x10\0\0\0", b"\x70\0\0\0")
    }


def test_the_faults_happened() -> None:
    often = Faults(full=0.02, crash_at=0.03, echo=0.1)
    worlds = [run(seed, 4, faults=often)[0] for seed in range(20)]
    assert sum(w.sent_ahead for w in worlds) > 20
    counted = sum((w.faulted for w in worlds), Counter[str]())
    assert not [name for name in CLASSES if counted[name] < 2]
    reasons = {r.reason[1] for w in worlds for r in w.results.values() if r.reason}
    assert {"position", "key"} <= reasons
    assert any(r.reason is None for w in worlds for r in w.results.values())


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("hosts", [1, 4])
def test_recorded_inputs_replay_byte_for_byte(hosts: int, separate: bool) -> None:
    world, _ = run(7, hosts, separate=separate)
    changes = [turn.changes for turn in world.recorded]
    assert any(changes)
    assert world.replay() == changes


def test_a_clock_that_jumps_back_delays_no_question_about_a_proposal() -> None:
    """Its client is gone: only the host's own question to the coordinator ends it."""
    world = World(1, 2, HEALED, merge=False)
    tablet = tablet_id(PARTITION, 1, 10)
    tx = world.commit({tablet: PartitionPart(slices=((b"x", 1),))})
    while world.stores[1].get(tablet_prefix(tablet) + b"t" + tx) is None:
        world.step()
    world.crash(0)
    world.skew_ms[1] = -1_000_000
    assert world.settle() < 10_000
