"""What a host's turn is run over, and what it lets out once it is durable.

Next: host.py.
"""

from dataclasses import dataclass, field
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
from .costs import Spent, Steps


@dataclass(slots=True)
class Commit:
    """A client commits: its parts by tablet. `size`: bytes that came from the client, for the counters."""

    tx: bytes
    parts: Parts
    size: int = 0


@dataclass(slots=True)
class Ahead:
    """A client sends payloads ahead of its commit: (first, slices) by partition."""

    tx: bytes
    slices: AheadSlices
    size: int = 0


@dataclass(slots=True)
class Rollback:
    """A client gives up a transaction that it has sent payloads ahead of."""

    tx: bytes


@dataclass(slots=True)
class Deliver:
    """A message from outside to a tablet or proxy of this host."""

    target: int
    message: Message
    cause: Cause = NOBODY


@dataclass(slots=True)
class Together:
    """One request to several tablets of this host: taken, or undone, as one."""

    items: tuple[Deliver, ...]


@dataclass(slots=True)
class Later:
    """To be delivered to this host in another turn, so many milliseconds after this one is durable."""

    delay_ms: float
    deliver: Deliver


@dataclass(slots=True)
class Decided:
    """To the proxy: how its transaction ended, where the host decided it at its place."""

    tx: bytes
    step: int
    n: int
    reason: Reason | None
    details: dict[int, Detail]


@dataclass(slots=True)
class Arrived:
    """A frame's bytes, from another host."""

    data: bytes


@dataclass(slots=True)
class Tick:
    """Time has passed: resend, ask."""


Input: TypeAlias = Commit | Ahead | Rollback | Deliver | Together | Arrived | Tick


@dataclass(slots=True)
class Released:
    """What a durable turn lets out."""

    results: list[Result] = field(default_factory=list)
    failures: list[tuple[Input, BaseException]] = field(default_factory=list)
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    answers: list[tuple[int, Answer, Cause]] = field(default_factory=list)
    """To clients outside of turns: (client, answer, cause)."""
    visible: dict[int, None] = field(default_factory=dict)
    """Partitions that show more to readers, where that is no result of a commit."""
    spent: dict[bytes | None, Spent] = field(default_factory=dict)
    syncs: int = 0
    steps: Steps = field(default_factory=dict)
    hops: dict[bytes, int] = field(default_factory=dict)
    """Of the results: durable steps in series that lie behind them."""


def frees(part: Part) -> bool:
    """A part that only deletes, trims or drops: it may use what was put aside for a full disk."""
    if isinstance(part, ShardPart):
        return all(op == DELETE for _, op, _ in part.writes)
    if isinstance(part, PartitionPart):
        return (part.trim is not None or part.drop) and not (part.slices or part.staged)
    return part.op in (DROP, CLEANED, DROP_CONSUMER)


def each_of(item: Deliver | Together) -> tuple[Deliver, ...]:
    return item.items if isinstance(item, Together) else (item,)
