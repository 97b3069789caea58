"""What a mode tells of transactions that are known by their writers' names, and who tells it (`ByName`).

Next: kafka/identities.py, cli/identities.py.
"""

from typing import NamedTuple, Protocol, TypeAlias

from ..host.describe import Names
from ..store import Store

Stores: TypeAlias = dict[int, Store]
"""By host."""


class Waiting(NamedTuple):
    """What an open transaction has at one partition or group coordinator, `participant`.

    `first_offset` is its first record there, None where it has none; readers of the partition stop at
    `last_stable`, whoever's it is, and `records_behind` are written from there on. `positions` wait for its
    end, as "resharder clicks[0] = 12".
    """

    participant: str
    first_offset: int | None
    last_stable: int | None
    records_behind: int
    positions: tuple[str, ...]


class Identity(NamedTuple):
    """A transactional id; `name` is None of what hangs. Times are seconds before now; `age_seconds` that of
    its open transaction, None when there is none."""

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
    """A record of an id's coordinator's log; `entry` is the number of the append that it shares."""

    entry: int
    state: str
    producer: int | None
    epoch: int | None
    updated_ms: int | None
    participants: tuple[str, ...]


class ByName(Protocol):
    """A module that lists them, from what is durable."""

    def identities(self, stores: Stores, names: Names, now_ms: int) -> list[Identity]:
        """All that there are, by name."""

    def under_way(self, stores: Stores, names: Names, now_ms: int) -> list[Identity]:
        """Those with an open transaction, oldest first, and what hangs, last."""

    def history(self, stores: Stores, names: Names, name: str) -> list[Logged]:
        """What its coordinator's log still says of one, oldest first."""
