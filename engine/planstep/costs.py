"""What a transaction cost: counted where messages are sent, appends made and turns synced.

    requests        of the client: deterministic, to each tablet; kafka, a produce request to a host is one,
                    whatever number of partitions it is for
    messages        between tablets
    appends         records that the tablets' logs took: deterministic, one for each tablet and turn that it
                    changed something in; kafka, one for each append to a partition or coordinator's log
    hops            durable steps in series before the reply: syncs that had to be waited for one after the other
    hops_visible    … until its effects could be read by others
    syncs           its share: a sync that served four transactions is a quarter for each
    client_bytes    between the client and the tablets, there and back
    tablet_bytes    between tablets that do not share a turn

Messages within a turn of one host (placement "shared") are counted as messages and take no link. Of
objects that are handed over in memory the bytes are what they would take (messages.size_of).
What a protocol does for nobody in particular (retries by timer, scans) is in the totals only.

Next: delivery.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Spent:
    """What one turn did for one transaction."""

    requests: float = 0
    messages: float = 0
    appends: float = 0  # that a core counted itself
    tablets: dict[int, None] = field(default_factory=dict)  # that changed something
    hops: int = 0  # of the messages that changed something
    client_bytes: int = 0
    tablet_bytes: int = 0
    visible: bool = False  # its effects can be read by others from here on

    @property
    def wrote(self) -> bool:
        return bool(self.appends or self.tablets)


class Ledger:
    """The newest transactions' costs, and the sum of all. Written by whoever runs a turn."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._of: dict[bytes, Costs] = {}
        self.total = Costs()

    def of(self, tx: bytes) -> Costs | None:
        return self._of.get(tx)

    def _entry(self, tx: bytes) -> Costs:
        found = self._of.get(tx)
        if found is None:
            found = self._of[tx] = Costs()
            while len(self._of) > self._kept:
                del self._of[next(iter(self._of))]
        return found

    def requested(self, tx: bytes | None, requests: float, client_bytes: int = 0) -> None:
        """Of a client, outside of the hosts' turns."""
        for costs in (self.total, *((self._entry(tx),) if tx is not None else ())):
            costs.requests += requests
            costs.client_bytes += client_bytes

    def replied(self, tx: bytes, hops: int, visible: bool = False) -> None:
        """The client has its answer; with `visible` its effects can be read, too."""
        costs = self._entry(tx)
        costs.hops = hops
        if visible:
            costs.hops_visible = hops

    def turn(self, spent: Iterable[tuple[bytes | None, Spent]], syncs: int) -> None:
        """What a durable turn did, and how many syncs it took."""
        spent = list(spent)
        writers = sum(1 for _, one in spent if one.wrote)
        self.total.syncs += syncs
        for tx, one in spent:
            share = syncs / writers if one.wrote else 0.0
            appends = one.appends + len(one.tablets)
            costs = [self.total]
            if tx is not None:
                mine = self._entry(tx)
                mine.syncs += share
                if one.visible:
                    mine.hops_visible = max(mine.hops_visible, one.hops + 1)
                costs.append(mine)
            for total in costs:
                total.requests += one.requests
                total.messages += one.messages
                total.appends += appends
                total.client_bytes += one.client_bytes
                total.tablet_bytes += one.tablet_bytes
