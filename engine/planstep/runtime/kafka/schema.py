"""Keeps consumers' positions in the Kafka-style mode: an administrator's OffsetCommit to the group's coordinator.

Next: hooks.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import KafkaError
from ...proto.kafka.messages import DropPartition
from ..client_schema import ClientSchema

if TYPE_CHECKING:
    from .hooks import KafkaHooks


class KafkaSchema(ClientSchema):
    """Changes names: one transaction on the catalogue a call, and requests to group coordinators."""

    _mode: "KafkaHooks"

    def drop_message(self) -> DropPartition:
        return DropPartition()

    def move(self, consumer: str, offsets: Mapping[int, int | None], individual: bool) -> None:
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
