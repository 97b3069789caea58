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
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import msgpack

from ....proto.ids import PARTITION, SHARD, host_of, tablet_id, tx_text
from ....proto.messages import ADD, PartitionPart, ShardPart
from ....tablets.participant import TxRecord
from ..parallel import spread
from ..simulator.world import World
from ..worlds.final_invariants import real_time
from ..worlds.online_invariants import Watch
from ..worlds.result import Played
from ..worlds.seed import SETTLED_MS, drive, result, world_of
from ..worlds.swarm import draw
from ..worlds.workloads import Named
from .registry import Asked, Found

SEEDS = 1_000
TRANSACTIONS = 60
NEW = 12


def run(asked: Asked) -> Found:
    return _judged(asked, asked.seeds(SEEDS), deaf=False)


def control(asked: Asked) -> Found:
    """Loses frames to a living host for ever: nothing can survive that, and the row must say so."""
    return _judged(asked, range(asked.seed, asked.seed + 3), deaf=True).planted("B37")


def _judged(asked: Asked, seeds: range, deaf: bool) -> Found:
    found = Found(seeds=(seeds[0], seeds[-1]))
    totals: Counter[str] = Counter()
    slowest = 0.0
    for seed, (played, counts, took_ms) in spread(partial(die, deaf=deaf), seeds, asked.workers):
        found.runs += 1
        found.events += played.events
        found.faults.update(played.faults)
        totals.update(counts)
        slowest = max(slowest, took_ms)
        if played.violations:
            lines = [f"seed {seed}: {played.violations[0]}", f"  drawn: {played.settings}"]
            lines.append(asked.again(seed))
            found.violations.append("\n".join([*lines, *played.last[-12:]]))
        if found.runs % 20 == 0:
            asked.tell(f"{found.runs:,} of {len(seeds):,} seeds")
    found.violations.sort()
    found.figures |= dict(sorted(totals.items()))
    found.figures["slowest_virtual_s"] = round(slowest / 1_000, 1)
    return found


def die(seed: int, deaf: bool = False) -> tuple[Played, Counter[str], float]:
    """Plays one seed; returns (result, transactions by their end, virtual ms until the new work had committed)."""
    dice = random.Random(f"{seed}/dead")
    drawn = replace(draw(seed, TRANSACTIONS), hosts=dice.randrange(2, 5))
    world = world_of(drawn)
    work = Named(world, drawn.weights)
    watch = Watch(world, work.asked)
    violations: list[str] = []
    counts: Counter[str] = Counter()
    took_ms = 0.0
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
            waits = _without_excuse(world, work.asked, dead)
            if not waits:
                break
        took_ms = world.now - began
        for tx in waits:
            violations.append(f"B37: {tx_text(tx)} waits for nobody, and has no answer")
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
        violations += real_time(world, order, work.readers.seen)
        counts["committed"] = len(order)
        counts["aborted"] = len(world.results) - len(order)
        counts["waiting_for_the_dead"] = len(world.unanswered())
    except Exception as error:
        violations.append(f"B33: the world ended with {error!r}, by {error.__cause__!r}")
    return result(drawn, world, watch, violations), counts, took_ms


def _new_work(world: World, work: Named, living: list[int]) -> list[bytes]:
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


def _without_excuse(world: World, asked: dict[bytes, dict[int, Any]], dead: int) -> list[bytes]:
    excused: dict[bytes, None] = {
        tx: None for tx, parts in asked.items() if any(host_of(tablet) == dead for tablet in parts)
    }
    more = True
    while more:  # until no more transaction stands behind an excused one
        more = False
        for tx, parts in asked.items():
            if tx in excused or not _stands_behind(world, tx, parts, excused):
                continue
            excused[tx] = None
            more = True
    return [tx for tx in world.unanswered() if tx not in excused]


def _stands_behind(
    world: World, tx: bytes, parts: dict[int, Any], excused: dict[bytes, None]
) -> bool:
    for tablet in parts:
        row = world.read(tablet, b"t" + tx)
        if row is not None and any(before in excused for before in TxRecord._make(row).blockers):
            return True
    return False
