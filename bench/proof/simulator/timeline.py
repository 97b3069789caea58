"""Keeps the time, the events and the record of a simulated world, and reads its stores for workloads and judges.

    after(5, call) ─▶ (now + 5, order, call) ─▶ step: sets the time, then calls

Two events of one moment happen in the order in which they were scheduled.
Next: hosts.py.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from ....host.host import Host
from ....host.inputs import Input
from ....host.tablet_space import stored_tablets
from ....proto.ids import host_of, tablet_prefix
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


class Timeline:
    """The events of a world, and the durable state of its stores. Invariant: time never goes back."""

    stores: list[Any]
    nodes: list[Host]
    recorded: list[TurnRecord]

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.faulted: Counter[str] = Counter()
        """The number of faults that happened, by class."""
        self.last: deque[tuple[float, int, str, list[Any]]] = deque(maxlen=_LAST)
        """The newest turns and crashes: (time, host, fault, inputs)."""
        self.now = 1_000.0
        self.events = self._order = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

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

    def may_abort(self, tx: bytes) -> bool:
        """Returns whether a transaction may be aborted though its conditions hold."""
        return False

    def forgets(self, tablet: int, begin: int) -> bool:
        """Returns whether an answer may lack the offsets of records from `begin` on."""
        return False

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
