"""What a transaction cost: counted where messages are sent, appends made and turns synced.

    requests        of the client: deterministic, to each tablet; kafka, a produce request to a host is one,
                    whatever number of partitions it is for
    messages        between tablets; kafka, a coordinator's markers to a host are one, whatever number of
                    partitions they are for, and so are what answers them, and a host's registrations
    appends         records that the tablets' logs took: deterministic, one for each tablet and turn that it
                    changed something in; kafka, one for each append to a partition or coordinator's log
    hops            durable steps in series before the reply: syncs that had to be waited for one after the other,
                    but for those that a flush, or what went ahead of the commit, has waited for
    hops_visible    … until its effects could be read by others
    syncs           its share: a sync that served four transactions is a quarter for each
    client_bytes    between the client and the tablets, there and back
    tablet_bytes    between tablets that do not share a turn

Reads are not among them: they enter no turn, and both modes fetch alike (`fetches` in db.stats() counts them).
Messages within a turn of one host (placement "shared") are counted as messages and take no link. Of
objects that are handed over in memory the bytes are what they would take (messages.size_of).
What a protocol does for nobody in particular (retries by timer, scans) is in the totals only.

Beside it, of each transaction, when its phases were reached, and of all together their durable steps: how
often a message of a kind changed something in a tablet of a kind.

Next: turn_loop.py.
"""

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from ..host.costs import Spent, Steps

KEPT = 10_000


@dataclass(slots=True)
class Costs:
    """Of one transaction, or the sum of all; see above."""

    requests: float = 0
    messages: float = 0
    appends: float = 0
    hops: int = 0
    hops_visible: int = 0
    syncs: float = 0.0
    client_bytes: int = 0
    tablet_bytes: int = 0


class Phases(NamedTuple):
    """When a transaction was durably planned (mode "kafka": never), durably decided, and visible to others; as
    time.monotonic_ns() has it, None while it has not come to that, or will not."""

    planned: int | None
    decided: int | None
    visible: int | None


@dataclass(slots=True)
class _Entry(Costs):
    planned: int = 0
    decided: int = 0
    visible: int = 0
    aborted: bool = False


class Ledger:
    """The newest transactions' costs, and the sum of all. Threads share it; whoever calls on the main thread does
    so Uninterrupted: leading turns, or under a client's lock."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._of: dict[bytes, _Entry] = {}
        self._lock = threading.Lock()
        self.total = Costs()
        self.steps: Steps = {}

    def of(self, tx: bytes) -> Costs | None:
        found = self._of.get(tx)
        if found is None:
            return None
        return Costs(*(getattr(found, name) for name in Costs.__slots__))

    def phases(self, tx: bytes) -> Phases | None:
        found = self._of.get(tx)
        if found is None:
            return None
        visible = None if found.aborted else found.visible or None
        return Phases(found.planned or None, found.decided or None, visible)

    def _entry(self, tx: bytes) -> _Entry:
        found = self._of.get(tx)
        if found is None:
            found = self._of[tx] = _Entry()
            if len(self._of) > self._kept:
                del self._of[next(iter(self._of))]
        return found

    def requested(self, tx: bytes | None, requests: float, client_bytes: int = 0) -> None:
        """Of a client outside of the hosts' turns: `requests` are in the sum already."""
        with self._lock:
            self.total.client_bytes += client_bytes
            if tx is not None:
                mine = self._entry(tx)
                mine.requests += requests
                mine.client_bytes += client_bytes

    def counted(self, requests: int) -> None:
        """Requests of clients, for whomever."""
        with self._lock:
            self.total.requests += requests

    def replied(self, tx: bytes, hops: int) -> None:
        """The client has its answer."""
        with self._lock:
            self._entry(tx).hops = hops

    def aborted(self, tx: bytes) -> None:
        """Nothing of it is visible at any time."""
        with self._lock:
            self._entry(tx).aborted = True

    def decided(self, tx: bytes, ago_ns: int) -> None:
        """A client outside of the hosts' turns has heard how its transaction ends, which left so long ago."""
        with self._lock:
            self._entry(tx).decided = time.monotonic_ns() - ago_ns

    def turn(
        self,
        spent: dict[bytes | None, Spent],
        syncs: int,
        replied: dict[bytes, int],
        steps: Steps,
    ) -> None:
        """What a durable turn did, how many syncs it took, and the hops behind what it answers."""
        now = time.monotonic_ns()
        writers = sum(1 for one in spent.values() if one.appends or one.tablets)
        share = syncs / writers if writers else 0.0
        requests = messages = appends = 0.0
        client_bytes = tablet_bytes = 0
        with self._lock:
            for tx, one in spent.items():
                made = one.appends + len(one.tablets or ())
                requests += one.requests
                messages += one.messages
                appends += made
                client_bytes += one.client_bytes
                tablet_bytes += one.tablet_bytes
                if tx is None:
                    continue
                mine = self._of.get(tx) or self._entry(tx)
                mine.requests += one.requests
                mine.messages += one.messages
                mine.client_bytes += one.client_bytes
                mine.tablet_bytes += one.tablet_bytes
                mine.appends += made
                if made:
                    mine.syncs += share
                if one.planned:
                    mine.planned = now
                if one.decided:
                    mine.decided = mine.decided or now
                    mine.visible = now
                if made and one.visible:
                    mine.visible = now
                    mine.hops_visible = max(mine.hops_visible, one.hops + 1)
            for tx, hops in replied.items():
                mine = self._of.get(tx) or self._entry(tx)
                mine.hops = mine.hops_visible = hops
                if mine.planned and not mine.decided:  # at its place, in one turn with its answer
                    mine.decided = mine.visible = now
            for step, times in steps.items():
                self.steps[step] = self.steps.get(step, 0) + times
            total = self.total
            total.requests += requests
            total.messages += messages
            total.appends += appends
            total.syncs += syncs
            total.client_bytes += client_bytes
            total.tablet_bytes += tablet_bytes
