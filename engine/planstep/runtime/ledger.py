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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..host.inputs import Spent, Steps

ENTRIES_MAX = 10_000
_TURNS_MAX = 8
"""The most turns of a transaction that are kept and not added up."""


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
    turns: "list[_Turn]" = field(default_factory=list)
    """The turns that counted for it; their part is added up when it is asked for."""


class _Turn(NamedTuple):
    """Keeps what a turn counted; a transaction's entry is made from it if it is asked for, which most are not."""

    spent: "dict[bytes | None, Spent]"
    syncs: int
    replied: dict[bytes, int]
    """The hops of its answers."""
    at_ns: int

    def share(self) -> float:
        """Returns the part of the turn's syncs that each transaction which wrote has to bear."""
        writers = sum(1 for one in self.spent.values() if one.wrote)
        return self.syncs / writers if writers else 0.0

    def add_to(self, entry: _Entry, tx: bytes) -> None:
        one = self.spent.get(tx)
        if one is not None:
            entry.requests += one.requests
            entry.messages += one.messages
            entry.client_bytes += one.client_bytes
            entry.tablet_bytes += one.tablet_bytes
            made = one.appends + len(one.tablets or ())
            entry.appends += made
            if made:
                entry.syncs += self.share()
            if one.planned:
                entry.planned = self.at_ns
            if one.decided:
                entry.decided = entry.decided or self.at_ns
                entry.visible = self.at_ns
            if made and one.visible:
                entry.visible = self.at_ns
                entry.hops_visible = max(entry.hops_visible, one.hops + 1)
        if tx in self.replied:
            entry.hops = entry.hops_visible = self.replied[tx]
            if entry.planned and not entry.decided:  # planned and decided in the same turn
                entry.decided = entry.visible = self.at_ns


class Ledger:
    """Holds the newest transactions' costs, and the sum of all. Threads share it. A caller on the main thread must
    be Uninterrupted: leading turns, or under a client's lock."""

    def __init__(self) -> None:
        self._of: dict[bytes, _Entry | _Turn] = {}
        """A transaction of which one turn alone counted something has that turn."""
        self._lock = threading.Lock()
        self.total = Costs()
        self.steps: Steps = {}

    def of(self, tx: bytes) -> Costs | None:
        entry = self._peek(tx)
        if entry is None:
            return None
        return Costs(*(getattr(entry, name) for name in Costs.__slots__))

    def phases(self, tx: bytes) -> Phases | None:
        entry = self._peek(tx)
        if entry is None:
            return None
        visible = None if entry.aborted else entry.visible or None
        return Phases(entry.planned or None, entry.decided or None, visible)

    def _peek(self, tx: bytes) -> _Entry | None:
        """Returns a transaction's entry, without the lock: its caller may be interrupted."""
        known = self._of.get(tx)
        if known is None:
            return None
        turns = [known] if isinstance(known, _Turn) else list(known.turns)
        entry = _Entry() if isinstance(known, _Turn) else replace(known)
        for turn in turns:
            turn.add_to(entry, tx)
        return entry

    def _entry(self, tx: bytes) -> _Entry:
        known = self._of.get(tx)
        if isinstance(known, _Entry):
            return known
        entry = self._of[tx] = _Entry(turns=[] if known is None else [known])
        if known is None:
            self._forget()
        return entry

    def _add(self, tx: bytes, turn: _Turn) -> None:
        entry = self._entry(tx)
        if len(entry.turns) >= _TURNS_MAX:
            added = self._peek(tx)
            assert added is not None
            added.turns = []
            entry = self._of[tx] = added
        entry.turns.append(turn)

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
        turn = _Turn(spent, syncs, replied, time.monotonic_ns())
        requests = messages = appends = 0.0
        client_bytes = tablet_bytes = 0
        with self._lock:
            of = self._of
            for tx, one in spent.items():
                requests += one.requests
                messages += one.messages
                appends += one.appends
                if one.tablets is not None:
                    appends += len(one.tablets)
                client_bytes += one.client_bytes
                tablet_bytes += one.tablet_bytes
                if tx is None:
                    continue
                if tx in of:
                    self._add(tx, turn)
                else:
                    of[tx] = turn
            for tx in replied:
                if tx not in spent:
                    self._add(tx, turn)
            if len(of) > ENTRIES_MAX:
                self._forget()
            for step, times in steps.items():
                self.steps[step] = self.steps.get(step, 0) + times
            total = self.total
            total.requests += requests
            total.messages += messages
            total.appends += appends
            total.syncs += syncs
            total.client_bytes += client_bytes
            total.tablet_bytes += tablet_bytes
