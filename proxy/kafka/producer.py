"""Runs the transactions of one incarnation of a transactional id, one after the other.

    version 1   InitProducer │ AddPartitions ─▶ Produce … │ AddOffsets ─▶ TxnOffsetCommit … │ EndTxn
    version 2   InitProducer │                  Produce … │               TxnOffsetCommit … │ EndTxn ─▶ epoch + 1

As in Java's TransactionManager, one transactional request (all but Produce) is on the way at a time. No batch
is sent until it is answered (Sender.runOnce); batches sent before may be in flight with it.
EndTxn is sent once every batch and all offsets are answered; its answer ends the call, markers follow.
An abortable error is kept until commit or abort; commit then aborts, and ends with that error. If the error
left sequences unknown, version 1 asks for the next epoch before the next transaction (KIP-360).

In version 1 an EndTxn that was given up after request_timeout_ms may arrive late and end whatever transaction
is open then (KAFKA-17754). Kafka does that, and this mode keeps it; version 2 prevents it by the epoch.

Leaves out: 2PC (KIP-939), changing the version between transactions. Next: client.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...proto.kafka.messages import (
    AddOffsets,
    AddPartitions,
    EndTxn,
    InitProducer,
    TxnOffsetCommit,
)
from ...proto.kafka.settings import KafkaSettings, kind_of_error
from ..requests import NO_DELAYS, TIMED_OUT, Asking, Exchange
from ..sender import EXPIRED, Batch, Sender, batch_detail
from .produce import OUT_OF_ORDER, produce
from .states import State, moved

Offsets = Mapping[str, tuple[int, str, tuple[tuple[int, int], ...]]]
"""By group: generation, member, (tablet, offset)…; KIP-447's group metadata."""
UNKNOWN_END = "whether it is committed is not known"
"""The detail of a fatal answer to a commit that was sent more than once."""
FENCED, ABORTABLE = "PRODUCER_FENCED", "TRANSACTION_ABORTABLE"
MAPPING = "INVALID_PRODUCER_ID_MAPPING"
SEQUENCES_UNKNOWN = (OUT_OF_ORDER, "UNKNOWN_PRODUCER_ID", MAPPING)
"""Errors of any request that leave sequences unknown; of Produce every final error does (as in Java)."""
_RUNNING = (State.IN_TRANSACTION, State.COMMITTING)


class Producer:
    """One incarnation of a transactional id.

    Invariants: `tx` is the open transaction, from begin to its end. `_calls` wait for that end (true:
    commits). In FATAL_ERROR nothing is on the way and nothing is sent.

    `_last` is (tx, whether it was a commit, error, value, detail) of the transaction that ended last: the
    same call again gets the same answer.
    """

    def __init__(
        self,
        exchange: Exchange[KafkaSettings],
        name: str,
        coordinator: int,
        group_of: Callable[[str], int],
    ) -> None:
        self._exchange = exchange
        self._version = exchange.settings.protocol_version
        self._name = name
        self._coordinator = coordinator
        self._group_of = group_of
        make = produce(exchange)
        ended = self._batch_ended
        self._sender = Sender(exchange, name, make, OUT_OF_ORDER, ended, self._advance)
        first_ms = exchange.settings.concurrent_backoff_ms
        self._first_delays_ms = {"CONCURRENT_TRANSACTIONS": first_ms}
        self._asking: Asking | None = None
        self.state = State.UNINITIALIZED
        self.error = self.detail = ""
        self._calls: dict[bytes, bool] = {}
        self._last: tuple[bytes, bool, str, Any, str] | None = None
        self._unknown = self._id_lost = False
        self._attempts = 0
        self._forget_transaction()

    def _forget_transaction(self) -> None:
        self.tx: bytes | None = None
        self._committing = False
        self._started = False
        self._partitions: dict[int, None] = {}
        self._registered: dict[int, None] = {}
        self._new: dict[int, None] = {}
        self._offsets: list[tuple[str, int, str, tuple[tuple[int, int], ...]]] = []
        self._group_added = False
        self._written: dict[int, tuple[int, int]] = {}

    # calls -------------------------------------------------------------------------------------

    def init(self, ended: Callable[[str, str], None]) -> None:
        """Asks for an epoch, and calls `ended(error, detail)` once it is there or refused."""
        self._ready = ended
        self._move(State.INITIALIZING)
        self._init(-1, -1)

    def begin(self, tx: bytes) -> str:
        if self.state is State.FATAL_ERROR:
            return self.error
        if self.state is not State.READY:
            running = self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)
            return "INVALID_TXN_STATE" if running else "CONCURRENT_TRANSACTIONS"
        self._move(State.IN_TRANSACTION)
        self.error = self.detail = ""
        self.tx = tx
        return ""

    def send(self, tx: bytes, batches: Mapping[int, Sequence[tuple[bytes, int]]]) -> int:
        if self.state not in (State.FATAL_ERROR, State.ABORTABLE_ERROR):
            assert self.tx == tx and self.state is State.IN_TRANSACTION, (
                "sent outside a transaction"
            )
            for tablet, items in batches.items():
                if items:
                    self._sender.queue(tablet, items, tx)
                    if self._version == 1 and tablet not in self._partitions:
                        self._partitions[tablet] = self._new[tablet] = None
            self._advance()
        return self._sender.bytes

    def commit(self, call: bytes, tx: bytes, offsets: Offsets) -> None:
        if self._waits(call, tx, commit=True):
            if self.state is State.IN_TRANSACTION:
                self._offsets = [(group, *rest) for group, rest in offsets.items() if rest[2]]
                self._committing = True
                self._move(State.COMMITTING)
            elif self.state is State.ABORTABLE_ERROR:
                self._committing = True
                self._move(State.ABORTING)
            self._advance()

    def abort(self, call: bytes, tx: bytes) -> None:
        if self._waits(call, tx, commit=False):
            if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                self._drop_unsent()
                self._move(State.ABORTING)
            self._advance()

    def _waits(self, call: bytes, tx: bytes, commit: bool) -> bool:
        """Registers the call to wait for the open transaction's end, or ends it at once; returns which."""
        if self._last is not None and self._last[0] == tx:
            _, committed, error, value, detail = self._last
            if commit == committed:
                self._exchange.end(call, error, value, detail)
            elif error:  # the commit failed, so the transaction is aborted already
                self._exchange.end(call, "")
            else:
                what = "committed" if committed else "aborted"
                self._exchange.end(call, "INVALID_TXN_STATE", detail=f"it is {what} already")
        elif self.state is State.FATAL_ERROR:
            self._exchange.end(call, self.error, detail=self.detail)
        elif tx != self.tx:
            self._exchange.end(call, "INVALID_TXN_STATE", detail="this transaction is not open")
        elif self.state is State.COMMITTING and not commit:
            self._exchange.end(call, "INVALID_TXN_STATE", detail="its commit is under way")
        elif self.state in (State.ABORTING, State.INITIALIZING) and commit and not self._committing:
            self._exchange.end(call, "INVALID_TXN_STATE", detail="its abort is under way")
        else:
            self._calls[call] = commit
            self._exchange.open(call, self._expire)
            return True
        return False

    def _expire(self, call: bytes) -> None:
        """Ends a call whose time is over; the commit or abort itself goes on."""
        if self._calls.pop(call) and self.error:  # the error is known; only the abort is still open
            self._exchange.end(call, self.error, detail=self.detail)
        else:
            self._exchange.end(call, TIMED_OUT, detail="the same call again waits on")

    def drop(self, detail: str = "the producer was dropped") -> None:
        self._die(TIMED_OUT, detail)

    # the next step -----------------------------------------------------------------------------

    def _move(self, state: State) -> None:
        self.state = moved(self.state, state)

    def _advance(self) -> None:
        if self.state is State.FATAL_ERROR or self.tx is None:
            return
        running = self.state in _RUNNING
        every = self._version == 2
        if self._asking is None:
            self._ask_next(running)
        if self._asking is None:  # otherwise no batch is sent, as in Sender.runOnce
            self._sender.dispatch(lambda tablet: running and (every or tablet in self._registered))
            if every and self._sender.sent:
                self._started = True

    def _ask_next(self, running: bool) -> None:
        if running and self._new:
            self._add_partitions()
        elif self.state is State.COMMITTING and self._offsets:
            self._send_offsets()
        elif self.state is State.COMMITTING and self._sender.idle:
            self._end(commit=True)
        elif self.state is State.ABORTING and not self._sender.sent:
            self._end(commit=False)

    def _ask(
        self,
        target: int,
        make: Callable[[int, int], Any],
        ended: Callable[[Any], None],
        refused: Callable[[str], None],
        delays_ms: Mapping[str, float] = NO_DELAYS,
    ) -> None:
        def answered(error: str, value: Any) -> None:
            assert self._asking is not None
            self._attempts, self._asking = self._asking.attempts, None
            if not error:
                ended(value)
            elif error == "INVALID_PRODUCER_EPOCH":  # it means fenced, except for Produce
                refused(FENCED)
            else:
                refused(error)
            self._advance()

        self._asking = Asking(self._exchange, target, make, answered, self.tx, delays_ms)

    # registering -------------------------------------------------------------------------------

    def _add_partitions(self) -> None:
        partitions, self._new = tuple(self._new), {}
        name, producer, epoch = self._name, self._sender.producer, self._sender.epoch

        def added(_: Any) -> None:
            self._started = True
            self._registered.update(dict.fromkeys(partitions))

        delays_ms = NO_DELAYS if self._registered else self._first_delays_ms
        self._ask(
            self._coordinator,
            lambda address, n: AddPartitions(address, n, name, producer, epoch, partitions),
            added,
            self._add_refused,
            delays_ms,
        )

    def _send_offsets(self) -> None:
        group, generation, member, offsets = self._offsets[0]
        name, producer, epoch = self._name, self._sender.producer, self._sender.epoch
        target, version = self._group_of(group), self._version

        def added(_: Any) -> None:
            self._started = self._group_added = True

        def accepted(_: Any) -> None:
            if self._offsets:  # otherwise they were dropped: the transaction aborts
                self._group_added = False
                del self._offsets[0]

        if version == 1 and not self._group_added:
            self._ask(
                self._coordinator,
                lambda address, n: AddOffsets(address, n, name, producer, epoch, target),
                added,
                self._add_refused,
            )
            return
        self._started = True
        self._ask(
            target,
            lambda address, n: TxnOffsetCommit(
                address, n, name, producer, epoch, group, generation, member, offsets, version
            ),
            accepted,
            self._add_refused,
        )

    def _add_refused(self, error: str) -> None:
        if not kind_of_error(error).abortable:
            self._die(error, "")
            return
        if error in SEQUENCES_UNKNOWN:
            self._unknown = True
        self._fail(error, "")

    def _batch_ended(self, batch: Batch, error: str, offset: int) -> None:
        if not error:
            first, end = self._written.get(batch.tablet, (offset, offset))
            end = max(end, offset + batch.records)
            self._written[batch.tablet] = (min(first, offset), end)
            return
        detail = batch_detail(batch, error, self._exchange.tablet_words)
        if error == EXPIRED:
            error = ABORTABLE
        if error == FENCED:
            self._die(error, detail)
        else:  # any other error of a batch ends only its transaction (maybeTransitionToErrorState)
            self._unknown = True
            self._fail(error, detail)

    # ends --------------------------------------------------------------------------------------

    def _drop_unsent(self) -> None:
        self._sender.drop_unsent()
        self._new.clear()
        self._offsets.clear()

    def _fail(self, error: str, detail: str) -> None:
        """Records an abortable error; only the first one counts."""
        self._id_lost = self._id_lost or error == MAPPING
        if self.state in _RUNNING:
            self.error, self.detail = error, detail
            self._drop_unsent()
            self._move(State.ABORTABLE_ERROR)
            if self._committing:
                self._move(State.ABORTING)

    def _end(self, commit: bool) -> None:
        name, producer, epoch = self._name, self._sender.producer, self._sender.epoch
        if not self._started or self._id_lost:
            # The coordinator does not know it; or its producer id is gone, so EndTxn would be refused.
            self._ended(None)
            return
        self._ask(
            self._coordinator,
            lambda address, n: EndTxn(address, n, name, producer, epoch, commit, self._version),
            self._ended,
            self._end_refused,
        )

    def _end_refused(self, error: str) -> None:
        # A retriable first answer may have been to a copy, while the request itself was carried out.
        unknown = self.state is State.COMMITTING and self._attempts > 1
        # MAPPING says that the id has another producer now, not how the transaction ended before.
        if not kind_of_error(error).abortable or (unknown and error == MAPPING):
            self._die(error, UNKNOWN_END if unknown else "")
        elif self.state is State.COMMITTING:
            self._add_refused(error)
        else:  # InitProducer aborts any open transaction
            self._id_lost = True
            self._ended(None)

    def _ended(self, value: Any) -> None:
        epoch = self._sender.epoch
        if self._version == 2 and value is not None:
            self._sender.start(*value)
            self._unknown = False
        if self.state is State.ABORTING and (self._unknown or self._id_lost):
            self._move(State.INITIALIZING)
            self._init(self._sender.producer, epoch)
        else:
            self._finish(epoch)

    def _init(self, producer: int, epoch: int) -> None:
        name, timeout_ms = self._name, self._exchange.settings.transaction_timeout_ms

        def initialized(value: Any) -> None:
            self._sender.start(*value)
            self._unknown = self._id_lost = False
            if self.tx is None:
                self._move(State.READY)
                self._ready("", "")
            else:
                self._finish(epoch)

        self._ask(
            self._coordinator,
            lambda address, n: InitProducer(address, n, name, timeout_ms, producer, epoch),
            initialized,
            lambda error: self._die(error, ""),
        )

    def _finish(self, epoch: int) -> None:
        assert self.tx is not None
        value, error, detail = None, "", ""
        if self.state is State.COMMITTING:
            value = epoch, self._written
        elif self._committing:
            error, detail = self.error, self.detail
        self._move(State.READY)
        self._last = self.tx, self._committing, error, value, detail
        self._forget_transaction()
        self._end_calls(error, value, detail)

    def _end_calls(self, error: str, value: Any, detail: str) -> None:
        calls, self._calls = self._calls, {}
        for call, commit in calls.items():
            if commit or self.state is State.FATAL_ERROR:
                self._exchange.end(call, error, value, detail)
            else:
                self._exchange.end(call, "")

    def _die(self, error: str, detail: str) -> None:
        if self.state is State.FATAL_ERROR:
            return
        first = self.state is State.INITIALIZING and self.tx is None
        self._move(State.FATAL_ERROR)
        self.error, self.detail = error, detail
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._sender.stop()
        self._forget_transaction()
        self._end_calls(error, None, detail)
        if first:
            self._ready(error, detail)
