"""Sends one producer's batches: gives them sequences, keeps their order, bounds requests in flight.

    queue ─▶ unsent ──dispatch──▶ sent, numbered ─▶ written
                                   │      ▲    └──▶ failed: its partition is `broken`
                       no answer,  ▼      │ first of its partition, alone
                  retriable error  again ─┘

A request takes at most one batch from each partition of a host; `max_in_flight` requests may be on the way to a
host. A batch gets its sequence when it is first sent and keeps it for the epoch. While a batch has to be sent
again, its partition sends nothing else (KAFKA-5494). The producer passes in `make`, which builds a batch's
message, and the name of the error for a missing earlier batch (`out_of_order`).

Leaves out: merging and splitting batches (writers gather and bound them: linger_ms, batch_bytes); bounding a
request's bytes.

Next: kafka/producer.py and kafka/idempotent_producer.py, which own one each.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..proto.ids import host_of
from ..proto.shell import Answer
from .requests import Exchange, RequestSettings

SEQUENCES = 1 << 31
"""Sequences are int32 and wrap to 0."""
EXPIRED = "expired"
"""No answer came in delivery_timeout_ms; this error is never sent."""


class SenderSettings(RequestSettings, Protocol):
    """A mode's settings for batches."""

    @property
    def max_in_flight(self) -> int:
        """The most requests on the way to one host."""

    @property
    def delivery_timeout_ms(self) -> int:
        """The time after which a batch without an answer fails."""


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of records for one partition.

    `again`: it was sent, and is sent again once the timer `rest` (0: none) fires. `waited_ms` adds up the
    delays of timers, as there is no clock.
    """

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
    """A partition's batches: `sent` is in order of sequence; `again` counts those of it to send again."""

    sent: deque[Batch] = field(default_factory=deque)
    unsent: deque[Batch] = field(default_factory=deque)
    again: int = 0


@dataclass(slots=True, eq=False)
class _Flight:
    """One request: `batches` by tablet that an answer may still come for.

    While any is in `on_the_way`, the request counts towards its host's max_in_flight.
    """

    host: int
    batches: dict[int, Batch]
    on_the_way: dict[int, None]
    number: int = 0


Make = Callable[["Sender", Batch, int, int], Any]
"""(sender, batch, address, request number) → its message; the `Answer`'s value is the first offset."""


class Sender:
    """Calls `ended(batch, error, offset)` once for each batch sent, then `advance()`.

    `broken` has the partitions where a batch failed in this epoch; true if it is certainly not written.

    Invariants: within an epoch the sequences of a partition have no gap, and a batch has one. `bytes` counts
    batches neither written nor failed. `sent` counts batches that were sent and have not ended.
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
        self._to_send = 0  # batches to send for the first time, or again

    def start(self, producer: int, epoch: int) -> None:
        """Starts a new epoch, whose sequences begin at 0."""
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
        """Removes and returns the unsent batches (of `owner`), without calling `ended`."""
        dropped: list[Batch] = []
        for tablet, partition in list(self._partitions.items()):
            rest: deque[Batch] = deque()
            for batch in partition.unsent:
                (rest if owner is not None and batch.owner != owner else dropped).append(batch)
            partition.unsent = rest
            self._tidy(tablet)
        for batch in dropped:
            self.bytes -= len(batch.data)
        self._to_send -= len(dropped)
        return dropped

    def expire(self, owner: Any) -> None:
        """Fails the sent batches of `owner`; whether they are written is not known."""
        for partition in list(self._partitions.values()):
            for batch in [batch for batch in partition.sent if batch.owner == owner]:
                self._fail(batch, EXPIRED)

    def stop(self) -> None:
        """Forgets all batches; later answers and timers have no effect."""
        for partition in list(self._partitions.values()):
            for batch in list(partition.sent):
                self._over(batch)
        self._partitions.clear()
        self.bytes = self._to_send = 0

    # out ---------------------------------------------------------------------------------------

    def dispatch(self, unsent: Callable[[int], bool]) -> None:
        """Sends the batches that may go now; a first sending only to partitions that `unsent` allows."""
        limit = self._exchange.settings.max_in_flight
        while self._to_send:  # a cheap way out: every answer from every partition calls this
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
        if not answer.error:  # an answer to an earlier request counts too: the batch is written
            self._over(batch)
            self._ended(batch, "", answer.value)
        elif flight is batch.flights[-1] and not batch.again:  # otherwise a later request decides
            self._refused(batch, answer.error)
        self._advance()

    def _refused(self, batch: Batch, error: str) -> None:
        """Renumbers a refused batch, sends it again, or fails it.

        A batch behind a missing one is out of order through no fault of its own.
        """
        delay_ms = self._exchange.settings.retry_backoff_ms
        out_of_order = error == self._out_of_order
        broken = batch.tablet in self.broken
        known = self.broken.get(batch.tablet, False) and len(batch.flights) == 1
        missing = batch is not self._partitions[batch.tablet].sent[0]
        if out_of_order and known and self.name is None:
            self._take_back(batch)
        elif self._exchange.asked_again(error) or (out_of_order and missing and not broken):
            if self._again(batch, delay_ms):
                batch.rest = self._exchange.later(delay_ms, lambda: self._rested(batch))
        else:
            self._fail(batch, error)

    def _take_back(self, batch: Batch) -> None:
        """Queues a batch again for a new sequence: it was not written because one before it failed."""
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
                self._again(batch, self._exchange.late_ms)
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
        """Notes that a batch is answered or no longer awaited; the last one frees its request's slot."""
        if batch.tablet in flight.on_the_way:
            del flight.on_the_way[batch.tablet]
            if not flight.on_the_way:
                self._in_flight[flight.host] -= 1

    def _tidy(self, tablet: int) -> None:
        partition = self._partitions[tablet]
        if not partition.sent and not partition.unsent:
            del self._partitions[tablet]


def batch_detail(batch: Batch, error: str, words: Callable[[int], str]) -> str:
    """Describes a failed batch to people; `words` names its tablet."""
    where = words(batch.tablet)
    if error == EXPIRED:
        return f"{where} did not answer for a batch in time: whether it is written is not known"
    return f"{where} refused a batch: {error}"
