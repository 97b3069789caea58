"""Defines how transactions known by their writers' names are described, and how they are listed (`ByName`).

Next: kafka/identities.py, cli/identities.py.
"""

from typing import NamedTuple, Protocol, TypeAlias

from ..host.describe import Names
from ..store import Store

Stores: TypeAlias = dict[int, Store]
"""By host."""


class Waiting(NamedTuple):
    """The holdings of an open transaction at one partition or group coordinator, `participant`.

    `first_offset` is its first record there, None where it has none. Readers of the partition stop at
    `last_stable`, set by any open transaction, and `records_behind` are written from there on. `positions` wait
    for its end, as "resharder clicks[0] = 12".
    """

    participant: str
    first_offset: int | None
    last_stable: int | None
    records_behind: int
    positions: tuple[str, ...]


class Identity(NamedTuple):
    """A transactional id; `name` is None for a hanging transaction. Times are seconds before now; `age_seconds`
    is that of its open transaction, None when there is none."""

    name: str | None
    state: str
    producer: int
    epoch: int
    age_seconds: float | None
    updated_seconds: float | None
    timeout_seconds: float | None
    participants: tuple[str, ...]
    waiting: tuple[Waiting, ...] = ()

    @property
    def open(self) -> bool:
        return self.name is None or self.age_seconds is not None


class Logged(NamedTuple):
    """A record of the coordinator's log about an id; `entry` is the number of the append that it shares."""

    entry: int
    state: str
    producer: int | None
    epoch: int | None
    updated_ms: int | None
    participants: tuple[str, ...]


class ByName(Protocol):
    """A module that lists transactional ids, from durable rows."""

    def identities(self, stores: Stores, names: Names, now_ms: int) -> list[Identity]:
        """Lists all ids, by name."""

    def under_way(self, stores: Stores, names: Names, now_ms: int) -> list[Identity]:
        """Lists the ids with an open transaction, oldest first, then hanging transactions."""

    def history(self, stores: Stores, names: Names, name: str) -> list[Logged]:
        """Lists the records about an id that its coordinator's log still has, oldest first."""
