"""Runs hosts over stores in memory in virtual time, and records and replays their turns: the base of each world.

    after(5, call) ─▶ (now + 5, order, call) ─▶ step: sets the time, then calls
    inputs, clock ─▶ Host.run ─▶ Disk.commit: durable, or made to fail ─▶ TurnRecord: what came in, what changed
    records of a whole run ─▶ fresh hosts ─▶ the same changes, byte for byte

Two events of one moment happen in the order in which they were scheduled.
Next: world.py.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from ....errors import IoError, NoSpace
from ....host.host import Host
from ....host.inputs import Input, Released
from ....host.tablet_space import stored_tablets
from ....proto.ids import host_of, tablet_prefix
from ....store import MemoryStore, Show, Turn
from ....tablets.partition import Entry

_LAST = 200
"""The number of recent turns and crashes that a failure report may print."""


@dataclass(slots=True)
class TurnRecord:
    """Records one turn: the host and the number of its life, the inputs, the time, and the changes.

    Failed turns are recorded as well: they changed nothing durable, but may have changed the cores' memory.
    """

    host: int
    life: int
    inputs: list[Input]
    now_ms: int
    reserve: bool
    horizon: int
    """The oldest step that an open snapshot read at that time; plans carry it to other hosts."""
    changes: bytes = b""
    failed: bool = True


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


class Hosts(ABC):
    """Runs hosts over stores in memory in virtual milliseconds, and records the inputs of each of their turns.

    A subclass makes hosts (`_host`) from its settings alone, because a replay makes them again. It also draws
    faults (`_strike`); a plan may override that. Invariant: time never goes back.
    """

    inboxes: Sequence[Sequence[object]]

    def __init__(self, seed: int, hosts: int) -> None:
        self.seed = seed
        self.faulted: Counter[str] = Counter()
        """The number of faults that happened, by class."""
        self.skew_ms = [0] * hosts
        """The error of each host's clock."""
        self.last: deque[tuple[float, int, str, list[Input]]] = deque(maxlen=_LAST)
        """The newest turns and crashes: (time, host, fault, inputs)."""
        self.now = 1_000.0
        self.events = self._order = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._due = [False] * hosts  # a turn is scheduled
        self.away = [False] * hosts
        self._rests_until = [0.0] * hosts  # paused, or at a slow disk
        self._open(hosts)

    def _open(self, hosts: int) -> None:
        self.hosts = hosts
        self.lives = [0] * hosts
        self.recorded: list[TurnRecord] = []
        self._changes = b""
        self.turn: Turn
        self.stores = [Disk(bytes([i]) * 16) for i in range(hosts)]
        self.nodes = [self._host(i, self.stores[i]) for i in range(hosts)]

    # time ------------------------------------------------------------------------------------

    def after(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None:
        self._order += 1
        heappush(self._queue, (self.now + delay_ms, self._order, call, args))

    def scheduled(self) -> Iterator[Callable[..., None]]:
        """Yields what is to be called, in no order."""
        return (call for _, _, call, _ in self._queue)

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

    # durable state ----------------------------------------------------------------------------

    def read(self, tablet: int, key: bytes) -> Any:
        """Returns a row of a tablet, or None where there is none."""
        return self.stores[host_of(tablet)].get(tablet_prefix(tablet) + key)

    def rows(self, tablet: int, letter: bytes) -> list[tuple[bytes, Any]]:
        """Returns a tablet's rows whose keys begin with `letter`; keys come without the tablet's prefix."""
        store, prefix = self.stores[host_of(tablet)], tablet_prefix(tablet)
        pairs = store.scan(prefix + letter, prefix + letter + b"\xff" * 13)
        return [(key[len(prefix) :], row) for key, row in pairs]

    def payloads(self, tablet: int) -> list[bytes]:
        """Returns the payloads of a partition's log in mode "deterministic", in order."""
        store = self.stores[host_of(tablet)]
        entries = [Entry._make(row) for _, row in self.rows(tablet, b"b")]
        return [store.read_payload(entry.address, entry.length) for entry in entries]

    def unfinished(self) -> str:
        """Names a durable message or transaction that is not finished; returns "" for none."""
        for host in self.nodes:
            for link in host.links.values():
                if link.queue and link.queue[-1][0] > link.acknowledged:
                    return f"an unacknowledged message from host {link.source} to {link.target}"
        for host, store in zip(self.nodes, self.stores, strict=True):
            for prefix in stored_tablets(store, host.number):
                for kind in (b"t", b"q", b"s"):
                    # The catalogue's row "s" holds its next number; it is no transaction.
                    rows = store.scan(prefix + kind, prefix + bytes([kind[0] + 1]), limit=2)
                    if any(kind == b"q" or len(key) == 17 for key, _ in rows):
                        return f"a transaction at a tablet: {rows[0]!r}"
        return ""

    # the record -------------------------------------------------------------------------------

    def latest(self) -> list[str]:
        """Formats the newest turns and crashes as text, a line for each input."""
        return [
            f"{at:9.1f} ms  host {number}  {fault:12} {item}"[:400]
            for at, number, fault, inputs in self.last
            for item in inputs or ("",)
        ]

    def digest(self) -> str:
        """Returns a hash of all recorded changes, in order."""
        digest = hashlib.sha256()
        for turn in self.recorded:
            digest.update(b"%d %d " % (turn.host, len(turn.changes)))
            digest.update(turn.changes)
        return digest.hexdigest()

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
