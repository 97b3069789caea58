"""What a tablet with a memory of its own is given, in each mode that has such: keys, host, words for clients.

    host ──Keys, Shell──▶ tablet ──Answer──▶ client,  tablet ──Wake──▶ itself, later

Next: kafka/messages.py.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from .stored import AnyRow, Stored


class Keys(Protocol):
    """A tablet's own keys in the turn that runs, and the turn's payloads."""

    def get(self, key: bytes) -> AnyRow: ...
    def put(self, key: bytes, value: Stored) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, AnyRow]]: ...
    def append_payload(self, data: bytes) -> int: ...
    def drop_payload(self, address: int, length: int) -> None: ...


class Shell(Protocol):
    """A tablet's host. The tablet holds nothing outside its key space but what a server has in memory only: `mark`
    and `undo` take that back with a turn; it is gone when the host starts again."""

    epoch: int
    """The host's generation, higher at each start: Kafka's coordinator (leader) epoch."""
    hosts: int
    """How many the store has."""
    now_ms: int
    """Of the running turn. Coordinators may look at it, partitions may not."""
    cause: Any
    """For whose sake the running message is; kept with what is put off, set again when that goes on.
    Only counters look at it."""

    def send(self, target: int, message: Any) -> None:
        """To another tablet or a client, as the placement has it: in this turn, or after it is durable."""

    def after_durable(self, target: int, message: Any) -> None:
        """To another tablet, in the next turn at the earliest, whatever the placement."""

    def appended(self, share: float = 1.0, visible: bool = False) -> None:
        """For the counters: the tablet's log took a record for the running cause, or a share of one;
        `visible`: readers may see more now."""

    def soon(self, message: Any) -> None:
        """To itself, in this turn, behind what waits to be delivered."""

    def later(self, delay_ms: float, message: Any) -> None:
        """To itself, after so long, in another turn; forgotten when the host ends."""


@dataclass(slots=True)
class Answer:
    """To request number `request` of a client, by `tablet`; what `value` is the request's docstring says."""

    request: int
    tablet: int
    error: str
    value: Any = None


@dataclass(slots=True)
class Wake:
    """What a tablet asked to be told later; it never leaves its tablet."""

    what: str
    detail: Any = None
