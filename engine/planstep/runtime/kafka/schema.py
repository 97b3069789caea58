"""Changes names in the Kafka-style mode: the catalogue plans its names, group coordinators keep positions.

    create, alter    catalogue
    drop             catalogue, then its partitions are told; after a crash the maintenance thread tells the rest
    seek             an administrator's OffsetCommit, to every partition's position

Next: hooks.py.
"""

from typing import TYPE_CHECKING, Any

from ...errors import Dropped, KafkaError, NotSupported, UnknownName
from ...proto.ids import CATALOGUE_ID, host_of, tablet_prefix
from ...proto.kafka.messages import DropPartition
from ...proto.messages import CREATE_CONSUMER, DROP, DROP_CONSUMER
from ...tablets.participant import DROPPED
from ..catalog import TableInfo, TopicInfo
from ..outcome import Commit
from ..schema import Schema
from .views import NO_PLACE

if TYPE_CHECKING:
    from .hooks import KafkaHooks

_NO_TABLES = (
    'mode "kafka" has no tables: mode "deterministic" has them; here db.changelog() keeps state in a '
    "keyed topic"
)


class KafkaSchema(Schema):
    """Changes names: one transaction on the catalogue a call, and requests to group coordinators."""

    dropped_mark = DROPPED

    def __init__(self, mode: "KafkaHooks") -> None:
        super().__init__(mode.runtime)
        self._mode = mode

    def check_tables(self) -> None:
        raise NotSupported(_NO_TABLES)

    def check_snapshots(self) -> None:
        raise NotSupported(
            'mode "kafka" has no snapshots: topic.read() shows each partition as it is now; mode '
            '"deterministic" has them'
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
            self._runtime.tell(tablet, DropPartition())

    def create_consumer(
        self, info: TopicInfo, consumer: str, individual: bool, offsets: dict[int, int]
    ) -> None:
        if individual:
            raise NotSupported(
                'mode "kafka" has no individual consumers: mode "deterministic" has them'
            )
        self._move(consumer, {})  # a refusal must come before the name is made
        part = self._part(info, CREATE_CONSUMER, consumer=consumer)
        self._commit({CATALOGUE_ID: part})
        self.seek(info, consumer, offsets)

    def drop_consumer(self, info: TopicInfo, consumer: str) -> None:
        self._move(consumer, dict.fromkeys(info.partitions))
        self._commit({CATALOGUE_ID: self._part(info, DROP_CONSUMER, consumer=consumer)})

    def seek(self, info: TopicInfo, consumer: str, offsets: dict[int, int]) -> Commit:
        moved: dict[int, Any] = {info.partitions[p]: offset for p, offset in offsets.items()}
        self._move(consumer, moved)
        return Commit(self._runtime.new_tx(), NO_PLACE, {})

    def _move(self, consumer: str, offsets: dict[int, Any]) -> None:
        """Moves positions as an administrator, whom a group with members refuses."""
        try:
            self._mode.requests.commit_positions(consumer, offsets)
        except KafkaError as error:
            if error.name != "UNKNOWN_MEMBER_ID":
                raise
            raise KafkaError(
                f"consumer {consumer!r} has open readers, and Kafka moves no group that has members: close them "
                "first, of every topic that they read as this consumer",
                error.name,
                error.code,
            ) from None
