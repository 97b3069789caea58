"""What every participant of a transaction does: prepare, vote, decide, publish.

    Propose ─▶ PREPARED ──Plan──▶ PLANNED ─▶ (vote, if it has a condition) ─▶ DECIDED ─▶ gone
                  │                              ▲
                Never / Withdraw ─▶ gone      ReadSets

A planned transaction waits for an earlier undecided one only where the two meet: `meets(a, b)` of
the concrete tablet says whether they touch the same consumer, producer, key, or both publish. The
wait always points to an earlier place, so there is no cycle. It names the latest only: what those wait
for themselves, a long queue on one row say, is not named again. Conditions are evaluated when nothing
earlier is in the way, effects are applied when every vote is known; one false vote decides at once.

Keys, behind the tablet's prefix:
    t<tx>   what is known of a transaction: `TxRecord`
    q       ((step, n, tx), …) planned and undecided, in place order
    x       the step that dropped this tablet: nothing comes behind it (the coordinator sees to that)

Invariants: step is 0 exactly while the transaction is not planned; a record leaves `t` and `q`
together; blockers are all earlier in `q`; b is a blocker of a exactly if a is a waiter of b; a
record without blockers has voted; `last` says that all that is earlier in `q` ends before this one.

What it leaves out: it never ends a proposal by itself (the coordinator does), it knows no time.
Next: partition.py, shard.py, catalogue.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ..proto.ids import COORDINATOR_ID
from ..proto.messages import (
    Ask,
    Body,
    Clean,
    Detail,
    Done,
    Executed,
    Message,
    Never,
    Part,
    Plan,
    PlanEntry,
    Prepared,
    Propose,
    ReadSet,
    Reason,
    Refused,
    Withdraw,
)
from ..proto.reasons import Why, kept_as
from ..proto.stored import AnyRow, Stored, Versioned


class Space(Protocol):
    """A tablet's own keys in the turn that runs, and the turn's payloads."""

    def get(self, key: bytes) -> AnyRow: ...
    def put(self, key: bytes, value: Stored) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, AnyRow]]: ...
    def put_version(
        self, key: bytes, old: Versioned | None, new: Versioned | None, step: int
    ) -> None:
        """Like put (or delete when `new` is None); keeps `old` for snapshots before `step`."""

    def append_payload(self, data: bytes) -> int: ...
    def drop_payload(self, address: int, length: int) -> None: ...


Send = Callable[[int, Message], None]
P = TypeVar("P", bound=Part)
"""What a tablet is asked, as it travels."""
B = TypeVar("B", bound=Body)
"""The same as it is kept, once `stage` has been at it."""
Queue: TypeAlias = tuple[tuple[int, int, bytes], ...]
"""(step, n, tx) of what is planned and undecided, in place order."""
QUEUE = b"q"
DROPPED = b"x"


class TxRecord(NamedTuple, Generic[B]):
    """What a tablet keeps of a transaction from its proposal or plan until it is decided.

    Its place (step, n), its voters and its receivers come with the plan: a proposal has zeros and ().
    """

    step: int
    n: int
    proxy: int
    voters: tuple[int, ...]
    receivers: tuple[int, ...]
    body: B
    missing: tuple[int, ...] | None
    """The voters not heard of yet. Of a proposal those that were heard of already, None for none."""
    reason: Reason | None
    """Why a vote that came was false."""
    blockers: tuple[bytes, ...]
    """What it waits for."""
    waiters: tuple[bytes, ...]
    """What waits for it."""
    last: bool
    """All that is earlier in `q` ends before it."""


def proposal(proxy: int, body: B) -> TxRecord[B]:
    """The record of a transaction that has no plan."""
    return TxRecord(0, 0, proxy, (), (), body, None, None, (), (), False)


class Participant(ABC, Generic[P, B]):
    """The protocol's half of a tablet; subclasses bring check, stage, apply, discard, meets."""

    __slots__ = ("id", "send", "space")

    def __init__(self, tablet: int, space: Space, send: Send) -> None:
        self.id = tablet
        self.space = space
        self.send = send

    # what the concrete tablet brings -------------------------------------------------------

    @abstractmethod
    def check(self, body: P | B, early: bool) -> Why | None:
        """None, or why the body's conditions do not hold now; `early`: why they never will."""

    @abstractmethod
    def stage(self, tx: bytes, part: P) -> B:
        """The body to keep: payloads go into the log, invisible; what went ahead joins them."""

    def take(self, message: Message) -> None:
        """Messages that only this kind of tablet knows."""
        raise AssertionError(f"tablet {self.id:#x} got {message!r}")

    def unstage(self, tx: bytes) -> None:
        """Gives back what went ahead of a proposal that will not be."""
        return  # nothing, unless a tablet says otherwise

    def lacks(self, tx: bytes, part: P | B) -> Why | None:
        """None, or why what went ahead is not all here."""
        return None

    @abstractmethod
    def apply(self, body: B, step: int, n: int) -> Detail:
        """Publishes; the returned detail goes to the proxy."""

    def discard(self, body: B) -> None:
        """Gives back what `stage` kept."""
        return  # nothing, unless a tablet says otherwise

    def removed(self, key: bytes, value: AnyRow) -> None:
        """A key goes since the tablet was dropped: gives back what it refers to."""
        return  # nothing, unless a tablet says otherwise

    @abstractmethod
    def meets(self, earlier: B, later: B) -> bool:
        """Whether the later has to wait for the earlier while that is undecided."""

    # messages ------------------------------------------------------------------------------

    def handle(self, message: Message) -> None:
        kind = type(message)
        if kind is Plan:
            plan: Plan[P] = message
            for entry in plan.entries:
                self._plan(plan.step, entry)
        elif kind is ReadSet:
            self._readset(message)
        elif kind is Propose:
            self._propose(message)
        elif kind is Withdraw or kind is Never:
            self._drop(message.tx)
        elif kind is Clean:
            self._clean(message.keys)
        else:
            self.take(message)

    # decided at once: all participants are here, and nothing is in the way -------------------

    def idle(self) -> bool:
        """Nothing planned is undecided here."""
        return not self.space.get(QUEUE)

    def vote(self, tx: bytes, body: P) -> Reason | None:
        """None, or why the conditions do not hold at this place; this tablet named in front."""
        return self._vote(tx, body, False)

    def publish(self, tx: bytes, part: P, step: int, n: int) -> Detail:
        """Stages and applies a part that every voter agreed to; the detail for the proxy."""
        return self.apply(self.stage(tx, part), step, n)

    def ask_about(self, tx: bytes) -> None:
        """Called by the host when a proposal has waited long: the coordinator ends it or plans it."""
        record = self._record(tx)
        if record is not None and not record.step:
            self.send(COORDINATOR_ID, Ask(tx, self.id))

    def _record(self, tx: bytes) -> TxRecord[B] | None:
        row: Iterable[Any] | None = self.space.get(b"t" + tx)
        return None if row is None else TxRecord._make(row)

    def _clean(self, most: int) -> None:
        """After the drop: removes keys, all but those of proposals, which the coordinator ends."""
        space = self.space
        if space.get(DROPPED) is None:
            return  # not yet, or all gone
        rows: list[tuple[bytes, AnyRow]] = space.scan(b"", b"\xff", limit=most)
        for key, value in rows:
            if key not in (DROPPED, QUEUE) and key[:1] not in (b"t", b"s"):
                self.removed(key, value)
                space.delete(key)
        if len(rows) == 1:
            space.delete(DROPPED)

    def _vote(self, tx: bytes, body: P | B, early: bool) -> Reason | None:
        """The check's answer with this tablet named in front: it travels to other tablets."""
        why = self.check(body, early)
        if why is None:
            why = self.lacks(tx, body)
        return None if why is None else kept_as(self.id, why)

    def _propose(self, message: Propose[P]) -> None:
        key = b"t" + message.tx
        if self.space.get(key) is None:
            reason = self._vote(message.tx, message.part, True)
            if reason is not None:
                self.unstage(message.tx)
                self.send(message.proxy, Refused(message.tx, self.id, reason))
                return
            body = self.stage(message.tx, message.part)
            self.space.put(key, proposal(message.proxy, body))
        self.send(message.proxy, Prepared(message.tx, self.id))

    def _drop(self, tx: bytes) -> None:
        record = self._record(tx)
        if record is None:
            self.unstage(tx)
        elif not record.step:
            self.discard(record.body)
            self.space.delete(b"t" + tx)

    def _plan(self, step: int, entry: PlanEntry[P]) -> None:
        n, tx, proxy, voters, receivers, part = entry
        space = self.space
        queue: Queue = space.get(QUEUE) or ()
        got: tuple[int, ...] = ()
        reason: Reason | None = None
        body: B | None = None  # until it is staged
        asked: P | B
        if part is not None:
            asked = part
        else:
            known = self._record(tx)
            assert known is not None and not known.step, "a planned transaction was prepared here"
            body, got, reason = known.body, known.missing or (), known.reason
            asked = body
        # Alone, and nothing in the way: decided here and now, and `t` and `q` stay untouched.
        if not queue and voters in ((), (self.id,)) and receivers == (self.id,):
            if voters:
                reason = self._vote(tx, asked, False)
            if part is not None:
                if reason is None:
                    body = self.stage(tx, part)
                else:
                    self.unstage(tx)
            place = step, n
            self._publish(place, tx, proxy, receivers, body, reason=reason, kept=part is None)
            return
        if part is not None:
            body = self.stage(tx, part)
        assert body is not None
        missing = tuple(v for v in voters if v not in got)
        blockers, last = self._block(queue, tx, body)
        record = TxRecord(
            step, n, proxy, voters, receivers, body, missing, reason, blockers, (), last
        )
        space.put(b"t" + tx, record)
        space.put(QUEUE, (*queue, (step, n, tx)))
        if not blockers:
            self._go(tx)

    def _block(self, queue: Queue, tx: bytes, body: B) -> tuple[tuple[bytes, ...], bool]:
        """What in the queue `tx` has to wait for itself, noted there as well, and its `last`.

        Latest first, and no further than one that is `last`: a long queue on one row is not walked.
        """
        space = self.space
        blockers = []
        last = True
        waited_for: dict[bytes, None] = {}  # by a blocker, or by what a blocker waits for
        for _, _, other in reversed(queue):
            record: TxRecord[B] = TxRecord._make(space.get(b"t" + other))
            if other not in waited_for:
                if not self.meets(record.body, body):
                    last = False
                    continue
                blockers.append(other)
                space.put(b"t" + other, record._replace(waiters=(*record.waiters, tx)))
            if record.last:
                break
            for before in record.blockers:
                waited_for[before] = None
        return tuple(blockers), last

    def _readset(self, message: ReadSet) -> None:
        record = self._record(message.tx)
        if record is None:
            return  # decided already, by an earlier false vote
        reason = record.reason if record.reason is not None else message.reason
        heard = record.missing or ()
        if not record.step:  # before its plan: kept, as the set of votes already here
            missing = (*heard, message.source)
        else:
            missing = tuple(v for v in heard if v != message.source)
        self.space.put(b"t" + message.tx, record._replace(missing=missing, reason=reason))
        if record.step and not record.blockers:
            self._settle([message.tx])

    # deciding ------------------------------------------------------------------------------

    def _go(self, tx: bytes) -> None:
        """Nothing earlier is in the way: vote, then see whether that settles it."""
        self._cast(tx)
        self._settle([tx])

    def _cast(self, tx: bytes) -> None:
        record: TxRecord[B] = TxRecord._make(self.space.get(b"t" + tx))
        if self.id in record.voters:
            own = self._vote(tx, record.body, False)
            for receiver in record.receivers:
                if receiver != self.id:
                    self.send(receiver, ReadSet(tx, self.id, own))
            reason = own if record.reason is None else record.reason
            missing = tuple(v for v in record.missing or () if v != self.id)
            self.space.put(b"t" + tx, record._replace(missing=missing, reason=reason))

    def _settle(self, voted: list[bytes]) -> None:
        """Ends those of `voted` that lack no vote, and what waited for them, and so on.

        A list and no recursion: thousands may wait for one another on one row.
        """
        space = self.space
        ended: dict[bytes, None] = {}
        while voted:
            freed: list[bytes] = []
            for tx in voted:
                record: TxRecord[B] = TxRecord._make(space.get(b"t" + tx))
                if self.id in record.receivers:
                    if record.missing and record.reason is None:
                        continue
                    self._publish(
                        (record.step, record.n),
                        tx,
                        record.proxy,
                        record.receivers,
                        record.body,
                        reason=record.reason,
                        kept=True,
                    )
                else:
                    space.delete(b"t" + tx)
                ended[tx] = None
                for other in record.waiters:
                    waiting: TxRecord[B] = TxRecord._make(space.get(b"t" + other))
                    blockers = tuple(b for b in waiting.blockers if b != tx)
                    space.put(b"t" + other, waiting._replace(blockers=blockers))
                    if not blockers:
                        freed.append(other)
            for tx in freed:
                self._cast(tx)
            voted = freed
        if ended:
            rows: Queue = space.get(QUEUE)
            queue = tuple((step, n, tx) for step, n, tx in rows if tx not in ended)
            if queue:
                space.put(QUEUE, queue)
            else:
                space.delete(QUEUE)

    def _publish(
        self,
        place: tuple[int, int],
        tx: bytes,
        proxy: int,
        receivers: tuple[int, ...],
        body: B | None,
        *,
        reason: Reason | None,
        kept: bool,
    ) -> None:
        step, n = place
        committed = reason is None
        detail: Detail | Reason = reason
        if body is None:
            pass  # refused before it was staged
        elif committed:
            detail = self.apply(body, step, n)
        elif kept:
            self.discard(body)
            self.unstage(tx)
        if kept:
            self.space.delete(b"t" + tx)
        self.send(proxy, Done(tx, self.id, step, n, committed, detail))
        if receivers[0] == self.id:
            self.send(COORDINATOR_ID, Executed(tx, committed))
