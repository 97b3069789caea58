"""Reaches a Kafka topic through the library confluent-kafka.

    send      a producer: acks=all, idempotent, one request under way     no answer ─▶ IoError, and a new producer
    fetch     a consumer of no group, which reads what is committed by the brokers, of all senders
    check     the topic's settings: what would lose turns is refused by its name

The library's own log is not used: it writes many lines a second where a broker is away. What it reports through
its callbacks is logged with a limit (logs.py). Each error has a sentence of its own, without the library's text.

Left out: credentials that a callback makes anew, as those of cloud accounts.

Next: registry.py.
"""

import logging
from functools import partial
from time import monotonic, sleep
from typing import Any

from ..errors import FormatError, IoError, MissingExtra, NotSupported
from ..logs import broker_trouble
from .kafka_log import KafkaLog, Record, open_partition
from .kafka_settings import CONFIG, Address, address_of, sentence_of, settings_of_users
from .patient import LOG_TIMEOUT, patiently
from .shared_log import Root, SharedLog

_SILENT = logging.getLogger("planstep.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_QUIET: dict[str, Any] = {"log_level": 0, "logger": _SILENT}
_PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 1,
    "linger.ms": 0,
    "message.max.bytes": 1_000_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
}
_CONSUMER = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "check.crcs": True,
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 16 << 10,
}
_UNANSWERED = ("_TRANSPORT", "_TIMED_OUT", "_MSG_TIMED_OUT")
_SOUND = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
"""Settings of a topic that keeps what it has acknowledged."""
_RECORDS_MAX = 1_000_000
"""What a topic's largest record must have room for."""
_REPLICAS, _IN_SYNC = 3, 2
_ELECTION_S = 30.0
_CALL_S, _SEND_S, _MEGABYTE, _FETCH_BYTES = 5.0, 10.0, 1_000_000, 4 << 20


class KafkaFailure(IoError):
    """A call that failed. `code` is Kafka's, or the library's, name of the error."""

    code = ""


def open_kafka_log(
    url: str, root: Root | None, timeout: float = LOG_TIMEOUT
) -> tuple[SharedLog, Root]:
    """Opens the log of a `kafka:` URL; parameters as in `open_shared_log`.

    A topic that is not there is made, for a new log. While brokers answer, it waits for the end of an election.
    NotSupported, MissingExtra, IoError, FormatError, ValueError; LogUnreachable.
    """
    topic = Topic(address_of(url))
    try:
        topic.prepare(create=root is not None)
        attempt = partial(open_partition, topic, root)
        root = patiently(attempt, topic.where, min(timeout, _ELECTION_S))
        return KafkaLog(topic, root, timeout), root
    except BaseException:
        topic.close()
        raise


def erase_kafka_log(url: str) -> None:
    """Deletes the topic of a URL, if there is one. IoError."""
    topic = Topic(address_of(url))
    try:
        topic.remove()
    finally:
        topic.close()


class Topic:
    """The one partition of a topic, as kafka_log.Partition has it."""

    def __init__(self, address: Address) -> None:
        """No request is sent yet. MissingExtra, ValueError, IoError."""
        self.where = address.where
        self._name, self._weak = address.topic, address.weak
        given = settings_of_users()
        self._kafka = _library()
        self._settings = {
            **given,
            **_QUIET,
            "bootstrap.servers": address.brokers,
            "error_cb": self._report,
        }
        self._trouble = ""
        self._producer: Any = None
        self._at: int | None = None  # where the consumer reads
        self._closed = False
        group = {"group.id": f"planstep-{address.topic}"}  # the library wants one; none is joined
        self._consumer = self._made(self._kafka.Consumer, **_CONSUMER, **group)

    def _made(self, kind: Any, **settings: Any) -> Any:
        try:
            return kind({**self._settings, **settings})
        except (self._kafka.KafkaException, ValueError, TypeError):
            # Without the library's text, which may quote the setting.
            text = f"the library refuses a setting of the file that {CONFIG} names: see librdkafka's list of them"
        raise ValueError(text)

    def _report(self, error: Any) -> None:
        self._trouble = error.name()
        broker_trouble(self.where, sentence_of(self._trouble))

    def _failure(self, code: str) -> KafkaFailure:
        """Makes an error of ours. What a callback reported tells more than that there was no answer."""
        told = self._trouble if code in _UNANSWERED else ""
        failure = KafkaFailure(f"{self.where}: {sentence_of(told or code)}")
        failure.code = code
        return failure

    def _ask(self, call: Any, *arguments: Any, **more: Any) -> Any:
        """Returns what a call of the library returns. KafkaFailure."""
        try:
            return call(*arguments, **more)
        except self._kafka.KafkaException as error:
            if (
                self._consumer.poll(0) is not None
            ):  # it serves the callbacks, and may take a record, too
                self._at = None
            failure = self._failure(error.args[0].name())
        # Raised here: within `except` it would lead to the library's error, whose text may have secrets.
        raise failure

    # reading -------------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        place = self._kafka.TopicPartition(self._name, 0)
        found = self._ask(self._consumer.get_watermark_offsets, place, timeout=_CALL_S)
        if found is None:
            raise self._failure("_TIMED_OUT")
        self._trouble = ""
        first, end = found
        return first, end

    def fetch(self, offset: int, wait: float) -> tuple[list[Record], int]:
        if self._at != offset:
            place = self._kafka.TopicPartition(self._name, 0, offset)
            self._ask(self._consumer.assign, [place])
            self._at = offset
        records: list[Record] = []
        size = 0
        message = self._consumer.poll(wait)
        while message is not None:
            error = message.error()
            if error is None:
                data = message.value() or b""
                records.append(Record(message.offset(), message.key() or b"", data))
                self._at = message.offset() + 1
                size += len(data)
            elif error.name() == "_PARTITION_EOF":
                self._at = max(self._at, message.offset())
            elif error.name() != "GROUP_AUTHORIZATION_FAILED":  # the group is never used
                behind, self._at = self._at, None
                if not records:
                    raise self._failure(error.name())
                return records, behind
            if size >= _FETCH_BYTES:
                break
            message = self._consumer.poll(0)
        return records, self._at

    def _stop_reading(self) -> None:
        """Stops the consumer: else it would fetch all that is sent from here."""
        if self._at is not None:
            self._at = None
            self._ask(self._consumer.unassign)

    # appending -----------------------------------------------------------------------------

    def send(self, records: list[bytes], key: bytes) -> list[int | None]:
        self._stop_reading()
        sending = _Sending(len(records))
        until = monotonic() + _SEND_S + sum(map(len, records)) / _MEGABYTE
        try:
            if self._producer is None:
                self._producer = self._made(self._kafka.Producer, **_PRODUCER)
            for number, data in enumerate(records):
                told = partial(sending.told, number)
                while not self._queued(data, key, told) and monotonic() < until:
                    self._producer.poll(0.1)
            while sending.left and not sending.trouble and (rest := until - monotonic()) > 0:
                self._producer.poll(min(rest, 1.0))
            if sending.left or sending.trouble:
                raise self._failure(sending.trouble or "_TIMED_OUT")
        except BaseException:
            self._give_up_producer()
            raise
        return sending.offsets

    def _queued(self, data: bytes, key: bytes, told: Any) -> bool:
        """Gives a record to the producer; False if its queue is full."""
        try:
            self._ask(self._producer.produce, self._name, data, key, partition=0, on_delivery=told)
        except BufferError:
            return False
        return True

    def _give_up_producer(self) -> None:
        """Drops what is queued; what is under way may come yet, from another sender than the next producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.poll(0)

    # the topic -----------------------------------------------------------------------------

    def prepare(self, create: bool) -> None:
        """Makes the topic if it is not there, and checks its settings. FormatError, NotSupported, IoError."""
        found = self._described()
        if found is None:
            if not create:
                raise FormatError(f"{self.where} is no shared log: there is no such topic")
            self._make()
            until = monotonic() + _CALL_S
            while (found := self._described()) is None or not found.partitions:
                if monotonic() > until:
                    raise IoError(f"{self.where} was made, and is not to be seen")
                sleep(0.05)
        self._check(found)

    def _ask_admin(self, call: str, *arguments: Any) -> Any:
        """Asks the brokers about the topic, and returns their one answer. KafkaFailure."""
        admin = self._made(self._kafka.admin.AdminClient)  # lives until the answer is there
        (answer,) = getattr(admin, call)([*arguments], request_timeout=_CALL_S).values()
        return self._ask(answer.result)

    def _described(self) -> Any:
        """Returns what the brokers say of the topic; None if there is none. IoError."""
        found = self._ask(self._consumer.list_topics, self._name, timeout=_CALL_S).topics[
            self._name
        ]
        if found.error is None:
            return found
        if found.error.name() in ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"):
            return None
        raise self._failure(found.error.name())

    def _make(self) -> None:
        settings = {**_SOUND, "message.timestamp.type": "LogAppendTime"}
        if not self._weak:
            settings["min.insync.replicas"] = str(_IN_SYNC)
        new = self._kafka.admin.NewTopic(
            self._name,
            num_partitions=1,
            replication_factor=1 if self._weak else _REPLICAS,
            config=settings,
        )
        try:
            self._ask_admin("create_topics", new)
        except KafkaFailure as failure:
            if failure.code == "INVALID_REPLICATION_FACTOR":
                raise NotSupported(
                    f"{self.where}: a shared log needs {_REPLICAS} brokers, since one may lose what it has "
                    "acknowledged; for a test, write ?allow_weak=true behind the URL"
                ) from None
            if failure.code != "TOPIC_ALREADY_EXISTS":
                raise

    def _check(self, found: Any) -> None:
        """Checks that the topic keeps what it acknowledges, for ever. NotSupported, IoError."""
        resource = self._kafka.admin.ConfigResource("topic", self._name)
        described = self._ask_admin("describe_configs", resource)
        has = {name: entry.value for name, entry in described.items()}
        wrong = [
            f"{name} is {has.get(name)}, not {value}"
            for name, value in _SOUND.items()
            if has.get(name) != value
        ]
        if len(found.partitions) != 1:
            wrong.append(f"it has {len(found.partitions)} partitions, not 1")
        if int(has.get("max.message.bytes", 0)) < _RECORDS_MAX:
            wrong.append(f"max.message.bytes is below {_RECORDS_MAX:,}")
        if not self._weak:
            replicas = len(found.partitions[0].replicas)
            if replicas < _REPLICAS:
                wrong.append(f"it has {replicas} replicas, not {_REPLICAS} or more")
            if int(has.get("min.insync.replicas", 0)) < _IN_SYNC:
                wrong.append(f"min.insync.replicas is below {_IN_SYNC}")
        if wrong:
            raise NotSupported(
                f"{self.where}: the topic may lose turns: {'; '.join(wrong)}. Set that, or let the log make a topic"
            )

    def delete_below(self, offset: int) -> None:
        place = self._kafka.TopicPartition(self._name, 0, offset)
        self._ask_admin("delete_records", place)

    def remove(self) -> None:
        try:
            self._ask_admin("delete_topics", self._name)
        except KafkaFailure as failure:
            if failure.code != "UNKNOWN_TOPIC_OR_PART":
                raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._give_up_producer()
            self._consumer.close()


class _Sending:
    """Records that were sent: `left` of them have no answer yet; `trouble` names an error."""

    def __init__(self, count: int) -> None:
        self.offsets: list[int | None] = [None] * count
        self.left = count
        self.trouble = ""

    def told(self, number: int, error: Any, message: Any) -> None:
        self.left -= 1
        if error is not None:
            self.trouble = error.name()
        elif message.offset() is not None and message.offset() >= 0:
            self.offsets[number] = message.offset()


def _library() -> Any:
    """Imports confluent-kafka. MissingExtra: other logs do without."""
    try:
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingExtra("confluent-kafka", "kafka") from error
    return confluent_kafka
