"""Runs one transaction of a client, from NewTxn to the answer of EndTxn.

    NewTxn ─▶ id ─▶ operations.py: registrations, sends, acknowledgements
                       ├─ all answered ─▶ EndTxn(commit) ─▶ the commit's call ends
                       └─ one was refused ─▶ EndTxn(abort) ─▶ TransactionHasOperationFailed

What was not sent yet when an operation fails, or the transaction aborts, is dropped; what is on the way is awaited
before EndTxn, so that nothing is sent behind the end. The client has a time-out of its own until EndTxn is sent, as
long as the coordinator's. It ends everything without a message.

Whether a commit was carried out is not known, and its call ends as UNDETERMINED, if its EndTxn is not answered in
operation_timeout_ms, or answered that nobody knows the transaction: it may have been carried out, and its answer
lost. Pulsar's client reports that as a failure (upstream issues 19629, 20356).

Leaves out: an end after the time-out; the coordinator aborts by itself. Next: client.py; the other side is
coordinator/pulsar/ and tablets/pulsar/.
"""

from enum import Enum

from ...proto.pulsar.messages import NO_TXN, EndTxn, NewTxn, TxnID
from ...proto.pulsar.settings import PulsarSettings
from ..requests import Exchange
from .coordinators import Coordinators, Request
from .operations import Operations
from .plain_writes import TIMED_OUT, Batches, Numbers
from .producers import Producers
from .states import State, moved

UNDETERMINED = "Undetermined"
"""The error of a commit that may have been carried out."""
INVALID, FAILED, TOO_LATE = (
    "InvalidTxnStatus",
    "TransactionHasOperationFailed",
    "TransactionTimeout",
)
_NOT_COMMITTED = (INVALID, "AlreadyAborted", "AlreadyTimedOut")
"""Answers to EndTxn(commit) that exclude a commit."""
_ABORTED = ("", "TransactionNotFound", "AlreadyAborted", "AlreadyTimedOut")
"""Answers to EndTxn(abort) of a transaction whose commit was never asked for: it is aborted."""


class _Call(Enum):
    FLUSH = "flush"
    COMMIT = "commit"
    ABORT = "abort"


class Transaction:
    """One transaction.

    `failed`: (error, detail) of the first operation that failed, or of what ended the transaction.

    Invariants: EndTxn is on the way only while no operation is. `_calls` holds calls until they end; a commit is
    never beside an abort that came first, nor the other way round.
    """

    def __init__(
        self,
        exchange: Exchange[PulsarSettings],
        coordinators: Coordinators,
        producers: Producers,
        tx: bytes,
        timeout_ms: int,
    ) -> None:
        self.state = State.BEGINNING
        self.id = NO_TXN
        self.failed: tuple[str, str] | None = None
        self._exchange = exchange
        self._coordinators = coordinators
        self._tx = tx
        self._timeout_ms = timeout_ms
        self._operations = Operations(
            exchange, coordinators, producers, tx, self._operation_failed, self._step
        )
        self._calls: dict[bytes, _Call] = {}
        self._timer = exchange.later(exchange.settings.operation_timeout_ms, self._not_begun)
        self._asking: Request | None = coordinators.ask(
            coordinators.next(),
            lambda address, n: NewTxn(address, n, timeout_ms),
            self._begun,
            tx,
        )

    @property
    def outstanding(self) -> int:
        """Returns the bytes of its batches that are neither answered nor dropped."""
        return self._operations.bytes

    # calls -------------------------------------------------------------------------------------

    def send(self, producer: str, batches: Batches, numbers: Numbers) -> str:
        if self.state not in (State.BEGINNING, State.OPEN) or self._ending():
            return INVALID
        if self.failed is None:
            self._operations.send(producer, batches, numbers)
        return ""

    def acknowledge(
        self,
        tablet: int,
        subscription: str,
        ranges: tuple[tuple[int, int], ...],
        position: int | None,
    ) -> str:
        if self.state not in (State.BEGINNING, State.OPEN) or self._ending():
            return INVALID
        if self.failed is None:
            self._operations.acknowledge(tablet, subscription, ranges, position)
        return ""

    def flush(self, call: bytes) -> None:
        if self.state in (State.BEGINNING, State.OPEN) and not self._ending():
            self._calls[call] = _Call.FLUSH
            self._step()
        else:
            self._refuse(call)

    def commit(self, call: bytes) -> None:
        running = self.state in (State.BEGINNING, State.OPEN, State.COMMITTING)
        if running and not self._waits(_Call.ABORT):
            self._calls[call] = _Call.COMMIT
            self._decide()
        elif self.state is State.ABORTING and self._waits(_Call.COMMIT):  # an operation has failed
            self._calls[call] = _Call.COMMIT
        elif self.state is State.ERROR:
            assert self.failed is not None
            self._exchange.end(call, self.failed[0], None, self.failed[1])
        else:
            self._refuse(call)

    def abort(self, call: bytes) -> None:
        running = self.state in (State.BEGINNING, State.OPEN)
        if self.state is State.ABORTING or (running and not self._waits(_Call.COMMIT)):
            self._calls[call] = _Call.ABORT
            self._decide()
        else:
            self._refuse(call)

    def drop(self) -> None:
        """Stops without a message, as if the process had died; its calls never end."""
        self._calls.clear()
        self._stop()
        if self.state in (State.OPEN, State.COMMITTING, State.ABORTING):
            self.state = moved(self.state, State.TIME_OUT)

    def _waits(self, kind: _Call) -> bool:
        return kind in self._calls.values()

    def _ending(self) -> bool:
        return self._waits(_Call.COMMIT) or self._waits(_Call.ABORT)

    def _refuse(self, call: bytes) -> None:
        cause = self.failed[0] if self.failed is not None else None
        self._exchange.end(call, INVALID, cause, f"the transaction is {self.state.value}")

    # begin -------------------------------------------------------------------------------------

    def _begun(self, error: str, value: tuple[int, int]) -> None:
        self._asking = None
        self._exchange.forget(self._timer)
        if error:
            self._over(State.ERROR, error, f"no transaction was opened: {error}")
            return
        self.id = TxnID(*value)
        self.state = moved(self.state, State.OPEN)
        self._timer = self._exchange.later(self._timeout_ms, self._timed_out)
        self._operations.start(self.id)
        self._decide()

    def _not_begun(self) -> None:
        self._over(State.ERROR, TOO_LATE, "no coordinator opened a transaction in time")

    def _timed_out(self) -> None:
        detail = f"it was open for longer than its time-out of {self._timeout_ms} ms"
        self._over(State.TIME_OUT, TOO_LATE, detail)

    def was_aborted(self) -> None:
        if self.state is State.OPEN:
            self._over(State.TIME_OUT, INVALID, "an operator aborted it")

    # the next step -----------------------------------------------------------------------------

    def _operation_failed(self, error: str, detail: str) -> None:
        if self.failed is None:
            self.failed = error, detail
        self._operations.drop_unsent()
        self._step()

    def _decide(self) -> None:
        """Takes the way that the calls ask for."""
        if self.state is State.OPEN and self._waits(_Call.ABORT):
            self.state = moved(self.state, State.ABORTING)
            self._operations.drop_unsent()
            self._end_calls(_Call.FLUSH, INVALID, None, "the transaction is aborted")
        elif self.state is State.OPEN and self._waits(_Call.COMMIT):
            self.state = moved(self.state, State.COMMITTING)
        self._step()

    def _step(self) -> None:
        running = self.state in (State.OPEN, State.COMMITTING, State.ABORTING)
        if self._operations.unended or not running:
            return
        error, detail = self.failed or ("", "")
        self._end_calls(_Call.FLUSH, error, dict(self._operations.written), detail)
        if self._asking is None and self._ending():
            if self.state is State.COMMITTING and self.failed is not None:
                self.state = moved(self.state, State.ABORTING)
            self._end(commit=self.state is State.COMMITTING)

    def _end(self, commit: bool) -> None:
        self._exchange.forget(self._timer)
        self._timer = self._exchange.later(
            self._exchange.settings.operation_timeout_ms, self._end_unanswered
        )
        id = self.id
        self._asking = self._coordinators.ask(
            id.most,
            lambda address, n: EndTxn(address, n, *id, commit),
            self._committed if commit else self._aborted,
            self._tx,
            first_counts=True,
        )

    # ends --------------------------------------------------------------------------------------

    def _end_unanswered(self) -> None:
        """Ends the calls; the same call again asks again."""
        assert self._asking is not None
        self._asking.cancel()
        self._asking = None
        detail = f"the coordinator of {self.id} did not answer in time"
        if self.state is State.COMMITTING:
            self._end_calls(_Call.COMMIT, UNDETERMINED, None, detail)
        else:
            self._end_failed_commits()
            self._end_calls(_Call.ABORT, TIMED_OUT, None, detail)

    def _committed(self, error: str, _: object) -> None:
        self._asking = None
        if not error:
            self._over(State.COMMITTED, "", "")
        else:
            name = error if error in _NOT_COMMITTED else UNDETERMINED
            self._over(State.ERROR, name, f"the answer to the commit of {self.id} was {error}")

    def _aborted(self, error: str, _: object) -> None:
        self._asking = None
        self._end_failed_commits()
        if error in _ABORTED:
            self._over(State.ABORTED, "", "")
        else:
            detail = f"the answer to the abort of {self.id} was {error}"
            self._end_calls(_Call.ABORT, error, None, detail)
            self._over(State.ERROR, error, detail)

    def _over(self, state: State, error: str, detail: str) -> None:
        """Moves to a final state and ends all calls; that of an abort succeeds, as nothing is committed."""
        self.state = moved(self.state, state)
        if error:
            self.failed = error, detail
        self._stop()
        self._end_calls(_Call.FLUSH, error, None, detail)
        self._end_calls(_Call.COMMIT, error, None if error else self._operations.written, detail)
        self._end_calls(_Call.ABORT, "", None, "")

    def _end_failed_commits(self) -> None:
        if self.failed is not None:
            self._end_calls(_Call.COMMIT, FAILED, self.failed[0], self.failed[1])

    def _end_calls(self, kind: _Call, error: str, value: object, detail: str) -> None:
        for call in [call for call, its_kind in self._calls.items() if its_kind is kind]:
            del self._calls[call]
            self._exchange.end(call, error, value, detail)

    def _stop(self) -> None:
        self._exchange.forget(self._timer)
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._operations.stop()
