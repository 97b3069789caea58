"""Defines the messages between proxy, coordinator and tablets, and encodes them.

    proxy ──Stage──▶ tablet ──Staged──▶ proxy                        large payloads, ahead of the proposal
    proxy ──Propose──▶ tablet ──Prepared | Refused──▶ proxy            datagrams: idempotent, resent by the proxy
    proxy ──PlanRequest──▶ coordinator ──Plan──▶ tablets               links: exactly once, in order
    tablet ──ReadSet──▶ tablet,  tablet ──Done──▶ proxy,  tablet ──Executed──▶ coordinator
    tablet ──Ask──▶ coordinator ──Never──▶ tablet                      ends a proposal without a plan
    client ──Resolve──▶ coordinator                                    refuses a transaction without a plan
    host ──Clean──▶ tablet                                             after its drop, bit by bit

A message is a slotted class whose fields msgpack can encode: integers, bytes, text, None and tuples of
them. Between hosts it is sent as `encode(message)`; inside a host the object itself is delivered.
Every message is idempotent: the receiver's state absorbs repeated datagrams, the link's number absorbs
repeats on a link.

Next: tablets/participant.py, which answers them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgpack

from .ids import CATALOGUE, PARTITION, SHARD, kind_of
from .kafka import messages as kafka
from .pulsar import messages as pulsar
from .shell import Answer
from .stored import Stored

PUT, DELETE, ADD, MAX, MIN, PUT_IF_ABSENT = range(6)
"""The operations of a table write; all but PUT and DELETE are evaluated at execution."""

Version: TypeAlias = tuple[int, int] | None
"""The place (step, n) of the transaction that wrote a row; None when the row is absent."""


Slice: TypeAlias = tuple[bytes, int]
"""One encoded batch and its number of records, on the way to a partition."""
Slices: TypeAlias = tuple[Slice, ...]
StagedSlice: TypeAlias = tuple[int, int, int]
"""(address, length, records): a slice in the host's log."""
S = TypeVar("S", Slice, StagedSlice)


class PartitionPart(NamedTuple, Generic[S]):
    """A transaction's part at one topic partition.

    `slices` are `Slice`s while the part is sent, and `StagedSlice` once the partition has staged them.
    `staged` counts slices staged ahead under the transaction's id; they come before these.
    `ranges` are (consumer, begin, end) of cumulative consumers, `acks` the same of individual ones.
    `seeks` are (consumer, offset or None to forget it, individual). `trim` is the log's new start, or None.
    `producer` is (id, first and last number); numbers up to the producer's last are a conflict, or with
    `dedupe` a repeat. If the writer numbers its records itself, `session` is set, and only that session
    repeats: another's same number is other data. `fences` are (consumer, step of its last move, as seen);
    for a consumer not among them 0 was seen: it was never moved. `end` is the log's end that was seen and
    must not have changed, or None.
    """

    ranges: tuple[tuple[str, int, int], ...] = ()
    slices: tuple[S, ...] = ()
    producer: tuple[bytes, int, int] | None = None
    dedupe: bool = False
    staged: int = 0
    acks: tuple[tuple[str, int, int], ...] = ()
    seeks: tuple[tuple[str, int | None, bool], ...] = ()
    trim: int | None = None
    drop: bool = False
    session: bytes | None = None
    fences: tuple[tuple[str, int], ...] = ()
    end: int | None = None


class ShardPart(NamedTuple):
    """A transaction's part at one table shard: versions seen, ranges seen, writes."""

    reads: tuple[tuple[bytes, Version], ...] = ()
    ranges: tuple[tuple[bytes, bytes, int, int, int], ...] = ()
    writes: tuple[tuple[bytes, int, bytes], ...] = ()
    drop: bool = False


CREATE, ALTER, DROP, CLEANED, CREATE_CONSUMER, DROP_CONSUMER = range(6)
"""The operations of the catalogue."""


class CataloguePart(NamedTuple):
    """A transaction's part at the catalogue.

    `kind` is PARTITION for a topic, SHARD for a table. Except in CREATE, `id` tells the one meant from others
    of that name; `parts` is the number of tablets to create, `options` (name, value) pairs.
    """

    kind: int
    name: str
    parts: int
    format: str
    hosts: int
    op: int = CREATE
    id: int = 0
    options: tuple[tuple[str, Stored], ...] = ()
    consumer: str = ""


Part: TypeAlias = PartitionPart[Slice] | ShardPart | CataloguePart
"""A transaction's part at one participant."""
Body: TypeAlias = PartitionPart[StagedSlice] | ShardPart | CataloguePart
"""A part as the participant stores it; the store returns it as the plain tuple of its fields."""
Parts: TypeAlias = dict[int, Part]
"""A transaction's parts by tablet."""
AheadSlices: TypeAlias = dict[int, tuple[int, Slices]]
"""Slices staged ahead of a commit, with the number of the first, by partition's tablet."""
Detail: TypeAlias = tuple[int, int] | None
"""A participant's detail of a commit: from a partition, the offsets [begin, end) that it has published."""
Reason: TypeAlias = tuple[int, str, *tuple[Stored, ...]]
"""The reason why a transaction does not commit: (tablet, cause, detail…), see reasons.py."""

_PARTS: dict[int, Callable[..., Part]] = {
    PARTITION: PartitionPart,
    SHARD: ShardPart,
    CATALOGUE: CataloguePart,
}


def as_part(tablet: int, fields: Iterable[Any]) -> Any:
    """Restores the class of a decoded part, by the kind of its tablet."""
    return _PARTS[kind_of(tablet)](*fields)


@dataclass(slots=True)
class Stage:
    """Stages slices (data, records) of a transaction; `first` is the number of the first one here."""

    tx: bytes
    proxy: int
    first: int
    slices: Slices


@dataclass(slots=True)
class Staged:
    """Tells the proxy how many slices of the transaction the tablet holds."""

    tx: bytes
    tablet: int
    count: int


P = TypeVar("P")
"""A participant's part; its class follows from the kind of tablet, which no type checker sees."""


@dataclass(slots=True)
class Propose(Generic[P]):
    tx: bytes
    proxy: int
    part: P


@dataclass(slots=True)
class Prepared:
    tx: bytes
    tablet: int


@dataclass(slots=True)
class Refused:
    tx: bytes
    tablet: int
    reason: Reason


@dataclass(slots=True)
class Withdraw:
    """Tells a participant that the proxy gives up a transaction, before any plan request."""

    tx: bytes


@dataclass(slots=True)
class PlanRequest:
    """Asks the coordinator for a transaction's place.

    `bodies` is () or, aligned with `participants`, the parts themselves; `drops` are the participants that
    this transaction drops.
    """

    tx: bytes
    proxy: int
    participants: tuple[int, ...]
    voters: tuple[int, ...]
    receivers: tuple[int, ...]
    bodies: tuple[Part, ...] = ()
    drops: tuple[int, ...] = ()


@dataclass(slots=True)
class PlanRefused:
    """Tells the proxy that a transaction gets no place; `tablet` is the cause's, 0 for none."""

    tx: bytes
    cause: str
    tablet: int = 0


class PlanEntry(NamedTuple, Generic[P]):
    """One transaction of a plan, at place (step, n); `body` is its part, or None if it was proposed before."""

    n: int
    tx: bytes
    proxy: int
    voters: tuple[int, ...]
    receivers: tuple[int, ...]
    body: P | None


@dataclass(slots=True)
class Plan(Generic[P]):
    """One step's transactions for one tablet."""

    step: int
    horizon: int
    entries: tuple[PlanEntry[P], ...]


@dataclass(slots=True)
class ReadSet:
    tx: bytes
    source: int
    reason: Reason | None


@dataclass(slots=True)
class Done:
    """Tells the proxy that a receiver has ended its part; detail is a `Detail` if committed, else a `Reason`."""

    tx: bytes
    tablet: int
    step: int
    n: int
    committed: bool
    detail: tuple[Any, ...] | None


@dataclass(slots=True)
class Executed:
    tx: bytes
    committed: bool


@dataclass(slots=True)
class Ask:
    tx: bytes
    tablet: int


@dataclass(slots=True)
class Never:
    tx: bytes


@dataclass(slots=True)
class Resolve:
    tx: bytes


@dataclass(slots=True)
class Clean:
    """Tells a dropped tablet to delete at most `keys` of its rows."""

    keys: int


_OF_MODES: dict[int, Any] = {**kafka.CODES, **pulsar.CODES}
"""The messages of other modes, each mode with codes of its own; any of them may be lost and is sent again."""
_CODES: dict[int, Any] = {
    1: Propose,
    2: Prepared,
    3: Refused,
    4: Withdraw,
    5: PlanRequest,
    6: PlanRefused,
    7: Plan,
    8: ReadSet,
    9: Done,
    10: Executed,
    11: Ask,
    12: Never,
    13: Resolve,
    14: Stage,
    15: Staged,
    16: Clean,
    32: Answer,
    **_OF_MODES,
}
_CODE_OF = {kind: code for code, kind in _CODES.items()}
DATAGRAMS = (Propose, Prepared, Refused, Withdraw, Stage, Staged, Answer, *_OF_MODES.values())
"""Messages that may be lost: the sender repeats them."""

Message: TypeAlias = Any
"""One of the classes above, or of a mode's; a receiver first looks at its class."""
Cause: TypeAlias = "tuple[bytes | None, int]"
"""The transaction that a message serves, and the durable hops before it. Only counters read it."""
NOBODY: Cause = (None, 0)


def encode(target: int, message: Message, cause: Cause = NOBODY) -> bytes:
    """Encodes one message for a link: [code, target, transaction, hops, field…]."""
    fields = [getattr(message, name) for name in message.__slots__]
    data: bytes = msgpack.packb(
        [_CODE_OF[type(message)], target, *cause, *fields], use_bin_type=True
    )
    return data


def decode(data: bytes) -> tuple[int, Message, Cause]:
    """Returns (target, message, cause). Raises ValueError for anything that `encode` cannot have made."""
    try:
        code, target, tx, hops, *fields = msgpack.unpackb(data, use_list=False)
        message = _CODES[code](*fields)
        if code == 1:
            message.part = as_part(target, message.part)
        elif code == 7:
            message.entries = tuple(
                entry if entry.body is None else entry._replace(body=as_part(target, entry.body))
                for entry in map(PlanEntry._make, message.entries)
            )
        elif code == 5 and message.bodies:
            message.bodies = tuple(map(as_part, message.participants, message.bodies))
    except Exception as error:  # whatever a malformed frame makes msgpack or a class raise
        raise ValueError(f"not a message: {error}") from error
    return target, message, (tx, hops)


_FIELDS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
"""Returns the fields of a message, by its class; made when a size is first asked for."""


def size_of(message: Message) -> int:
    """Estimates a message's bytes on a link; payloads are exact."""
    kind = type(message)
    fields = _FIELDS.get(kind)
    if fields is None:  # two more than it has: of fewer than two, no tuple is made
        fields = _FIELDS[kind] = attrgetter("__class__", "__class__", *kind.__slots__)
    values = fields(message)
    size = 5 * len(values) - 2  # 8, and most fields are numbers
    for value in values[2:]:
        if type(value) is not int:
            size += _size(value) - 5
    return size


def _size(field: object) -> int:
    if isinstance(field, (bytes, str)):
        return 3 + len(field)
    if isinstance(field, (tuple, list)):
        return 1 + sum(map(_size, field))
    if isinstance(field, dict):
        return 1 + sum(_size(key) + _size(value) for key, value in field.items())
    return 1 if field is None or isinstance(field, bool) else 5
