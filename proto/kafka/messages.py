"""The Kafka-style mode's messages: what client, coordinators and partitions say.

    client ──InitProducer, AddPartitions, AddOffsets, EndTxn──▶ transaction coordinator ──Answer──▶ client
    client ──Produce──▶ partition ──Answer──▶ client
    client ──TxnOffsetCommit, OffsetCommit, Join, Leave──▶ group coordinator ──Answer──▶ client
    coordinator ──Marker──▶ partitions, group coordinators ──Marked──▶ coordinator       after durable, until done
    partition, group coordinator ──Register──▶ coordinator ──Registered──▶ back           protocol version 2
    a tablet ──Wake──▶ itself                                                            later

All of them may be lost or come twice: the one who asks asks again. An answer leaves when what it tells
is durable. Errors are values here, under Kafka's names; "" is none.

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
"""Data outside and inside a transaction, and the two markers: control records, which nobody is shown."""
KIND_TEXTS = {
    PLAIN: "plain",
    TRANSACTIONAL: "transactional",
    COMMIT: "commit marker",
    ABORT: "abort marker",
}

# what a core is given ----------------------------------------------------------------------


class Shell(shell.Shell, Protocol):
    """What a tablet of this mode is given: as in any mode, with Kafka's settings."""

    settings: KafkaSettings


# messages ----------------------------------------------------------------------------------


@dataclass(slots=True)
class InitProducer:
    """`name` is the transactional id, None for a producer without transactions. With `producer` and `epoch`
    it asks to go on under the next epoch (KIP-360). Answer: (producer id, epoch)."""

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
    """Commits or aborts. Answer, once that is decided: (producer id, epoch) to go on with."""

    client: int
    request: int
    name: str
    producer: int
    epoch: int
    commit: bool
    version: int = 1


@dataclass(slots=True)
class Produce:
    """One batch for one partition, numbered from `sequence` on. `name` is None without a transaction.
    Answer: the offset of its first record."""

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
    """Version 2: a partition or group coordinator (`source`) adds itself to the transaction before its first
    write."""

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
    """The transaction's end, for one partition or group coordinator. `coordinator_epoch` fences a former
    coordinator; `number` counts the id's transactions, since in version 1 many share an epoch."""

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
    """`number` is the marker's."""

    tablet: int
    name: str
    producer: int
    epoch: int
    error: str
    number: int = 0


@dataclass(slots=True)
class Join:
    """A member joins its group, or joins again: the group's generation rises when the membership changes.
    Answer: (generation, members in order)."""

    client: int
    request: int
    group: str
    member: str


@dataclass(slots=True)
class Leave:
    """Answer: None."""

    client: int
    request: int
    group: str
    member: str


@dataclass(slots=True)
class OffsetCommit:
    """Positions as (tablet, offset), or None to forget one. generation -1 and member "": no member, as an
    administrator commits. Answer: None."""

    client: int
    request: int
    group: str
    generation: int
    member: str
    offsets: tuple[tuple[int, int | None], ...]


@dataclass(slots=True)
class TxnOffsetCommit:
    """Positions that wait for the transaction's marker; group metadata as in OffsetCommit. Answer: None."""

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
    """The partition's log is to begin at `offset`. Answer: the log's start now."""

    client: int
    request: int
    offset: int


@dataclass(slots=True)
class DropPartition:
    """The topic was dropped: nothing is taken any more."""


@dataclass(slots=True)
class ExpireProducers:
    """Forgets producers whose last batch or marker is older, and that have no transaction open."""

    before_ms: int


@dataclass(slots=True)
class SwitchLog:
    """To a coordinator: its log is written through the buffered writer from now on, or record by record."""

    batching: bool


def request_of(message: Any, target: int) -> tuple[Any, ...] | None:
    """What messages of one turn and host have in common that Kafka sends as one request, or one response, to a
    broker: WriteTxnMarkers with all of its partitions, AddPartitionsToTxn of a produce request. Else None."""
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


_TAKES_SPACE = (Produce, TxnOffsetCommit, AddPartitions, AddOffsets)
"""What writes data, and what begins a transaction that would: a client that tries again and again must not
use up what is there to free space. Ends, markers and the administrator's requests go on."""


def no_space(message: Any, target: int) -> Answer | None:
    """On a full disk: the answer to what would take space, None for what goes on."""
    kind = type(message)
    if kind in _TAKES_SPACE:
        return Answer(message.request, target, "NO_SPACE")
    if kind is Registered:
        message.error = message.error or "NO_SPACE"  # what waits for it is not written
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
"""By code, as ../messages.py encodes them between hosts."""
