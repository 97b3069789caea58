"""Lets several machines take turns in a world that simulates one host.

    event of machine 2 ─▶ `stores`, `nodes`, `inboxes`, … of the world are machine 2's ─▶ the event runs
                                                                                  ─▶ what they were before

A machine's calls that block are fibers: its turns run one after the other, other calls beside them. Frozen, a
machine does nothing until later; killed, its fibers unwind where they are.

Next: engines.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from heapq import heappush
from pathlib import Path
from typing import Any

from ..disks.failing import FastFiles
from .bucket import Way
from .fiber import Fiber, Killed, current

_OF_A_HOST = (
    *("skew_ms", "_due", "away", "_rests_until", "lives", "stores", "nodes", "inboxes"),
    *("turn", "_changes", "_full_until", "counter"),
)
DOWN, OPENING, UP, ENDING = "down", "opening", "up", "ending"


class NoHost:
    """Stands for the host of a machine that is down."""

    ticks = False
    proxy = None


class MachineFiles(FastFiles):
    """A machine's disk, whose next write can be made to fail."""

    failing: BaseException | None = None

    def write(self, fd: int, buffers: Any, offset: int, sync: bool) -> None:
        failing, self.failing = self.failing, None
        if failing is not None:
            raise failing
        super().write(fd, buffers, offset, sync)


@dataclass(eq=False)
class Machine:
    """A machine. `own`: what the world has of it while another one acts; `tasks`: calls that wait for the one under
    way to end; `beside`: calls beside those; `held`: events that wait until it is no longer frozen."""

    number: int
    path: Path
    way: Way
    status: str = DOWN
    own: dict[str, Any] = field(default_factory=dict)
    fiber: Fiber | None = None
    tasks: list[tuple[Callable[..., object], tuple[Any, ...]]] = field(default_factory=list)
    beside: list[Fiber] = field(default_factory=list)
    frozen_until: float = 0.0
    held: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    backup: Path | None = None
    files: MachineFiles = field(default_factory=MachineFiles)
    snapshotter: Any = None

    @property
    def busy(self) -> bool:
        return self.fiber is not None or bool(self.beside)


class Acting:
    """Makes a world of one host one of several machines; comes before the world's class among its bases.

    Invariant: `acting` is the machine whose event runs; None: nobody's, and nothing of a host may be asked for.
    """

    now: float
    _queue: list[Any]
    _order: int

    def prepare(self, machines: list[Machine]) -> None:
        """Takes the machines; called before the world begins."""
        self.machines = machines
        self.acting: Machine | None = machines[0]

    def divide(self) -> None:
        """Gives each machine its own part of the world; called when the world has begun."""
        for machine in self.machines[1:]:
            machine.own = deepcopy(self._own())
        for machine in self.machines[1:]:
            with self.at(machine):
                self.begin_ticks()

    def begin_ticks(self) -> None:
        """Schedules what the world schedules once for a host."""

    def _own(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in _OF_A_HOST if name in self.__dict__}

    def act(self, machine: Machine | None) -> None:
        """Makes a machine the acting one."""
        if machine is self.acting:
            return
        if self.acting is not None:
            self.acting.own = self._own()
        if machine is not None:
            self.__dict__.update(machine.own)
        self.acting = machine

    @contextmanager
    def at(self, machine: Machine | None) -> Iterator[None]:
        before = self.acting
        self.act(machine)
        try:
            yield
        finally:
            self.act(before)

    # time ------------------------------------------------------------------------------------

    def after(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None:
        """Schedules an event of the acting machine."""
        self._schedule(self.now + delay_ms, self.acting, call, args)

    def of_world(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None:
        """Schedules an event that is no machine's."""
        self._schedule(self.now + delay_ms, None, call, args)

    def _schedule(self, at: float, machine: Machine | None, call: Any, args: Any) -> None:
        self._order += 1
        heappush(self._queue, (at, self._order, self._as, (machine, call, args)))

    def _as(self, machine: Machine | None, call: Callable[..., None], args: Any) -> None:
        if machine is not None and machine.frozen_until > self.now:
            if not machine.held:
                self._schedule(machine.frozen_until, None, self.thaw, (machine,))
            machine.held.append((call, args))
            return
        with self.at(machine):
            call(*args)

    def thaw(self, machine: Machine) -> None:
        """Lets a machine go on with what it was to do while it was frozen, if it is not any more."""
        held, machine.held = machine.held, []
        for call, args in held:
            self._schedule(self.now, machine, call, args)

    def scheduled(self) -> Iterator[Callable[..., None]]:
        yield from (call for _, _, _, (_, call, _) in self._queue)
        yield from (call for machine in self.machines for call, _ in machine.held)

    # calls that block ------------------------------------------------------------------------

    def wait(self, ms: float) -> None:
        """Lets virtual time pass, in a fiber; else it is the judge that asks, and no time passes."""
        fiber = current()
        if fiber is not None:
            self.after(ms, fiber.resume)
            fiber.pause()

    def task(self, call: Callable[..., object], *args: Any) -> None:
        """Runs a call of the acting machine that may block, behind its other ones."""
        machine = self.acting
        assert machine is not None
        machine.tasks.append((call, args))
        self._next_task(machine)

    def _next_task(self, machine: Machine) -> None:
        if machine.fiber is None and machine.tasks:
            call, args = machine.tasks.pop(0)
            machine.fiber = Fiber(self._work, machine, call, args)
            machine.fiber.resume()

    def _work(self, machine: Machine, call: Callable[..., object], args: Any) -> None:
        try:
            call(*args)
        finally:
            if machine.fiber is current():
                machine.fiber = None
        self.after(0.0, self._next_task, machine)

    def spawn(self, call: Callable[..., object], *args: Any) -> Fiber:
        """Starts a call of the acting machine that may block, beside its other ones."""
        machine = self.acting
        assert machine is not None
        fiber = Fiber(self._side, machine, call, args)
        machine.beside.append(fiber)
        self.after(0.0, fiber.resume)
        return fiber

    def _side(self, machine: Machine, call: Callable[..., object], args: Any) -> None:
        try:
            call(*args)
        finally:
            fiber = current()
            machine.beside = [other for other in machine.beside if other is not fiber]

    def stop_calls(self, machine: Machine) -> None:
        """Ends all calls of the acting machine where they are."""
        fibers = [*machine.beside, *([machine.fiber] if machine.fiber is not None else [])]
        machine.fiber = None
        machine.tasks, machine.beside = [], []
        for fiber in fibers:
            fiber.kill()

    def check_alive(self) -> None:
        """Ends a call here if its process is gone: what unwinds may have become an error on its way. Killed."""
        fiber = current()
        if fiber is not None and fiber.killed:
            raise Killed
