"""One seed of a simulated world: what it draws, what happens, what of it is wrong.

    play(seed) ─▶ the mode, by the seed ─▶ a world and its workload ─▶ faults, then healing ─▶ checks ─▶ Played

Whatever a core raises is a violation like any other, so that a planted bug is caught by the same call.

Next: mixed.py.
"""

import hashlib
import random
from collections import Counter
from importlib import import_module
from typing import Any

from ....simulator import World
from .mixed import Workload
from .played import Played
from .serial import expected, stored
from .told import told

MODES = ("deterministic", "kafka")


def play(seed: int, modes: tuple[str, ...] = MODES, transactions: int = 200) -> Played:
    """The same seed and arguments give the same Played, in any process."""
    if modes[seed % len(modes)] == "kafka":
        made: Played = import_module(f"{__package__}.kafka_world").play_kafka(seed, transactions)
        return made
    draw = random.Random(f"{seed}/swarm")
    settings: dict[str, Any] = {
        "hosts": draw.randrange(1, 5),
        "merge": draw.random() < 0.5,
        "at_once": draw.random() < 0.5,
        "separate": draw.random() < 0.4,
        "rtt_ms": draw.choice((0.0, 5.0)),
    }
    violations: list[str] = []
    world = World(seed, **settings)
    work = Workload(world)
    try:
        for _ in range(transactions):
            work.submit()
            world.run(work.random.randrange(1, 12))
        world.settle()
        if stored(world) != expected(world, work):
            violations.append("B5: what is stored is not what the committed made one by one")
        violations += told(world, work)
    except Exception as error:
        violations.append(f"B37: the world ended with {error!r}")
    digest = hashlib.sha256(b"".join(turn.changes for turn in world.recorded)).hexdigest()
    return Played(
        seed,
        "deterministic",
        settings,
        violations,
        world.events,
        world.counted,
        Counter(),
        digest,
        [repr(event) for event in world.last],
    )
