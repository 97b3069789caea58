"""Draws the faults of the simulated world of mode "deterministic", and models the links between its hosts.

    per frame   lost · repeated · delayed · reordered · its line clogs · a swizzle · a partition
    per turn    power lost before, at, after the sync · pause · turn fails · disk full · disk slow · clock jumps ·
                inputs mixed

A swizzle clogs the lines into several hosts and frees each at another time. A turn is a batch of inputs that a
host commits.

One draw decides which fault strikes, so turning off a class leaves the others' odds unchanged. A class is
counted by its name when it takes effect, not when it is drawn: a partition of a single host has no effect.

Next: world.py, which uses this.
"""

import random
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, fields
from itertools import accumulate


@dataclass(frozen=True)
class Faults:
    """Holds probabilities: the first eight apply to a frame, the others to a turn. All zero heals the world."""

    lose: float = 0.05
    repeat: float = 0.05
    delay: float = 0.05
    reorder: float = 0.1
    clog: float = 0.004
    swizzle: float = 0.004
    partition: float = 0.004
    one_way: float = 0.004
    crash_before: float = 0.005
    crash_at: float = 0.007
    crash_after: float = 0.005
    pause: float = 0.005
    fail: float = 0.02
    full: float = 0.003
    slow: float = 0.01
    jump: float = 0.01
    mix: float = 0.1
    echo: float = 0.02


FRAME = tuple(f.name for f in fields(Faults))[:8]
TURN = tuple(f.name for f in fields(Faults))[8:]
HEALED = Faults(*[0.0] * (len(FRAME) + len(TURN)))
CRASHES = {
    "crash_before": "crash before the sync",
    "crash_lost": "crash at the sync, work lost",
    "crash_kept": "crash at the sync, work kept",
    "crash_after": "crash after the sync",
    "crash_sent": "crash after all was sent",
}
"""The moments at which a host may lose power. Only plans use the last one: in a world that draws faults,
`crash_before` at the next turn has the same effect."""
CLASSES = (
    "message lost",
    "message repeated",
    "message delayed",
    "message reordered",
    "line clogged",
    "swizzle-clog",
    "partition",
    "partition one way",
    *list(CRASHES.values())[:4],
    "host paused",
    "turn failed",
    "disk full",
    "disk full, reserve too",
    "disk slow",
    "clock ahead",
    "clock back",
    "inputs mixed",
    "frame taken twice",
)
"""The names under which faults are counted."""


class Odds:
    """Chooses with one draw which class of fault strikes, "" for none."""

    def __init__(self, faults: Faults, names: tuple[str, ...], draw: random.Random) -> None:
        self._names = names
        self._bounds = list(accumulate(getattr(faults, name) for name in names))
        self._draw = draw.random

    def strike(self) -> str:
        x = self._draw()
        bounds = self._bounds
        return self._names[bisect_right(bounds, x)] if x < bounds[-1] else ""


class Lines:
    """Models the lines between hosts, one for each direction, and a host's line to itself (placement "separate").

    `arrival_times` returns the arrival times of a frame's copies; [] if it is lost. Without faults frames arrive in
    the order in which they left.
    """

    def __init__(self, hosts: int, draw: random.Random, counted: Counter[str]) -> None:
        self.hosts = hosts
        self._random = draw
        self._counted = counted
        self._clogged: dict[tuple[int, int], float] = {}  # until when
        self._cut: dict[tuple[int, int], float] = {}
        self.deaf: tuple[int, ...] = ()
        """Hosts that receive no frame any more, healed or not."""
        self.odds = Odds(HEALED, FRAME, draw)

    def set(self, faults: Faults) -> None:
        self.odds = Odds(faults, FRAME, self._random)
        if faults == HEALED:
            self._clogged.clear()
            self._cut.clear()

    def arrival_times(self, source: int, target: int, now: float) -> list[float]:
        line, counted, draw = (source, target), self._counted, self._random
        if target in self.deaf:
            return []
        kind = self.odds.strike()
        if kind in ("clog", "swizzle", "partition", "one_way"):
            getattr(self, "_" + kind)(line, now)
        if self._cut and self._cut.get(line, 0.0) > now:
            return []
        at = now + 0.5
        if self._clogged:
            at = max(at, self._clogged.get(line, 0.0))
        if kind == "lose":
            counted["message lost"] += 1
            return []
        if kind == "repeat":
            counted["message repeated"] += 1
            return [at, at + draw.choice((0.0, 1.0, 100.0)) * draw.random()]
        if kind == "delay":
            counted["message delayed"] += 1
            return [at + draw.uniform(5, draw.choice((50, 500, 5_000)))]
        if kind == "reorder":
            counted["message reordered"] += 1
            return [at + draw.uniform(0.5, 5)]
        return [at]

    def _clog(self, line: tuple[int, int], now: float) -> None:
        self._counted["line clogged"] += 1
        self._clogged[line] = now + self._random.uniform(10, 1_000)

    def _swizzle(self, line: tuple[int, int], now: float) -> None:
        """Clogs the lines into several hosts at once; each host is freed at a time of its own."""
        self._counted["swizzle-clog"] += 1
        draw = self._random
        some = draw.sample(range(self.hosts), draw.randrange(1, self.hosts + 1))
        frees = [now + draw.uniform(50, 1_500) for _ in some]
        for host, until in zip(some, frees, strict=True):
            for other in range(self.hosts):
                self._clogged[other, host] = max(self._clogged.get((other, host), 0.0), until)

    def _partition(self, line: tuple[int, int], now: float, both: bool = True) -> None:
        draw = self._random
        if self.hosts == 1:
            return
        here = draw.sample(range(self.hosts), draw.randrange(1, self.hosts))
        until = now + draw.uniform(20, 1_500)
        self._counted["partition" if both else "partition one way"] += 1
        for a in here:
            for b in range(self.hosts):
                if b not in here:
                    self._cut[a, b] = until
                    if both:
                        self._cut[b, a] = until

    def _one_way(self, line: tuple[int, int], now: float) -> None:
        self._partition(line, now, both=False)
