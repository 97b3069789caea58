"""Runs one seed of a simulated world: draws it, runs it under faults, lets it settle, and checks it.

    play(seed) ─▶ the mode, by the seed ─▶ swarm.draw ─▶ a world, its workloads: faults on (safety)
                                        ─▶ healed: everything ends (liveness) ─▶ checks ─▶ Played

An exception of a core is a violation like any other, so the same call catches planted bugs. shrink.py shrinks a
failing seed; `planstep check sim --seed N --runs 1` repeats it.

Next: swarm.py.
"""

from collections.abc import Callable
from typing import Any

from ..simulator.world import World
from .attached.seed import play as play_attached
from .final_invariants import check_at_end, replayed
from .kafka.seed import play as play_kafka
from .online_invariants import Watch
from .phases import drive, settle
from .pulsar.seed import play as play_pulsar
from .result import Played
from .swarm import Drawn, draw
from .workloads import NamedWorkloads

MODES = ("deterministic", "kafka", "pulsar", "attached")
"""The worlds; "attached" has mode deterministic, in processes that share a store."""
REPLAYED_EVERY = 25
"""One of this many seeds replays its recorded inputs."""
IN_PLACE = ("kafka", "pulsar")
"""The modes with data in place."""
OTHERS: dict[str, tuple[int, int, Callable[[int, int], tuple[Any, ...]]]] = {
    "kafka": (0, 6, play_kafka),
    "pulsar": (3, 6, play_pulsar),
    "attached": (2, 12, play_attached),
}
"""Worlds of other kinds: the seeds of each have that rest, divided by that number; what plays them.

A seed of theirs takes as long as several others; row kafka plays more of mode kafka."""


def play(seed: int, modes: tuple[str, ...] = MODES, transactions: int = 200) -> Played:
    """Runs a seed; the same seed and arguments give the same Played, in any process."""
    for mode, (rest, every, play_mode) in OTHERS.items():
        if modes == (mode,) or (mode in modes and seed % every == rest):
            played: Played = play_mode(seed, transactions)[0]
            return played
    return play_drawn(draw(seed, transactions))


def world_of(drawn: Drawn) -> World:
    return World(
        drawn.seed,
        drawn.hosts,
        drawn.faults,
        merge=drawn.merge,
        at_once=drawn.at_once,
        separate=drawn.separate,
        rtt_ms=drawn.rtt_ms,
        turn_inputs=drawn.turn_inputs,
        tick_ms=drawn.tick_ms,
    )


def play_drawn(drawn: Drawn) -> Played:
    violations: list[str] = []
    world = world_of(drawn)
    work = NamedWorkloads(world, drawn.weights)
    watch = Watch(world, work.requests)
    try:
        drive(world, work, drawn)
        settle(world, work)
        violations += check_at_end(world, work)
    except AssertionError as error:
        violations.append(f"B37: {error}")
    except Exception as error:
        violations.append(f"B33: the world ended with {error!r}, by {error.__cause__!r}")
    if drawn.seed % REPLAYED_EVERY == 0 and not violations:
        violations += replayed(world)
    return result(drawn, world, watch, violations)


def result(drawn: Drawn, world: World, watch: Watch, violations: list[str]) -> Played:
    violations = watch.violations + violations
    return Played(
        drawn.seed,
        "deterministic",
        drawn.describe(),
        violations,
        world.events,
        world.faulted,
        watch.reached,
        world.digest(),
        world.latest() if violations else [],
    )
