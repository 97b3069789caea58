"""Defines the settings of mode "pulsar", and its errors under Pulsar's names.

Next: messages.py.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple, Self

from ..batched_log import LogSettings
from ..mode_settings import ModeSettings, check_fields, is_number

# errors ------------------------------------------------------------------------------------


class ErrorKind(NamedTuple):
    """Describes an error; `code` is the number on Pulsar's wire, None where only the client knows it.

    `asked_again`: the client repeats the request. `retryable`: the transaction is aborted, and run again it may
    succeed.
    """

    code: int | None
    asked_again: bool = False
    retryable: bool = False


ERRORS: dict[str, ErrorKind] = {
    "PersistenceError": ErrorKind(2, asked_again=True),
    "ConsumerBusy": ErrorKind(5),
    "ServiceNotReady": ErrorKind(6, asked_again=True, retryable=True),
    "TopicNotFound": ErrorKind(11),
    "SubscriptionNotFound": ErrorKind(13),
    "TooManyRequests": ErrorKind(14, asked_again=True),
    "TransactionCoordinatorNotFound": ErrorKind(20, asked_again=True),
    "InvalidTxnStatus": ErrorKind(21),
    "NotAllowedError": ErrorKind(22),
    "TransactionConflict": ErrorKind(23, retryable=True),
    "TransactionNotFound": ErrorKind(24),
    "TransactionHasOperationFailed": ErrorKind(None, retryable=True),
    "TransactionTimeout": ErrorKind(None, retryable=True),
    "ReachMaxActiveTxn": ErrorKind(None, retryable=True),
    "AlreadyCommitted": ErrorKind(None),
    "AlreadyAborted": ErrorKind(None),
    "AlreadyTimedOut": ErrorKind(None),
    "TooManyGaps": ErrorKind(None),
    "NoSpace": ErrorKind(2),
    "Timeout": ErrorKind(None),
}
"""Pulsar's error names with the codes of its ServerError (PulsarApi.proto). NoSpace is PersistenceError on a full
disk: there the client asks again, here it hears of it, so that space can be freed. Timeout: no answer came in
`operation_timeout_ms`, so the outcome is not known."""
_UNKNOWN = ErrorKind(None)


def kind_of_error(error: str) -> ErrorKind:
    """Returns how a client treats an error; an unknown one is final."""
    return ERRORS.get(error, _UNKNOWN)


# settings ----------------------------------------------------------------------------------

SNAPSHOT_WAYS = ("single", "parts", "segmented")
_LEAST: dict[str, float] = {
    "max_active_transactions": 0,
    "log_batch_delay_ms": 0.1,
    "log_batch_records": 2,
    "ack_log_batch_delay_ms": 0.1,
    "ack_log_batch_records": 2,
    "snapshot_segment_bytes": 64,
    "message_bytes_max": 1_024,
    "nack_redelivery_delay_ms": 0,
    "ack_timeout_ms": 0,
    "ended_kept": 0,
}
"""The least value of a setting, if that is not 1."""


@dataclass(frozen=True, slots=True)
class PulsarSettings(ModeSettings):
    """Configures mode "pulsar"; each default is Pulsar's own unless its line says otherwise.

    Times are in milliseconds, sizes in bytes. `check` validates the settings.
    """

    coordinators: int | None = None
    """The number of transaction coordinators; None: one on each host. Pulsar begins with 16. It may grow when a
    store is opened again; with a lower one, those that have been used go on."""
    max_active_transactions: int = 0
    """The most open transactions of a coordinator; 0 for no limit."""
    transaction_timeout_ms: int = 60_000
    """How long a transaction may be open. Pulsar's client has no default, its documentation shows a minute."""
    timeout_tick_ms: int = 100
    """A shorter time-out has passed at once, so `transaction_timeout_ms` is no less."""
    log_batching: bool = False
    """Makes coordinators write their logs through PIP-160's buffered writer."""
    log_batch_records: int = 512
    log_batch_bytes: int = 4 << 20
    log_batch_delay_ms: float = 1.0
    ack_log_batching: bool = False
    """Makes subscriptions write their logs of pending acknowledgements through the buffered writer."""
    ack_log_batch_records: int = 512
    ack_log_batch_bytes: int = 4 << 20
    ack_log_batch_delay_ms: float = 1.0
    ack_log_index_min_lag: int = 500
    """The records of a subscription's log between two entries of its index, times the entries that there are."""
    snapshots: str = "single"
    """How a partition stores the ids of its aborted transactions: "single", "parts" or "segmented"."""
    snapshot_transactions: int = 1_000
    """The ends of transactions after which a snapshot of aborted ids is taken."""
    snapshot_interval_ms: int = 5_000
    """The time after the first end since the last snapshot after which one is taken."""
    snapshot_segment_bytes: int = 262_144
    """The size of a segment, or of a part."""
    message_bytes_max: int = 5_242_880
    """The largest message, and the largest single snapshot."""
    participant_requests: int = 1_000
    """The most ends of transactions that one coordinator has on their way."""
    participant_timeout_ms: int = 3_000
    """The time after which an end that was not acknowledged is sent again."""
    end_retry_ms: int = 1_000
    """The interval at which coordinators look for such ends."""
    isolation: str = "read_committed"
    """The readers' isolation, or "read_uncommitted" (PIP-298)."""
    deduplication: bool = False
    """Drops messages whose number a partition has had of their producer's name (PIP-6)."""
    operation_timeout_ms: int = 30_000
    """The longest that a client's call waits in all; a commit that is not answered by then is Undetermined."""
    request_timeout_ms: int = 10_000
    """The time after which a client sends a request again that was not answered. Pulsar's client does so when its
    connection breaks; here there is none."""
    retry_backoff_ms: int = 100
    """The time after which a client sends a request again that was refused for now."""
    max_requests: int = 1_000
    """The most requests of a client on their way to one coordinator."""
    batch_messages: int = 1_000
    batch_bytes: int = 131_072
    """The largest batch, unless a single record is larger; so is `batch_messages`."""
    nack_redelivery_delay_ms: int = 60_000
    """The time after which a batch is handed out again that a reader has handed back with `nack`."""
    ack_timeout_ms: int = 0
    """The time after which a batch in hand is handed out again to another reader; 0: never. Pulsar's client takes
    none below 1,000."""
    ended_kept: int = 0
    """The ended transactions that a coordinator remembers (PIP-481, whose draft has 100,000), so that a repeated
    commit is answered as the first one was."""
    ended_kept_ms: int = 3_600_000

    @property
    def log(self) -> LogSettings:
        """The settings of each coordinator's log."""
        return LogSettings(
            self.log_batching, self.log_batch_records, self.log_batch_bytes, self.log_batch_delay_ms
        )

    @property
    def ack_log(self) -> LogSettings:
        """The settings of each subscription's log."""
        return LogSettings(
            self.ack_log_batching,
            self.ack_log_batch_records,
            self.ack_log_batch_bytes,
            self.ack_log_batch_delay_ms,
        )

    def with_rtt(self, rtt_ms: float) -> Self:
        """Adds the round-trip time to `participant_timeout_ms`: no end is acknowledged sooner, repeats count."""
        return replace(self, participant_timeout_ms=self.participant_timeout_ms + ceil(rtt_ms))

    def check(self) -> None:
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise ValueError(
                f'isolation is "read_committed" or "read_uncommitted", not {self.isolation!r}'
            )
        if self.snapshots not in SNAPSHOT_WAYS:
            raise ValueError(
                f'snapshots is "single", "parts" or "segmented", not {self.snapshots!r}'
            )
        if self.coordinators is not None and not is_number(self.coordinators, True, 1, 65_535):
            raise ValueError(
                f"coordinators is None or a number from 1 to 65,535, not {self.coordinators!r}"
            )
        check_fields(self, _LEAST)
        if self.transaction_timeout_ms < self.timeout_tick_ms:
            raise ValueError(
                f"transaction_timeout_ms is no less than timeout_tick_ms, {self.timeout_tick_ms:,}: a shorter "
                f"time-out has passed at once, so no transaction could commit; not {self.transaction_timeout_ms!r}"
            )
