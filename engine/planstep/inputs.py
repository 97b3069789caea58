"""What a host's turn is run over, and what it lets out once it is durable.

Next: host.py.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .proto.messages import (
    CLEANED,
    DELETE,
    DROP,
    DROP_CONSUMER,
    Message,
    PartitionPart,
    ShardPart,
)
from .proxy.deterministic import Result


@dataclass(slots=True)
class Commit:
    """A client commits: its parts by tablet."""

    tx: bytes
    parts: dict[int, Any]


@dataclass(slots=True)
class Ahead:
    """A client sends payloads ahead of its commit: (first, slices) by partition."""

    tx: bytes
    slices: dict[int, tuple[int, Any]]


@dataclass(slots=True)
class Rollback:
    """A client gives up a transaction that it has sent payloads ahead of."""

    tx: bytes


@dataclass(slots=True)
class Deliver:
    """A message from outside to a tablet of this host."""

    target: int
    message: Message


@dataclass(slots=True)
class Arrived:
    """A frame's bytes, from another host."""

    data: bytes


@dataclass(slots=True)
class Tick:
    """Time has passed: resend, ask."""


Input: TypeAlias = Commit | Ahead | Rollback | Deliver | Arrived | Tick


@dataclass(slots=True)
class Released:
    """What a durable turn lets out."""

    results: list[Result] = field(default_factory=list)
    failures: list[tuple[Input, BaseException]] = field(default_factory=list)
    frames: list[tuple[int, bytes]] = field(default_factory=list)


def frees(part: Any) -> bool:
    """A part that only deletes, trims or drops: it may use what was put aside for a full disk."""
    if isinstance(part, ShardPart):
        return all(op == DELETE for _, op, _ in part.writes)
    if isinstance(part, PartitionPart):
        return (part.trim is not None or part.drop) and not (part.slices or part.staged)
    return part.op in (DROP, CLEANED, DROP_CONSUMER)
