"""Drives a real Kafka broker through its Python client, with topics of its own on a broker that may serve others.

    worker()    transactions: apache_kafka_work.py          follower()  a consumer of committed records
    writer()    an idempotent producer                      records(), rows(), position()  what a new client reads

A folder keeps the prefix of all names on the broker, so a system that is opened there again finds its topics.
Without Options.server the folder has the broker's data, too, and each system starts a broker on it, cold.

Kafka's reply to a commit says nothing: offsets come with the replies to writes. The costs of a transaction are not
known, nor its bytes to disk: the broker's calls to write are those to its sockets, too, and the kernel counts whole
folios (processes.py).

Next: apache_kafka_entry.py.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import confluent_kafka
import msgpack
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from .apache_kafka_client import (
    CALL_S,
    ENDING,
    QUIET,
    Client,
    Connection,
    PartitionReader,
    error_of,
    positions_of,
)
from .apache_kafka_jars import VERSION
from .apache_kafka_server import (
    ABORT_SCAN_MS,
    DELETE_DELAY_MS,
    HEAP,
    INTERNAL_PARTITIONS,
    KafkaServer,
)
from .apache_kafka_work import (
    STATE_PARTITIONS,
    Worker,
    chunk_of,
    send_all,
    unpacked_key,
)
from .base import (
    SAME_NAME,
    SHARED_ROWS,
    TABLES,
    TIME_OUT,
    Chunk,
    Counters,
    Options,
    Poll,
    PollResult,
    Setting,
    System,
    Work,
    Write,
)

_READ = 10_000
_AHEAD = 8
"""Partitions that a verifier has begun to read: one after the other, each costs 35 ms for the broker's answers."""
_ENDS_S = 10.0
"""Seconds that a verifier waits for the markers of transactions that have ended."""
_DEFAULTS = {
    "retry.backoff.ms": 100,
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "fetch.queue.backoff.ms": 1000,
    "fetch.max.bytes": 50 << 20,
    "queued.max.messages.kbytes": 64 << 10,
}
"""The client's own defaults of settings that differ in one of the clients."""


class ApacheKafkaSystem(System):
    """Topics of one namespace on a broker. ValueError, OSError if there is no broker."""

    ended_by = (TIME_OUT, SAME_NAME)
    sends_itself = True

    def __init__(
        self, folder: Path, options: Options, name: str, client: Client, transaction_version: int
    ) -> None:
        self.name = name
        self.missing: Mapping[str, str] = {
            TABLES: "Kafka has no tables: state is kept in changelog topics, a key of each worker's own",
            SHARED_ROWS: "Kafka has no rows that several workers update: a changelog's key is one worker's",
        }
        self._options, self._transaction_version = options, transaction_version
        folder.mkdir(parents=True, exist_ok=True)
        self._closing = contextlib.ExitStack()
        address = options.server
        if not address:
            server = KafkaServer(folder / "broker", options, transaction_version)
            self._closing.callback(server.close)
            address = server.address
        bootstrap, _, pid = address.partition("#")
        self._pids = (int(pid),)
        self._connection = Connection(
            bootstrap, client, _prefix(folder), options.transaction_timeout_ms
        )
        self._admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
        self._workers: list[Worker] = []
        self._markers = cache(self._wait_for_markers)
        self._positions = cache(self._all_positions)
        self._partitions = cache(lambda topic: len(self._ends(topic)))

    def prepare(self, topics: Mapping[str, int], tables: Iterable[str] = ()) -> None:
        wanted = {**topics, **dict.fromkeys(tables, STATE_PARTITIONS)}
        named = self._connection.named
        new = [NewTopic(named(name), partitions, 1) for name, partitions in wanted.items()]
        for future in self._admin.create_topics(new).values() if new else ():
            try:
                future.result()
            except KafkaException as error:
                if error_of(error).name() != "TOPIC_ALREADY_EXISTS":
                    raise ValueError(f"a topic cannot be created: {error}") from error
        for name in wanted:
            self._wait_for_leaders(name, time.monotonic() + CALL_S)

    def _wait_for_leaders(self, topic: str, until: float) -> None:
        """Waits for a topic that was just created: its partitions have leaders a moment later."""
        while True:
            try:
                self._ends(topic)
                return
            except (KafkaException, ValueError) as error:
                if time.monotonic() > until:
                    raise ValueError(f"topic {topic!r} has no leaders: {error}") from error
                time.sleep(0.01)

    def worker(self, name: str, consumer: str, number: int = 0) -> Callable[[], Work]:
        worker = Worker(self._connection, name, consumer, number)
        self._workers.append(worker)
        self._closing.callback(worker.close)
        worker.connect()
        return worker.begin

    def fetch_ahead(self, name: str, topic: str, partitions: Sequence[int]) -> None:
        named = self._connection.named(topic)
        for worker in self._workers:
            if worker.name == name:
                worker.reader.fetch_ahead([(named, partition) for partition in partitions])

    def writer(self, topic: str) -> Write:
        settings = {"enable.idempotence": True, "delivery.report.only.error": True}
        producer = self._connection.producer(**settings)
        self._closing.callback(producer.close)
        name, errors = self._connection.named(topic), list[str]()
        producer.list_topics(name, timeout=CALL_S)  # so that its first write finds it connected

        def note(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(str(error))

        def write(
            values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None
        ) -> None:
            all_keys = keys or [None] * len(values)
            messages = [
                {"value": value, "key": key, "callback": note}
                for value, key in zip(values, all_keys, strict=True)
            ]
            send_all(producer, name, messages, partition)
            waiting = producer.flush(CALL_S)
            if waiting or errors:
                raise ValueError(f"{errors[0] if errors else 'the broker does not answer'}")

        return write

    def follower(self, topic: str) -> Poll:
        connection, name = self._connection, self._connection.named(topic)
        reader = connection.consumer("-")
        self._closing.callback(reader.close)
        ends = self._ends(topic, IsolationLevel.READ_UNCOMMITTED)
        reader.assign([TopicPartition(name, partition, end) for partition, end in ends.items()])

        def poll(timeout: float) -> list[PollResult]:
            # It waits for the first one alone: `consume` would wait for as many as it may return.
            first = reader.poll(timeout)
            if first is None:
                return []
            by_partition: dict[int, list[Any]] = {}
            for message in (first, *reader.consume(_READ, 0)):
                if message.error() is None:
                    by_partition.setdefault(message.partition(), []).append(message)
            return [
                PollResult(partition, *_offsets_and_values(messages))
                for partition, messages in by_partition.items()
            ]

        return poll

    def counters(self) -> Counters:
        return Counters(
            transactions=sum(worker.committed for worker in self._workers),
            disk_bytes=None,
        )

    def pids(self) -> Sequence[int]:
        return self._pids

    def settings(self) -> list[Setting]:
        client = self._connection.client
        changed = {**client.producer, **client.consumer}
        flush = "1" if self._options.durability == "full" else "as the operating system likes"
        return [
            Setting("kafka_version", VERSION),
            Setting("brokers", 1),
            Setting("transaction_version", self._transaction_version, "transaction.version", 2),
            Setting("flush_interval_messages", flush, "log.flush.interval.messages", "unlimited"),
            Setting("heap", HEAP, "KAFKA_HEAP_OPTS", "-Xmx1G -Xms1G"),
            Setting(
                *("abort_scan_ms", ABORT_SCAN_MS),
                *("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000),
            ),
            Setting(
                "internal_partitions",
                INTERNAL_PARTITIONS,
                "offsets.topic.num.partitions, transaction.state.log.num.partitions",
                50,
            ),
            Setting("delete_delay_ms", DELETE_DELAY_MS, "log.segment.delete.delay.ms", 60_000),
            Setting(
                *("transaction_timeout_ms", self._connection.time_out_ms),
                *("transaction.timeout.ms", 60_000),
            ),
            Setting("client", f"confluent-kafka {confluent_kafka.version()}, {client.name}"),
            Setting("client_transaction_protocol", 1, "that of the Java client", 2),
            Setting("flush_before_positions", client.flushes, "", ""),
            *(
                Setting(name.replace(".", "_"), changed.get(name, default), name, default)
                for name, default in _DEFAULTS.items()
            ),
        ]

    # afterwards ----------------------------------------------------------------------------

    def records(self, topic: str, partition: int) -> Iterator[Chunk]:
        if self._options.read_only:
            self._markers(topic)
        reader, name = self._verifier, self._connection.named(topic)
        place = name, partition
        for following in range(partition, min(partition + _AHEAD, self._partitions(topic))):
            reader.begin_at((name, following), 0)
        try:
            while records := reader.take(place, _READ):
                yield chunk_of(records)
        finally:
            reader.leave(place)

    def rows(self, table: str) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for partition in range(STATE_PARTITIONS):
            last: dict[tuple[int, str], Any] = {}
            for chunk in self.records(table, partition):
                for key, value in zip(chunk.keys, chunk.values, strict=True):
                    assert key is not None
                    last[unpacked_key(key)] = value
            for (_, name), packed in last.items():  # workers hold a part of a key's sum each
                value = msgpack.unpackb(packed)
                rows[name] = rows[name] + value if name in rows else value
        return rows

    def position(self, topic: str, consumer: str, partition: int) -> int:
        return self._positions(topic, consumer)[partition]

    def drop(self) -> None:
        """Deletes its topics, since the broker may go on."""
        prefix = self._connection.named("")
        names = [name for name in self._admin.list_topics(timeout=CALL_S).topics]
        own = [name for name in names if name.startswith(prefix)]
        for future in self._admin.delete_topics(own).values() if own else ():
            future.result()

    def close(self) -> None:
        self._closing.close()

    # what a new client reads ---------------------------------------------------------------

    @cached_property
    def _verifier(self) -> PartitionReader:
        reader = PartitionReader(self._connection.consumer("-", **ENDING))
        self._closing.callback(reader.close)
        return reader

    def _all_positions(self, topic: str, consumer: str) -> list[int]:
        connection, name = self._connection, self._connection.named(topic)
        group = connection.consumer(consumer)
        with contextlib.closing(group):
            places = [TopicPartition(name, partition) for partition in self._ends(topic)]
            return [max(0, at.offset) for at in positions_of(group, places)]

    def _wait_for_markers(self, topic: str) -> None:
        """Waits until committed records are readable; a transaction that stays open holds that up for seconds."""
        until = time.monotonic() + _ENDS_S
        while self._ends(topic) != self._ends(topic, IsolationLevel.READ_COMMITTED):
            if time.monotonic() > until:
                return
            time.sleep(0.02)

    def _ends(
        self, topic: str, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[int, int]:
        """Returns the end of each partition, or what readers of committed records see as its end."""
        name = self._connection.named(topic)
        described = self._admin.list_topics(name, timeout=CALL_S).topics[name]
        if described.error is not None:
            raise ValueError(f"no topic {topic!r}")
        wanted = {TopicPartition(name, n): OffsetSpec.latest() for n in described.partitions}
        futures = self._admin.list_offsets(wanted, isolation_level=isolation)
        ends = {at.partition: int(future.result().offset) for at, future in futures.items()}
        return dict(sorted(ends.items()))


def _offsets_and_values(messages: list[Any]) -> tuple[list[int], list[bytes]]:
    return [message.offset() for message in messages], [message.value() for message in messages]


def _prefix(folder: Path) -> str:
    """Returns the prefix of all names that the folder keeps; makes one where there is none."""
    file = folder / "prefix.txt"
    if not file.exists():
        file.write_text(secrets.token_hex(6))
    return file.read_text()
