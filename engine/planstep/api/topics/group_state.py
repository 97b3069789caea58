"""Defines the parts of a group of readers: members, lanes (partitions) and flights (in-flight batches).

Each reader gets an even share of the lanes, and each lane one reader:

    a reader joins or leaves ─ share ─▶ lanes above an even share are `moving`: released once they have no flights
    a reader looks ─ offered ─▶ its own lanes, and free ones up to its share ─ take ─▶ its own

For an individual consumer all readers use all lanes. The group locks; nothing here does.

Next: consumer_group.py.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ...proto.messages import Parts
from .redelivery import HandedBack

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.group_commit import ReplySink

OPEN, READY, HANDED, ENDED = "open", "ready", "handed", "ended"


class Member:
    """The state of one reader in its group."""

    def __init__(self, name: str, in_flight: int) -> None:
        self.name = name
        self.party: object = None  # the readers that share an exclusive consumer as one
        self.in_flight = in_flight
        self.flights = 0
        self.lanes = 0
        self.turn = 0
        self.active_at = 0.0
        self.producer: Any = None  # who writes for it, where writers have identities
        self.takes_over = False  # its name, at its first look
        self.id = ""  # in a group that has generations
        self.generation = -1
        self.lapsed = 0  # flights that nobody ended within the lease
        self.active = False  # it has read, and not been silent for longer than its lease since
        self.departed = False


class PartitionLease:
    """The state of one partition in its group.

    Invariants: flights are disjoint and sorted; `owner` is None while no reader has it, and always for
    individual consumers.
    """

    def __init__(self, number: int, tablet: int) -> None:
        self.number = number
        self.tablet = tablet
        self.owner: Member | None = None
        self.moving = False
        self.here = (
            True  # not another process's; one that goes there is `moving` until it has no flights
        )
        # Flights that ended, and owners that left: what was looked up before is old.
        self.changes = 0
        self.flights: list[InFlightBatch] = []
        self.done: list[tuple[int, int, int]] = []  # committed: (begin, end, step)
        self.handed_back = HandedBack()
        self.lock = threading.Lock()  # held while it is read from

    def held(self, step: int) -> list[tuple[int, int]]:
        """Returns the ranges that a reader at this step must skip."""
        if self.done:
            self.done = [done for done in self.done if done[2] > step]
        busy = [(begin, end) for begin, end, _ in self.done] if self.done else []
        for flight in self.flights:
            busy.append((flight.begin, flight.end))
        return busy

    def going(self, individual: bool) -> "Iterator[InFlightBatch]":
        """Yields the flights that were sent and do not wait for one that was not."""
        for flight in self.flights:
            if flight.sent:
                yield flight
            elif not individual:
                return


class FreeRange(NamedTuple):
    """Offsets [begin, end) of a lane that nobody has, as of the step that last `moved` the consumer."""

    begin: int
    end: int
    moved: int
    log_end: int
    redeliveries: int


class InFlightBatch:
    """An in-flight batch: offsets [begin, end) of a lane, and the reader whose transaction has them."""

    def __init__(
        self,
        lane: PartitionLease,
        member: Member,
        begin: int,
        end: int,
        until: float,
        more: bool,
    ) -> None:
        self.lane = lane
        self.member = member
        self.generation = member.generation
        self.begin, self.end = begin, end
        self.until = until
        self.more = more  # records follow it
        self.redeliveries = 0
        self.overdue_at = inf
        self.overdue = False  # it was handed out again; its transaction may commit all the same
        self.committed = False
        self.state = OPEN
        self.sent = False  # by its owner, who need do nothing more for it
        self.pending: tuple[bytes, Parts, ReplySink] | None = None

    def __lt__(self, other: "InFlightBatch") -> bool:
        return self.begin < other.begin


def first_gap(
    position: int,
    end: int,
    busy: Iterable[tuple[int, int]],
    cut: Callable[[int, int], tuple[int, int] | None] | None,
) -> tuple[int, int] | None:
    """Returns the first free range of [position, end), before or between the taken ones; None when there is none.

    `cut` cuts a range to begin at its first record, or returns None if it has none. Without `cut` each offset
    has a record.
    """
    for begin, stop in [*sorted(busy), (end, end)]:
        if position < min(begin, end):
            gap = position, min(begin, end)
            rest = gap if cut is None else cut(*gap)
            if rest is not None:
                return rest
        position = max(position, stop)
    return None


class LaneLeases:
    """The lanes and readers of a group. Invariant: a member's `lanes` counts its own ones of this process."""

    def __init__(self, info: "TopicInfo", consumer: str) -> None:
        self.consumer = consumer
        self.individual = consumer in info.individual
        self.lanes = [
            PartitionLease(number, tablet) for number, tablet in enumerate(info.partitions)
        ]
        self.own = self.lanes
        """The lanes that are this process's: all while no other one reads for the consumer."""
        self.members: dict[Member, None] = {}
        self.changes = 0  # lanes that were released, readers that came or left
        self._going: dict[
            PartitionLease, None
        ] = {}  # to other processes, once they have no flights

    def share(self) -> None:
        """Marks the lanes above their owner's even share as moving: they are released once they have no flights."""
        most = self._most(None)
        owned: dict[Member, int] = {}
        for lane in self.lanes:
            if lane.owner is not None:
                if lane.here:
                    owned[lane.owner] = owned.get(lane.owner, 0) + 1
                    lane.moving = owned[lane.owner] > most
                if lane.moving:
                    self.release_moving(lane)

    def set_own(self, numbers: Iterable[int]) -> None:
        """Makes these lanes the process's own. The others go: `take_given` returns each that has no flights."""
        own = dict.fromkeys(numbers)
        for lane in self.lanes:
            here = lane.number in own
            if here == lane.here:
                continue
            lane.here = here
            if lane.owner is not None:
                lane.owner.lanes += 1 if here else -1
            if here:
                lane.changes += 1  # another process may have moved the position
                self._going.pop(lane, None)
            else:
                lane.moving = lane.owner is not None
                self._going[lane] = None
        self.own = [lane for lane in self.lanes if lane.here]
        self.changes += 1
        self.share()

    def take_given(self) -> list[int]:
        """Returns the lanes that have gone since the last call: neither readers nor flights have them."""
        gone = [lane for lane in self._going if lane.owner is None and not lane.flights]
        for lane in gone:
            del self._going[lane]
        return [lane.number for lane in gone]

    def _most(self, member: Member | None) -> int:
        """Returns an even share of the lanes among the active readers, `member` included."""
        reading = sum(other.active or other is member for other in self.members)
        return -(-len(self.own) // max(1, reading))

    def offered(self, member: Member) -> list[PartitionLease]:
        """Lists the lanes in which this reader may look, each time beginning with another."""
        member.turn += 1
        turn = member.turn % max(1, len(self.own))
        order = self.own[turn:] + self.own[:turn]
        if self.individual:
            return order
        owned = [lane for lane in order if lane.owner is None or lane.owner is member]
        more = None in [lane.owner for lane in owned] and member.lanes < self._most(member)
        return [lane for lane in owned if (more if lane.owner is None else not lane.moving)]

    def take(self, lane: PartitionLease, member: Member, changes: int) -> bool:
        """Gives the lane to this reader; False when it may not have it, or the lane has changed since the look."""
        if self.individual or lane.owner is member:
            return True
        if lane.owner is not None or not lane.here or member.lanes >= self._most(member):
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
        lane.owner.lanes -= lane.here
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
