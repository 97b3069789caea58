"""Holds how this program talks to a Kafka broker: settings of clients, their errors, reading a partition.

    Client           the settings of producers and consumers: TUNED, or DEFAULT
    calling()        turns the client's errors into those of base.py
    PartitionReader  committed records of the partitions that are asked for, each from its own offset

    consumer ─ records of all its partitions, as they come ─▶ one queue for each partition ─▶ take(place, n)

A consumer delivers whichever partition's records have come, but a worker asks for one partition's: the others wait
in their queues. The end of a partition is known from the consumer's own event, since offsets have gaps.

Next: apache_kafka_work.py.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .base import Cancelled, Unknown

CALL_S = 60.0
"""Seconds that one call to the broker may take, retries included."""
_SILENT = logging.getLogger("planstep.bench.apache_kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
QUIET: Mapping[str, Any] = {"log_level": 0, "logger": _SILENT}
"""The client's own log would go to stderr; all that concerns the caller comes as an error."""
_NAMES = {"_FENCED": "PRODUCER_FENCED"}
"""The client's own names of errors that have one of Kafka's."""
TIME_OUT_MS_MIN = 1000
"""The lowest time-out of a transaction that the client takes."""
_PAUSE_S = 0.01
"""Seconds between two tries of a call, since some errors come at once."""
_TAKEN_AT_ONCE = 10_000
_COMMITTED = {"isolation.level": "read_committed", "enable.auto.commit": False}

Place: TypeAlias = tuple[str, int]
"""A topic's name on the broker, and a partition."""


class ClientLost(Cancelled):
    """The producer is of no use any more: a newer one of its name has fenced it, or it has failed for good."""


class Client(NamedTuple):
    """Settings of clients that differ from the client library's defaults.

    `flushes`: producers flush before they send positions. Else the coordinator is asked to add the group while it
    still adds partitions, refuses, and the client waits for `retry.backoff.ms`.
    """

    name: str
    producer: Mapping[str, Any] = {}
    consumer: Mapping[str, Any] = {}
    flushes: bool = False


DEFAULT = Client("default")
TUNED = Client(
    "tuned",
    {"retry.backoff.ms": 10, "linger.ms": 20, "batch.size": 1 << 20},
    {
        "fetch.queue.backoff.ms": 10,
        "fetch.max.bytes": 4 << 20,
        "queued.max.messages.kbytes": 4 << 10,
    },
    flushes=True,
)
"""The client has a request of its own for each partition, so records wait for others, but not for the commit: it
would have to send them all. Resharding to 100 partitions on two cores, linger.ms of 5, 20 and 900: 117, 123 and
54 MB/s as fast as it goes; at 5 MB/s a commit takes 8, 12 and 40 ms, and client and broker 97, 81 and 76 ms of CPU.

Consumers fetch 4 MB at once, and have as much in advance. With the default of 50 and 64 MB the first record of four
consumers came after 1.2 s; moving data was no faster later.
"""


CLIENTS = {client.name: client for client in (TUNED, DEFAULT)}
ENDING = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
"""Settings to be told the end of a partition soon: the broker keeps a request there for half a second else."""


class Connection(NamedTuple):
    """The broker's address, the settings of clients, and the prefix of all names on it."""

    bootstrap: str
    client: Client
    prefix: str
    transaction_timeout_ms: int

    def transactional_producer(self, name: str) -> Any:
        """Returns a producer with the transactional id of that name."""
        own = {
            "transactional.id": self.named(name),
            "transaction.timeout.ms": self.time_out_ms,
        }
        return self.producer(**own)

    @property
    def time_out_ms(self) -> int:
        """The time-out of transactions, raised to the lowest that the client takes."""
        return max(TIME_OUT_MS_MIN, self.transaction_timeout_ms)

    def named(self, name: str) -> str:
        """Returns the name of a topic, group or transactional id on the broker, which serves others too."""
        return f"{self.prefix}.{name}"

    def producer(self, **more: Any) -> Any:
        settings = {**QUIET, **self.client.producer, **more}
        return Producer({**settings, "bootstrap.servers": self.bootstrap})

    def consumer(self, group: str, **more: Any) -> Any:
        """Returns a consumer of committed records; partitions are assigned by hand."""
        settings = {**QUIET, **_COMMITTED, **self.client.consumer, **more}
        named = {"bootstrap.servers": self.bootstrap, "group.id": self.named(group)}
        return Consumer({**settings, **named})


def error_of(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error


def is_temporary(error: KafkaError) -> bool:
    """Returns whether the same call may succeed soon.

    A broker that has just started is no coordinator yet. The client does not call that retriable, but finds the
    coordinator anew the next time.
    """
    return bool(error.retriable() or error.code() == KafkaError.NOT_COORDINATOR)


def retried(call: Any, *arguments: Any, until: float) -> Any:
    """Calls until the error is no temporary one, or `until`, time.monotonic(), has come; returns the result."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as exception:
            if not is_temporary(error_of(exception)) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def positions_of(consumer: Any, places: list[TopicPartition]) -> list[TopicPartition]:
    """Returns the group's positions; their offset is negative where it has none. KafkaException."""
    until = time.monotonic() + CALL_S
    found: list[TopicPartition] = retried(consumer.committed, places, CALL_S, until=until)
    return found


@contextmanager
def calling(unknown: bool = False) -> Iterator[None]:
    """Raises the client's errors as Cancelled; `unknown`: as Unknown where the broker may have committed.

    It may have where the producer is fenced at a commit: the client asks again by itself when a reply is lost, and
    the broker looks at the producer's epoch before it looks at the transaction.
    """
    try:
        yield
    except KafkaException as exception:
        error = error_of(exception)
        if unknown and not error.txn_requires_abort():
            raise Unknown(str(error)) from exception
        if error.fatal():
            raise ClientLost(_NAMES.get(error.name(), error.name())) from None
        raise Cancelled(error.name()) from exception


class PartitionReader:
    """Reads committed records of partitions, by a consumer with the settings ENDING. It belongs to one thread."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self._queues: dict[Place, deque[Any]] = {}
        self._ends: dict[Place, int] = {}

    def begin_at(self, place: Place, offset: int | None = None) -> None:
        """Begins to read a partition at an offset; None: at its group's position. A second call has no effect."""
        if place in self._queues:
            return
        at = TopicPartition(*place)
        if offset is None:
            (at,) = positions_of(self.consumer, [at])
            offset = max(0, at.offset)  # negative: it has none
        self.consumer.incremental_assign([TopicPartition(*place, offset)])
        self._queues[place] = deque()

    def fetch_ahead(self, places: list[Place]) -> None:
        """Begins to read all these at their group's positions; returns when the first has records, or none."""
        wanted = [TopicPartition(*place) for place in places if place not in self._queues]
        found = positions_of(self.consumer, wanted)
        starts = [TopicPartition(at.topic, at.partition, max(0, at.offset)) for at in found]
        self.consumer.incremental_assign(starts)
        for at in starts:
            self._queues[at.topic, at.partition] = deque()
        first, until = places[0], time.monotonic() + CALL_S
        while not (self._queues[first] or first in self._ends):
            if time.monotonic() > until:
                raise Cancelled(f"no records came within {CALL_S:.0f} s")
            self._receive(0.1)

    def take(self, place: Place, most: int) -> list[Any]:
        """Returns the next records, fewer than `most` only where there are no more now. Cancelled if none come."""
        waiting = self._queues[place]
        if len(waiting) < most:
            self._fill(place, most)
        return [waiting.popleft() for _ in range(min(most, len(waiting)))]

    def give_back(self, place: Place, records: list[Any]) -> None:
        """Puts records that were taken before its others; `records` are in order."""
        self._queues[place].extendleft(reversed(records))

    def _fill(self, place: Place, most: int) -> None:
        """Waits until `most` records have come, or the end of those that are readable now."""
        waiting, until = self._queues[place], time.monotonic() + CALL_S
        self._receive(0.0)
        end = None
        while len(waiting) < most:
            if place in self._ends:
                if waiting:
                    return
                # Records may have been committed behind the end that was met.
                end = self._readable_end(place) if end is None else end
                if self._ends[place] >= end:
                    return
            if time.monotonic() > until:
                raise Cancelled(f"no records came within {CALL_S:.0f} s")
            self._receive(0.1)

    def _readable_end(self, place: Place) -> int:
        with calling():
            _, end = self.consumer.get_watermark_offsets(TopicPartition(*place), timeout=CALL_S)
        return int(end)

    def _receive(self, timeout: float) -> None:
        """Sorts what has come into the queues; waits for the first of it only, since `consume` waits for all."""
        if timeout:
            first = self.consumer.poll(timeout)
            if first is None:
                return
            self._sort(first)
        for message in self.consumer.consume(_TAKEN_AT_ONCE, 0):
            self._sort(message)

    def _sort(self, message: Any) -> None:
        place, error = (message.topic(), message.partition()), message.error()
        if error is None:
            self._queues[place].append(message)
            self._ends.pop(place, None)
        elif error.name() == "_PARTITION_EOF":
            self._ends[place] = message.offset()
        elif not error.retriable():
            raise Cancelled(error.name(), retryable=False)

    def leave(self, place: Place) -> None:
        """Ends the reading of a partition."""
        self.consumer.incremental_unassign([TopicPartition(*place)])
        del self._queues[place]
        self._ends.pop(place, None)

    def close(self) -> None:
        self.consumer.close()
