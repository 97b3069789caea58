"""Changes names in modes with clients outside of turns: the catalogue plans its names, the mode keeps positions.

    create, alter    catalogue
    drop             catalogue, then its partitions are told; after a crash the maintenance thread tells the rest
    seek             `move`: requests to whoever keeps the consumer's positions

Next: client_hooks.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import Dropped, NotSupported, UnknownName
from ..proto.ids import CATALOGUE_ID, host_of, tablet_prefix
from ..proto.messages import CREATE_CONSUMER, DROP, DROP_CONSUMER
from ..tablets.participant import DROPPED
from .catalog import TableInfo, TopicInfo
from .client_requests import NO_PLACE
from .outcome import Commit
from .schema import Schema

if TYPE_CHECKING:
    from .client_hooks import ClientHooks


class ClientSchema(Schema, ABC):
    """Changes names: one transaction on the catalogue a call, and requests for positions."""

    dropped_mark = DROPPED

    def __init__(self, mode: "ClientHooks") -> None:
        super().__init__(mode.runtime)
        self._mode = mode

    @abstractmethod
    def drop_message(self) -> Any:
        """Makes the message that tells a partition that its topic was dropped."""

    @abstractmethod
    def move(self, consumer: str, offsets: Mapping[int, int | None], individual: bool) -> None:
        """Moves or forgets a consumer's positions, by partition's tablet, outside of transactions.

        It waits for it. Without offsets it only raises what would refuse a move.
        """

    def check_tables(self) -> None:
        raise NotSupported(
            f'mode "{self._mode.mode}" has no tables: mode "deterministic" has them; here '
            "db.changelog() keeps state in a keyed topic"
        )

    def check_snapshots(self) -> None:
        raise NotSupported(
            f'mode "{self._mode.mode}" has no snapshots: topic.read() shows each partition as it is '
            'now; mode "deterministic" has them'
        )

    def drop(self, info: "TopicInfo | TableInfo") -> None:
        assert isinstance(info, TopicInfo)
        try:
            self._commit({CATALOGUE_ID: self._part(info, DROP)})
        except Dropped:
            raise UnknownName("topic", info.name) from None
        for tablet in info.partitions:
            self.tell_dropped(tablet)
        self._runtime.turns.watches.wake(
            info.partitions
        )  # reads that wait for its records look again
        self._runtime.maintenance.wake()

    def tell_dropped(self, tablet: int) -> None:
        node = self._runtime.nodes[host_of(tablet)]
        if not node.down and node.host.store.get(tablet_prefix(tablet) + DROPPED) is None:
            self._runtime.tell(tablet, self.drop_message())

    def create_consumer(
        self,
        info: TopicInfo,
        consumer: str,
        individual: bool,
        offsets: dict[int, int],
        exclusive: bool = False,
    ) -> None:
        if individual:
            self._mode.check_individual()
        self.move(consumer, {}, individual)  # a refusal must come before the name is made
        options = (("individual", individual), ("exclusive", exclusive))
        part = self._part(info, CREATE_CONSUMER, consumer=consumer, options=options)
        self._commit({CATALOGUE_ID: part})
        self._move(info, consumer, offsets, individual)

    def drop_consumer(self, info: TopicInfo, consumer: str) -> None:
        self.move(consumer, dict.fromkeys(info.partitions), consumer in info.individual)
        self._commit({CATALOGUE_ID: self._part(info, DROP_CONSUMER, consumer=consumer)})

    def seek(self, info: TopicInfo, consumer: str, offsets: dict[int, int]) -> Commit:
        self._move(info, consumer, offsets, consumer in info.individual)
        return Commit(self._runtime.new_tx(), NO_PLACE, {})

    def _move(
        self, info: TopicInfo, consumer: str, offsets: dict[int, int], individual: bool
    ) -> None:
        moved = {info.partitions[partition]: offset for partition, offset in offsets.items()}
        self.move(consumer, moved, individual)
