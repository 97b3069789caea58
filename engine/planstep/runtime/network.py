"""How frames get from host to host inside one process: bytes in, bytes out.

`Network` delivers at once. `FaultyNetwork` loses, repeats, delays and reorders by a seed: the
protocol must not notice, and the tests run it over this one.

`Line` is the way of a client's requests and their answers, where clients stand outside of turns.

Next: runtime.py.
"""

import random
import threading
from collections.abc import Callable
from typing import Any

from .timers import Delays


class Line:
    """The way between clients and tablets: half an rtt there, half an rtt back."""

    def __init__(self, delays: Delays, half_ms: float) -> None:
        self.delays = delays
        self.half_ms = half_ms

    def send(self, message: Any, put: Callable[[], None]) -> None:
        if self.half_ms:
            self.delays.after(self.half_ms, put)
        else:
            put()


class HeldLine(Line):
    """Keeps some messages back until they are let go: the one late request that a test is about."""

    def __init__(self, line: Line, hold: Callable[[Any], bool]) -> None:
        super().__init__(line.delays, line.half_ms)
        self._hold = hold
        self.held: list[Callable[[], None]] = []

    def send(self, message: Any, put: Callable[[], None]) -> None:
        if self._hold(message):
            self.held.append(put)
        else:
            super().send(message, put)

    def let_go(self) -> None:
        held, self.held = self.held, []
        for put in held:
            put()


class Network:
    """Delivers every frame at once."""

    def __init__(self) -> None:
        self.deliver: Callable[[int, bytes], None] = lambda target, data: None
        self.frames = 0
        self.bytes = 0

    def send(self, source: int, target: int, data: bytes) -> None:
        self.frames += 1
        self.bytes += len(data)
        self.deliver(target, data)

    def tick(self) -> None:
        """Called every few milliseconds."""


class FaultyNetwork(Network):
    """Loses and repeats frames, each with a probability, and holds some back past later ones."""

    def __init__(
        self, seed: int, lose: float = 0.05, repeat: float = 0.05, delay: float = 0.2
    ) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._lose, self._repeat, self._delay = lose, repeat, delay
        self._held: list[tuple[int, int, bytes]] = []
        self._lock = threading.Lock()

    def send(self, source: int, target: int, data: bytes) -> None:
        with self._lock:
            chance = self._random.random
            copies = 0 if chance() < self._lose else 2 if chance() < self._repeat else 1
            now = 0
            for _ in range(copies):
                if chance() < self._delay:
                    self._held.append((self._random.randrange(1, 4), target, data))
                else:
                    now += 1
        for _ in range(now):
            super().send(source, target, data)

    def tick(self) -> None:
        with self._lock:
            due = [(target, data) for ticks, target, data in self._held if ticks <= 1]
            self._held = [(ticks - 1, t, data) for ticks, t, data in self._held if ticks > 1]
            self._random.shuffle(due)
        for target, data in due:
            super().send(-1, target, data)
