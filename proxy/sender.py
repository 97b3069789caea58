"""Batches of one producer on their way: sequences, order, requests in flight.

    queue ─▶ unsent ──dispatch──▶ sent, numbered ─▶ written
                                   │      ▲    └──▶ failed: its partition takes nothing more (`broken`)
                       no answer,  ▼      │ first of its partition, alone
                  retriable error  again ─┘

One dispatch takes at most one batch from each partition and counts one request a host; `max_in_flight` of
them may be on the way to a host. A batch gets its sequence when it is first sent and keeps it for the epoch.
While one is to be sent again, its partition sends nothing else (KAFKA-5494).
What a batch is as a message, and which error says that one before it is missing, the mode says.

Left out: batches are not merged nor split: whoever writes gathers and bounds them (linger_ms, batch_bytes); no
bound of a request's bytes.

Next: kafka/producer.py and kafka/idempotent_producer.py, who own one each.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..proto.ids import host_of
from ..proto.shell import Answer
from .requests import Exchange, RequestSettings

SEQUENCES = 1 << 31
"""Sequences are int32 and go on with 0."""
EXPIRED = "expired"
"""Not an error of the wire: nobody answered in delivery_timeout_ms."""


class SenderSettings(RequestSettings, Protocol):
    """What a mode's settings say of batches."""

    @property
    def max_in_flight(self) -> int:
        """Requests on the way to one host."""

    @property
    def delivery_timeout_ms(self) -> int:
        """Until a batch that nobody answered for fails."""


@dataclass(slots=True, eq=False)
class Batch:
    """`again`: sent before, and to be sent once more, when the timer `rest` (0: none) told. `waited_ms` is
    what timers told: there is no clock."""

    tablet: int
    data: bytes
    records: int
    tx: bytes | None
    owner: Any = None
    sequence: int = -1
    again: bool = False
    rest: int = 0
    waited_ms: float = 0
    flights: list["_Flight"] = field(default_factory=list)


@dataclass(slots=True)
class _Partition:
    """`sent` in order of sequence; `again` counts those of them to be sent once more."""

    sent: deque[Batch] = field(default_factory=deque)
    unsent: deque[Batch] = field(default_factory=deque)
    again: int = 0


@dataclass(slots=True, eq=False)
class _Flight:
    """One request: `batches` that may still be heard of, by tablet, and those of them that are on the way,
    while it is one of its host's max_in_flight."""

    host: int
    batches: dict[int, Batch]
    on_the_way: dict[int, None]
    number: int = 0


Make = Callable[["Sender", Batch, int, int], Any]
"""(sender, batch, address, request number) → its message, which `Answer`s offsets."""


class Sender:
    """Tells `ended(batch, error, offset)` of each batch sent, once, then `advance()`.

    `broken`: partitions where a batch failed in this epoch; true: it is certain that it is not written.

    Invariants: within an epoch the sequences of a partition have no gap, and a batch has one;
    `bytes` is what is neither written nor failed; `sent` counts batches that were sent and have not ended.
    """

    def __init__(
        self,
        exchange: Exchange[SenderSettings],
        name: str | None,
        make: Make,
        out_of_order: str,
        ended: Callable[[Batch, str, int], None],
        advance: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self.name = name
        self._make = make
        self._out_of_order = out_of_order
        self._ended = ended
        self._advance = advance
        self._partitions: dict[int, _Partition] = {}
        self._sequences: dict[int, int] = {}
        self._in_flight: dict[int, int] = {}
        self.producer = self.epoch = -1
        self.broken: dict[int, bool] = {}
        self.bytes = 0
        self.sent = 0
        self._to_send = 0  # batches that were not sent, or are to be sent once more

    def start(self, producer: int, epoch: int) -> None:
        """A new epoch: sequences begin at 0."""
        assert not self.sent
        self.producer, self.epoch = producer, epoch
        self._sequences.clear()
        self.broken.clear()

    @property
    def idle(self) -> bool:
        return not self._partitions

    def queue(
        self,
        tablet: int,
        batches: Sequence[tuple[bytes, int]],
        tx: bytes | None,
        owner: Any = None,
    ) -> None:
        partition = self._partitions.setdefault(tablet, _Partition())
        for data, records in batches:
            assert 0 < records < SEQUENCES
            partition.unsent.append(Batch(tablet, data, records, tx, owner))
            self.bytes += len(data)
            self._to_send += 1

    def drop_unsent(self, owner: Any = None) -> list[Batch]:
        """Takes back what was not sent (of `owner`); nobody is told."""
        dropped: list[Batch] = []
        for tablet, partition in list(self._partitions.items()):
            kept: deque[Batch] = deque()
            for batch in partition.unsent:
                (kept if owner is not None and batch.owner != owner else dropped).append(batch)
            partition.unsent = kept
            self._tidy(tablet)
        for batch in dropped:
            self.bytes -= len(batch.data)
        self._to_send -= len(dropped)
        return dropped

    def expire(self, owner: Any) -> None:
        """Fails what was sent of `owner`; whether it is written is not known."""
        for partition in list(self._partitions.values()):
            for batch in [batch for batch in partition.sent if batch.owner == owner]:
                self._fail(batch, EXPIRED)

    def stop(self) -> None:
        """Forgets all: no answer and no timer brings anything back."""
        for partition in list(self._partitions.values()):
            for batch in list(partition.sent):
                self._over(batch)
        self._partitions.clear()
        self.bytes = self._to_send = 0

    # out ---------------------------------------------------------------------------------------

    def dispatch(self, unsent: Callable[[int], bool]) -> None:
        """Sends what may be sent now; of batches never sent, to the partitions that `unsent` allows."""
        limit = self._exchange.settings.max_in_flight
        while self._to_send:  # else nobody need look: each answer of many partitions comes here
            hosts: dict[int, dict[int, Batch]] = {}
            for tablet, partition in self._partitions.items():
                host = host_of(tablet)
                if self._in_flight.get(host, 0) < limit:
                    batch = self._next(partition, unsent(tablet))
                    if batch is not None:
                        hosts.setdefault(host, {})[tablet] = batch
            if not hosts:
                return
            for host, batches in hosts.items():
                self._send(host, batches)

    def _next(self, partition: _Partition, unsent: bool) -> Batch | None:
        if partition.again:
            batch = partition.sent[0]
            return batch if batch.again and not batch.rest else None
        if unsent and partition.unsent:
            return partition.unsent[0]
        return None

    def _send(self, host: int, batches: dict[int, Batch]) -> None:
        flight = _Flight(host, batches, dict.fromkeys(batches))
        for tablet, batch in batches.items():
            partition = self._partitions[tablet]
            if batch.again:
                batch.again = False
                partition.again -= 1
            else:
                batch.sequence = self._sequences.get(tablet, 0)
                self._sequences[tablet] = (batch.sequence + batch.records) % SEQUENCES
                partition.sent.append(partition.unsent.popleft())
                self.sent += 1
            batch.flights.append(flight)
        self._to_send -= len(batches)
        self._in_flight[host] = self._in_flight.get(host, 0) + 1
        flight.number = self._exchange.post(
            lambda address, number: [
                (tablet, self._make(self, batch, address, number), batch.tx)
                for tablet, batch in batches.items()
            ],
            lambda answer: self._answered(flight, answer),
            lambda: self._late(flight),
        )

    # back --------------------------------------------------------------------------------------

    def _answered(self, flight: _Flight, answer: Answer) -> None:
        batch = flight.batches.get(answer.tablet)
        if batch is None:
            return
        self._arrived(flight, batch)
        if not answer.error:  # also to a former number: written is written
            self._over(batch)
            self._ended(batch, "", answer.value)
        elif flight is batch.flights[-1] and not batch.again:  # else another sending will tell
            self._refused(batch, answer.error)
        self._advance()

    def _refused(self, batch: Batch, error: str) -> None:
        """A batch behind one that is missing is out of order through no fault of its own."""
        delay_ms = self._exchange.settings.retry_backoff_ms
        out_of_order = error == self._out_of_order
        broken = batch.tablet in self.broken
        known = self.broken.get(batch.tablet, False) and len(batch.flights) == 1
        missing = batch is not self._partitions[batch.tablet].sent[0]
        if out_of_order and known and self.name is None:
            self._take_back(batch)
        elif self._exchange.kind_of_error(error).retriable or (
            out_of_order and missing and not broken
        ):
            if self._again(batch, delay_ms):
                batch.rest = self._exchange.later(delay_ms, lambda: self._rested(batch))
        else:
            self._fail(batch, error)

    def _take_back(self, batch: Batch) -> None:
        """Sent once, and not written for want of one that failed: it will be numbered anew."""
        self._over(batch)
        self.bytes += len(batch.data)
        unsent = self._partitions.setdefault(batch.tablet, _Partition()).unsent
        before = sum(0 <= other.sequence < batch.sequence for other in unsent)
        unsent.insert(before, batch)
        self._to_send += 1

    def _rested(self, batch: Batch) -> None:
        batch.rest = 0
        self._advance()

    def _late(self, flight: _Flight) -> None:
        for tablet in list(flight.on_the_way):
            batch = flight.batches[tablet]
            self._arrived(flight, batch)
            if flight is batch.flights[-1]:
                self._again(batch, self._exchange.settings.request_timeout_ms)
        self._advance()

    def _again(self, batch: Batch, waited_ms: float) -> bool:
        batch.waited_ms += waited_ms
        if batch.waited_ms >= self._exchange.settings.delivery_timeout_ms:
            self._fail(batch, EXPIRED)
            return False
        batch.again = True
        self._partitions[batch.tablet].again += 1
        self._to_send += 1
        return True

    def _fail(self, batch: Batch, error: str) -> None:
        known = error not in (EXPIRED, self._out_of_order) and len(batch.flights) == 1
        self.broken[batch.tablet] = known and self.broken.get(batch.tablet, True)
        self._over(batch)
        self._ended(batch, error, -1)

    def _over(self, batch: Batch) -> None:
        partition = self._partitions[batch.tablet]
        partition.sent.remove(batch)
        partition.again -= batch.again
        self._to_send -= batch.again
        self.sent -= 1
        self.bytes -= len(batch.data)
        self._exchange.forget(batch.rest)
        for flight in batch.flights:
            self._arrived(flight, batch)
            del flight.batches[batch.tablet]
            if not flight.batches:
                self._exchange.forget(flight.number)
        batch.flights.clear()
        self._tidy(batch.tablet)

    def _arrived(self, flight: _Flight, batch: Batch) -> None:
        """The answer, or nobody waits for it any more."""
        if batch.tablet in flight.on_the_way:
            del flight.on_the_way[batch.tablet]
            if not flight.on_the_way:
                self._in_flight[flight.host] -= 1

    def _tidy(self, tablet: int) -> None:
        partition = self._partitions[tablet]
        if not partition.sent and not partition.unsent:
            del self._partitions[tablet]


def batch_detail(batch: Batch, error: str, words: Callable[[int], str]) -> str:
    """What became of a batch, for people: `words` for its tablet."""
    where = words(batch.tablet)
    if error == EXPIRED:
        return f"{where} did not answer for a batch in time: whether it is written is not known"
    return f"{where} refused a batch: {error}"
