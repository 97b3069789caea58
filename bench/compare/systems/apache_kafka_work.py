"""Runs transactions on a Kafka broker as its users do: consume, produce, send positions, commit.

    begin ─ read: a consumer's records ─ write, add, put: produce ─ commit: positions, commit_transaction
             └ rolled back: they are next again                     └ refused: abort_transaction

A worker is a producer with the worker's name as transactional.id, and a consumer with partitions assigned by hand.
A second worker of the name fences the first, which then begins anew: another producer, another consumer, its state
restored.

State is in a changelog: a topic with the newest value of each key, which changes with the records. A worker reads
its own keys back when it begins, and keeps them in memory, as stream processors do. Keys begin with the worker's
number, so workers may share a partition.

Next: apache_kafka.py, the system.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import msgpack
from confluent_kafka import KafkaException, TopicPartition

from .apache_kafka_client import (
    CALL_S,
    ENDING,
    ClientLost,
    Connection,
    PartitionReader,
    Place,
    calling,
    positions_of,
    retried,
)
from .base import Cancelled, Certificate, Chunk, Unknown, Work

STATE_PARTITIONS = 16
_QUEUED_MAX = 50_000
"""Records that wait in a producer at most; the client's own default limit is 100,000."""
_RESTORED_AT_ONCE = 10_000


class Worker:
    """A worker's producer, consumer and state, which its transactions use one after the other.

    `state` has the committed values of its keys by table. `committed` counts transactions.
    """

    def __init__(self, connection: Connection, name: str, group: str, number: int) -> None:
        self.connection, self.name, self.number = connection, name, number
        self._group, self._numbers = group, count(1)
        self._reader: PartitionReader | None = None
        self._last: KafkaWork | None = None
        self.producer: Any = None
        self.state: dict[str, dict[str, Any]] = {}
        self.committed = 0

    @property
    def reader(self) -> PartitionReader:
        if self._reader is None:
            self._reader = PartitionReader(self.connection.consumer(self._group, **ENDING))
        return self._reader

    def connect(self) -> None:
        """Connects its clients, which fences former workers of this name."""
        if self.producer is None:
            connection = self.connection
            producer = connection.transactional_producer(self.name)
            nothing = TopicPartition(connection.named("-"), 0)
            with calling():
                positions_of(self.reader.consumer, [nothing])  # it finds its coordinator
                retried(producer.init_transactions, CALL_S, until=time.monotonic() + CALL_S)
            self.producer = producer

    def begin(self) -> "KafkaWork":
        self.connect()
        with self.renewing(), calling():
            self.producer.begin_transaction()
        self._last = KafkaWork(self, f"{self.name}/{self.number}/{next(self._numbers)}")
        return self._last

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Drops the clients after an error that leaves them useless, or their positions unknown."""
        try:
            yield
        except (ClientLost, Unknown):
            self.drop_clients()
            raise

    def drop_clients(self) -> None:
        """Drops producer and consumer; the next transaction makes others, and restores the state."""
        reader, self.producer, self._reader = self._reader, None, None
        self.state.clear()
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """Rolls back the open transaction, if any, and drops the clients."""
        if self._last is not None:
            self._last.rollback()
        self.drop_clients()

    def values(self, table: str) -> dict[str, Any]:
        """Returns the committed values of its keys, read from the broker at its first use."""
        if table not in self.state:
            values: dict[str, Any] = {}
            connection = self.connection
            reader = PartitionReader(connection.consumer("-", **ENDING))
            try:
                place = connection.named(table), self.number % STATE_PARTITIONS
                reader.begin_at(place, 0)
                while records := reader.take(place, _RESTORED_AT_ONCE):
                    for record in records:
                        number, key = unpacked_key(record.key())
                        if number == self.number:
                            values[key] = msgpack.unpackb(record.value())
            finally:
                reader.close()
            self.state[table] = values
        return self.state[table]


def packed_key(number: int, key: str) -> bytes:
    return b"%d/%s" % (number, key.encode())


def unpacked_key(key: bytes) -> tuple[int, str]:
    """Returns (the worker's number, the key) of a record of a changelog."""
    number, _, name = key.partition(b"/")
    return int(number), name.decode()


class KafkaWork(Work):
    """A transaction. `_taken` has the records that it consumed, to be given back if it is rolled back."""

    def __init__(self, worker: Worker, id: str) -> None:
        self.id, self._worker, self._producer = id, worker, worker.producer
        self._named = worker.connection.named
        self._taken: dict[Place, list[Any]] = {}
        self._changed: dict[str, dict[str, Any]] = {}
        self._spans: dict[tuple[str, int], tuple[int, int]] = {}
        self._open = True

    def read(self, topic: str, partition: int, max_records: int) -> Chunk:
        place = self._named(topic), partition
        with self._cancelling(), calling():
            reader = self._worker.reader
            reader.begin_at(place)
            records = reader.take(place, max_records)
        self._taken.setdefault(place, []).extend(records)
        return chunk_of(records)

    def write(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        messages: list[dict[str, Any]] = [{"value": value} for value in values]
        for message, key in zip(messages, keys or (), strict=bool(keys)):
            message["key"] = key
        if partition is not None and messages:
            # Those in between have offsets between: the client calls back for two records only.
            messages[0]["callback"] = messages[-1]["callback"] = self._note(topic, partition)
        self._send(topic, messages, partition)

    def _note(self, topic: str, partition: int) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is None:
                offset = message.offset()
                begin, end = self._spans.get((topic, partition), (offset, 0))
                self._spans[topic, partition] = min(begin, offset), max(end, offset + 1)

        return note

    def _send(self, topic: str, messages: list[dict[str, Any]], partition: int | None) -> None:
        with self._cancelling(), calling():
            send_all(self._producer, self._named(topic), messages, partition)

    def flush(self) -> None:
        with self._cancelling(), calling():
            self._producer.flush()  # a record that cannot be written fails the commit

    def add(self, table: str, key: str, n: int) -> None:
        self.put(table, key, (self.get(table, key) or 0) + n)

    def get(self, table: str, key: str) -> Any:
        own = self._changed.get(table, {})
        if key in own:
            return own[key]
        with self._cancelling(), calling():
            return self._worker.values(table).get(key)

    def put(self, table: str, key: str, value: Any) -> None:
        self.get(table, key)  # restores the state before the first change
        self._changed.setdefault(table, {})[key] = value
        number = self._worker.number
        message = {"value": msgpack.packb(value), "key": packed_key(number, key)}
        self._send(table, [message], number % STATE_PARTITIONS)

    def commit(self) -> Certificate:
        until = time.monotonic() + CALL_S
        producer, positions = self._producer, self._positions()
        with self._cancelling():
            with calling():
                if self._worker.connection.client.flushes:
                    producer.flush()
                if positions:
                    group = self._worker.reader.consumer.consumer_group_metadata()
                    send = producer.send_offsets_to_transaction
                    retried(send, positions, group, CALL_S, until=until)
            with calling(unknown=True):
                retried(producer.commit_transaction, CALL_S, until=until)
        self._open = False
        producer.poll(0)  # offsets of what was written
        for table, values in self._changed.items():
            self._worker.values(table).update(values)
        self._worker.committed += 1
        return Certificate(published=self._spans)

    def _positions(self) -> list[Any]:
        return [
            TopicPartition(*place, records[-1].offset() + 1)
            for place, records in self._taken.items()
            if records
        ]

    @contextlib.contextmanager
    def _cancelling(self) -> Iterator[None]:
        """Rolls back if the broker, or a newer worker of the name, has refused something."""
        try:
            with self._worker.renewing():
                yield
        except Cancelled:
            self.rollback()
            raise

    def rollback(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._producer is not self._worker.producer:  # fenced: nothing is left to abort
            return
        try:
            retried(self._producer.abort_transaction, CALL_S, until=time.monotonic() + CALL_S)
        except KafkaException:  # fenced too, or the broker is gone: the time-out ends it
            self._worker.drop_clients()
            return
        for place, records in self._taken.items():
            self._worker.reader.give_back(place, records)


def send_all(
    producer: Any, topic: str, messages: list[dict[str, Any]], partition: int | None
) -> None:
    """Hands messages to a producer, at most _QUEUED_MAX ahead of the broker."""
    for begin in range(0, len(messages), _QUEUED_MAX):
        while len(producer) > _QUEUED_MAX:
            producer.poll(0.01)
        some = messages[begin : begin + _QUEUED_MAX]
        if partition is None:
            producer.produce_batch(topic, some)
        else:
            producer.produce_batch(topic, some, partition)
    producer.poll(0)


def chunk_of(records: list[Any]) -> Chunk:
    offsets = [record.offset() for record in records]
    begin, end = (offsets[0], offsets[-1] + 1) if offsets else (-1, -1)
    values = [record.value() for record in records]
    return Chunk(values, [record.key() for record in records], begin, end, offsets)
