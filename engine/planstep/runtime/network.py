"""Carries frames from host to host inside one process: bytes in, bytes out.

`Network` delivers at once. The tests' own network loses, repeats, delays and reorders: the protocol must bear it.

`Line` carries a client's requests and their answers, where clients stand outside of turns.

Next: runtime.py.
"""

from collections.abc import Callable
from typing import Any

from .timers import Delays


class Line:
    """Carries messages between clients and tablets: half an rtt there, half an rtt back."""

    def __init__(self, delays: Delays, half_ms: float) -> None:
        self.delays = delays
        self.half_ms = half_ms

    def send(self, message: Any, put: Callable[[], None]) -> None:
        if self.half_ms:
            self.delays.after(self.half_ms, put)
        else:
            put()


class HeldLine(Line):
    """Keeps some messages back until `let_go`: the one late request that a test is about."""

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

    def send(self, source: int, target: int, data: bytes) -> None:
        self.deliver(target, data)

    def tick(self) -> None:
        """Called every few milliseconds."""
