"""Lets fibers wait for one another in virtual time: the real code's queues, clocks and sleeps lead here.

    fiber ── wait ─▶ Gate ── opened by another fiber, or the time is over ─▶ the fiber goes on, as a new event
    queue.SimpleQueue ─▶ Queue        module `time` ─▶ Clock

All locks, signals and latches of the runtime that are waited for end in a SimpleQueue. So these two are enough for
its threads to run as fibers.

Next: streams.py.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any, Protocol
from unittest.mock import patch

from .fiber import Fiber, current


class Timed(Protocol):
    """A world, as far as fibers wait in its time."""

    now: float

    def after(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None: ...


class _Ticket:
    """One wait of a fiber: it goes on once."""

    def __init__(self, fiber: Fiber) -> None:
        self.fiber = fiber
        self.used = False

    def use(self) -> None:
        if not self.used:
            self.used = True
            self.fiber.resume()


class Gate:
    """A place where fibers wait until it is opened."""

    def __init__(self, world: Timed) -> None:
        self._world = world
        self._waiting: list[_Ticket] = []

    def wait(self, ms: float | None = None) -> None:
        """Waits until the gate is opened, at most `ms`. Only fibers wait."""
        fiber = current()
        assert fiber is not None, "the world itself never waits"
        ticket = _Ticket(fiber)
        self._waiting.append(ticket)
        if ms is not None:
            self._world.after(ms, ticket.use)
        fiber.pause()

    def open(self) -> None:
        """Lets all go on that wait now."""
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            if not ticket.used:
                self._world.after(0.0, ticket.use)


class Queue:
    """A queue between fibers (queue.SimpleQueue)."""

    def __init__(self, world: Timed) -> None:
        self._world = world
        self._gate = Gate(world)
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._gate.open()

    def empty(self) -> bool:
        return not self._items

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        until = None if timeout is None else self._world.now + 1000 * timeout
        while not self._items:
            if not block or (until is not None and self._world.now >= until):
                raise Empty
            self._gate.wait(None if until is None else until - self._world.now)
        return self._items.popleft()


class Clock:
    """The world's time, in place of the module `time`. A sleep of the world itself takes none."""

    def __init__(self, world: Timed) -> None:
        self._world = world

    def sleep(self, seconds: float) -> None:
        if current() is not None:
            Gate(self._world).wait(1000 * seconds)

    def monotonic(self) -> float:
        return self._world.now / 1000

    time = perf_counter = monotonic

    def time_ns(self) -> int:
        return int(self._world.now * 1_000_000)

    monotonic_ns = time_ns


@contextmanager
def in_virtual_time(world: Timed, modules: Iterable[ModuleType]) -> Iterator[None]:
    """Has the code of these modules take its time, its sleeps and its queues from a world."""
    clock = Clock(world)
    with ExitStack() as stack:
        for module in modules:
            known = vars(module)
            if known.get("time") is time:
                stack.enter_context(patch.object(module, "time", clock))
            if known.get("monotonic") is time.monotonic:
                stack.enter_context(patch.object(module, "monotonic", clock.monotonic))
            if known.get("SimpleQueue") is SimpleQueue:
                stack.enter_context(patch.object(module, "SimpleQueue", _QueueOf(world)))
        yield


class _QueueOf:
    """Makes queues of a world, also as `SimpleQueue[T]()`."""

    def __init__(self, world: Timed) -> None:
        self._world = world

    def __call__(self) -> Queue:
        return Queue(self._world)

    def __getitem__(self, _: object) -> "_QueueOf":
        return self
