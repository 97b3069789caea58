"""Runs hosts over stores in memory in virtual time, and records and replays their turns: the base of most worlds.

    inputs, clock ─▶ Host.run ─▶ Disk.commit: durable, or made to fail ─▶ TurnRecord: what came in, what changed
    records of a whole run ─▶ fresh hosts ─▶ the same changes, byte for byte

Next: world.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext, suppress

from ....errors import IoError, NoSpace
from ....host.host import Host
from ....host.inputs import Input, Released
from ....store import MemoryStore, Show, Turn
from .timeline import Timeline, TurnRecord


class Disk(MemoryStore):
    """A store in memory whose commits can be made to fail; committed data survives a crash."""

    failing = False
    full = False
    """True if only the reserve is left."""

    def commit(self, turn: Turn, show: Show | None = None) -> None:
        if self.failing:
            raise IoError("made to fail")
        if self.full and not turn.reserve and not turn.empty():
            raise NoSpace("made to be full")
        super().commit(turn, show)


class Hosts(Timeline, ABC):
    """Runs hosts over stores in memory in virtual milliseconds, and records the inputs of each of their turns.

    A subclass makes hosts (`_host`) from its settings alone, because a replay makes them again. It also draws
    faults (`_strike`); a plan may override that.
    """

    inboxes: Sequence[Sequence[object]]

    def __init__(self, seed: int, hosts: int) -> None:
        super().__init__(seed)
        self.skew_ms = [0] * hosts
        """The error of each host's clock."""
        self._due = [False] * hosts  # a turn is scheduled
        self.away = [False] * hosts
        self._rests_until = [0.0] * hosts  # paused, or at a slow disk
        self._open(hosts)

    def _open(self, hosts: int) -> None:
        self.hosts = hosts
        self.lives = [0] * hosts
        self.recorded = []
        self._changes = b""
        self.turn: Turn
        self.stores = [Disk(bytes([i]) * 16) for i in range(hosts)]
        self.nodes = [self._host(i, self.stores[i]) for i in range(hosts)]

    # turns -----------------------------------------------------------------------------------

    @abstractmethod
    def _host(self, number: int, store: MemoryStore) -> Host: ...

    @abstractmethod
    def _strike(self, number: int, inputs: list[Input]) -> str:
        """Draws the fault of a host's next turn, "" for none. A loss of power is one of:

        crash_before    the turn is not begun
        crash_lost      the turn is lost while it is written
        crash_kept      the turn is durable, but none of its messages left
        crash_sent      the turn is durable, and its messages left
        """

    @abstractmethod
    def crash(self, number: int) -> None:
        """Crashes a host: it loses its inbox and uncommitted data, and starts again a little later."""

    @abstractmethod
    def _turn(self, number: int) -> None:
        """Runs a host's next turn over inputs from its inbox."""

    def _can_run(self, number: int) -> bool:
        """Returns whether a host can run its due turn; one that rests runs it as soon as it can."""
        self._due[number] = False
        if self.away[number] or not self.inboxes[number]:
            return False
        if self._rests_until[number] > self.now:
            self._due[number] = True
            self.after(self._rests_until[number] - self.now, self._turn, number)
        return not self._due[number]

    def _observe(self, turn: Turn) -> None:
        self._changes = turn.changes()
        self.turn = turn

    def _run(
        self, number: int, inputs: list[Input], now_ms: int, reserve: bool = False
    ) -> Released:
        """Runs one turn and records it. An exception of an input is a bug: it is raised here."""
        node, life = self.nodes[number], self.lives[number]
        turn = TurnRecord(number, life, inputs, now_ms, reserve, node.history.oldest())
        try:
            released = node.run(inputs, now_ms, reserve)
            turn.changes, turn.failed = self._changes, False
        finally:
            self.recorded.append(turn)
        if released.failures:
            raise released.failures[0][1]
        return released

    def _fail(self, number: int, inputs: list[Input], now_ms: int) -> None:
        """Runs a turn that cannot be made durable, and records it."""
        store = self.stores[number]
        store.failing = True
        with suppress(IoError):
            self._run(number, inputs, now_ms)
        store.failing = False

    def _restart(self, number: int) -> None:
        """Begins a host's next life from its committed data, as after a power loss."""
        self._rests_until[number] = 0.0
        self.lives[number] += 1
        self.stores[number] = self.stores[number].crash()
        self.nodes[number] = self._host(number, self.stores[number])

    # the record -------------------------------------------------------------------------------

    def replay(self) -> list[bytes]:
        """Runs fresh cores over the recorded inputs and returns their changes; a new life starts from its store."""
        recorded, result = self.recorded, []
        self._open(self.hosts)
        for turn in recorded:
            while self.lives[turn.host] < turn.life:
                self._restart(turn.host)
            history = self.nodes[turn.host].history
            pin = history.open(turn.horizon)
            if turn.failed:
                self._fail(turn.host, turn.inputs, turn.now_ms)
            else:
                self._run(turn.host, turn.inputs, turn.now_ms, turn.reserve)
            pin.close()
            result.append(self.recorded[-1].changes)
        self.recorded = recorded
        return result


class Seat:
    """Stands for a host in the engine's views, across its restarts."""

    lock = nullcontext()

    def __init__(self, world: Hosts, number: int) -> None:
        self._world, self._number = world, number

    @property
    def host(self) -> Host:
        return self._world.nodes[self._number]

    @property
    def down(self) -> bool:
        return self._world.away[self._number]
