"""Creates, alters and drops names: transactions on the catalogue and the tablets concerned.

    create_topic, create_table     catalogue
    alter_topic                    catalogue
    drop                           catalogue + every tablet        the drop takes the last place on them
    create_consumer, drop_consumer catalogue + every partition     the position is set, or forgotten
    seek, trim                     the partitions

Next: runtime.py.
"""

import threading
from typing import TYPE_CHECKING, Any

from ..errors import Dropped, PlanstepError, Undetermined, UnknownName
from ..proto.ids import CATALOGUE_ID, PARTITION, SHARD
from ..proto.messages import (
    ALTER,
    CREATE,
    CREATE_CONSUMER,
    DROP,
    DROP_CONSUMER,
    CataloguePart,
    PartitionPart,
    Parts,
    ShardPart,
)
from .catalog import Name, TableInfo, TopicInfo
from .outcome import Commit

if TYPE_CHECKING:
    from .runtime import Runtime

Options = tuple[tuple[str, Any], ...]


class Schema:
    """Changes names, one transaction a call; the catalogue's entry of a name is read again when it has ended."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self.creating = threading.Lock()
        """Held while a consumer is created. Who accepts an existing one waits until its positions are set, too."""

    dropped_mark = b""
    """The one key that a dropped tablet keeps, in modes where it keeps one."""

    def check_tables(self) -> None:
        """Raises NotSupported in a mode without tables."""

    def check_snapshots(self) -> None:
        """Raises NotSupported in a mode without a step common to all tablets."""

    def tell_dropped(self, tablet: int) -> None:
        """Tells a tablet that its topic or table was dropped, in modes that do not plan it with the drop."""

    def _commit(self, parts: Parts) -> Commit:
        runtime = self._runtime
        part = parts.get(CATALOGUE_ID)
        decided = True
        try:
            return runtime.transactions.commit(runtime.new_tx(), parts)
        except BaseException as error:
            decided = isinstance(error, PlanstepError) and not isinstance(error, Undetermined)
            raise
        finally:
            if isinstance(part, CataloguePart):
                runtime.look()
                runtime.names.reload(Name(part.kind, part.name, part.id), decided)

    def changed(self, name: Name, decided: bool, *, dropped: bool = False) -> None:
        """Takes notice of a change of a name that another process has made."""
        names = self._runtime.names
        known = names.topics.get(name.name)
        names.reload(name, decided)
        if dropped and known is not None:
            self._runtime.turns.watches.wake(known.partitions)
        self._runtime.maintenance.wake()

    def _part(self, info: "TopicInfo | TableInfo", op: int, **fields: Any) -> CataloguePart:
        kind = PARTITION if isinstance(info, TopicInfo) else SHARD
        return CataloguePart(
            kind, info.name, 0, info.format, self._runtime.hosts, op, info.id, **fields
        )

    def create_topic(
        self, name: str, partitions: int, format: str, options: Options = ()
    ) -> TopicInfo:
        hosts = self._runtime.hosts
        part = CataloguePart(PARTITION, name, partitions, format, hosts, CREATE, 0, options)
        self._commit({CATALOGUE_ID: part})
        return self._topic(name)

    def create_table(self, name: str, shards: int, format: str) -> TableInfo:
        part = CataloguePart(SHARD, name, shards, format, self._runtime.hosts)
        self._commit({CATALOGUE_ID: part})
        info = self._runtime.names.tables.get(name)
        if info is None:
            raise UnknownName("table", name)  # another thread dropped it right away
        return info

    def _topic(self, name: str) -> TopicInfo:
        info = self._runtime.names.topics.get(name)
        if info is None:
            raise UnknownName("topic", name)
        return info

    def alter_topic(self, info: TopicInfo, options: Options) -> TopicInfo:
        self._commit({CATALOGUE_ID: self._part(info, ALTER, options=options)})
        return self._topic(info.name)

    def drop(self, info: "TopicInfo | TableInfo") -> None:
        parts: Parts = {CATALOGUE_ID: self._part(info, DROP)}
        if isinstance(info, TopicInfo):
            parts.update(dict.fromkeys(info.partitions, PartitionPart(drop=True)))
        else:
            parts.update(dict.fromkeys(info.shards, ShardPart(drop=True)))
        try:
            self._commit(parts)
        except Dropped:
            raise UnknownName(
                "topic" if isinstance(info, TopicInfo) else "table", info.name
            ) from None
        if isinstance(info, TopicInfo):  # reads that wait for its records look again
            self._runtime.turns.watches.wake(info.partitions)
        self._runtime.maintenance.wake()

    def create_consumer(
        self,
        info: TopicInfo,
        consumer: str,
        individual: bool,
        offsets: dict[int, int],
        exclusive: bool = False,
    ) -> None:
        """Creates a consumer that begins at `offsets`, by partition."""
        options = (("individual", individual), ("exclusive", exclusive))
        part = self._part(info, CREATE_CONSUMER, consumer=consumer, options=options)
        self._commit({CATALOGUE_ID: part, **self._seeks(info, consumer, individual, offsets)})

    def drop_consumer(self, info: TopicInfo, consumer: str) -> None:
        everywhere: dict[int, int | None] = dict.fromkeys(range(len(info.partitions)))
        part = self._part(info, DROP_CONSUMER, consumer=consumer)
        self._commit({CATALOGUE_ID: part, **self._seeks(info, consumer, False, everywhere)})

    def seek(self, info: TopicInfo, consumer: str, offsets: dict[int, int]) -> Commit:
        return self._commit(self._seeks(info, consumer, consumer in info.individual, offsets))

    def _seeks(self, info: TopicInfo, consumer: str, individual: bool, offsets: Any) -> Parts:
        return {
            info.partitions[partition]: PartitionPart(seeks=((consumer, offset, individual),))
            for partition, offset in offsets.items()
        }
