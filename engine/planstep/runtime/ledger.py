"""Counts what transactions cost, where messages are sent, appends are made and turns are synced.

    requests        of the client: deterministic, to each tablet; kafka, a produce request to a host is one,
                    for any number of partitions
    messages        between tablets; kafka, a coordinator's markers to a host are one, for any number of
                    partitions, and so are their answers, and a host's registrations
    appends         records in the tablets' logs: deterministic, one for each tablet and turn in which the tablet
                    changed something; kafka, one for each append to a partition's or coordinator's log
    hops            durable steps in series before the reply: syncs that had to be waited for one after the other,
                    except those that a flush, or staging before the commit, has waited for
    hops_visible    … until others could read its effects
    syncs           its share: a sync that served four transactions is a quarter for each
    client_bytes    between the client and the tablets, there and back
    tablet_bytes    between tablets that do not share a turn

Reads are not counted: they enter no turn, and both modes fetch alike (`fetches` in db.stats() counts them).
Messages within a turn of one host (placement "shared") are counted as messages and take no link. Objects that
are handed over in memory count with the bytes that they would take on the wire (messages.size_of).
Work that a protocol does for no transaction in particular (retries by timer, scans) is in the totals only.

The ledger also notes when each transaction reached its phases, and for all transactions together their durable
steps: how often a message of a kind changed something in a tablet of a kind.

Next: turn_loop.py.
"""

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..host.inputs import Spent, Steps

ENTRIES_MAX = 10_000


@dataclass(slots=True)
class Costs:
    """Costs of one transaction, or the sum of all; the module's docstring has their meaning."""

    requests: float = 0
    messages: float = 0
    appends: float = 0
    hops: int = 0
    hops_visible: int = 0
    syncs: float = 0.0
    client_bytes: int = 0
    tablet_bytes: int = 0


class Phases(NamedTuple):
    """The times at which a transaction was durably planned, durably decided, and visible to others.

    They are time.monotonic_ns(); None while it has not come to that, or never will. Mode "kafka" plans nothing.
    """

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
    """Holds the newest transactions' costs, and the sum of all. Threads share it. A caller on the main thread must
    be Uninterrupted: leading turns, or under a client's lock."""

    def __init__(self) -> None:
        self._of: dict[bytes, _Entry] = {}
        self._lock = threading.Lock()
        self.total = Costs()
        self.steps: Steps = {}

    def of(self, tx: bytes) -> Costs | None:
        entry = self._of.get(tx)
        if entry is None:
            return None
        return Costs(*(getattr(entry, name) for name in Costs.__slots__))

    def phases(self, tx: bytes) -> Phases | None:
        entry = self._of.get(tx)
        if entry is None:
            return None
        visible = None if entry.aborted else entry.visible or None
        return Phases(entry.planned or None, entry.decided or None, visible)

    def _entry(self, tx: bytes) -> _Entry:
        entry = self._of.get(tx)
        if entry is None:
            entry = self._of[tx] = _Entry()
            if len(self._of) > ENTRIES_MAX:
                del self._of[next(iter(self._of))]
        return entry

    def requested(self, tx: bytes | None, requests: float, client_bytes: int = 0) -> None:
        """Counts costs of a transaction whose client is outside of turns; `requests` are in the sum already."""
        with self._lock:
            self.total.client_bytes += client_bytes
            if tx is not None:
                mine = self._entry(tx)
                mine.requests += requests
                mine.client_bytes += client_bytes

    def counted(self, requests: int) -> None:
        """Adds clients' requests to the sum, without a transaction."""
        with self._lock:
            self.total.requests += requests

    def replied(self, tx: bytes, hops: int) -> None:
        """Notes the hops of a transaction when its client has the answer."""
        with self._lock:
            self._entry(tx).hops = hops

    def aborted(self, tx: bytes) -> None:
        """Notes an abort: no effect of the transaction ever becomes visible."""
        with self._lock:
            self._entry(tx).aborted = True

    def decided(self, tx: bytes, ago_ns: int) -> None:
        """Notes that a client outside of turns has heard the decision, which was sent `ago_ns` ago."""
        with self._lock:
            self._entry(tx).decided = time.monotonic_ns() - ago_ns

    def turn(
        self,
        spent: "dict[bytes | None, Spent]",
        syncs: int,
        replied: dict[bytes, int],
        steps: "Steps",
    ) -> None:
        """Counts a durable turn: its costs, its syncs, the hops of its answers (`replied`), and its steps."""
        now = time.monotonic_ns()
        writers = sum(1 for one in spent.values() if one.appends or one.tablets)
        share = syncs / writers if writers else 0.0
        with self._lock:
            self.total.syncs += syncs
            for tx, one in spent.items():
                writes = one.appends + len(one.tablets or ())
                mine = None if tx is None else self._of.get(tx) or self._entry(tx)
                for costs in (self.total,) if mine is None else (self.total, mine):
                    costs.requests += one.requests
                    costs.messages += one.messages
                    costs.client_bytes += one.client_bytes
                    costs.tablet_bytes += one.tablet_bytes
                    costs.appends += writes
                if mine is None:
                    continue
                mine.syncs += share if writes else 0.0
                if one.planned:
                    mine.planned = now
                if one.decided:
                    mine.decided = mine.decided or now
                    mine.visible = now
                if writes and one.visible:
                    mine.visible = now
                    mine.hops_visible = max(mine.hops_visible, one.hops + 1)
            for tx, hops in replied.items():
                mine = self._of.get(tx) or self._entry(tx)
                mine.hops = mine.hops_visible = hops
                if mine.planned and not mine.decided:  # planned and decided in the same turn
                    mine.decided = mine.visible = now
            for step, times in steps.items():
                self.steps[step] = self.steps.get(step, 0) + times
