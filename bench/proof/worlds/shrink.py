"""Shrinks a failing run: fewer transactions, fewer fault classes, fewer workloads.

    Drawn that fails ─▶ half the transactions? ─▶ without this class? … ─▶ this workload? … ─▶ bisect ─▶ Drawn

Each try is a whole run from the same seed. A removal shifts other draws, so a try may miss the bug by chance;
then the next one follows. The number of tries is limited.

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
    """Returns the smallest failing run found, and its result. `drawn` must fail."""
    smallest = _Smallest(drawn, play)
    _halve(smallest)
    _leave_out(smallest)
    _bisect(smallest)
    return smallest.drawn, smallest.played


class _Smallest:
    """Keeps the smallest failing run so far: `drawn`, with its result `played`."""

    def __init__(self, drawn: Drawn, play: Callable[[Drawn], Played]) -> None:
        self.play = play
        self.drawn, self.played = drawn, play(drawn)
        self.tries = 0

    def still(self, smaller: Drawn) -> bool:
        """Plays a smaller run; if it fails as well, keeps it as the smallest and returns True."""
        if smaller == self.drawn or self.tries >= TRIES:
            return False
        self.tries += 1
        again = self.play(smaller)
        if again.violations:
            self.drawn, self.played = smaller, again
        return bool(again.violations)


def _halve(best: _Smallest) -> None:
    while best.drawn.transactions > 1:
        if not best.still(replace(best.drawn, transactions=best.drawn.transactions // 2)):
            break


def _leave_out(best: _Smallest) -> None:
    """Tries without each fault class, each workload, a host, the delay and the separate placement."""
    for name in (*FRAME, *TURN):
        if getattr(best.drawn.faults, name):
            faults = replace(best.drawn.faults, **{name: 0.0})
            best.still(replace(best.drawn, faults=faults))
    for name in best.drawn.weights:
        weights = {n: odds for n, odds in best.drawn.weights.items() if n != name}
        if weights:
            best.still(replace(best.drawn, weights=weights))
    for simpler in ({"hosts": best.drawn.hosts - 1}, {"rtt_ms": 0.0}, {"separate": False}):
        if simpler.get("hosts") != 0:
            best.still(replace(best.drawn, **simpler))


def _bisect(best: _Smallest) -> None:
    """Searches the fewest transactions that fail, between the current number and its half."""
    fails, passes = best.drawn.transactions, best.drawn.transactions // 2
    while fails - passes > 1 and best.tries < TRIES:
        middle = (fails + passes) // 2
        if best.still(replace(best.drawn, transactions=middle)):
            fails = middle
        else:
            passes = middle
