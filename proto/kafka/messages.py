"""Defines the messages of mode "kafka" between clients, coordinators and partitions.

    client ──InitProducer, AddPartitions, AddOffsets, EndTxn──▶ transaction coordinator ──Answer──▶ client
    client ──Produce──▶ partition ──Answer──▶ client
    client ──TxnOffsetCommit, OffsetCommit, Join, Leave──▶ group coordinator ──Answer──▶ client
    coordinator ──Marker──▶ partitions, group coordinators ──Marked──▶ coordinator       after durable, until done
    partition, group coordinator ──Register──▶ coordinator ──Registered──▶ back           protocol version 2
    a tablet ──Wake──▶ itself                                                            later

Any of them may be lost or arrive twice: the sender of a request repeats it. An answer leaves once what it
reports is durable. Errors are values here, under Kafka's names; "" is none.

Next: tablets/kafka/partition.py, coordinator/kafka/transactions.py, proxy/kafka/client.py.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from .. import shell
from ..ids import host_of, kind_of
from ..shell import Answer
from .settings import KafkaSettings

# kinds of a partition's entries ------------------------------------------------------------

PLAIN, TRANSACTIONAL, COMMIT, ABORT = range(4)
"""Data outside and inside a transaction, and the two markers: control records, never shown to readers."""
KIND_TEXTS = {
    PLAIN: "plain",
    TRANSACTIONAL: "transactional",
    COMMIT: "commit marker",
    ABORT: "abort marker",
}

# a core's host -----------------------------------------------------------------------------


class Shell(shell.Shell, Protocol):
    """Adds Kafka's settings to the shell of a tablet."""

    settings: KafkaSettings


# messages ----------------------------------------------------------------------------------


@dataclass(slots=True)
class InitProducer:
    """Asks for a producer id and an epoch. Answer: (producer id, epoch).

    `name` is the transactional id, None for a producer without transactions. With `producer` and `epoch` it
    asks to continue under the next epoch (KIP-360).
    """

    client: int
    request: int
    name: str | None
    timeout_ms: int
    producer: int = -1
    epoch: int = -1


@dataclass(slots=True)
class AddPartitions:
    """Registers partitions (tablets) with the transaction. Answer: None."""

    client: int
    request: int
    name: str
    producer: int
    epoch: int
    partitions: tuple[int, ...]


@dataclass(slots=True)
class AddOffsets:
    """Registers a group coordinator (a tablet) with the transaction. Answer: None."""

    client: int
    request: int
    name: str
    producer: int
    epoch: int
    coordinator: int


@dataclass(slots=True)
class EndTxn:
    """Commits or aborts. Answer, once that is decided: (producer id, epoch) for the next transaction."""

    client: int
    request: int
    name: str
    producer: int
    epoch: int
    commit: bool
    version: int = 1


@dataclass(slots=True)
class Produce:
    """Sends one batch to one partition, numbered from `sequence` on. Answer: the offset of its first record.

    `name` is None without a transaction.
    """

    client: int
    request: int
    name: str | None
    producer: int
    epoch: int
    sequence: int
    data: bytes
    records: int
    version: int = 1


@dataclass(slots=True)
class Register:
    """Adds a partition or group coordinator (`source`) to the transaction before its first write; version 2."""

    source: int
    name: str
    producer: int
    epoch: int


@dataclass(slots=True)
class Registered:
    tablet: int
    name: str
    producer: int
    epoch: int
    error: str


@dataclass(slots=True)
class Marker:
    """Tells a partition or group coordinator how a transaction ended.

    `coordinator_epoch` fences a former coordinator; `number` counts the id's transactions, since in version 1
    many share an epoch.
    """

    source: int
    name: str
    producer: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    version: int = 1
    number: int = 0


@dataclass(slots=True)
class Marked:
    """Acknowledges a marker; `number` is the marker's."""

    tablet: int
    name: str
    producer: int
    epoch: int
    error: str
    number: int = 0


@dataclass(slots=True)
class Join:
    """Joins a group, or joins it again. Answer: (generation, members in order).

    The group's generation rises when the membership changes.
    """

    client: int
    request: int
    group: str
    member: str


@dataclass(slots=True)
class Leave:
    """Leaves a group. Answer: None."""

    client: int
    request: int
    group: str
    member: str


@dataclass(slots=True)
class OffsetCommit:
    """Commits positions as (tablet, offset); offset None forgets one. Answer: None.

    An administrator, who is no member, commits with generation -1 and member "".
    """

    client: int
    request: int
    group: str
    generation: int
    member: str
    offsets: tuple[tuple[int, int | None], ...]


@dataclass(slots=True)
class TxnOffsetCommit:
    """Commits positions once the transaction's marker comes; group metadata as in OffsetCommit. Answer: None."""

    client: int
    request: int
    name: str
    producer: int
    epoch: int
    group: str
    generation: int
    member: str
    offsets: tuple[tuple[int, int], ...]
    version: int = 1


@dataclass(slots=True)
class TrimTo:
    """Trims a partition's log to begin at `offset`. Answer: the log's start now."""

    client: int
    request: int
    offset: int


@dataclass(slots=True)
class DropPartition:
    """Tells a partition that its topic was dropped: it accepts no more data."""


@dataclass(slots=True)
class ExpireProducers:
    """Forgets producers whose last batch or marker is older, unless their transaction is open."""

    before_ms: int


@dataclass(slots=True)
class SwitchLog:
    """Tells a coordinator to write its log through the buffered writer, or record by record."""

    batching: bool


def request_of(message: Any, target: int) -> tuple[Any, ...] | None:
    """Returns the key of a message that Kafka would send as part of a larger request or response, or None.

    Messages of one turn and host with equal keys are one request: WriteTxnMarkers with all of its partitions,
    AddPartitionsToTxn of a produce request.
    """
    kind = type(message)
    if kind is Marker or kind is Marked:
        which: int = message.number
    elif kind is Register:
        which = kind_of(message.source)
    elif kind is Registered:
        which = kind_of(target)
    else:
        return None
    return kind, host_of(target), message.name, message.producer, message.epoch, which


NO_SPACE = "NO_SPACE"
_TAKES_SPACE = (Produce, TxnOffsetCommit, AddPartitions, AddOffsets)
"""Requests refused on a full disk: they write data, or begin a transaction that would. Otherwise a client
that retries would use up the space kept for freeing space. Ends, markers and an administrator's requests go on."""


def no_space(message: Any, target: int) -> Answer | None:
    """Returns the answer that refuses a message on a full disk, or None if the message is handled."""
    kind = type(message)
    if kind in _TAKES_SPACE:
        return Answer(message.request, target, NO_SPACE)
    if kind is Registered:
        message.error = message.error or NO_SPACE  # the held requests are then refused
    return None


CODES: dict[int, Any] = {
    33: InitProducer,
    34: AddPartitions,
    35: AddOffsets,
    36: EndTxn,
    37: Produce,
    38: Register,
    39: Registered,
    40: Marker,
    41: Marked,
    42: Join,
    43: Leave,
    44: OffsetCommit,
    45: TxnOffsetCommit,
    46: TrimTo,
    47: DropPartition,
    48: ExpireProducers,
    49: SwitchLog,
}
"""Message classes by the code that ../messages.py gives them between hosts."""
