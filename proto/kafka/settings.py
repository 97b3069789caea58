"""Defines the settings of mode "kafka", and its errors under Kafka's names.

Next: messages.py.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple, Self

from ..batched_log import LogSettings
from ..mode_settings import ModeSettings, check_fields

# errors ------------------------------------------------------------------------------------


class ErrorKind(NamedTuple):
    """Describes how a client treats an error; `code` is the number on Kafka's wire.

    `retriable`: the client repeats the request. `abortable`: it must abort the transaction, and the next may
    succeed. Neither: the producer has failed for good; but of the errors of a batch only PRODUCER_FENCED does
    that, any other final one aborts.
    """

    code: int
    retriable: bool = False
    abortable: bool = False


ERRORS: dict[str, ErrorKind] = {
    "UNKNOWN_SERVER_ERROR": ErrorKind(-1),
    "UNKNOWN_TOPIC_OR_PARTITION": ErrorKind(3, abortable=True),
    "REQUEST_TIMED_OUT": ErrorKind(7, retriable=True),
    "MESSAGE_TOO_LARGE": ErrorKind(10, abortable=True),
    "COORDINATOR_LOAD_IN_PROGRESS": ErrorKind(14, retriable=True),
    "COORDINATOR_NOT_AVAILABLE": ErrorKind(15, retriable=True),
    "NOT_COORDINATOR": ErrorKind(16, retriable=True),
    "NOT_ENOUGH_REPLICAS": ErrorKind(19, retriable=True),
    "ILLEGAL_GENERATION": ErrorKind(22, abortable=True),
    "UNKNOWN_MEMBER_ID": ErrorKind(25, abortable=True),
    "INVALID_REQUEST": ErrorKind(42),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": ErrorKind(45, abortable=True),
    "INVALID_PRODUCER_EPOCH": ErrorKind(47, abortable=True),
    "INVALID_TXN_STATE": ErrorKind(48),
    "INVALID_PRODUCER_ID_MAPPING": ErrorKind(49, abortable=True),
    "INVALID_TRANSACTION_TIMEOUT": ErrorKind(50),
    "CONCURRENT_TRANSACTIONS": ErrorKind(51, retriable=True),
    "TRANSACTION_COORDINATOR_FENCED": ErrorKind(52),
    "KAFKA_STORAGE_ERROR": ErrorKind(56, retriable=True),
    "NO_SPACE": ErrorKind(56, abortable=True),
    "UNKNOWN_PRODUCER_ID": ErrorKind(59, abortable=True),
    "UNSTABLE_OFFSET_COMMIT": ErrorKind(88, retriable=True),
    "PRODUCER_FENCED": ErrorKind(90),
    "TRANSACTION_ABORTABLE": ErrorKind(120, abortable=True),
}
"""Kafka's error names with the codes of org.apache.kafka.common.protocol.Errors; the treatment of each follows
Kafka's TransactionManager. NO_SPACE is KAFKA_STORAGE_ERROR on a full disk: there the broker stops, here it
goes on, so that space can be freed. UNKNOWN_TOPIC_OR_PARTITION is retriable there, since another broker may
have the partition; here it was dropped, for ever."""


_UNKNOWN = ErrorKind(-1)


def kind_of_error(error: str) -> ErrorKind:
    """Returns how a client treats an error; an unknown one is final, like Kafka's -1."""
    return ERRORS.get(error, _UNKNOWN)


# settings ----------------------------------------------------------------------------------

_LEAST: dict[str, float] = {
    "linger_ms": 0,
    "add_partitions_backoff_max_ms": 0,
    "log_batch_delay_ms": 0.1,
    "log_batch_records": 2,
}
"""The least value of a setting, if that is not 1."""


@dataclass(frozen=True, slots=True)
class KafkaSettings(ModeSettings):
    """Configures mode "kafka"; each default is Kafka's own unless its line says otherwise.

    Times are in milliseconds, sizes in bytes. `check` validates the settings.
    """

    protocol_version: int = 1
    """1: today's Python clients use it; 2: KIP-890, an epoch for each transaction (Java, Kafka 4)."""
    isolation: str = "read_committed"
    """The readers' isolation. Kafka's default is read_uncommitted, which would not be exactly once here."""
    transaction_timeout_ms: int = 60_000
    transaction_max_timeout_ms: int = 900_000
    abort_scan_ms: int = 10_000
    """The interval at which the coordinator looks for transactions that are too old."""
    transactional_id_expiration_ms: int = 7 * 86_400_000
    producer_id_expiration_ms: int = 86_400_000
    max_in_flight: int = 5
    """The most Produce requests on the way to one host."""
    linger_ms: int = 0
    """How long a transaction's writes are gathered, unless a batch is full or it flushes or commits; Java's
    client has 5 since Kafka 4. Writes are always gathered while `max_in_flight` batches are on the way."""
    batch_bytes: int = 16_384
    """The largest batch, unless a single record is larger."""
    retry_backoff_ms: int = 100
    concurrent_backoff_ms: int = 20
    """The back-off after CONCURRENT_TRANSACTIONS on a transaction's first registration (KAFKA-5477)."""
    add_partitions_backoff_ms: int = 20
    add_partitions_backoff_max_ms: int = 100
    """Version 2: the interval, and its limit in all, at which a partition repeats its question while the
    coordinator answers CONCURRENT_TRANSACTIONS. Group coordinators pass that on to the client at once."""
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    """The time after which a batch without an answer fails."""
    max_block_ms: int = 60_000
    """The longest that begin, commit and abort wait in all."""
    marker_retry_ms: int = 100
    """The time until unacknowledged markers are sent again, on top of the round trip."""
    log_batching: bool = False
    """Makes coordinators write logs through PIP-160's buffered writer; Kafka has none, Pulsar's is off too."""
    log_batch_records: int = 512
    log_batch_bytes: int = 4 << 20
    log_batch_delay_ms: float = 1.0

    @property
    def log(self) -> LogSettings:
        """The settings of each coordinator's log."""
        return LogSettings(
            self.log_batching, self.log_batch_records, self.log_batch_bytes, self.log_batch_delay_ms
        )

    def with_version(self, version: int) -> Self:
        return replace(self, protocol_version=version)

    def with_rtt(self, rtt_ms: float) -> Self:
        """Adds the round-trip time to `marker_retry_ms`: no marker is acknowledged sooner, and repeats count."""
        return replace(self, marker_retry_ms=self.marker_retry_ms + ceil(rtt_ms))

    def check(self) -> None:
        if self.protocol_version not in (1, 2):
            raise ValueError(f"protocol_version is 1 or 2, not {self.protocol_version!r}")
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise ValueError(
                f'isolation is "read_committed" or "read_uncommitted", not {self.isolation!r}'
            )
        check_fields(self, _LEAST)
        if self.producer_id_expiration_ms < self.delivery_timeout_ms:
            raise ValueError(
                "producer_id_expiration_ms is no less than delivery_timeout_ms: a batch that comes late would "
                "find its producer forgotten, and count twice"
            )
