"""The part of the commit protocol that all tablets share: prepare, vote, decide, publish.

    Propose ─▶ PREPARED ──Plan──▶ PLANNED ─▶ (vote, if it has a condition) ─▶ DECIDED ─▶ gone
                  │                              ▲
                Never / Withdraw ─▶ gone      ReadSets

A planned transaction waits for an earlier undecided one only if the two conflict. The concrete tablet's
`must_wait_for(a, b)` decides that: they touch the same consumer, producer or key, or both publish. A wait always
points to an earlier place, so there is no cycle. A record lists only its latest blockers, not those that
its blockers wait for already; a long queue on one row stays cheap. Conditions are evaluated once no
blocker is left. Effects are applied once every vote is known; one false vote decides at once.

Keys, behind the tablet's prefix:
    t<tx>   a transaction's `TxRecord`
    q       ((step, n, tx), …) planned and undecided, in place order
    x       the step that dropped this tablet; the coordinator plans nothing here behind it

Invariants: step is 0 exactly while the transaction is not planned. A record leaves `t` and `q`
together. Blockers are all earlier in `q`. b is a blocker of a exactly if a is a waiter of b. A
record without blockers has voted. `last` says that every transaction earlier in `q` ends before this one.

Leaves out: ending a proposal on its own (the coordinator does), and time.
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
from ..proto.shell import Keys
from ..proto.stored import AnyRow, Versioned


class Space(Keys, Protocol):
    """Gives a tablet its own keys, whose rows may have versions for snapshots."""

    def put_version(
        self, key: bytes, old: Versioned | None, new: Versioned | None, step: int
    ) -> None:
        """Puts `new`, or deletes the key if it is None; keeps `old` for snapshots before `step`."""


Send = Callable[[int, Message], None]
P = TypeVar("P", bound=Part)
"""A tablet's part of a transaction, as it is sent."""
B = TypeVar("B", bound=Body)
"""The same part as the tablet stores it: the result of `stage`."""
Queue: TypeAlias = tuple[tuple[int, int, bytes], ...]
"""(step, n, tx) of each planned, undecided transaction, in place order."""
QUEUE = b"q"
DROPPED = b"x"


class TxRecord(NamedTuple, Generic[B]):
    """A tablet's record of a transaction, from its proposal or plan until it is decided.

    The plan brings its place (step, n), voters and receivers: a proposal has zeros and ().
    """

    step: int
    n: int
    proxy: int
    voters: tuple[int, ...]
    receivers: tuple[int, ...]
    body: B
    missing: tuple[int, ...] | None
    """The voters that have not voted yet. In a proposal: those that have, or None if none has."""
    reason: Reason | None
    """The reason of a false vote that has arrived."""
    blockers: tuple[bytes, ...]
    """The transactions that this one waits for."""
    waiters: tuple[bytes, ...]
    """The transactions that wait for this one."""
    last: bool
    """Every transaction earlier in `q` ends before this one."""


def proposal(proxy: int, body: B) -> TxRecord[B]:
    """Returns the record of a transaction that has no plan yet."""
    return TxRecord(0, 0, proxy, (), (), body, None, None, (), (), False)


class Participant(ABC, Generic[P, B]):
    """Runs the commit protocol of a tablet; subclasses add check, stage, apply, discard, meets."""

    __slots__ = ("id", "send", "space")

    def __init__(self, tablet: int, space: Space, send: Send) -> None:
        self.id = tablet
        self.space = space
        self.send = send

    # for the concrete tablet to implement --------------------------------------------------

    @abstractmethod
    def check(self, body: P | B, early: bool) -> Why | None:
        """Returns None, or why the body's conditions do not hold now.

        With `early` (at the proposal) it reports only conditions that can never hold.
        """

    @abstractmethod
    def stage(self, tx: bytes, part: P) -> B:
        """Appends the part's payloads to the log, invisible, and returns the body to store.

        Slices staged ahead of the proposal are added to it.
        """

    def take(self, message: Message) -> None:
        """Handles a message that only this kind of tablet knows."""
        raise AssertionError(f"tablet {self.id:#x} got {message!r}")

    def unstage(self, tx: bytes) -> None:
        """Frees what was staged ahead of a proposal that will not come. The default does nothing."""
        return

    def missing_staged(self, tx: bytes, part: P | B) -> Why | None:
        """Returns None, or the reason if some slices staged ahead are missing here."""
        return None

    @abstractmethod
    def apply(self, body: B, step: int, n: int) -> Detail:
        """Applies the body's effects at place (step, n); returns the detail for the proxy."""

    def discard(self, body: B) -> None:
        """Frees the payloads that `stage` appended. The default does nothing."""
        return

    def removed(self, key: bytes, value: AnyRow) -> None:
        """Frees the payload of a row that is deleted because its tablet was dropped. The default does nothing."""
        return

    @abstractmethod
    def must_wait_for(self, earlier: B, later: B) -> bool:
        """Returns whether the later transaction must wait while the earlier one is undecided."""

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

    # called by a host that decides at once: all participants are here, none has a queue ------

    def idle(self) -> bool:
        """Returns whether no planned transaction is undecided here."""
        return not self.space.get(QUEUE)

    def vote(self, tx: bytes, body: P | B, early: bool = False) -> Reason | None:
        """Returns None, or why the conditions do not hold at this place, prefixed with this tablet: other tablets
        get it. With `early`, at the proposal, see `check`."""
        why = self.check(body, early)
        if why is None:
            why = self.missing_staged(tx, body)
        return None if why is None else kept_as(self.id, why)

    def publish(self, tx: bytes, part: P, step: int, n: int) -> Detail:
        """Stages and applies a part that every voter agreed to; returns the detail for the proxy."""
        return self.apply(self.stage(tx, part), step, n)

    def ask_about(self, tx: bytes) -> None:
        """Asks the coordinator to end or plan a proposal; the host calls it for one that has waited long."""
        record = self._record(tx)
        if record is not None and not record.step:
            self.send(COORDINATOR_ID, Ask(tx, self.id))

    def _record(self, tx: bytes) -> TxRecord[B] | None:
        row: Iterable[Any] | None = self.space.get(b"t" + tx)
        return None if row is None else TxRecord._make(row)

    def _clean(self, most: int) -> None:
        """Deletes up to `most` rows of a dropped tablet; proposals stay, as the coordinator ends them."""
        space = self.space
        if space.get(DROPPED) is None:
            return  # not dropped yet, or already clean
        rows: list[tuple[bytes, AnyRow]] = space.scan(b"", b"\xff", limit=most)
        for key, value in rows:
            if key not in (DROPPED, QUEUE) and key[:1] not in (b"t", b"s"):
                self.removed(key, value)
                space.delete(key)
        if len(rows) == 1:
            space.delete(DROPPED)

    def _propose(self, message: Propose[P]) -> None:
        key = b"t" + message.tx
        if self.space.get(key) is None:
            reason = self.vote(message.tx, message.part, early=True)
            if reason is not None:
                self.unstage(message.tx)
                self.send(message.proxy, Refused(message.tx, self.id, reason))
                return
            self.space.put(key, proposal(message.proxy, self.stage(message.tx, message.part)))
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
        content: P | B
        if part is not None:
            content = part
        else:
            known = self._record(tx)
            assert known is not None and not known.step, "a planned transaction was prepared here"
            body, got, reason = known.body, known.missing or (), known.reason
            content = body
        # The only participant, with an empty queue: decided at once, without touching `t` and `q`.
        if not queue and voters in ((), (self.id,)) and receivers == (self.id,):
            if voters:
                reason = self.vote(tx, content)
            if part is not None:
                if reason is None:
                    body = self.stage(tx, part)
                else:
                    self.unstage(tx)
            place = step, n
            self._publish(place, tx, proxy, receivers, body, reason=reason, recorded=part is None)
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
        """Returns the blockers of `tx` and its `last`; adds `tx` to the waiters of each blocker.

        Walks the queue from its end and stops at a record with `last`, so that a long queue on one row
        is not walked.
        """
        space = self.space
        blockers = []
        last = True
        waited_for: dict[bytes, None] = {}  # blockers of blockers, to any depth
        for _, _, other in reversed(queue):
            record: TxRecord[B] = TxRecord._make(space.get(b"t" + other))
            if other not in waited_for:
                if not self.must_wait_for(record.body, body):
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
            return  # an earlier false vote has decided it already
        reason = record.reason if record.reason is not None else message.reason
        heard = record.missing or ()
        if not record.step:  # not planned yet: `missing` lists the votes that have arrived
            missing = (*heard, message.source)
        else:
            missing = tuple(v for v in heard if v != message.source)
        self.space.put(b"t" + message.tx, record._replace(missing=missing, reason=reason))
        if record.step and not record.blockers:
            self._settle([message.tx])

    # deciding ------------------------------------------------------------------------------

    def _go(self, tx: bytes) -> None:
        """Votes on a transaction without blockers, then ends it if no vote is missing."""
        self._cast(tx)
        self._settle([tx])

    def _cast(self, tx: bytes) -> None:
        record: TxRecord[B] = TxRecord._make(self.space.get(b"t" + tx))
        if self.id in record.voters:
            own = self.vote(tx, record.body)
            for receiver in record.receivers:
                if receiver != self.id:
                    self.send(receiver, ReadSet(tx, self.id, own))
            reason = own if record.reason is None else record.reason
            missing = tuple(v for v in record.missing or () if v != self.id)
            self.space.put(b"t" + tx, record._replace(missing=missing, reason=reason))

    def _settle(self, voted: list[bytes]) -> None:
        """Ends each of `voted` that lacks no vote, then the transactions that this unblocks, and so on.

        It loops over a list: recursion would be too deep when thousands wait for one another on one row.
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
                        recorded=True,
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
        recorded: bool,
    ) -> None:
        step, n = place
        committed = reason is None
        detail: Detail | Reason = reason
        if body is None:
            pass  # refused before it was staged
        elif committed:
            detail = self.apply(body, step, n)
        elif recorded:
            self.discard(body)
            self.unstage(tx)
        if recorded:
            self.space.delete(b"t" + tx)
        self.send(proxy, Done(tx, self.id, step, n, committed, detail))
        if receivers[0] == self.id:
            self.send(COORDINATOR_ID, Executed(tx, committed))
