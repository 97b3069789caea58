"""The transaction coordinator tablet of mode "pulsar": gives out ids, and ends transactions.

    NewTxn ─▶ OPEN     AddPartitionToTxn, AddSubscriptionToTxn: whom the end goes to
    EndTxn ─▶ COMMITTING | ABORTING ─▶ ends.py ──all have it──▶ COMMITTED | ABORTED ─▶ answer
    at start + time-out: OPEN ─▶ ABORTING

It logs before it applies: it checks a request and appends the change to the log (../../proto/batched_log.py); only
the log's callback changes the row and answers. A transaction's records are deleted at its end, so the log holds
what is live, and replaying it gives the rows (invariants.py). A host starts from the rows.

Keys, behind the tablet's prefix:

    t<least 8>               states.Transaction, of a live one
    d<deadline 8><least 8>   the open ones by their deadline (ms)
    i                        the highest number given
    e<least 8>, f<…>, E      those that are over, if `ended_kept`: ended.py
    B, l, L, v               the log
    A                        of coordinator 0: as `B`, for the logs of pending acknowledgements

A host's restart forgets whose calls wait and which ends are on their way; it drives decided transactions on and
keeps open ones until their deadlines. Pulsar's tracker of time-outs keeps ended transactions until they are due;
here the row goes with the end.

Leaves out: loading (a host answers once it has begun); a limit that does not answer (there ReachMaxActiveTxn).

Next: ends.py.
"""

from typing import Any

from ...proto.batched_log import BATCHING, FLUSH, BatchedLog, Position, switched
from ...proto.memory import Journal, Memory
from ...proto.pulsar.coordinators import coordinator_number
from ...proto.pulsar.messages import (
    NO_SPACE,
    AbortTxn,
    AddPartitionToTxn,
    AddSubscriptionToTxn,
    Ended,
    EndTxn,
    NewTxn,
    Shell,
    SwitchLog,
)
from ...proto.shell import Answer, Keys, Wake
from .ended import EndedTransactions
from .ends import ENDS, Ends
from .states import (
    ABORTED,
    ABORTING,
    ADD_PARTITION,
    ADD_SUBSCRIPTION,
    COMMITTED,
    COMMITTING,
    DECIDED,
    END,
    END_TXN,
    ENDED_AGAIN,
    NEW,
    OPEN,
    REQUESTED,
    TIMED_OUT,
    UNKNOWN,
    UPDATE,
    WAIT,
    Transaction,
    applied,
    row_of,
)

TIME = "time"
_DUE_MAX = 1_000
"""The most transactions that one wake of the tracker aborts."""
_TIMEOUT_MAX = 1 << 53
_HIGHEST, ACK_BATCHING = b"i", b"A"
_NEXT, _ACTIVE, _LOWEST, _DUE, _TIMER = "next", "active", "lowest", "due", "timer"
_NEVER = 1 << 62
_LOOK_MS = 3_600_000
"""The longest delay of the tracker: timers have a limit, and the clock may be set meanwhile."""


def _key(least: int) -> bytes:
    return b"t" + least.to_bytes(8, "big")


def _due_key(at_ms: int, least: int = 0) -> bytes:
    return b"d" + at_ms.to_bytes(8, "big") + least.to_bytes(8, "big")


class Transactions:
    """Handles the requests for the transactions of one coordinator.

    Invariants: a decision is in the log before any message tells it. A number is given once, also across restarts.
    `d` has a row exactly for each open transaction. Replaying the log gives the rows `t`.
    """

    __slots__ = (
        "_counts",
        "_deciding",
        "_memory",
        "_waiters",
        "ended",
        "ends",
        "id",
        "log",
        "number",
        "shell",
        "space",
    )

    def __init__(self, tablet: int, space: Keys, shell: Shell) -> None:
        self.id = tablet
        self.number = coordinator_number(tablet, shell.hosts)
        self.space = space
        self.shell = shell
        self.log = BatchedLog(space, shell, shell.settings.log, keep=None)
        self.log.batching = switched(space, self.log.batching)
        self._memory = Memory()
        self.ended = EndedTransactions(space, shell)
        self.ends = Ends(tablet, self.number, shell, self._memory, self._over)
        self._deciding: dict[int, int] = {}
        """By number: the state whose record is on its way to the log."""
        self._waiters: dict[int, tuple[Any, ...]] = {}
        """By number: requests that are answered once the transaction is over."""
        highest = space.get(_HIGHEST)
        self._counts: dict[str, int] = {
            _NEXT: 0 if highest is None else highest + 1,
            _ACTIVE: 0,
            _LOWEST: 0,  # no live transaction has a lower number
            _DUE: 0,  # no open one has an earlier deadline: scans begin there
            _TIMER: _NEVER,  # when the tracker wakes next
        }

    def begin(self) -> None:
        """Drives decided transactions on and starts the tracker, in the host's first turn."""
        rows = self.space.scan(b"t", b"u")
        self._count(_LOWEST, int.from_bytes(rows[0][0][1:], "big") if rows else self._counts[_NEXT])
        for key, value in rows:
            row = row_of(value)
            self._count(_ACTIVE, self._counts[_ACTIVE] + 1)
            if row.state in DECIDED:
                self._send_end(int.from_bytes(key[1:], "big"), row)
        self._track()

    def mark(self) -> tuple[Journal, Any]:
        return self._memory.mark(), self.log.mark()

    def undo(self, mark: tuple[Journal, Any]) -> None:
        memory, log = mark
        self._memory.undo(memory)
        self.log.undo(log)

    def handle(self, message: Any) -> None:
        kind = type(message)
        if kind is NewTxn:
            self._new(message)
        elif kind is AddPartitionToTxn:
            self._add(message, ADD_PARTITION, message.partitions)
        elif kind is AddSubscriptionToTxn:
            self._add(message, ADD_SUBSCRIPTION, message.subscriptions)
        elif kind is EndTxn:
            self._end(message, message.commit)
        elif kind is AbortTxn:
            self._end(message, False)
        elif kind is Ended:
            self.ends.acknowledged(message)
        elif kind is Wake:
            self._wake(message)
        elif kind is SwitchLog:
            self._switch(message)
        else:
            raise AssertionError(f"transaction coordinator got {message!r}")

    def get(self, least: int) -> Transaction | None:
        value = self.space.get(_key(least)) if 0 <= least < 1 << 63 else None
        return None if value is None else row_of(value)

    def _wake(self, wake: Wake) -> None:
        if wake.what == FLUSH:
            self.log.wake(wake.detail)
        elif wake.what == ENDS:
            self.ends.wake()
        else:
            assert wake.what == TIME, wake
            if wake.detail == self._counts[_TIMER]:
                self._count(_TIMER, _NEVER)
            self._time_out()

    def _switch(self, message: SwitchLog) -> None:
        if not message.pending_acks:
            self.log.switch(message.batching)
        self.space.put(ACK_BATCHING if message.pending_acks else BATCHING, int(message.batching))
        if message.client != -1:
            self._answer(message, "")

    def _answer(self, message: Any, error: str, value: Any = None) -> None:
        self.shell.send(message.client, Answer(message.request, self.id, error, value))

    def _count(self, what: str, value: int) -> None:
        self._memory.set(self._counts, what, value)

    # opening and registering ---------------------------------------------------------------

    def _new(self, message: NewTxn) -> None:
        settings, counts = self.shell.settings, self._counts
        if not 0 < message.timeout_ms < _TIMEOUT_MAX:
            self._answer(message, "NotAllowedError")
            return
        if 0 < settings.max_active_transactions <= counts[_ACTIVE]:
            self._answer(message, "ReachMaxActiveTxn")
            return
        least = counts[_NEXT]
        self._count(_NEXT, least + 1)
        self._count(_ACTIVE, counts[_ACTIVE] + 1)
        start_ms = self.shell.now_ms
        record = NEW, self.number, least, least, message.timeout_ms, start_ms, self.shell.epoch

        def done(error: str, position: Position | None) -> None:
            if error:
                self._count(_ACTIVE, self._counts[_ACTIVE] - 1)
                self._answer(message, error)
                return
            assert position is not None
            row = applied(None, record, position)
            deadline_ms = row.deadline_ms
            self.space.put(_key(least), tuple(row))
            self.space.put(_due_key(deadline_ms, least), 1)
            self.space.put(_HIGHEST, least)
            self._count(_DUE, min(self._counts[_DUE], deadline_ms))
            brief = message.timeout_ms < settings.timeout_tick_ms
            self._set_timer(start_ms if brief else deadline_ms)
            self._answer(message, "", (self.number, least))

        self.log.append(record, done, NO_SPACE)

    def _add(self, message: Any, op: int, added: tuple[Any, ...]) -> None:
        least, row = message.least, self._known(message)
        if row is None:
            self._answer(message, self._unknown(message))
            return
        if self._deciding.get(least, row.state) != OPEN:
            self._answer(message, "InvalidTxnStatus")
            return
        there = row.partitions if op == ADD_PARTITION else row.subscriptions
        if {*there}.issuperset(added):
            self._answer(message, "")
            return

        def done(error: str, row: Transaction) -> None:
            self._answer(message, error)

        self._append(least, op, (added,), done, NO_SPACE)

    def _known(self, message: Any) -> Transaction | None:
        return self.get(message.least) if message.most == self.number else None

    def _unknown(self, message: Any) -> str:
        """Returns the error for an id that is not live here."""
        return UNKNOWN if message.most == self.number else "TransactionCoordinatorNotFound"

    def _append(
        self, least: int, op: int, fields: tuple[Any, ...], then: Any, refused: str = ""
    ) -> None:
        """Logs a change of a live transaction, then applies it; calls `then(error, row)`."""
        record = op, self.number, least, self._counts[_NEXT] - 1, *fields

        def done(error: str, position: Position | None) -> None:
            row = self.get(least)
            assert row is not None, "it is live until its last record is in the log"
            if not error:
                assert position is not None
                row = applied(row, record, position)
                self.space.put(_key(least), tuple(row))
            then(error, row)

        self.log.append(record, done, refused)

    # ending --------------------------------------------------------------------------------

    def _end(self, message: EndTxn | AbortTxn, commit: bool) -> None:
        least, row = message.least, self._known(message)
        if row is None:
            self._end_again(message, commit)
            return
        outcome = END_TXN[self._deciding.get(least, row.state)][not commit]
        if outcome not in (END, WAIT):
            self._answer(message, outcome)
            return
        waiters = self._waiters.get(least, ())
        if message not in waiters:  # a repeat of the request is answered once
            self._memory.set(self._waiters, least, (*waiters, message))
        if outcome == END:
            self._decide(least, commit, REQUESTED)

    def _end_again(self, message: EndTxn | AbortTxn, commit: bool) -> None:
        kept = None
        if message.most == self.number and 0 <= message.least < 1 << 63:
            kept = self.ended.get(message.least)
        self._answer(message, ENDED_AGAIN[kept][not commit] if kept else self._unknown(message))

    def _decide(self, least: int, commit: bool, why: int) -> None:
        state = COMMITTING if commit else ABORTING
        self._memory.set(self._deciding, least, state)

        def decided(error: str, row: Transaction) -> None:
            self._memory.drop(self._deciding, least)
            if error:
                self._tell_waiters(least, error)
                self._set_timer(row.deadline_ms)
                return
            self.space.delete(_due_key(row.deadline_ms, least))
            if commit:
                self.shell.decided()
            self._send_end(least, row)

        self._append(least, UPDATE, (state, OPEN, why), decided)

    def _send_end(self, least: int, row: Transaction) -> None:
        lowest = self._counts[_LOWEST]
        while self.space.get(_key(lowest)) is None:  # each number is passed once
            lowest += 1
        assert lowest <= least, "this one is live still"
        self._count(_LOWEST, lowest)
        self.ends.begin(least, row, lowest - 1)

    def _over(self, least: int) -> None:
        """Logs that every participant has the end, and forgets the transaction."""
        row = self.get(least)
        if row is None or least in self._deciding:
            return  # its last record is on its way
        state = COMMITTED if row.state == COMMITTING else ABORTED
        self._memory.set(self._deciding, least, state)

        def over(error: str, row: Transaction) -> None:
            self._memory.drop(self._deciding, least)
            if error:
                return  # ends.py tries again
            for position in row.positions:
                self.log.delete(Position(*position))
            self.space.delete(_key(least))
            self.ended.keep(least, row)
            self.ends.ended(least)
            self._count(_ACTIVE, self._counts[_ACTIVE] - 1)
            self._tell_waiters(least, "")

        self._append(least, UPDATE, (state, row.state, row.why), over)

    def _tell_waiters(self, least: int, error: str) -> None:
        waiters = self._waiters.get(least, ())
        self._memory.drop(self._waiters, least)
        for message in waiters:
            self._answer(message, error)

    # time-outs -----------------------------------------------------------------------------

    def _set_timer(self, at_ms: int) -> None:
        if at_ms < self._counts[_TIMER]:
            self._count(_TIMER, at_ms)
            delay_ms = min(max(0, at_ms - self.shell.now_ms), _LOOK_MS)
            self.shell.later(delay_ms, Wake(TIME, at_ms))

    def _time_out(self) -> None:
        """Aborts open transactions whose deadline has passed, or whose time-out is below a tick."""
        now_ms = self.shell.now_ms
        begin = _due_key(self._counts[_DUE])
        for key, _ in self.space.scan(begin, _due_key(now_ms + 1), limit=_DUE_MAX):
            self._abort_old(int.from_bytes(key[9:], "big"))
        tick = self.shell.settings.timeout_tick_ms
        for key, _ in self.space.scan(_due_key(now_ms + 1), _due_key(now_ms + tick)):
            row = self.get(int.from_bytes(key[9:], "big"))
            if row is not None and row.timeout_ms < tick:
                self._abort_old(int.from_bytes(key[9:], "big"))
        self._track()

    def _abort_old(self, least: int) -> None:
        row = self.get(least)  # a batch written meanwhile may have decided it
        if least not in self._deciding and row is not None and row.state == OPEN:
            self._decide(least, False, TIMED_OUT)

    def _track(self) -> None:
        """Sets the timer for the first open transaction that is due."""
        begin = _due_key(self._counts[_DUE])
        rows = self.space.scan(begin, b"e", limit=len(self._deciding) + 1)
        due = [(int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big")) for key, _ in rows]
        self._count(_DUE, due[0][0] if due else _NEVER)
        for at_ms, least in due:
            if least not in self._deciding:
                self._set_timer(at_ms)
                return
