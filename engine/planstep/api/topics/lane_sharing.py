"""Connects a group to the other processes that read for its consumer: which lanes and ranges are this process's.

    after each change of the group ─▶ tell: how many readers, which lanes are free of flights and go
    a reader looks for records     ─▶ others' ranges are left out, and more are asked for in time
    Shares, Claimed have come      ─▶ set_lanes, changed: the readers look again

While the process is alone with the consumer none of this runs. The group's lock guards all of it.

Next: ../../runtime/process_shares.py.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ...coordinator.claims import Range
from ...errors import Overloaded
from ...runtime.wait_primitives import wait_for
from .flights import Flights
from .group_state import InFlightBatch, LaneLeases, Member, PartitionLease

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.runtime import Runtime

ANSWER_SECONDS = 5.0
"""A reader waits at most this long for the store's owner to tell which lanes it may read."""


class LaneSharing:
    """The share of a group; a ShareUser of process_shares.py."""

    def __init__(
        self,
        runtime: "Runtime",
        info: "TopicInfo",
        leases: LaneLeases,
        flights: Flights,
        change: Callable[[Callable[[], None]], None],
        lease_seconds: float,
    ) -> None:
        self.change = change
        self.individual = leases.individual
        self.lane_count = len(leases.lanes)
        self.where = f"topic {info.name!r}, consumer {leases.consumer!r}"
        self._leases = leases
        self._flights = flights
        self._process = runtime.shares
        self._hooks = runtime.hooks
        exclusive = leases.consumer in info.exclusive
        self.share = self._process.open((info.id, leases.consumer), self, lease_seconds, exclusive)

    @property
    def alone(self) -> bool:
        return self.share.alone

    @property
    def waits(self) -> bool:
        """Returns whether the owner's answer may bring something to read."""
        return not self.share.alone and self.share.waits

    def begin(self) -> None:
        """Begins to share if other processes read for the consumer; the group is complete."""
        self._process.begin(self.share)

    def close(self) -> None:
        """Ends the share of a group without readers and flights; it has left already."""
        self._process.forget(self.share)

    def deliver(self) -> None:
        """Has the owner's part answer what its own groups have told. Call it without the group's lock."""
        if not self.share.alone:
            self._process.deliver()

    def renew(self) -> None:
        self.share.renew()

    def tell(self) -> None:
        """Tells the owner what a change of the group means for other processes."""
        share = self.share
        for flight in self._flights.ended:
            self._end(flight)
        share.weigh(self.readers)
        share.give(self._leases.take_given())

    def check(self) -> None:
        """Raises ConsumerBusy when another process has the exclusive consumer."""
        if self.share.refused and self.share.exclusive:
            self._hooks.check_exclusive(busy=self.where)

    def wait(self, waiters: dict[Callable[[], None], Member], member: Member) -> None:
        """Waits until the owner has said whether the exclusive consumer is free. ConsumerBusy, Overloaded."""
        queue: SimpleQueue[None] = SimpleQueue()
        wake = partial(queue.put, None)
        waiters[wake] = member
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            while self.waits:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise Overloaded(
                        f"{self.where}: the process that owns the store did not say within {ANSWER_SECONDS:g} s "
                        "whether the consumer has another reader; try again"
                    )
                wait_for(queue, remaining)
        finally:
            waiters.pop(wake, None)
        self.check()

    # ranges of an individual consumer ------------------------------------------------------

    def others(self, lane: PartitionLease, end: int) -> Sequence[Range]:
        """Returns the ranges below `end` that this process has not claimed."""
        if self.share.alone or not self.individual:
            return ()
        return self.share.claims_of(lane.number).others(end)

    def ask(
        self, lane: PartitionLease, empty: bool, end: int, back: Sequence[Range], most: int
    ) -> None:
        """Claims more of a lane in time: `empty` when no claimed record is left below `end`, the log's end."""
        share = self.share
        if share.alone or not self.individual or not share.readers:
            return
        claims = share.claims_of(lane.number)
        if empty:
            claims.prune(end, back)
        records = claims.wanted(empty, end, most, time.monotonic())
        if records:
            share.claim(lane.number, records)

    def begin_range(self, lane: PartitionLease, begin: int, end: int) -> bool:
        """Takes a range in hand that was looked up; False if it is not this process's, or not any more."""
        if not self.individual or self.share.alone:
            return True
        return self.share.claims_of(lane.number).begin(begin, end)

    def _end(self, flight: InFlightBatch) -> None:
        lane = flight.lane
        if self.individual and self.share.readers:
            claims = self.share.claims_of(lane.number)
            claims.end(flight.begin, flight.end, flight.committed)
            if not lane.flights and not claims.claimed:
                self.share.free(lane.number)  # a consumer that is moved back may have them again

    # what its share asks -------------------------------------------------------------------

    @property
    def readers(self) -> int:
        """The readers that read, or all of an exclusive consumer; at least 1 while one has a flight."""
        members = self._leases.members
        reading = sum(member.active or self.share.exclusive for member in members)
        return reading or int(self._flights.number > 0)

    def set_lanes(self, lanes: Iterable[int]) -> None:
        self._leases.set_own(lanes)

    def changed(self) -> None:
        self._leases.changes += 1

    def ranges(self) -> Mapping[int, tuple[Sequence[Range], Sequence[Range]]]:
        if not self.individual:
            return {}
        return {
            lane.number: (
                [(flight.begin, flight.end) for flight in lane.flights],
                [(known.begin, known.end) for known in lane.handed_back.ranges],
            )
            for lane in self._leases.lanes
            if lane.flights or lane.handed_back.ranges
        }
