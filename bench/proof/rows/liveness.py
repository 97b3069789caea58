"""Row `liveness`: kills a host for ever and heals all else; work without that host must end, new work must commit.

    faults on ─▶ a host dies ─▶ more transactions ─▶ healed ─▶ new transactions on living hosts: committed
                                                        ├▶ transactions without a reply yet: excused?
                                                        └▶ snapshots that wait: for the dead, or what it delays

A transaction is excused if a participant is on the dead host, or if it stands behind an excused one at a
tablet: a planned transaction delays those that must wait for it while a participant's host is down
(design: G5). Row sim shows, in every seed, that faults which all heal are survived.

Next: ../worlds/seed.py.
"""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import msgpack

from ....proto.ids import PARTITION, SHARD, host_of, tablet_id, tx_text
from ....proto.messages import ADD, PartitionPart, ShardPart
from ....tablets.participant import TxRecord
from ..parallel import gather
from ..simulator.world import World
from ..worlds.final_invariants import real_time
from ..worlds.online_invariants import Watch
from ..worlds.phases import SETTLED_MS, drive
from ..worlds.seed import result, world_of
from ..worlds.swarm import draw
from ..worlds.workloads import NamedWorkloads
from .registry import RowOptions, RowResult

SEEDS = 1_000
TRANSACTIONS = 60
NEW = 12


def run(options: RowOptions) -> RowResult:
    return _judge(options, options.seeds(SEEDS), deaf=False)


def control(options: RowOptions) -> RowResult:
    """Loses frames to a living host for ever: nothing can survive that, and the row must say so."""
    return _judge(options, range(options.seed, options.seed + 3), deaf=True).planted("B37")


def _judge(options: RowOptions, seeds: range, deaf: bool) -> RowResult:
    total = gather(options, partial(die, deaf=deaf), seeds, options.again)
    total.seeds = seeds[0], seeds[-1]
    return total


def die(seed: int, deaf: bool) -> RowResult:
    """Plays one seed; the figures count transactions by their end, and the time until the new work committed."""
    dice = random.Random(f"{seed}/dead")
    drawn = replace(draw(seed, TRANSACTIONS), hosts=dice.randrange(2, 5))
    world = world_of(drawn)
    work = NamedWorkloads(world, drawn.weights)
    watch = Watch(world, work.requests)
    violations: list[str] = []
    counted = RowResult(1)
    try:
        drive(world, work, replace(drawn, transactions=TRANSACTIONS // 2))
        dead = dice.randrange(1, drawn.hosts)
        world.kill(dead)
        drive(world, work, drawn)
        world.heal()
        if deaf:
            world.deafen(0)
        new = _new_work(world, work, [host for host in range(drawn.hosts) if host != dead])
        began = world.now
        while world.now - began <= SETTLED_MS:
            world.pass_ms(100.0)
            waits = _without_excuse(world, work.requests, dead)
            if not waits:
                break
        counted.most["slowest_virtual_s"] = round((world.now - began) / 1_000, 1)
        violations += [f"B37: {tx_text(tx)} waits for nobody, and has no answer" for tx in waits]
        for tx in new:
            answer = world.results.get(tx)
            if answer is None or answer.reason is not None:
                violations.append(f"B37: {tx_text(tx)}, on living hosts only, came to {answer}")
        violations += [f"B37: {text}" for text in work.readers.unserved(dead)]
        order = [
            (answer.step, answer.n, tx)
            for tx, answer in world.results.items()
            if answer.reason is None
        ]
        violations += real_time(world, order, work.readers.reads)
        counted.figures = {
            "aborted": len(world.results) - len(order),
            "committed": len(order),
            "waiting_for_the_dead": len(world.unanswered()),
        }
    except Exception as error:
        violations.append(f"B33: the world ended with {error!r}, by {error.__cause__!r}")
    played = result(drawn, world, watch, violations)
    counted.events, counted.faults = played.events, played.faults
    counted.violations = [played.report()] if played.violations else []
    return counted


def _new_work(world: World, work: NamedWorkloads, living: list[int]) -> list[bytes]:
    """Submits transactions on tablets of their own, where none that waits for the dead host is in the way."""
    new = []
    for number in range(NEW):
        parts: dict[int, Any] = {}
        for host in work.random.sample(living, work.random.randrange(1, len(living) + 1)):
            tablet = tablet_id(PARTITION, host, 70 + host)
            parts[tablet] = PartitionPart(slices=((b"new %d" % number, 1),))
            add = (b"new", ADD, msgpack.packb(1))
            parts[tablet_id(SHARD, host, 80 + host)] = ShardPart(writes=(add,))
        new.append(work.ask(parts, "new"))
    return new


def _without_excuse(world: World, requests: dict[bytes, dict[int, Any]], dead: int) -> list[bytes]:
    excused = {
        tx: None
        for tx, parts in requests.items()
        if any(host_of(tablet) == dead for tablet in parts)
    }
    while behind := [
        tx
        for tx, parts in requests.items()
        if tx not in excused and _stands_behind(world, tx, parts, excused)
    ]:  # until no more transaction stands behind an excused one
        excused |= dict.fromkeys(behind)
    return [tx for tx in world.unanswered() if tx not in excused]


def _stands_behind(
    world: World, tx: bytes, parts: dict[int, Any], excused: dict[bytes, None]
) -> bool:
    rows = (world.read(tablet, b"t" + tx) for tablet in parts)
    blockers = (TxRecord._make(row).blockers for row in rows if row is not None)
    return any(before in excused for several in blockers for before in several)
