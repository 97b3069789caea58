"""Defines the inputs of a host's turn, and what the turn releases once it is durable.

Next: host.py.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ..proto.messages import (
    CLEANED,
    DELETE,
    DROP,
    DROP_CONSUMER,
    NOBODY,
    AheadSlices,
    Cause,
    Detail,
    Message,
    Part,
    PartitionPart,
    Parts,
    Reason,
    ShardPart,
)
from ..proto.shell import Answer
from ..proxy.deterministic import Result

Steps = dict[tuple[int, str], int]
"""(kind of tablet, message) → how often handling it changed something, counted once per transaction."""


class Spent:
    """Costs of one transaction in one turn, counted where messages are sent and appends made (runtime/ledger.py).

    It uses slots, not a dataclass: every transaction makes one.
    """

    __slots__ = (
        "appends",
        "client_bytes",
        "decided",
        "hops",
        "messages",
        "planned",
        "requests",
        "tablet_bytes",
        "tablets",
        "visible",
    )

    def __init__(self) -> None:
        self.requests: float = 0
        self.messages: float = 0
        self.appends: float = 0  # log records that are counted one by one
        self.tablets: dict[int, None] | None = None  # that changed something, one append each
        self.hops = 0  # the most durable steps before a message that changed something
        self.client_bytes = 0
        self.tablet_bytes = 0
        self.planned = False
        self.decided = False  # its outcome is durable, at one participant or for all
        self.visible = False  # from this turn on others can read its effects

    @property
    def wrote(self) -> bool:
        return bool(self.appends or self.tablets)


@dataclass(slots=True)
class Commit:
    """A client commits its parts, by tablet. `size` is the number of bytes from the client, for the counters."""

    tx: bytes
    parts: Parts
    size: int = 0


@dataclass(slots=True)
class CommitAgain(Commit):
    """A client hands in a commit once more: it lost the store's owner, or its link to it, before it had the answer.

    So its end is looked up first, and only what never had a place is done now.
    """


@dataclass(slots=True)
class StageInput:
    """A client stages payloads before its commit: (first, slices) by partition."""

    tx: bytes
    slices: AheadSlices
    size: int = 0


@dataclass(slots=True)
class Rollback:
    """A client gives up a transaction whose payloads it has staged."""

    tx: bytes


@dataclass(slots=True)
class Deliver:
    """Delivers a message from outside to a tablet or proxy of this host."""

    target: int
    message: Message
    cause: Cause = NOBODY


@dataclass(slots=True)
class AtomicDeliver:
    """One request to several tablets of this host: the turn takes all of it or undoes all of it."""

    items: tuple[Deliver, ...]


@dataclass(slots=True)
class DelayedDeliver:
    """A message for this host, delivered in another turn `delay_ms` after this one is durable."""

    delay_ms: float
    deliver: Deliver


@dataclass(slots=True)
class Decided:
    """Tells the proxy how its transaction ended when the host decided it without messages."""

    tx: bytes
    step: int
    n: int
    reason: Reason | None
    details: dict[int, Detail]


@dataclass(slots=True)
class Arrived:
    """The bytes of a frame from another host."""

    data: bytes


@dataclass(slots=True)
class Tick:
    """Time has passed: the proxy resends, and the host asks about overdue proposals."""


Input: TypeAlias = (
    Commit | CommitAgain | StageInput | Rollback | Deliver | AtomicDeliver | Arrived | Tick
)


class Released:
    """Everything that leaves a turn once it is durable. It uses slots, not a dataclass: every turn makes one."""

    __slots__ = (
        "answers",
        "delayed",
        "entries",
        "failures",
        "frames",
        "hops",
        "repeated",
        "results",
        "spent",
        "steps",
        "syncs",
        "visible",
    )

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.repeated: list[tuple[Result, Parts]] = []
        """Commits of `CommitAgain` whose `details` lack the partitions of other hosts."""
        self.failures: list[tuple[Input, BaseException]] = []
        self.frames: list[tuple[int, bytes]] = []
        self.delayed: list[DelayedDeliver] = []
        self.answers: list[tuple[int, Answer, Cause]] = []
        """For clients outside of turns: (client, answer, cause)."""
        self.visible: dict[int, None] = {}
        """Partitions that show readers more without being the result of a commit."""
        self.spent: dict[bytes | None, Spent] = {}
        self.syncs = 0
        self.entries = 0
        self.steps: Steps = {}
        self.hops: dict[bytes, int] = {}
        """By transaction of `results`: how many durable steps in series led to it."""


def frees(part: Part) -> bool:
    """Returns whether a part only deletes, trims or drops, and so may use the reserve of a full disk."""
    if isinstance(part, ShardPart):
        return all(op == DELETE for _, op, _ in part.writes)
    if isinstance(part, PartitionPart):
        return (part.trim is not None or part.drop) and not (part.slices or part.staged)
    return part.op in (DROP, CLEANED, DROP_CONSUMER)


def each_of(item: Deliver | AtomicDeliver) -> tuple[Deliver, ...]:
    return item.items if isinstance(item, AtomicDeliver) else (item,)
