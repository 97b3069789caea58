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

Reads are not counted: they enter no turn, and all modes fetch alike (`fetches` in db.stats() counts them).
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
    from ..host.inputs import Released, Steps

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

    def with_more(self, other: "Costs") -> "Costs":
        """Adds what another process has counted for the same transaction; steps in series are the most of both."""
        return Costs(
            *(
                max(mine, more) if name.startswith("hops") else mine + more
                for name in Costs.__slots__
                for mine, more in [(getattr(self, name), getattr(other, name))]
            )
        )


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


class _Counted(NamedTuple):
    """The costs of a transaction in one turn; an entry is made from it if it is asked for, which most are not."""

    requests: float
    messages: float
    appends: float
    client_bytes: int
    tablet_bytes: int
    planned: bool
    decided: bool
    visible: bool
    hops: int
    syncs: float
    """Its share."""
    at_ns: int
    reply_hops: int | None
    """None if the turn did not answer it."""

    def add_to(self, entry: _Entry) -> None:
        entry.requests += self.requests
        entry.messages += self.messages
        entry.client_bytes += self.client_bytes
        entry.tablet_bytes += self.tablet_bytes
        entry.appends += self.appends
        entry.syncs += self.syncs
        if self.planned:
            entry.planned = self.at_ns
        if self.decided:
            entry.decided = entry.decided or self.at_ns
        if self.visible:
            entry.visible = self.at_ns
            if self.appends:
                entry.hops_visible = max(entry.hops_visible, self.hops + 1)
        if self.reply_hops is not None:
            entry.hops = entry.hops_visible = self.reply_hops
            if entry.planned and not entry.decided:  # planned and decided in the same turn
                entry.decided = entry.visible = self.at_ns


class Ledger:
    """Holds the newest transactions' costs, and the sum of all. Threads share it. A caller on the main thread must
    be Uninterrupted: leading turns, or under a client's lock."""

    def __init__(self) -> None:
        self._of: dict[bytes, _Entry | _Counted] = {}
        """A transaction that began and ended in one turn has what was counted there."""
        self._lock = threading.Lock()
        self.total = Costs()
        self.entries = 0
        """Different (tablet, turn) pairs: the entries if each tablet's log took its records of a turn as one."""
        self.steps: Steps = {}

    def of(self, tx: bytes) -> Costs | None:
        entry = self._peek(tx)
        if entry is None:
            return None
        return Costs(*(getattr(entry, name) for name in Costs.__slots__))

    def phases(self, tx: bytes, elsewhere: Phases | None = None) -> Phases | None:
        """Returns the phases of a transaction. What the store's owner has noted, `elsewhere`, goes before: the
        transaction was decided there before it was heard of here. But an abort may be known to its client alone.
        """
        entry = self._peek(tx)
        if entry is None:
            return elsewhere
        own = entry.planned or None, entry.decided or None, entry.visible or None
        planned, decided, visible = own if elsewhere is None else map(_or, elsewhere, own)
        return Phases(planned, decided, None if entry.aborted else visible)

    def _peek(self, tx: bytes) -> _Entry | None:
        """Returns a transaction's entry, without the lock: its caller may be interrupted."""
        known = self._of.get(tx)
        if isinstance(known, _Counted):
            entry = _Entry()
            known.add_to(entry)
            return entry
        return known

    def _entry(self, tx: bytes) -> _Entry:
        entry = self._peek(tx) or _Entry()
        new = tx not in self._of
        self._of[tx] = entry
        if new:
            self._forget()
        return entry

    def _forget(self) -> None:
        while len(self._of) > ENTRIES_MAX:
            del self._of[next(iter(self._of))]

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
            entry = self._entry(tx)
            entry.hops = hops
            if entry.visible and not entry.hops_visible:  # nothing of it is in a topic
                entry.hops_visible = hops

    def aborted(self, tx: bytes) -> None:
        """Notes an abort: no effect of the transaction ever becomes visible."""
        with self._lock:
            self._entry(tx).aborted = True

    def decided(self, tx: bytes, ago_ns: int, visible: bool = False) -> None:
        """Notes that a client outside of turns has heard the decision, which was sent `ago_ns` ago; with `visible`
        when all had it."""
        at = time.monotonic_ns() - ago_ns
        with self._lock:
            entry = self._entry(tx)
            if visible:
                entry.visible = entry.visible or at
            entry.decided = entry.decided or (min(at, entry.visible) if visible else at)

    def turn(self, released: "Released") -> None:
        """Counts a durable turn: its costs, its syncs, the hops of its answers, and its steps."""
        spent, syncs, replied = released.spent, released.syncs, released.hops
        now = time.monotonic_ns()
        writers = sum([1 for one in spent.values() if one.appends or one.tablets])
        share = syncs / writers if writers else 0.0
        requests = messages = appends = 0.0
        client_bytes = tablet_bytes = 0
        with self._lock:
            of = self._of
            for tx, one in spent.items():
                made = one.appends
                if one.tablets is not None:
                    made += len(one.tablets)
                requests += one.requests
                messages += one.messages
                appends += made
                client_bytes += one.client_bytes
                tablet_bytes += one.tablet_bytes
                if tx is None:
                    continue
                counted: _Counted = tuple.__new__(
                    _Counted,  # without the cost of its call
                    (
                        one.requests,
                        one.messages,
                        made,
                        one.client_bytes,
                        one.tablet_bytes,
                        one.planned,
                        one.decided,
                        one.visible,
                        one.hops,
                        share if made else 0.0,
                        now,
                        replied.get(tx),
                    ),
                )
                if tx in of:
                    counted.add_to(self._entry(tx))
                else:
                    of[tx] = counted
            for tx, hops in replied.items():
                if tx not in spent:
                    nothing = 0.0, 0.0, 0.0, 0, 0, False, False, False, 0, 0.0, now
                    _Counted(*nothing, hops).add_to(self._entry(tx))
            if len(of) > ENTRIES_MAX:
                self._forget()
            for step, times in released.steps.items():
                self.steps[step] = self.steps.get(step, 0) + times
            self.entries += released.entries
            total = self.total
            total.requests += requests
            total.messages += messages
            total.appends += appends
            total.syncs += syncs
            total.client_bytes += client_bytes
            total.tablet_bytes += tablet_bytes


def _or(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
