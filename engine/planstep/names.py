"""Topics and tables by name, and what each tablet is called: the catalogue, as the face sees it.

Read from the catalogue tablet's rows; replaced as a whole, so that readers need no lock.

Next: runtime.py.
"""

from dataclasses import dataclass

from .proto.ids import CATALOGUE_ID, PARTITION, tablet_prefix
from .store import Store


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the catalogue has it: `partitions` are its tablets, in order."""

    id: int
    name: str
    partitions: tuple[int, ...]
    format: str


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the catalogue has it: `shards` are its tablets, in order."""

    id: int
    name: str
    shards: tuple[int, ...]
    format: str


class Names:
    """What the catalogue held when `load` was called last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.topics: dict[str, TopicInfo] = {}
        self.tables: dict[str, TableInfo] = {}
        self._tablets: dict[int, tuple[str, str, int]] = {}
        self.load()

    def load(self) -> None:
        prefix = tablet_prefix(CATALOGUE_ID)
        topics: dict[str, TopicInfo] = {}
        tables: dict[str, TableInfo] = {}
        tablets_of: dict[int, tuple[str, str, int]] = {}
        rows = self._store.scan(prefix + b"n", prefix + b"o")
        for key, (first, tablets, form, _) in rows:
            name = key[6:].decode()
            kind = "topic" if key[5] == PARTITION else "table"
            if key[5] == PARTITION:
                topics[name] = TopicInfo(first, name, tablets, form)
            else:
                tables[name] = TableInfo(first, name, tablets, form)
            for part, tablet in enumerate(tablets):
                tablets_of[tablet] = (kind, name, part)
        self.topics, self.tables, self._tablets = topics, tables, tablets_of

    def of_tablet(self, tablet: int) -> tuple[str, str, int]:
        """(kind, name, partition or shard) of a tablet."""
        return self._tablets.get(tablet, ("tablet", f"{tablet:#x}", 0))
