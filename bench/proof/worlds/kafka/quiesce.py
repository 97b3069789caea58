"""Ends a simulated world of mode "kafka": stops its faults, and waits until everything has finished.

    run ─▶ heal ─▶ every input is used, every transaction over ─▶ applications stop ─▶ nothing is left
             └ no wait is longer than WAIT_MS of virtual time, and no transaction stays open past its time-out

Next: workload.py.
"""

from collections.abc import Callable

from .....coordinator.kafka.states import ONGOING, PREPARED, Transaction
from .....proto.ids import GROUPS, TRANSACTIONS, tablet_id
from ...simulator.kafka_clients import Process
from ...simulator.kafka_world import KafkaWorld
from .reads import NOW, Broken, LogWatch
from .swarm import Settings

GROUP = "g"
WAIT_MS = 30_000
"""The longest wait allowed once the world is healed."""
RUN_MS = 60_000
"""The longest run, however bad its faults."""
_SLACK_MS = 500
_LEFT = (ONGOING, *PREPARED)


class Ends(LogWatch):
    """Knows the processes of a world, and waits for the end of all of them."""

    def __init__(self, world: KafkaWorld, settings: Settings) -> None:
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
            self._check_time_outs()
        raise Broken(f"B37: not at its end {WAIT_MS} ms after the last fault: {self.under_way()}")

    def _check_time_outs(self) -> None:
        """Checks that the coordinator's next scan ends each transaction open past its time-out."""
        world = self.world
        if world.now < self._healed_at + 2 * _SLACK_MS:
            return  # hosts are still restarting
        most_ms = world.settings.abort_scan_ms + _SLACK_MS
        for number in range(world.hosts):
            now = world.clock(number)
            for key, fields in self.rows(tablet_id(TRANSACTIONS, number, 0), b"t").items():
                row = Transaction(*fields)
                late = now > row.start_ms + row.timeout_ms + most_ms
                if row.state == ONGOING and late:
                    raise Broken(f"B24: {key[1:]!r} is open since {row.start_ms}, now is {now}")

    def _all_used(self) -> bool:
        return all(
            process.done or not process.client.alive
            for name, process in self.current.items()
            if name.startswith("feed")
        ) and all(self.used(tablet) for tablet in self.inputs if self.fenced)

    def used(self, tablet: int) -> bool:
        """Returns whether the group's position is after all committed records."""
        position, pending = self.views[True].committed(tablet, GROUP)
        _, end, stable = self.meta(tablet)
        if pending or stable < end:
            return False
        return not self.views[True].read_segments(NOW, tablet, 0, position or 0, 1, 1)

    def under_way(self) -> list[str]:
        """Lists everything that has not finished."""
        names = [f"{p.client.address:#x} runs" for p in self.processes if self.runs_on(p)]
        for client in self.world.clients:
            names += [f"a call of {client.address:#x}" for _ in client.waiting]
        for tablet in self.tablets:
            _, end, stable = self.meta(tablet)
            if stable < end or self.rows(tablet, b"o"):
                names.append(f"{tablet:#x} is open from {stable} to {end}")
            if self.fenced and tablet in self.inputs and not self.used(tablet):
                names.append(f"{tablet:#x} is not used up")
        for number in range(self.world.hosts):
            for key, row in self.rows(tablet_id(TRANSACTIONS, number, 0), b"t").items():
                state = Transaction(*row).state
                if state in _LEFT:
                    names.append(f"{key!r} is in state {state}")
            groups = tablet_id(GROUPS, number, 0)
            for key in (*self.rows(groups, b"n"), *self.rows(groups, b"q")):
                names.append(f"{key!r} is pending")
        return names

    def runs_on(self, process: Process) -> bool:
        return process.client.alive and not process.done
