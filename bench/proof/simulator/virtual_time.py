"""Keeps virtual time: a queue of future calls, ordered by time, whose execution advances the clock.

    after(5, call) ─▶ (now + 5, order, call) ─▶ step: sets the time, then calls

Two events of one moment happen in the order in which they were scheduled.
Next: world.py.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Timeline:
    """Schedules calls in virtual milliseconds. Invariant: time never goes back."""

    def timeline(self) -> None:
        self.now = 1_000.0
        self.events = 0
        self._order = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None:
        self._order += 1
        heappush(self._queue, (self.now + delay_ms, self._order, call, args))

    def step(self) -> None:
        """Executes one event."""
        self.now, _, call, args = heappop(self._queue)
        self.events += 1
        call(*args)

    def run(self, events: int) -> None:
        for _ in range(events):
            self.step()

    def pass_ms(self, ms: float) -> None:
        until = self.now + ms
        while self._queue[0][0] <= until:
            self.step()
        self.now = until
