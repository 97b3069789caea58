"""Defines the messages of mode "pulsar" between clients, coordinators and partitions.

    client ──NewTxn, AddPartitionToTxn, AddSubscriptionToTxn, EndTxn──▶ transaction coordinator ──Answer──▶ client
    client ──Send, Ack, Seek, TrimTo, DropSubscription──▶ partition ──Answer──▶ client
    coordinator ──EndTxnOnPartition, EndTxnOnSubscription──▶ partition ──Ended──▶ coordinator   until all have it
    a tablet ──Wake──▶ itself                                                             later

`most` and `least` are the two halves of a transaction's id: its coordinator's number and its own, from 0.
Any message may be lost or arrive twice: the sender of a request repeats it. An answer leaves once what it reports
is durable. Errors are values here, under Pulsar's names; "" is none.

Next: ../../coordinator/pulsar/transactions.py, ../../tablets/pulsar/partition.py.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from .. import shell
from ..ids import LEAST_MAX as LEAST_MAX
from ..ids import TxnID as TxnID
from ..ids import parse_txn as parse_txn
from ..shell import Answer
from .settings import PulsarSettings

NO_TXN = TxnID(-1, -1)
"""Takes the id's place in a send or an acknowledgement outside of a transaction."""

# kinds of a partition's entries ------------------------------------------------------------

PLAIN, TRANSACTIONAL, COMMIT, ABORT = range(4)
"""Messages outside and inside a transaction, and the two markers, which are never shown to readers."""
KIND_TEXTS = {
    PLAIN: "plain",
    TRANSACTIONAL: "transactional",
    COMMIT: "commit marker",
    ABORT: "abort marker",
}

# a core's host -----------------------------------------------------------------------------


class Shell(shell.Shell, Protocol):
    """Adds Pulsar's settings to the shell of a tablet."""

    settings: PulsarSettings


# client ─▶ transaction coordinator ---------------------------------------------------------


@dataclass(slots=True)
class NewTxn:
    """Opens a transaction. Answer: (most, least)."""

    client: int
    request: int
    timeout_ms: int


@dataclass(slots=True)
class AddPartitionToTxn:
    """Registers partitions (tablets) with the transaction, before its first message there. Answer: None."""

    client: int
    request: int
    most: int
    least: int
    partitions: tuple[int, ...]


@dataclass(slots=True)
class AddSubscriptionToTxn:
    """Registers subscriptions, as (tablet, name), before the first acknowledgement there. Answer: None."""

    client: int
    request: int
    most: int
    least: int
    subscriptions: tuple[tuple[int, str], ...]


@dataclass(slots=True)
class EndTxn:
    """Commits or aborts. Answer, once every partition and subscription has the end: None."""

    client: int
    request: int
    most: int
    least: int
    commit: bool


@dataclass(slots=True)
class AbortTxn:
    """Aborts an open transaction for an operator. Answer: None; InvalidTxnStatus if its commit is decided."""

    client: int
    request: int
    most: int
    least: int


@dataclass(slots=True)
class SwitchLog:
    """Tells a tablet to write its logs of one sort through the buffered writer, or record by record.

    `pending_acks`: a coordinator notes it for partitions that are made later, and its own log stays as it is.
    Answer to a client (`client` is not -1): None.
    """

    batching: bool
    client: int = -1
    request: int = -1
    pending_acks: bool = False


# client ─▶ partition -----------------------------------------------------------------------


@dataclass(slots=True)
class Send:
    """Sends one batch to one partition; its last record has the number `sequence` of its producer's.

    Answer: the offset of its first record, or -1 for a repeat that deduplication has dropped.
    """

    client: int
    request: int
    most: int
    least: int
    producer: str
    sequence: int
    data: bytes
    records: int


@dataclass(slots=True)
class Ack:
    """Acknowledges records for a subscription. Answer: None.

    Either `position`, cumulatively: all records before it; or `ranges` of offsets [begin, end), ascending.
    """

    client: int
    request: int
    most: int
    least: int
    subscription: str
    ranges: tuple[tuple[int, int], ...] = ()
    position: int | None = None


@dataclass(slots=True)
class Seek:
    """Creates or moves a subscription: the next record is at `position`. What is pending is dropped.

    `individual` is its kind, None to keep what it has. Answer: None.
    """

    client: int
    request: int
    subscription: str
    position: int
    individual: bool | None = None


@dataclass(slots=True)
class DropSubscription:
    """Forgets a subscription with all its rows. Answer: None, also if there is none."""

    client: int
    request: int
    subscription: str


@dataclass(slots=True)
class TrimTo:
    """Trims a partition's log to begin at `offset`, never beyond max read. Answer: the log's start now."""

    client: int
    request: int
    offset: int


@dataclass(slots=True)
class DropPartition:
    """Tells a partition that its topic was dropped: it accepts no more data."""


# transaction coordinator ─▶ partition ------------------------------------------------------


@dataclass(slots=True)
class EndTxnOnPartition:
    """Tells a partition how a transaction ended.

    `low_water_mark`: transactions of this coordinator at or below it have all ended; -1 for none.
    """

    source: int
    most: int
    least: int
    commit: bool
    low_water_mark: int


@dataclass(slots=True)
class EndTxnOnSubscription:
    """Tells a subscription of a partition how a transaction ended."""

    source: int
    most: int
    least: int
    commit: bool
    low_water_mark: int
    subscription: str


@dataclass(slots=True)
class Ended:
    """Acknowledges the end of a transaction: on the partition, or with a name on its subscription."""

    tablet: int
    most: int
    least: int
    subscription: str | None
    error: str


NO_SPACE = "NoSpace"
_TAKES_SPACE = (NewTxn, Send, AddPartitionToTxn, AddSubscriptionToTxn)
"""Requests refused on a full disk: they write data, or begin a transaction that would. Acknowledgements, ends,
trims and an administrator's requests go on: they free space, or lead to that."""


def no_space(message: Any, target: int) -> Answer | None:
    """Returns the answer that refuses a message on a full disk, or None if the message is handled."""
    if type(message) in _TAKES_SPACE:
        return Answer(message.request, target, NO_SPACE)
    return None


CODES: dict[int, Any] = {
    50: NewTxn,
    51: AddPartitionToTxn,
    52: AddSubscriptionToTxn,
    53: EndTxn,
    54: AbortTxn,
    55: SwitchLog,
    56: Send,
    57: Ack,
    58: Seek,
    59: DropSubscription,
    60: TrimTo,
    61: DropPartition,
    62: EndTxnOnPartition,
    63: EndTxnOnSubscription,
    64: Ended,
}
"""Message classes by the code that ../messages.py gives them between hosts."""
