"""A transaction's sends and acknowledgements: each behind the registration of its participant.

    add ─▶ behind its participant's registration ─▶ on the way ─▶ answered
             AddPartitionToTxn, AddSubscriptionToTxn: once each, all participants side by side

A participant is a partition, or a subscription of one. Batches go through the lines of producers.py. Individual
acknowledgements go side by side; of cumulative ones of a subscription one is on the way at a time, so that a later
position is not overtaken by an earlier one, which would then conflict with it.

Next: transaction.py.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ...proto.pulsar.messages import NO_TXN, Ack, AddPartitionToTxn, AddSubscriptionToTxn, TxnID
from ...proto.pulsar.settings import PulsarSettings
from ..requests import Asking, Exchange
from .coordinators import Coordinators, Request
from .plain_writes import Batches, Numbers, batches_of, merged
from .producers import Batch, LineKey, Producers

Participant = tuple[int, str | None]
"""A partition's tablet; with a name, that subscription of it."""


@dataclass(slots=True, eq=False)
class _Sending:
    producer: str
    batch: Batch


@dataclass(slots=True, eq=False)
class _Ack:
    tablet: int
    subscription: str
    ranges: tuple[tuple[int, int], ...]
    position: int | None


class Operations:
    """The operations of one transaction.

    `unended` counts those neither answered, dropped nor given up; `bytes` is the size of its batches among them.
    `written`: by tablet (first offset, end offset). Calls `failed(error, detail)` for each that is refused, or
    whose registration is, and `advance` after any other answer.

    Invariant: a participant is in `_waiting` until its registration is answered, then in `_registered`.
    """

    def __init__(
        self,
        exchange: Exchange[PulsarSettings],
        coordinators: Coordinators,
        producers: Producers,
        tx: bytes,
        failed: Callable[[str, str], None],
        advance: Callable[[], None],
    ) -> None:
        self.unended = self.bytes = 0
        self.written: dict[int, tuple[int, int]] = {}
        self._exchange = exchange
        self._coordinators = coordinators
        self._producers = producers
        self._tx = tx
        self._failed = failed
        self._advance = advance
        self._id = NO_TXN
        self._waiting: dict[Participant, list[_Sending | _Ack]] = {}
        self._registering: dict[Participant, Request] = {}
        self._registered: dict[Participant, None] = {}
        self._lines: dict[LineKey, None] = {}
        self._acks: dict[_Ack, Asking] = {}
        self._cumulative: dict[Participant, deque[_Ack]] = {}
        """While a cumulative acknowledgement is on the way: those behind it."""
        self._stopped = False

    def start(self, id: TxnID) -> None:
        """Starts what waits for the transaction's id."""
        self._id = id
        for participant in self._waiting:
            self._register(participant)

    def send(self, producer: str, batches: Batches, numbers: Numbers) -> None:
        def make(tablet: int, data: bytes, records: int, number: int) -> Batch:
            return Batch(tablet, data, records, self._tx, self._id, self, number)

        for batch in batches_of(batches, numbers, make):
            self.bytes += len(batch.data)
            self._add((batch.tablet, None), _Sending(producer, batch))

    def acknowledge(
        self,
        tablet: int,
        subscription: str,
        ranges: tuple[tuple[int, int], ...],
        position: int | None,
    ) -> None:
        self._add((tablet, subscription), _Ack(tablet, subscription, ranges, position))

    def drop_unsent(self) -> None:
        """Drops what was not sent yet, and what is left of registering."""
        for request in self._registering.values():
            request.cancel()
        self._registering.clear()
        waiting = [one for operations in self._waiting.values() for one in operations]
        self._waiting.clear()
        for queue in self._cumulative.values():
            waiting += queue
            queue.clear()
        batches = [one.batch for one in waiting if isinstance(one, _Sending)]
        in_line = self._producers.drop_waiting(self._lines, self)
        self.unended -= len(waiting) + len(in_line)
        self.bytes -= sum(len(batch.data) for batch in batches + in_line)

    def stop(self) -> None:
        """Gives up everything.

        A batch on the way is sent until it is answered: those behind it in its line keep their order.
        """
        self.drop_unsent()
        self._stopped = True
        for asking in self._acks.values():
            asking.cancel()
        self._acks.clear()
        self.unended = self.bytes = 0

    # registering -------------------------------------------------------------------------------

    def _add(self, participant: Participant, operation: _Sending | _Ack) -> None:
        self.unended += 1
        if participant in self._registered:
            self._start(operation)
        elif participant in self._waiting:
            self._waiting[participant].append(operation)
        else:
            self._waiting[participant] = [operation]
            if self._id != NO_TXN:
                self._register(participant)

    def _register(self, participant: Participant) -> None:
        tablet, name = participant
        id = self._id

        def make(address: int, n: int) -> AddPartitionToTxn | AddSubscriptionToTxn:
            if name is None:
                return AddPartitionToTxn(address, n, *id, (tablet,))
            return AddSubscriptionToTxn(address, n, *id, ((tablet, name),))

        def answered(error: str, _: object) -> None:
            del self._registering[participant]
            if error:
                self._refused(tablet, "was not registered", error)
                return
            self._registered[participant] = None
            for operation in self._waiting.pop(participant):
                self._start(operation)

        self._registering[participant] = self._coordinators.ask(id.most, make, answered, self._tx)

    # on the way --------------------------------------------------------------------------------

    def _start(self, operation: _Sending | _Ack) -> None:
        if isinstance(operation, _Sending):
            operation.batch.id = self._id
            self._lines[self._producers.queue(operation.producer, operation.batch)] = None
            return
        if operation.position is not None:
            key = operation.tablet, operation.subscription
            if key in self._cumulative:
                self._cumulative[key].append(operation)
                return
            self._cumulative[key] = deque()
        self._acknowledge(operation)

    def _acknowledge(self, ack: _Ack) -> None:
        def answered(error: str, _: object) -> None:
            del self._acks[ack]
            self.unended -= 1
            if ack.position is not None:
                self._next_cumulative((ack.tablet, ack.subscription))
            if error:
                self._refused(ack.tablet, "refused an acknowledgement", error)
            else:
                self._advance()

        id = self._id
        self._acks[ack] = Asking(
            self._exchange,
            ack.tablet,
            lambda address, n: Ack(address, n, *id, ack.subscription, ack.ranges, ack.position),
            answered,
            self._tx,
            first_counts=True,
        )

    def _next_cumulative(self, key: Participant) -> None:
        if self._cumulative[key]:
            self._acknowledge(self._cumulative[key].popleft())
        else:
            del self._cumulative[key]

    def batch_ended(self, batch: Batch, error: str, offset: int) -> None:
        if self._stopped:
            return
        self.unended -= 1
        self.bytes -= len(batch.data)
        if error:
            self._refused(batch.tablet, "refused a batch", error)
        else:
            merged(self.written, batch, offset)
            self._advance()

    def _refused(self, tablet: int, what: str, error: str) -> None:
        self._failed(error, f"{self._exchange.tablet_words(tablet)} {what}: {error}")
