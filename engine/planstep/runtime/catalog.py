"""Keeps topics and tables by name, and the names of tablets: the catalogue, as the face sees it.

It reads all rows of the catalogue tablet once, and then only those that a change is about. So a new name costs
as much in a store of many names as in an empty one.

Next: runtime.py.
"""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..proto.ids import CATALOGUE_ID, PARTITION, tablet_prefix
from ..tablets.catalogue import consumer_key, dropped_key, name_key

if TYPE_CHECKING:
    from ..store import Store

Tablets: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's row of the catalogue; `partitions` are its tablets, in order."""

    id: int
    name: str
    partitions: tuple[int, ...]
    format: str
    options: tuple[tuple[str, Any], ...] = ()
    individual: frozenset[str] = frozenset()
    """Consumers that acknowledge records one by one."""
    exclusive: frozenset[str] = frozenset()
    """Consumers that have one reader at a time."""
    step: int = 0
    """The step that created it."""

    @property
    def retention_ms(self) -> int | None:
        return dict(self.options).get("retention_ms")

    @property
    def retention_bytes(self) -> int | None:
        return dict(self.options).get("retention_bytes")


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table's row of the catalogue; `shards` are its tablets, in order."""

    id: int
    name: str
    shards: tuple[int, ...]
    format: str
    step: int = 0
    """The step that created it."""


class Dropped(NamedTuple):
    """A topic or table that was dropped in `step` and still holds keys."""

    kind: int
    name: str
    id: int
    tablets: tuple[int, ...]
    step: int


class Name(NamedTuple):
    """The topic or table of a change; `id` is 0 for one that did not exist before."""

    kind: int
    name: str
    id: int


class Names:
    """Holds the catalogue as it was last read. Its dicts grow and shrink while you read: list them first."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self.stale = False
        """A transaction failed, perhaps as another process has dropped what it names: look before the next use."""
        self.topics: dict[str, TopicInfo] = {}
        self.tables: dict[str, TableInfo] = {}
        self.consumers: dict[int, dict[str, bool]] = {}
        """Topic id → its created consumers → whether they acknowledge records one by one."""
        self.dropped: dict[int, Dropped] = {}
        self._tablets: dict[int, tuple[str, str, int]] = {}
        self._undetermined: set[Name] = set()
        self._lock = threading.Lock()  # else an older read could finish last
        for name in self._stored():
            self._reload(name)
        prefix = tablet_prefix(CATALOGUE_ID)
        for key, row in store.scan(prefix + b"d", prefix + b"e"):
            self._note_dropped(int.from_bytes(key[5:], "big"), row)

    def _stored(self) -> list[Name]:
        prefix = tablet_prefix(CATALOGUE_ID)
        rows = self._store.scan(prefix + b"n", prefix + b"o")
        return [Name(key[5], key[6:].decode(), row[0]) for key, row in rows]

    def move_to(self, store: "Store") -> None:
        """Reads on in a later view of the store, which has the same catalogue."""
        self._store = store

    def reload(self, name: Name, decided: bool = True) -> None:
        """Reads a name again after a change of it or of its consumers.

        `decided` False: the change may still come, so the name is read again with every later one.
        """
        with self._lock:
            if not decided:
                self._undetermined.add(name)
            for one in {name, *self._undetermined}:
                self._reload(one)

    def _reload(self, name: Name) -> None:
        store, prefix = self._store, tablet_prefix(CATALOGUE_ID)
        known: dict[str, Any] = self.topics if name.kind == PARTITION else self.tables
        row = store.get(prefix + name_key(name.kind, name.name))
        if row is None:
            known.pop(name.name, None)
        else:
            self._note(name, *row)
        if name.id and (row is None or row[0] != name.id):
            self.consumers.pop(name.id, None)
        if name.id:
            dropped = store.get(prefix + dropped_key(name.id))
            if dropped is None:
                self.dropped.pop(name.id, None)
            else:
                self._note_dropped(name.id, dropped)

    def _note(
        self, name: Name, first: int, tablets: Tablets, form: str, step: int, options: Any
    ) -> None:
        if name.kind == PARTITION:
            begin = tablet_prefix(CATALOGUE_ID) + consumer_key(first, "")
            rows = self._store.scan(begin, begin + b"\xff")
            kinds = {key[len(begin) :].decode(): row for key, row in rows}
            consumers = {consumer: row[0] for consumer, row in kinds.items()}
            if consumers:
                self.consumers[first] = consumers
            else:
                self.consumers.pop(first, None)
            acks = frozenset(consumer for consumer, row in kinds.items() if row[0])
            alone = frozenset(consumer for consumer, row in kinds.items() if len(row) > 2)
            info = TopicInfo(first, name.name, tablets, form, options, acks, alone, step)
            self.topics[name.name] = info
        else:
            self.tables[name.name] = TableInfo(first, name.name, tablets, form, step)
        self._note_tablets(name.kind, name.name, tablets)

    def _note_dropped(self, first: int, row: tuple[int, str, Tablets, int]) -> None:
        kind, name, tablets, step = row
        self.dropped[first] = Dropped(kind, name, first, tablets, step)
        self._note_tablets(kind, name, tablets)  # late refusals mention it

    def _note_tablets(self, kind: int, name: str, tablets: Tablets) -> None:
        words = "topic" if kind == PARTITION else "table"
        for part, tablet in enumerate(tablets):
            self._tablets[tablet] = (words, name, part)

    def has_tablet(self, tablet: int) -> bool:
        """Returns whether a topic or table has, or had, this tablet; reads all names again to know of a new one."""
        if tablet not in self._tablets:
            with self._lock:
                for name in self._stored():
                    self._reload(name)
        return tablet in self._tablets

    def of_tablet(self, tablet: int) -> tuple[str, str, int]:
        """Returns (kind, name, partition or shard) of a tablet."""
        return self._tablets.get(tablet, ("tablet", f"{tablet:#x}", 0))
