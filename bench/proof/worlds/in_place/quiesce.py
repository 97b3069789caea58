"""Ends a simulated world: stops its faults, and waits until everything has finished.

    run ─▶ heal ─▶ every input is used, every transaction over ─▶ applications stop ─▶ nothing is left
             └ no wait is longer than WAIT_MS of virtual time, and no transaction stays open past its time-out

Next: workload.py.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from ...simulator.client_world import ClientWorld
from ...simulator.clients import Process
from .reads import Broken, LogWatch

GROUP = "g"
WAIT_MS = 30_000
"""The longest wait allowed once the world is healed."""
RUN_MS = 60_000
"""The longest run, however bad its faults."""
SLACK_MS = 500


class Ends(LogWatch):
    """Knows the processes of a world, and waits for the end of all of them."""

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world)
        self.settings = settings
        self.fenced = settings.fenced
        self.feeding = True
        self.stopping = self.calm = False
        self.processes: list[Process] = []
        self.current: dict[str, Process] = {}
        self._healed_at = 0.0

    def finish(self, transactions: int) -> None:
        """Runs the world until so many transactions were begun, heals it, and waits until everything has finished.

        Where the settings allow that something hangs, it waits for a fixed time.
        """
        world, settles = self.world, self.settings.settles
        end = world.now + RUN_MS
        while len(self.history.txs) < transactions and world.now < end:
            world.pass_ms(20)
        self.feeding = False
        world.heal()
        self._healed_at = world.now
        self.calm = True
        if settles:
            self._wait(self._all_used)
        if not settles or not self.fenced:  # a position may fall, and stay there
            world.pass_ms(1_000)
        self.stopping = True
        if settles:
            self._wait(lambda: not self.under_way())
        else:
            world.pass_ms(3_000)
        for name, committed in (("rc", True), ("ru", False)):
            for tablet in self.tablets:
                self.read_on(name, committed, tablet, 1 << 20)
        self.check_logs()

    def _wait(self, condition: Callable[[], bool]) -> None:
        for _ in range(WAIT_MS // 50):
            if condition():
                return
            self.world.pass_ms(50)
            if self.world.now >= self._healed_at + 2 * SLACK_MS:  # hosts are up again
                for text in self.open_too_long():
                    raise Broken(f"B24: {text}")
        raise Broken(f"B37: not at its end {WAIT_MS} ms after the last fault: {self.under_way()}")

    @abstractmethod
    def open_too_long(self) -> Iterator[str]:
        """Yields transactions that are open although their time-out has passed."""

    @abstractmethod
    def position(self, tablet: int) -> int:
        """Returns the offset before which the workers have used all."""

    @abstractmethod
    def used(self, tablet: int) -> bool:
        """Returns whether the workers' position is after all committed records."""

    @abstractmethod
    def left(self, tablet: int) -> Iterator[str]:
        """Yields what of a partition's transactions has not finished."""

    @abstractmethod
    def left_at_host(self, number: int) -> Iterator[str]:
        """Yields what of a host's coordinators has not finished."""

    def _all_used(self) -> bool:
        return all(
            process.done or not process.client.alive
            for name, process in self.current.items()
            if name.startswith("feed")
        ) and all(self.used(tablet) for tablet in self.inputs if self.fenced)

    def under_way(self) -> list[str]:
        """Lists everything that has not finished."""
        names = [f"{p.client.address:#x} runs" for p in self.processes if self.runs_on(p)]
        for client in self.world.clients:
            names += [f"a call of {client.address:#x}" for _ in client.waiting]
        for tablet in self.tablets:
            names += self.left(tablet)
            _, end, stable = self.meta(tablet)
            if stable < end or self.rows(tablet, b"o"):
                names.append(f"{tablet:#x} is open from {stable} to {end}")
            if self.fenced and tablet in self.inputs and not self.used(tablet):
                names.append(f"{tablet:#x} is not used up")
        for number in range(self.world.hosts):
            names += self.left_at_host(number)
        return names

    def runs_on(self, process: Process) -> bool:
        return process.client.alive and not process.done
