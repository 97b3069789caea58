"""The simulator: the real cores, hosts and links; time, delivery and crashes from one seed.

    seed ─▶ which host takes its turn · which frames are lost, repeated, held back · who crashes when
            └─▶ Host.run over MemoryStore ─▶ results, histories, recorded inputs

Stores are in memory: a crash keeps what was committed and loses the rest, as the disk store is tested
to do. Inputs of each turn can be recorded and replayed into fresh cores: the changes must be the same
byte for byte, under any PYTHONHASHSEED. `World` is the one of mode "deterministic".

Next: simulator_kafka.py, and tests/sim, which drive both.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .errors import IoError
from .host import Host
from .inputs import Ahead, Arrived, Commit, Deliver, Input, Released, Rollback, Tick
from .proto.ids import PROXY, tablet_id, tx_id
from .proto.messages import Withdraw
from .proxy.deterministic import Result
from .store import MemoryStore, Turn


@dataclass(slots=True)
class Recorded:
    """One turn: which host (and its how-many-th life), what came in, when, and what it changed."""

    host: int
    life: int
    inputs: list[Input]
    now_ms: int
    changes: bytes


class Hosts(ABC):
    """Hosts over stores in memory, and what went into each of their turns.

    Who inherits says how a host is made (`_host`), by its settings alone: a replay asks it again.
    """

    def _open(self, hosts: int) -> None:
        self.hosts = hosts
        self.lives = [0] * hosts
        self.recorded: list[Recorded] = []
        self._changes = b""
        self.stores = [MemoryStore(bytes([i]) * 16) for i in range(hosts)]
        self.nodes = [self._host(i, self.stores[i]) for i in range(hosts)]

    @abstractmethod
    def _host(self, number: int, store: MemoryStore) -> Host: ...

    def _observe(self, turn: Turn) -> None:
        self._changes = turn.changes()

    def _run(self, number: int, inputs: list[Input], now_ms: int) -> Released:
        """One turn, recorded. What an input raised is a bug, and raised here."""
        released = self.nodes[number].run(inputs, now_ms)
        life = self.lives[number]
        self.recorded.append(Recorded(number, life, inputs, now_ms, self._changes))
        if released.failures:
            raise released.failures[0][1]
        return released

    def _fail(self, number: int, inputs: list[Input], now_ms: int) -> None:
        """A turn that cannot be made durable."""
        store: Any = self.stores[number]

        def commit(*args: object) -> None:
            raise IoError("made to fail")

        store.commit = commit
        try:
            self.nodes[number].run(inputs, now_ms)
        except IoError:
            pass
        finally:
            del store.commit

    def _restart(self, number: int) -> None:
        """After a power loss: what was not committed is gone."""
        self.lives[number] += 1
        self.stores[number] = self.stores[number].crash()
        self.nodes[number] = self._host(number, self.stores[number])

    def replay(self) -> list[bytes]:
        """The changes that fresh cores make of the recorded inputs; a new life starts from its store."""
        recorded, result = self.recorded, []
        self._open(self.hosts)
        for turn in recorded:
            while self.lives[turn.host] < turn.life:
                self._restart(turn.host)
            self._run(turn.host, turn.inputs, turn.now_ms)
            result.append(self._changes)
        self.recorded = recorded
        return result


@dataclass
class Faults:
    """Probabilities per frame or turn; all zero heals the world."""

    lose: float = 0.05
    repeat: float = 0.05
    delay: float = 0.2
    crash: float = 0.01
    fail: float = 0.02
    """A turn cannot be made durable, and the host goes on."""


@dataclass
class World(Hosts):
    """Hosts that exchange bytes, one event at a time. Of `rtt_ms` only what it delays is simulated."""

    seed: int
    hosts: int = 4
    faults: Faults = field(default_factory=Faults)
    merge: bool = True
    at_once: bool = True
    separate: bool = False
    rtt_ms: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now_ms = 1_000
        self.results: dict[bytes, Result] = {}
        self.ahead: dict[bytes, dict[int, Any]] = {}
        self.sent_ahead = 0
        self.crashes = self.lost = self.repeated = self.failed = 0
        self._counter = 0
        self._held: list[tuple[int, int, int | None, Input]] = []
        """(turns, host, its life if this ends with it, what comes in then)."""
        self.inboxes: list[list[Input]] = [[] for _ in range(self.hosts)]
        self._open(self.hosts)

    def _host(self, number: int, store: MemoryStore) -> Host:
        proxy = tablet_id(PROXY, 0, store.generation) if number == 0 else None
        host = Host(
            number,
            store,
            self.hosts,
            proxy=proxy,
            observe=self._observe,
            separate=self.separate,
            rtt_ms=self.rtt_ms,
        )
        host.at_once = self.at_once and not self.separate
        if host.proxy is not None:
            host.proxy.merge = self.merge and not self.separate
        return host

    def commit(self, parts: dict[int, Any]) -> bytes:
        """Hands a transaction to the proxy; its result will be in `results`, unless host 0 dies."""
        self._counter += 1
        tx = tx_id(self.stores[0].generation, self._counter)
        self.inboxes[0].append(Commit(tx, parts))
        return tx

    def commit_ahead(self, slices: dict[int, tuple[int, Any]], parts: dict[int, Any]) -> bytes:
        """As `commit`, once the slices that the parts count on are staged; else it is rolled back."""
        self._counter += 1
        tx = tx_id(self.stores[0].generation, self._counter)
        self.inboxes[0].append(Ahead(tx, slices))
        self.ahead[tx] = parts
        return tx

    def rollback(self, tx: bytes) -> None:
        """The client gives up what it has sent ahead."""
        if self.ahead.pop(tx, None) is not None:
            self.inboxes[0].append(Rollback(tx))

    def step(self) -> None:
        """One event: time passes, or a host takes its turn, or a host crashes."""
        draw = self.random
        self.now_ms += draw.randrange(1, 20)
        number = draw.randrange(self.hosts)
        if draw.random() < self.faults.crash:
            self.crash(number)
            return
        if draw.random() < 0.2:
            self.inboxes[number].append(Tick())
        self._deliver_held()
        inputs = self.inboxes[number]
        if not inputs:
            return
        if draw.random() < self.faults.delay:
            draw.shuffle(inputs)
        taken = draw.randrange(1, len(inputs) + 1)
        self.inboxes[number] = inputs[taken:]
        self._turn(number, inputs[:taken])

    def _turn(self, number: int, inputs: list[Input]) -> None:
        if self.random.random() < self.faults.fail:
            self._fail_turn(number, inputs)
            return
        released = self._run(number, inputs, self.now_ms)
        for result in released.results:
            if not result.step and result.reason is None:
                self.sent_ahead += 1
                parts = self.ahead.pop(result.tx, None)
                # Inputs are shuffled here: a rollback may have come before what it is for.
                then = Rollback(result.tx) if parts is None else Commit(result.tx, parts)
                self.inboxes[0].append(then)
                continue
            assert result.tx not in self.results, "answered once"
            self.results[result.tx] = result
        # A crash between the sync and the release: durable, and nobody hears of it.
        if self.random.random() < self.faults.crash:
            self.crash(number)
            return
        for target, data in released.frames:
            self._send(target, data)
        for later in released.later:
            turns = self.random.randrange(1, 8)
            self._held.append((turns, number, self.lives[number], later.deliver))

    def _fail_turn(self, number: int, inputs: list[Input]) -> None:
        """As turns.py answers it: clients hear of it, frames come again, rollbacks too."""
        self._fail(number, inputs, self.now_ms)
        self.failed += 1
        proxy = self.nodes[0].proxy
        assert proxy is not None
        for item in inputs:
            if isinstance(item, Commit):
                self.results[item.tx] = Result(item.tx, reason=(0, "failed"))
            if isinstance(item, Ahead):
                self.ahead.pop(item.tx, None)
            if isinstance(item, (Ahead, Commit)) and item.tx in proxy.staging:
                self.inboxes[0].append(Rollback(item.tx))
            elif isinstance(item, (Rollback, Deliver)):
                self.inboxes[number].append(item)

    def _send(self, target: int, data: bytes) -> None:
        draw = self.random.random
        if draw() < self.faults.lose:
            self.lost += 1
            return
        copies = 1
        if draw() < self.faults.repeat:
            self.repeated += 1
            copies = 2
        for _ in range(copies):
            if draw() < self.faults.delay:
                turns = self.random.randrange(1, 60)
                self._held.append((turns, target, None, Arrived(data)))
            else:
                self.inboxes[target].append(Arrived(data))

    def _deliver_held(self) -> None:
        still = []
        for turns, target, life, item in self._held:
            if life not in (None, self.lives[target]):
                continue
            if turns <= 1:
                self.inboxes[target].append(item)
            else:
                still.append((turns - 1, target, life, item))
        self._held = still

    def crash(self, number: int) -> None:
        """The host loses what was not committed, its inbox included, and starts again."""
        self.crashes += 1
        self.inboxes[number] = []
        self._restart(number)
        if number == 0:
            self.ahead.clear()  # the clients are gone with the proxy
        self._drop_older(range(self.hosts) if number == 0 else [number])

    def _drop_older(self, hosts: Iterable[int]) -> None:
        """As an engine does when it opens: what older ones had sent ahead goes."""
        for number in hosts:
            for tablet, tx in self.nodes[number].staged_before(self.stores[0].generation):
                self.inboxes[number].append(Deliver(tablet, Withdraw(tx)))

    def run(self, events: int) -> None:
        for _ in range(events):
            self.step()

    def settle(self, events_max: int = 20_000) -> int:
        """Heals the world and runs until nothing is under way; returns the events it took."""
        self.faults = Faults(0, 0, 0, 0, 0)
        for event in range(events_max):
            if event % 50 == 0 and self.settled():
                return event
            self.step()
        raise AssertionError(f"seed {self.seed}: not settled after {events_max} events")

    def settled(self) -> bool:
        if any(self.inboxes) or self._held:
            return False
        proxy = self.nodes[0].proxy
        assert proxy is not None
        if proxy.open:
            return False
        for host, store in zip(self.nodes, self.stores, strict=True):
            if any(
                link.queue and link.queue[-1][0] > link.acknowledged for link in host.links.values()
            ):
                return False
            for key, _ in store.scan(b"\x00" * 4, b"\xff" * 5):
                if key[:1] in (b"\x20", b"\x30", b"\x40") or key[0] >> 4 in (2, 3, 4):
                    if key[4:5] in (b"t", b"q", b"s") and key[0] >> 4 != 2:
                        return False
                    if key[4:5] in (b"t", b"q"):
                        return False
        return True
