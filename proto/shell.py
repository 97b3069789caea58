"""Defines the interface between a host and a tablet that also has state in memory, shared by modes that need it.

    host ──Keys, Shell──▶ tablet ──Answer──▶ client,  tablet ──Wake──▶ itself, later

Next: kafka/messages.py.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from .stored import AnyRow, Stored


class Keys(Protocol):
    """Gives a tablet its own keys and the payload log, within the running turn."""

    def get(self, key: bytes) -> AnyRow: ...
    def put(self, key: bytes, value: Stored) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, AnyRow]]: ...
    def append_payload(self, data: bytes) -> int: ...
    def drop_payload(self, address: int, length: int) -> None: ...


class Shell(Protocol):
    """Gives a tablet its host's time, messages and timers.

    Outside its key space a tablet holds only what a server has in memory only. `mark` and `undo` restore
    that when a turn is undone; a restart of the host loses it.
    """

    epoch: int
    """The host's generation, higher at each start: Kafka's coordinator (leader) epoch."""
    hosts: int
    """The number of hosts of the store."""
    now_ms: int
    """The running turn's time; a partition only dates its markers by it."""
    on_reserve: bool
    """The disk is full: the running turn uses the space that is kept for ends, and for freeing space."""
    cause: Any
    """The transaction that the running message serves; stored with delayed work and restored when that
    continues. Only counters read it."""

    def send(self, target: int, message: Any) -> None:
        """Sends to another tablet or a client: in this turn or after it is durable, as the placement has it."""

    def after_durable(self, target: int, message: Any) -> None:
        """Sends to another tablet, in the next turn at the earliest, whatever the placement."""

    def appended(self, share: float = 1.0, visible: bool = False) -> None:
        """Counts a record, or a share of one, that the tablet's log took for the running cause.

        `visible`: readers may see more now, or what the cause commits here waits for others only.
        """

    def decided(self) -> None:
        """Counts that the running cause's transaction will commit, from this turn on."""

    def soon(self, message: Any) -> None:
        """Delivers a message to the tablet itself, in this turn, behind the messages that already wait."""

    def later(self, delay_ms: float, message: Any) -> None:
        """Delivers a message to the tablet itself after a delay, in another turn; lost when the host ends."""


@dataclass(slots=True)
class Answer:
    """A tablet's answer to a client's request; the request's docstring defines `value`."""

    request: int
    tablet: int
    error: str
    value: Any = None


@dataclass(slots=True)
class Wake:
    """A tablet's delayed message to itself."""

    what: str
    detail: Any = None
