"""Runs the two phases of a simulated world: faults on, then healed, until all has ended.

Next: final_invariants.py.
"""

from ..simulator.world import World
from .swarm import Drawn
from .workloads import NamedWorkloads

SETTLED_MS = 60_000.0


def drive(world: World, work: NamedWorkloads, drawn: Drawn) -> None:
    """Runs the safety phase: transactions at the drawn pace, with faults."""
    for went in range(1, 100 * drawn.transactions):
        if len(work.requests) >= drawn.transactions:
            return
        work.go()  # may submit nothing, for example when there is nothing to consume
        if went % 3 == 0:
            world.pass_ms(work.random.expovariate(1 / (3 * drawn.pace_ms)))


def settle(world: World, work: NamedWorkloads) -> None:
    """Runs the liveness phase: everything ends, dropped tablets are cleaned, every snapshot is served."""
    healed = world.now
    world.settle(SETTLED_MS)
    until = world.now + SETTLED_MS
    while work.cleaning:
        world.pass_ms(50.0)
        assert world.now < until, f"of {[*work.cleaning]} something is left"
    world.settle(SETTLED_MS)
    until = world.now + SETTLED_MS
    while work.readers.waiting:
        world.pass_ms(50.0)
        late = f"{world.now - healed:.0f} ms after the last fault"
        assert world.now < until, f"{late}: {work.readers.unserved()[0]}"
