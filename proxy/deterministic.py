"""The proxy: runs a client's side of its transactions, from `commit` to the answer.

    stage(tx, slices) ─▶ Stage to each ─▶ all Staged ─▶ answer          any number of times before commit
    commit(tx, parts) ─▶ Propose to each ─▶ all Prepared ─▶ PlanRequest ─▶ Done from each receiver ─▶ answer
                      └▶ one Refused ─▶ Withdraw to the others ─▶ answer: aborted

When every participant lives on the coordinator's host, the parts are sent with the plan request. Propose and
Prepared are then skipped: they would be delivered in the same turn, and kept or lost with it.
The proxy holds nothing durable. If it is gone, its transaction is ended when a participant asks the
coordinator, or completes unheard; its outcome is found by its id.

The proxy may resend and withdraw until it sends the plan request; afterwards it only listens.
Next: engine/planstep/host/host.py, which runs all of these.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..proto.ids import COORDINATOR_ID, HOST_MASK
from ..proto.messages import (
    ADD,
    MAX,
    MIN,
    AheadSlices,
    Detail,
    Done,
    Message,
    Part,
    PartitionPart,
    Parts,
    PlanRefused,
    PlanRequest,
    Prepared,
    Propose,
    Reason,
    Refused,
    ShardPart,
    Stage,
    Staged,
    Withdraw,
)
from ..proto.reasons import Withdrawn, kept_as

_HOME = COORDINATOR_ID & HOST_MASK
_NUMERIC = (ADD, MAX, MIN)


def role(part: Part) -> tuple[bool, bool, bool]:
    """Returns whether a participant votes (has a condition), receives (has an effect), and is dropped."""
    if type(part) is PartitionPart:
        ranges, slices, producer, _, staged, acks, seeks, trim, drop, _, _, end = part
        # Staged slices may have been lost with a host: then the vote is false.
        if ranges or staged or acks or seeks or trim is not None:
            return True, True, drop
        return producer is not None or end is not None, bool(slices) or drop, drop
    if type(part) is ShardPart:
        reads, seen, writes, drop = part
        numeric = [op for _, op, _ in writes if op in _NUMERIC]
        return bool(reads or seen or numeric), bool(writes) or drop, drop
    return True, True, False


@dataclass(slots=True)
class Result:
    """The answer to a commit: `reason` is None if it committed, otherwise (tablet, cause, detail…).

    With step 0 and no reason it answers a `stage`: the slices are staged and the transaction goes on.
    """

    tx: bytes
    step: int = 0
    n: int = 0
    reason: Reason | None = None
    details: dict[int, Detail] = field(default_factory=dict)


class _Backoff:
    """A back-off in calls of `resend`: 1, 2, 4 … 32 apart, to spare a busy host."""

    __slots__ = ("interval", "remaining")

    def __init__(self) -> None:
        self.remaining = self.interval = 1

    def due(self) -> bool:
        self.remaining -= 1
        if self.remaining:
            return False
        self.remaining = self.interval = min(2 * self.interval, 32)
        return True


@dataclass(slots=True)
class _Staging:
    """The partitions that hold staged slices, and those under way: (first, slices) by tablet."""

    tablets: dict[int, None]
    waiting: AheadSlices
    backoff: _Backoff = field(default_factory=_Backoff)


@dataclass(slots=True)
class _Open:
    """A transaction from commit to answer; `backoff` is None if its plan is requested at once: no repeats."""

    parts: Parts
    waiting: dict[int, None]
    request: PlanRequest
    planned: bool
    result: Result
    touched: int
    backoff: _Backoff | None


class Proxy:
    """Runs the transactions of one client.

    Invariants: a transaction is in `open` from commit to answer, and answered once; in `staging`
    from its first `stage` to commit or rollback.

    The journal holds each entry as it was before the running turn changed it. With it the host undoes an
    input, or a turn whose sync failed.
    """

    __slots__ = ("finished", "id", "inputs", "journal", "merge", "open", "send", "staging")

    def __init__(self, address: int, send: Callable[[int, Message], None]) -> None:
        self.id = address
        self.send = send
        self.merge = True
        self.open: dict[bytes, _Open] = {}
        self.staging: dict[bytes, _Staging] = {}
        self.finished: list[Result] = []
        self.journal: list[tuple[dict[bytes, Any], bytes, Any]] = []
        self.inputs = 0

    def mark(self) -> tuple[int, int]:
        """Starts an input; `undo` with the returned mark undoes everything since."""
        self.inputs += 1
        return len(self.journal), len(self.finished)

    def undo(self, mark: tuple[int, int]) -> None:
        while len(self.journal) > mark[0]:
            table, tx, entry = self.journal.pop()
            if entry is None:
                table.pop(tx, None)
            else:
                table[tx] = entry
        del self.finished[mark[1] :]

    def take(self) -> list[Result]:
        """Returns the answers of a durable turn and clears its journal."""
        self.journal.clear()
        finished, self.finished = self.finished, []
        return finished

    def _touch(self, entry: _Open) -> None:
        if entry.touched != self.inputs:
            old = entry.result
            result = Result(old.tx, old.step, old.n, old.reason, dict(old.details))
            before = _Open(
                entry.parts,
                dict(entry.waiting),
                entry.request,
                entry.planned,
                result,
                entry.touched,
                None if entry.backoff is None else _Backoff(),
            )
            self.journal.append((self.open, old.tx, before))
            entry.touched = self.inputs

    def commit(self, tx: bytes, parts: Parts) -> None:
        if tx in self.open:
            return
        participants = tuple(sorted(parts))
        voters, receivers, bodies, drops = [], [], [], []
        merged = self.merge
        for tablet in participants:
            part = parts[tablet]
            votes, receives, dropped = role(part)
            if votes:
                voters.append(tablet)
            if receives:
                receivers.append(tablet)
            if dropped:
                drops.append(tablet)
            bodies.append(part)
            merged = merged and tablet & HOST_MASK == _HOME
        assert receivers, "a transaction without effects needs no plan"
        request = PlanRequest(
            tx,
            self.id,
            participants,
            tuple(voters),
            tuple(receivers),
            tuple(bodies) if merged else (),
            tuple(drops),
        )
        waiting = dict.fromkeys(receivers if merged else participants)
        if tx in self.staging:
            self._forget_staging(tx)
        self.journal.append((self.open, tx, None))
        backoff = None if merged else _Backoff()
        self.open[tx] = _Open(parts, waiting, request, merged, Result(tx), self.inputs, backoff)
        if merged:
            self.send(COORDINATOR_ID, request)
        else:
            for tablet in participants:
                self.send(tablet, Propose(tx, self.id, parts[tablet]))

    def stage(self, tx: bytes, slices: AheadSlices) -> None:
        """Sends slices ahead of the commit: (first, slices) by partition.

        `first` is the number of slices that the transaction staged there before.
        """
        old = self.staging.get(tx)
        self.journal.append((self.staging, tx, old))
        tablets = {**(old.tablets if old is not None else {}), **dict.fromkeys(slices)}
        self.staging[tx] = _Staging(tablets, dict(slices))
        self._send_staging(tx)

    def rollback(self, tx: bytes) -> None:
        """Withdraws the staged slices of a transaction that will not be committed."""
        entry = self.staging.get(tx)
        if entry is not None:
            self._forget_staging(tx)
            if entry.waiting:  # a `stage` was interrupted and its caller still waits for an answer
                self.finished.append(Result(tx, reason=kept_as(self.id, Withdrawn())))
            for tablet in entry.tablets:
                self.send(tablet, Withdraw(tx))

    def _send_staging(self, tx: bytes) -> None:
        for tablet, (first, slices) in self.staging[tx].waiting.items():
            self.send(tablet, Stage(tx, self.id, first, slices))

    def _forget_staging(self, tx: bytes) -> None:
        entry = self.staging.pop(tx, None)
        if entry is not None:
            self.journal.append((self.staging, tx, entry))

    def _staged(self, message: Staged | Refused) -> None:
        tx, tablet = message.tx, message.tablet
        entry = self.staging.get(tx)
        if entry is None:
            if tx not in self.open:  # the partition stored a late repeat
                self.send(tablet, Withdraw(tx))
            return
        if tablet not in entry.waiting:
            return
        self.journal.append((self.staging, tx, _Staging(entry.tablets, dict(entry.waiting))))
        if isinstance(message, Refused):
            entry.waiting.clear()
            self.finished.append(Result(tx, reason=message.reason))
            return
        first, slices = entry.waiting[tablet]
        if message.count >= first + len(slices):
            del entry.waiting[tablet]
            if not entry.waiting:
                self.finished.append(Result(tx))

    def handle(self, message: Message) -> None:
        kind = type(message)
        entry = self.open.get(message.tx)
        if kind is Staged or (entry is None and kind is Refused):
            self._staged(message)
        elif entry is not None:
            self._touch(entry)
            answered = self._ANSWERS.get(kind)
            if answered is None:
                raise AssertionError(f"proxy got {message!r}")
            answered(self, entry, message)

    def _done(self, entry: _Open, message: Done) -> None:
        entry.waiting.pop(message.tablet, None)
        result = entry.result
        result.step, result.n = message.step, message.n
        if message.committed:
            result.details[message.tablet] = message.detail
        elif result.reason is None:
            result.reason = message.detail
        if entry.planned and not entry.waiting:
            self._finish(entry)

    def _prepared(self, entry: _Open, message: Prepared) -> None:
        if not entry.planned:
            entry.waiting.pop(message.tablet, None)
            if not entry.waiting:
                entry.planned = True
                entry.waiting = dict.fromkeys(entry.request.receivers)
                self.send(COORDINATOR_ID, entry.request)

    def _refused(self, entry: _Open, message: Refused) -> None:
        if not entry.planned:
            for tablet in entry.parts:
                if tablet != message.tablet:
                    self.send(tablet, Withdraw(message.tx))
            entry.result.reason = message.reason
            self._finish(entry)

    def _plan_refused(self, entry: _Open, message: PlanRefused) -> None:
        for tablet in entry.parts:  # refused for ever, so they can free what they keep for it
            self.send(tablet, Withdraw(message.tx))
        entry.result.reason = (message.tablet or COORDINATOR_ID, message.cause)
        self._finish(entry)

    def decided(
        self,
        tx: bytes,
        step: int,
        n: int,
        reason: Reason | None,
        details: dict[int, Detail],
        late: bool = False,
    ) -> None:
        """Takes the outcome of a transaction that the host decided itself, all participants being there.

        Normally this is the turn that accepted the commit, and its journal entry already undoes it.
        With `late` it is another turn: the entry is journalled again.
        """
        entry = self.open.get(tx)
        if entry is not None:
            if late:
                self._touch(entry)
            result = entry.result
            result.step, result.n, result.reason, result.details = step, n, reason, details
            self._finish(entry)

    def resend(self) -> None:
        """Repeats unanswered messages whose back-off is over; the host calls it from time to time."""
        for tx, staging in self.staging.items():
            if staging.waiting and staging.backoff.due():
                self._send_staging(tx)
        for tx, entry in self.open.items():
            if not entry.planned and entry.backoff is not None and entry.backoff.due():
                for tablet in entry.waiting:
                    self.send(tablet, Propose(tx, self.id, entry.parts[tablet]))

    def knows(self, tx: bytes) -> bool:
        """Returns whether the transaction is this client's and has not ended."""
        return tx in self.open or tx in self.staging

    def _finish(self, entry: _Open) -> None:
        del self.open[entry.result.tx]
        self.finished.append(entry.result)

    _ANSWERS: ClassVar[dict[type, Callable[["Proxy", _Open, Any], None]]] = {
        Done: _done,
        Prepared: _prepared,
        Refused: _refused,
        PlanRefused: _plan_refused,
    }
    """Handlers of the messages that a participant or the coordinator sends about an open transaction."""
