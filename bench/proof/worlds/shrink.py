"""The smallest run that still fails: fewer transactions, fewer fault classes, fewer workloads.

    Drawn that fails ─▶ half the transactions? ─▶ without this class? … ─▶ this workload? … ─▶ bisect ─▶ Drawn

Each try is a whole run from the same seed. What is taken away shifts other draws, so a try may miss
the bug by luck; then the next one is tried. It ends after a number of tries.

Next: ../rows/sim.py.
"""

from collections.abc import Callable
from dataclasses import replace

from ..simulator.faults import FRAME, TURN
from .result import Played
from .seed import play_drawn
from .swarm import Drawn

TRIES = 60


def shrink(drawn: Drawn, play: Callable[[Drawn], Played] = play_drawn) -> tuple[Drawn, Played]:
    """(what still fails, and how). `drawn` must fail."""
    best, played = drawn, play(drawn)
    tries = 0

    def still(smaller: Drawn) -> bool:
        nonlocal best, played, tries
        if smaller == best or tries >= TRIES:
            return False
        tries += 1
        again = play(smaller)
        if again.violations:
            best, played = smaller, again
        return bool(again.violations)

    while best.transactions > 1 and still(replace(best, transactions=best.transactions // 2)):
        pass
    for name in (*FRAME, *TURN):
        if getattr(best.faults, name):
            still(best.without(name))
    for name in best.weights:
        weights = {n: odds for n, odds in best.weights.items() if n != name}
        if weights:
            still(replace(best, weights=weights))
    for simpler in ({"hosts": best.hosts - 1}, {"rtt_ms": 0.0}, {"separate": False}):
        if simpler.get("hosts") != 0:
            still(replace(best, **simpler))
    fails, passes = best.transactions, best.transactions // 2
    while fails - passes > 1 and tries < TRIES:
        middle = (fails + passes) // 2
        if still(replace(best, transactions=middle)):
            fails = middle
        else:
            passes = middle
    return best, played


def told(drawn: Drawn, played: Played, again: str) -> str:
    """For people: what fails, how to see it `again`, under which plan, and what happened last."""
    first = played.violations[0] if played.violations else "failed once, and not when played again"
    lines = [
        f"seed {drawn.seed}: {first}",
        again,
        f"  shrunk to: {drawn.told()}",
        *(f"  {line}" for line in played.last[-12:]),
    ]
    return "\n".join(lines)
