"""Topics and tables by name, and what each tablet is called: the catalogue, as the face sees it.

Read from the catalogue tablet's rows; replaced as a whole, so that readers need no lock.

Next: runtime.py.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .proto.ids import CATALOGUE_ID, PARTITION, tablet_prefix

if TYPE_CHECKING:
    from .store import Store


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the catalogue has it: `partitions` are its tablets, in order."""

    id: int
    name: str
    partitions: tuple[int, ...]
    format: str
    options: tuple[tuple[str, Any], ...] = ()
    individual: frozenset[str] = frozenset()
    """Consumers that acknowledge records one by one."""

    @property
    def retention_ms(self) -> int | None:
        return dict(self.options).get("retention_ms")

    @property
    def retention_bytes(self) -> int | None:
        return dict(self.options).get("retention_bytes")


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the catalogue has it: `shards` are its tablets, in order."""

    id: int
    name: str
    shards: tuple[int, ...]
    format: str


class Dropped(NamedTuple):
    """What was dropped in this step, and still holds keys."""

    kind: int
    name: str
    id: int
    tablets: tuple[int, ...]
    step: int


class Names:
    """What the catalogue held when `load` was called last."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self.topics: dict[str, TopicInfo] = {}
        self.tables: dict[str, TableInfo] = {}
        self.consumers: dict[tuple[int, str], bool] = {}
        self.dropped: tuple[Dropped, ...] = ()
        self._tablets: dict[int, tuple[str, str, int]] = {}
        self.load()

    def load(self) -> None:
        prefix = tablet_prefix(CATALOGUE_ID)
        topics: dict[str, TopicInfo] = {}
        tables: dict[str, TableInfo] = {}
        tablets_of = dict(self._tablets)  # of what is dropped too: late refusals name it
        individual: dict[int, list[str]] = {}
        consumers: dict[tuple[int, str], bool] = {}
        for key, (apart, _) in self._store.scan(prefix + b"c", prefix + b"d"):
            topic, consumer = int.from_bytes(key[5:9], "big"), key[9:].decode()
            consumers[topic, consumer] = apart
            if apart:
                individual.setdefault(topic, []).append(consumer)
        dropped = [
            Dropped(kind, name, int.from_bytes(key[5:], "big"), tablets, step)
            for key, (kind, name, tablets, step) in self._store.scan(prefix + b"d", prefix + b"e")
        ]
        rows = self._store.scan(prefix + b"n", prefix + b"o")
        for key, (first, tablets, form, _, options) in rows:
            name = key[6:].decode()
            if key[5] == PARTITION:
                kind, apart = "topic", frozenset(individual.get(first, ()))
                topics[name] = TopicInfo(first, name, tablets, form, options, apart)
            else:
                kind = "table"
                tables[name] = TableInfo(first, name, tablets, form)
            for part, tablet in enumerate(tablets):
                tablets_of[tablet] = (kind, name, part)
        for gone in dropped:
            kind = "topic" if gone.kind == PARTITION else "table"
            for part, tablet in enumerate(gone.tablets):
                tablets_of[tablet] = (kind, gone.name, part)
        self.dropped, self.consumers = tuple(dropped), consumers
        self.topics, self.tables, self._tablets = topics, tables, tablets_of

    def of_tablet(self, tablet: int) -> tuple[str, str, int]:
        """(kind, name, partition or shard) of a tablet."""
        return self._tablets.get(tablet, ("tablet", f"{tablet:#x}", 0))
