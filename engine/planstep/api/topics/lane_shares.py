"""Shares the lanes of a group among its readers: an even share each, and each lane to one reader.

    a reader joins or leaves ─ share ─▶ lanes above an even share are `moving`: released once they have no flights
    a reader looks ─ offered ─▶ its own lanes, and free ones up to its share ─ take ─▶ its own

For an individual consumer all readers use all lanes. The group locks; nothing here does.

Next: consumer_group.py.
"""

from typing import TYPE_CHECKING

from .group_state import Member, PartitionLease

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo


class LaneShares:
    """The lanes and readers of a group. Invariant: a member's `lanes` counts the lanes that it owns."""

    def __init__(self, info: "TopicInfo", consumer: str) -> None:
        self.consumer = consumer
        self.individual = consumer in info.individual
        self.lanes = [
            PartitionLease(number, tablet) for number, tablet in enumerate(info.partitions)
        ]
        self.members: dict[Member, None] = {}
        self.changes = 0  # that somebody may wait for: flights that ended, lanes that were released

    def share(self) -> None:
        """Marks the lanes above their owner's even share as moving: they are released once they have no flights."""
        most = self._most(None)
        kept: dict[Member, int] = {}
        for lane in self.lanes:
            if lane.owner is not None:
                kept[lane.owner] = kept.get(lane.owner, 0) + 1
                lane.moving = kept[lane.owner] > most
                if lane.moving:
                    self.release_moving(lane)

    def _most(self, member: Member | None) -> int:
        """Returns an even share of the lanes among the active readers, `member` included."""
        reading = sum(other.active or other is member for other in self.members)
        return -(-len(self.lanes) // max(1, reading))

    def offered(self, member: Member) -> list[PartitionLease]:
        """Lists the lanes in which this reader may look, each time beginning with another."""
        member.turn += 1
        turn = member.turn % len(self.lanes)
        order = self.lanes[turn:] + self.lanes[:turn]
        if self.individual:
            return order
        more = member.lanes < self._most(member)
        return [
            lane
            for lane in order
            if (lane.owner is member and not lane.moving) or (lane.owner is None and more)
        ]

    def take(self, lane: PartitionLease, member: Member, changes: int) -> bool:
        """Gives the lane to this reader; False when it may not have it, or the lane has changed since the look."""
        if self.individual or lane.owner is member:
            return True
        if lane.owner is not None or member.lanes >= self._most(member):
            return False
        if lane.changes != changes:
            return False
        lane.owner = member
        member.lanes += 1
        return True

    def release(self, lane: PartitionLease) -> None:
        """Takes the lane from its owner."""
        assert lane.owner is not None
        lane.changes += 1
        self.changes += 1
        if lane.owner.producer is not None:  # its consumer's memory of where it was
            lane.owner.producer.positions.pop((self.consumer, lane.tablet), None)
        lane.owner.lanes -= 1
        lane.owner = None
        lane.moving = False

    def release_moving(self, lane: PartitionLease) -> None:
        """Releases a `moving` lane if it has no flights."""
        if not lane.flights and lane.owner is not None:
            self.release(lane)

    def release_all(self, member: Member) -> None:
        """Releases all lanes of a reader."""
        for lane in self.lanes:
            if lane.owner is member:
                self.release(lane)
