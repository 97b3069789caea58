"""The coordinator tablet: gives every transaction its place in one order, and remembers how each ended.

    PlanRequest ─▶ waiting in this turn ──close(now)──▶ step = last + 1 ─▶ Plan to each participant
                                                     └▶ or returned, to be decided at once by the host

A step is closed before any of its transactions executes; a request that arrives later in the turn gets the
next step. There is no fixed interval: the host closes a step as soon as the turn has nothing else to deliver.
Requests batch while the previous turn syncs. They wait within one turn only, in memory: a turn that is
not committed leaves none behind.

Keys, behind the tablet's prefix:

    l         last step given out
    o<tx>     a transaction's outcome, kept for a while: `OutcomeRow`
    k         number of outcomes kept
    f         the greatest id whose outcome was forgotten
    x<tablet> the transaction that drops the tablet        no later transaction touches the tablet
    d<tx>     the tablets that an undecided transaction drops

All transitions of one transaction:

    (none)  ─PlanRequest─▶ PLANNED ─Executed─▶ COMMITTED | ABORTED
    (none)  ─Ask, Resolve─▶ REFUSED         a later PlanRequest is answered PlanRefused
    (none)  ─Ask, Resolve─▶ EXPIRED         the same for an id so old that it may have ended and been forgotten
    (none)  ─PlanRequest─▶ REFUSED          it comes behind the drop of one of its participants

Next: proxy/deterministic.py.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ..proto.messages import (
    Ask,
    Executed,
    Message,
    Never,
    Part,
    Plan,
    PlanEntry,
    PlanRefused,
    PlanRequest,
    Resolve,
)
from ..proto.shell import Keys

PLANNED, COMMITTED, ABORTED, REFUSED, EXPIRED = 1, 2, 3, 4, 5
STATES = {
    PLANNED: "planned",
    COMMITTED: "committed",
    ABORTED: "aborted",
    REFUSED: "refused",
    EXPIRED: "expired",
}
OUTCOMES_KEPT = 1_000_000
OUTCOME_MS_KEPT = 3_600_000
_PRUNE_EVERY = 512


class OutcomeRow(NamedTuple):
    """The coordinator's row of a transaction: `state` is a key of `STATES`, (step, n) its place or zeros.

    `when_ms` is the wall-clock time of the plan or of the refusal.
    """

    state: int
    step: int
    n: int
    when_ms: int
    participants: tuple[int, ...]


OutcomeFields: TypeAlias = tuple[int, int, int, int, tuple[int, ...]]
"""An `OutcomeRow` as the store returns it."""


class Coordinator:
    """Orders transactions and keeps their outcomes.

    Invariants: steps strictly increase. A transaction has at most one place. The place is written before any
    participant sees it, since both leave the turn together.
    """

    __slots__ = (
        "_dropped_any",
        "horizon",
        "id",
        "keeps_participants",
        "now_ms",
        "pending",
        "send",
        "space",
        "step",
        "step_ms",
    )

    def __init__(self, tablet: int, space: Keys, send: Callable[[int, Message], None]) -> None:
        self.id = tablet
        self.space = space
        self.send = send
        self.pending: dict[bytes, PlanRequest] = {}
        self.keeps_participants = True
        self.now_ms = 0  # of the running turn; the host sets it
        self.step = self.step_ms = self.horizon = 0  # of the step closed last
        self._dropped_any = True  # perhaps: a tablet was dropped here

    def handle(self, message: Message) -> None:
        kind = type(message)
        if kind is PlanRequest:
            row: OutcomeFields | None = self.space.get(b"o" + message.tx)
            if row is None:
                self.pending.setdefault(message.tx, message)
            elif OutcomeRow._make(row).state in (REFUSED, EXPIRED):
                self.send(message.proxy, PlanRefused(message.tx, "refused"))
        elif kind is Executed:
            known = self._outcome(message.tx)
            if known is not None and known.state == PLANNED:
                state = COMMITTED if message.committed else ABORTED
                self.space.put(b"o" + message.tx, known._replace(state=state))
                self._dropped(message.tx, message.committed)
        elif kind is Ask:
            if self._refuse(message.tx) or self._ended(message.tx):
                self.send(message.tablet, Never(message.tx))
        elif kind is Resolve:
            self._refuse(message.tx)
        else:
            raise AssertionError(f"coordinator got {message!r}")

    def known(self, tx: bytes) -> OutcomeRow | None:
        """Returns a transaction's record, or one in its place: EXPIRED where it may be forgotten, PLANNED where it
        waits for its place in this turn. None: it had no place, and was not refused.
        """
        row = self._outcome(tx)
        if row is not None:
            return row
        if tx in self.pending:
            return OutcomeRow(PLANNED, 0, 0, 0, ())
        forgotten: bytes | None = self.space.get(b"f")
        if forgotten is not None and tx <= forgotten:
            return OutcomeRow(EXPIRED, 0, 0, 0, ())
        return None

    def _outcome(self, tx: bytes) -> OutcomeRow | None:
        row: OutcomeFields | None = self.space.get(b"o" + tx)
        return None if row is None else OutcomeRow._make(row)

    def _ended(self, tx: bytes) -> bool:
        # A planned transaction needs no answer: its Plan is on its way to every participant.
        known = self._outcome(tx)
        return known is not None and known.state != PLANNED

    def _refuse(self, tx: bytes) -> bool:
        if self.space.get(b"o" + tx) is not None or tx in self.pending:
            return False
        forgotten: bytes | None = self.space.get(b"f")
        state = EXPIRED if forgotten is not None and tx <= forgotten else REFUSED
        self.space.put(b"o" + tx, OutcomeRow(state, 0, 0, self.now_ms, ()))
        self.space.put(b"k", (self.space.get(b"k") or 0) + 1)
        return True

    def close(self, now_ms: int, horizon: int = 0, inline: bool = False) -> list[PlanRequest]:
        """Closes one step over all waiting requests and sends its plans.

        `horizon` is the oldest step that an open snapshot may read. It is sent with the plans: other
        hosts learn from it which overwritten versions to forget. With `inline`, if all requests carry their
        parts, they are returned instead, in place order. The host ends each by `decided` or `announce` before
        it delivers anything else.
        """
        step: int = (self.space.get(b"l") or 0) + 1
        self.space.put(b"l", step)
        self.step, self.step_ms, self.horizon = step, now_ms, horizon
        requests = list(self.pending.values())
        self.pending = {}
        requests = self._live(requests)
        outcomes: int = (self.space.get(b"k") or 0) + len(requests)
        if outcomes > OUTCOMES_KEPT and step % _PRUNE_EVERY == 0:
            outcomes -= self._prune(outcomes - OUTCOMES_KEPT, now_ms)
        self.space.put(b"k", outcomes)
        if inline and all(request.bodies for request in requests):
            return requests
        self.announce(list(enumerate(requests)))
        return []

    def _live(self, requests: list[PlanRequest]) -> list[PlanRequest]:
        """Returns the requests whose participants all exist; refuses for ever those behind a participant's drop."""
        if not any([request.drops for request in requests]):
            # False is remembered: it stays true until a drop below. An undone drop leaves True, which is looked up.
            self._dropped_any = self._dropped_any and self.space.get(b"x") is not None
            if not self._dropped_any:
                return requests
        live = []
        for request in requests:
            for tablet in request.participants:
                if self.space.get(b"x" + tablet.to_bytes(4, "big")) is not None:
                    self._refuse(request.tx)
                    self.send(request.proxy, PlanRefused(request.tx, "dropped", tablet))
                    break
            else:
                live.append(request)
                if request.drops:
                    self._dropped_any = True
                    self.space.put(b"x", True)
                    self.space.put(b"d" + request.tx, request.drops)
                for tablet in request.drops:
                    self.space.put(b"x" + tablet.to_bytes(4, "big"), request.tx)
        return live

    def _dropped(self, tx: bytes, committed: bool) -> None:
        drops: tuple[int, ...] | None = self.space.get(b"d" + tx)
        if drops is not None:
            self.space.delete(b"d" + tx)
            for tablet in () if committed else drops:
                self.space.delete(b"x" + tablet.to_bytes(4, "big"))

    def decided(self, n: int, request: PlanRequest, committed: bool) -> None:
        """Records that the host has ended a request of the step closed last."""
        state = COMMITTED if committed else ABORTED
        participants = request.participants if self.keeps_participants else ()
        # A plain tuple in place of an `OutcomeRow`: making one would cost every commit a call.
        self.space.put(b"o" + request.tx, (state, self.step, n, self.step_ms, participants))
        if request.drops:
            self._dropped(request.tx, committed)

    def announce(self, requests: list[tuple[int, PlanRequest]]) -> None:
        """Sends the plans of requests of the step closed last: (n, request)…."""
        plans: dict[int, list[PlanEntry[Part]]] = {}
        for n, request in requests:
            tx, participants, bodies = request.tx, request.participants, request.bodies
            listed = participants if self.keeps_participants else ()
            self.space.put(b"o" + tx, OutcomeRow(PLANNED, self.step, n, self.step_ms, listed))
            for i, tablet in enumerate(participants):
                body: Part | None = bodies[i] if bodies else None
                entry: PlanEntry[Part] = PlanEntry(
                    n, tx, request.proxy, request.voters, request.receivers, body
                )
                plans.setdefault(tablet, []).append(entry)
        for tablet, entries in plans.items():
            self.send(tablet, Plan(self.step, self.horizon, tuple(entries)))

    def forget(self, count: int) -> None:
        """Drops the requests after the first `count`, when the host undoes an input."""
        while len(self.pending) > count:
            self.pending.popitem()

    def _prune(self, most: int, now_ms: int) -> int:
        """Forgets the oldest outcomes, by id, since ids grow with time; planned ones stay. Returns how many."""
        dropped = 0
        last: bytes = self.space.get(b"f") or b""
        for key, value in self.space.scan(b"o", b"p", limit=min(most, 100_000)):
            known = OutcomeRow._make(value)
            if known.state != PLANNED and known.when_ms < now_ms - OUTCOME_MS_KEPT:
                self.space.delete(key)
                last = max(last, key[1:])
                dropped += 1
        if dropped:
            self.space.put(b"f", last)
        return dropped
