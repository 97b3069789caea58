"""What the simulated worlds of all modes have in common: hosts over stores in memory, recorded and replayed.

    inputs, clock ─▶ Host.run ─▶ Disk.commit: durable, or made to fail ─▶ Recorded: what came in, what changed
    Recorded of a whole run ─▶ fresh hosts ─▶ the same changes, byte for byte

Next: world.py.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from ....errors import IoError, NoSpace, PlanstepError
from ....host.host import Host
from ....host.inputs import Input, Released
from ....host.tablet_space import stored_tablets
from ....proto.ids import host_of, tablet_prefix
from ....store import MemoryStore, Show, Turn
from ....tablets.partition import Entry


@dataclass(slots=True)
class Recorded:
    """One turn: which host (and its how-many-th life), what came in, when, and what it changed.

    Also one that failed, and changed nothing: what cores keep in memory may know of it.
    """

    host: int
    life: int
    inputs: list[Input]
    now_ms: int
    changes: bytes
    reserve: bool = False
    failed: bool = False
    horizon: int = 0
    """The oldest step that an open snapshot read then: plans tell it to other hosts."""


class Disk(MemoryStore):
    """A store in memory whose commits can be made to fail; what was committed outlives a crash."""

    failing: type[PlanstepError] | None = None
    full = False
    """The reserve is left."""

    def commit(self, turn: Turn, show: Show | None = None) -> None:
        if self.failing is not None:
            raise self.failing("made to fail")
        if self.full and not turn.reserve and not turn.empty():
            raise NoSpace("made to be full")
        super().commit(turn, show)


class Hosts(ABC):
    """Hosts over stores in memory, and what went into each of their turns.

    Who inherits says how a host is made (`_host`), by its settings alone: a replay asks it again; and what
    goes wrong (`_strike`), which a plan may say in its place.
    """

    def _open(self, hosts: int) -> None:
        self.hosts = hosts
        self.lives = [0] * hosts
        self.recorded: list[Recorded] = []
        self._changes = b""
        self.turn: Turn
        self.stores = [Disk(bytes([i]) * 16) for i in range(hosts)]
        self.nodes = [self._host(i, self.stores[i]) for i in range(hosts)]

    @abstractmethod
    def _host(self, number: int, store: MemoryStore) -> Host: ...

    @abstractmethod
    def _strike(self, number: int, inputs: list[Input]) -> str:
        """Draws what strikes the next turn of a host, "" for nothing. A loss of power is one of:

        crash_before    the turn is not begun
        crash_lost      it is lost while it is written
        crash_kept      it is durable, and nobody hears of it
        crash_sent      what it sends has left
        """

    @abstractmethod
    def crash(self, number: int) -> None:
        """The host loses what was not committed, its inbox included, and starts again a little later."""

    def _observe(self, turn: Turn) -> None:
        self._changes = turn.changes()
        self.turn = turn

    def _run(
        self, number: int, inputs: list[Input], now_ms: int, reserve: bool = False
    ) -> Released:
        """One turn, recorded. What an input raised is a bug, and raised here."""
        horizon = self.nodes[number].history.oldest()
        try:
            released = self.nodes[number].run(inputs, now_ms, reserve)
        except IoError:
            self._record(number, inputs, now_ms, horizon, failed=True)
            raise
        self._record(number, inputs, now_ms, horizon, reserve)
        if released.failures:
            raise released.failures[0][1]
        return released

    def _record(
        self,
        number: int,
        inputs: list[Input],
        now_ms: int,
        horizon: int,
        reserve: bool = False,
        failed: bool = False,
    ) -> None:
        changes = b"" if failed else self._changes
        life = self.lives[number]
        made = Recorded(number, life, inputs, now_ms, changes, reserve, failed, horizon)
        self.recorded.append(made)

    def _fail(self, number: int, inputs: list[Input], now_ms: int) -> None:
        """A turn that cannot be made durable."""
        store = self.stores[number]
        store.failing = IoError
        horizon = self.nodes[number].history.oldest()
        try:
            self.nodes[number].run(inputs, now_ms)
        except IoError:
            self._record(number, inputs, now_ms, horizon, failed=True)
        finally:
            store.failing = None

    def _restart(self, number: int) -> None:
        """After a power loss: what was not committed is gone."""
        self.lives[number] += 1
        self.stores[number] = self.stores[number].crash()
        self.nodes[number] = self._host(number, self.stores[number])

    # looking at what is durable ---------------------------------------------------------------

    def read(self, tablet: int, key: bytes) -> Any:
        """Returns a row of a tablet, or None where there is none."""
        return self.stores[host_of(tablet)].get(tablet_prefix(tablet) + key)

    def rows(self, tablet: int, letter: bytes) -> list[tuple[bytes, Any]]:
        """Returns a tablet's rows whose keys begin so, each with its key behind the tablet's prefix."""
        store, prefix = self.stores[host_of(tablet)], tablet_prefix(tablet)
        found = store.scan(prefix + letter, prefix + letter + b"\xff" * 13)
        return [(key[len(prefix) :], row) for key, row in found]

    def payloads(self, tablet: int) -> list[bytes]:
        """Returns what the log of a partition in mode "deterministic" holds, in its order."""
        store = self.stores[host_of(tablet)]
        entries = [Entry._make(row) for _, row in self.rows(tablet, b"b")]
        return [store.read_payload(entry.address, entry.length) for entry in entries]

    def unfinished(self) -> str:
        """A message, or a transaction, that is durable and not at its end; "" for none."""
        for host in self.nodes:
            for link in host.links.values():
                if link.queue and link.queue[-1][0] > link.acknowledged:
                    return f"an unacknowledged message from host {link.source} to {link.target}"
        for host, store in zip(self.nodes, self.stores, strict=True):
            for prefix in stored_tablets(store, host.number):
                for kind in (b"t", b"q", b"s"):
                    # The catalogue's "s" is its next number, and no transaction.
                    rows = store.scan(prefix + kind, prefix + bytes([kind[0] + 1]), limit=2)
                    if any(kind == b"q" or len(key) == 17 for key, _ in rows):
                        return f"a transaction at a tablet: {rows[0]!r}"
        return ""

    # the record -------------------------------------------------------------------------------

    def digest(self) -> str:
        """Returns a hash of all changes, in their order."""
        made = hashlib.sha256()
        for turn in self.recorded:
            made.update(b"%d %d " % (turn.host, len(turn.changes)))
            made.update(turn.changes)
        return made.hexdigest()

    def replay(self) -> list[bytes]:
        """The changes that fresh cores make of the recorded inputs; a new life starts from its store."""
        recorded, result = self.recorded, []
        self._open(self.hosts)
        for turn in recorded:
            while self.lives[turn.host] < turn.life:
                self._restart(turn.host)
            history = self.nodes[turn.host].history
            history.open(turn.horizon)
            if turn.failed:
                self._fail(turn.host, turn.inputs, turn.now_ms)
            else:
                self._run(turn.host, turn.inputs, turn.now_ms, turn.reserve)
            history.close(turn.horizon)
            result.append(self.recorded[-1].changes)
        self.recorded = recorded
        return result
