"""Makes, moves and drops subscriptions in the Pulsar-style mode: requests to each partition.

Next: hooks.py.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...coordinator.pulsar.transactions import ACK_BATCHING
from ...proto.pulsar.messages import DropPartition, DropSubscription, Seek
from ..catalog import TopicInfo
from ..client_schema import ClientSchema
from ..schema import Options

if TYPE_CHECKING:
    from .hooks import PulsarHooks


class PulsarSchema(ClientSchema):
    """Changes names: one transaction on the catalogue a call, and requests to partitions."""

    _mode: "PulsarHooks"

    def create_topic(
        self, name: str, partitions: int, format: str, options: Options = ()
    ) -> TopicInfo:
        info = super().create_topic(name, partitions, format, options)
        batching = self._mode.in_place_views.rows(self._mode.coordinators()[0]).get(ACK_BATCHING)
        if batching is not None:  # switched before, and a new partition does not know
            self._mode.switch_logs(list(info.partitions), bool(batching))
        return info

    def drop_message(self) -> DropPartition:
        return DropPartition()

    def move(self, consumer: str, offsets: Mapping[int, int | None], individual: bool) -> None:
        """Moves a subscription; where it was open transactions' acknowledgements are forgotten."""
        for tablet, offset in offsets.items():
            make = (
                partial(DropSubscription, subscription=consumer)
                if offset is None
                else partial(Seek, subscription=consumer, position=offset, individual=individual)
            )
            self._mode.requests.request(tablet, make)
