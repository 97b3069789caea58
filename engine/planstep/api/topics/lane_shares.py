"""Which reader of a group has which lane: an even share each, and no lane twice.

    a reader comes or goes ─ share ─▶ lanes above an even share are `moving`: released once they have no flights
    a reader looks ─ offered ─▶ its own lanes, and free ones up to its share ─ take ─▶ its own

Of an individual consumer every lane is everybody's. Nothing here locks: the group does.

Next: consumer_group.py.
"""

from typing import TYPE_CHECKING

from .group_state import Lane, Member

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo


class LaneShares:
    """Invariant: a member's `lanes` is how many lanes it owns."""

    def __init__(self, info: "TopicInfo", consumer: str) -> None:
        self.consumer = consumer
        self.individual = consumer in info.individual
        self.lanes = [Lane(number, tablet) for number, tablet in enumerate(info.partitions)]
        self.members: dict[Member, None] = {}
        self.changes = 0  # that somebody may wait for: flights that ended, lanes that were released

    def share(self) -> None:
        """Marks the lanes that are more than their owner's even share: they move once they are idle."""
        most = self._most(None)
        kept: dict[Member, int] = {}
        for lane in self.lanes:
            if lane.owner is not None:
                kept[lane.owner] = kept.get(lane.owner, 0) + 1
                lane.moving = kept[lane.owner] > most
                if lane.moving:
                    self.release_moving(lane)

    def _most(self, member: Member | None) -> int:
        """An even share, among those that read, and `member`."""
        reading = sum(other.active or other is member for other in self.members)
        return -(-len(self.lanes) // max(1, reading))

    def offered(self, member: Member) -> list[Lane]:
        """Where this reader may look for records, in turn."""
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

    def take(self, lane: Lane, member: Member, changes: int) -> bool:
        """The lane is this reader's now; False when it may not have it, or the lane has changed since."""
        if self.individual or lane.owner is member:
            return True
        if lane.owner is not None or member.lanes >= self._most(member):
            return False
        if lane.changes != changes:
            return False
        lane.owner = member
        member.lanes += 1
        return True

    def release(self, lane: Lane) -> None:
        """The lane is nobody's now."""
        assert lane.owner is not None
        lane.changes += 1
        self.changes += 1
        if lane.owner.producer is not None:  # its consumer's memory of where it was
            lane.owner.producer.positions.pop((self.consumer, lane.tablet), None)
        lane.owner.lanes -= 1
        lane.owner = None
        lane.moving = False

    def release_moving(self, lane: Lane) -> None:
        """A lane that is `moving` changes hands once it has no flights."""
        if not lane.flights and lane.owner is not None:
            self.release(lane)

    def release_all(self, member: Member) -> None:
        """What this reader has is nobody's now."""
        for lane in self.lanes:
            if lane.owner is member:
                self.release(lane)
