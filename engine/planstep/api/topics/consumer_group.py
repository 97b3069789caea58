"""Coordinates the readers of one consumer of a topic in this process: which reads which records, and commits when.

    partition (lane):   consumed ─┤ flight [0, 10) handed ├┤ flight [10, 25) open ├─ not read yet
                                     └ its commit is in the engine   └ waits for the one before

A flight is an in-flight batch: it was read, and its transaction has not ended. A lane of a cumulative consumer
belongs to one reader at a time. The commits of its flights are handed to the engine in the order in which they were
read. With one host a commit is handed over right after the one before (turns keep their order), with several when
that one has ended. A flight that is rolled back, or fails, leaves a gap that is read again. Later flights of
the lane conflict when they commit, and are read again, too. For an individual consumer any reader takes any free
range, and no commit waits.

Readers share the lanes evenly; a lane moves to another reader when it has no flights. A reader that does nothing
for `lease_seconds` loses its lanes and its open flights: LeaseLost when it commits one. The group decides only
which reader tries; the conditions of the transactions decide what counts. Where other processes read for the
consumer too, lane_sharing.py says which lanes and ranges are this one's.

Next: reader.py.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ...errors import LeaseLost, ProtocolError
from ...proto.messages import Parts
from ...runtime.deferred_signals import Uninterrupted
from ...runtime.wait_primitives import once_free
from .flights import Flights
from .group_state import (
    ENDED,
    OPEN,
    FreeRange,
    InFlightBatch,
    LaneLeases,
    Member,
    PartitionLease,
    first_gap,
)
from .lane_sharing import LaneSharing

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.group_commit import ReplySink, Waiter
    from ...runtime.runtime import Runtime
    from ..transaction.snapshot_reader import Reading

LEASE_SECONDS = 30.0
_PENDING_SECONDS = 0.05
_log = logging.getLogger("planstep")


class Group:
    """The readers of one consumer of one topic. Threads share it: `_lock` guards all of it."""

    def __init__(
        self,
        runtime: "Runtime",
        info: "TopicInfo",
        consumer: str,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.runtime = runtime
        self.info = info
        self.consumer = consumer
        self.lease_seconds = lease_seconds
        self.leases = LaneLeases(info, consumer)
        self.individual = self.leases.individual
        self.lanes = self.leases.lanes
        self.members = self.leases.members
        self.flights = Flights(runtime, info.name, self.leases, self._report)
        self.generation = -1  # the newest known, where groups have generations
        # Noted by finalizers, which may take no lock.
        self.collected: deque[Member | InFlightBatch] = deque()
        self.waiters: dict[Callable[[], None], Member] = {}
        self._clock = time.monotonic
        self._lock = threading.Lock()
        self._look_at = 0.0  # no lease runs out before
        self._redelivery = runtime.hooks.redelivery
        self.sharing = LaneSharing(
            runtime, info, self.leases, self.flights, self._change, lease_seconds
        )
        self.sharing.begin()

    def _change(self, change: Callable[[], None]) -> None:
        """Calls `change` with the lock held; then, without it, ends futures, and wakes the readers if something
        changed for them."""
        flights, leases = self.flights, self.leases
        with Uninterrupted():  # else who waits behind it would not hear
            with once_free(self._lock):
                before = leases.changes
                change()
                if not self.sharing.alone:
                    self.sharing.tell()
                ended, flights.ended = flights.ended, []
                later, flights.later = flights.later, []
            for action in later:
                action()
            self.sharing.deliver()
            if leases.changes != before:
                self.wake()
            elif self.waiters:
                for flight in ended:
                    self._wake_behind(flight)

    # members -------------------------------------------------------------------------------

    def join(self, name: str, in_flight: int) -> Member:
        member = Member(name, in_flight)
        self._change(partial(self._join, member))
        return member

    def _join(self, member: Member) -> None:
        member.active_at = self._clock()
        self.members[member] = None
        self.leases.share()
        self.leases.changes += 1

    def refresh(self, member: Member) -> None:
        """Joins again when the membership has changed, in a mode whose groups have generations."""
        if not member.id or member.departed:
            return
        if not member.active or member.generation != self.generation:
            generation = self.runtime.hooks.rejoin(self.consumer, member.id)
            with Uninterrupted(), once_free(self._lock):
                self.generation = max(self.generation, generation)
                member.generation = generation

    def leave(self, member: Member) -> None:
        """Takes a reader's lanes and open flights from it; flights that were handed over run to their end."""
        self._change(partial(self._leave, member))

    def renew(self, member: Member) -> None:
        """Renews the leases of a reader and of its flights."""
        with Uninterrupted(), once_free(self._lock):
            now = member.active_at = self._clock()
            for flight in self.flights.of(member):
                flight.until = now + self.lease_seconds
            self.sharing.renew()

    def _leave(self, member: Member) -> None:
        member.departed = True
        self.members.pop(member, None)
        self._expel(member)
        if member.producer is not None:
            self.runtime.hooks.retire(member.producer)
        for flight in self.flights.of(member):
            if flight.state == OPEN:
                self.flights.end(flight, None, self._at_once)
        self.leases.release_all(member)
        self.leases.share()
        self.leases.changes += 1

    def _expel(self, member: Member) -> None:
        if member.id:
            self.runtime.hooks.leave(self.consumer, member.id)
            self.generation = -1  # higher now: whoever reads next asks

    def tidy(self) -> None:
        """Ends lanes and flights of readers that are gone, or silent for longer than their lease."""
        now = self._clock()
        if self.collected or now >= self._look_at:
            self._change(partial(self._end_leases, now))

    def _end_leases(self, now: float) -> None:
        self._end_collected()
        self._end_late(now)
        self._rest_silent(now)
        ends = [now + self.lease_seconds]  # leases only begin, or grow, until then
        ends += [min(flight.until, flight.overdue_at) for flight in self.flights.all()]
        ends += [member.active_at + self.lease_seconds for member in self.members if member.active]
        self._look_at = min(ends)

    def _end_collected(self) -> None:
        """Ends readers and transactions that were garbage-collected; their finalizers noted them in `collected`."""
        while self.collected:
            item = self.collected.popleft()
            if isinstance(item, Member):
                self._leave(item)
            elif item.state != ENDED:
                _log.warning(
                    "topic %r, consumer %r: the transaction of [%d, %d) in partition %d was dropped "
                    "without commit or rollback; its records are read again",
                    *(self.info.name, self.consumer, item.begin, item.end, item.lane.number),
                )
                self.flights.end(item, None, self._at_once)

    def _end_late(self, now: float) -> None:
        """Ends open flights whose lease ran out, or that were in hand for too long."""
        for flight in self.flights.all():
            if flight.state != OPEN:
                continue
            if flight.until < now:
                flight.member.lapsed += 1
                self.flights.end(flight, None, self._at_once)
            elif flight.overdue_at <= now:
                flight.overdue = True
                self.flights.end(flight, None, self._at_once)

    def _rest_silent(self, now: float) -> None:
        """Takes the lanes from readers that did nothing for a lease and have no flights."""
        for member in list(self.members):
            silent = member.active_at + self.lease_seconds < now
            if member.active and silent and not member.flights:
                member.active = False
                self._expel(member)
                self.leases.release_all(member)

    # reading -------------------------------------------------------------------------------

    def lanes_for(self, member: Member) -> list[PartitionLease]:
        """Lists the lanes in which this reader may look for records; none when it has enough flights."""
        with once_free(self._lock):
            member.active_at = self._clock()
            self.sharing.check()
            if member.departed or member.flights >= member.in_flight:
                return []
            if member.active:
                return self.leases.offered(member)
        self._change(partial(self._activate, member))
        return self.lanes_for(member)

    def _activate(self, member: Member) -> None:
        member.active = not member.departed
        self.leases.share()

    def under_way(self, member: Member) -> tuple[int, bool]:
        """Returns (number of a reader's flights, whether one was sent; its commit will end, and may fail)."""
        with once_free(self._lock):
            return member.flights, any(
                flight.member is member
                for lane in self.lanes
                for flight in lane.going(self.individual)
            )

    def free(
        self, member: Member, lane: PartitionLease, reading: "Reading", most: int
    ) -> FreeRange | None:
        """Returns the range to read next; the reader takes `most` records of it. The caller holds the lane's lock,
        and `begin`s the range it read."""
        with once_free(self._lock):
            if not (self.individual or lane.owner is member or lane.owner is None):
                return None
            held = lane.held(reading.snap.step)
            back = lane.handed_back.held(self._clock())
        # Looked up behind `held`: where reads are as of now, a batch that has ended meanwhile is in one of both.
        back += self.runtime.views.pending_ranges(lane.tablet, self.consumer)
        if back and not self.individual:
            return None  # what follows waits for it, also for a commit that an earlier process left
        position, _, ranges, moved = reading.standing(lane.tablet, self.consumer)
        log_end = reading.bounds(lane.tablet)[1]
        first_shown = partial(reading.visible_range, lane.tablet) if self.individual else None
        if self.sharing.alone or not self.individual:
            gap = first_gap(position, log_end, [*ranges, *held, *back], first_shown)
        else:
            with once_free(self._lock):
                others = self.sharing.others(lane, log_end)
            gap = first_gap(position, log_end, [*ranges, *held, *back, *others], first_shown)
            with Uninterrupted(), once_free(self._lock):
                self.sharing.ask(lane, gap is None, log_end, back, most)
            self.sharing.deliver()
        if gap is None or not lane.handed_back.ranges:
            return None if gap is None else FreeRange(*gap, moved, log_end, 0)
        with once_free(self._lock):
            lane.handed_back.forget(position)
            end = lane.handed_back.cut(*gap)
            redeliveries = lane.handed_back.count(gap[0], end)
        return FreeRange(gap[0], end, moved, log_end, redeliveries)

    def begin(
        self, member: Member, lane: PartitionLease, begin: int, end: int, more: bool, changes: int
    ) -> InFlightBatch | None:
        """Makes a flight of a range that was read; None when the reader may not have it any more.

        `more`: records follow it. `changes` is the lane's from before its position was looked up: a reader must not
        take a lane over with an older position.
        """
        with Uninterrupted(), once_free(self._lock):
            if member.departed or not self.leases.take(lane, member, changes):
                return None
            if not self.sharing.begin_range(lane, begin, end):
                return None
            until = self._clock() + self.lease_seconds
            flight = InFlightBatch(lane, member, begin, end, until, more)
            flight.redeliveries = lane.handed_back.count(begin, end)
            if self._redelivery is not None:
                flight.overdue_at = self._clock() + self._redelivery.ack_timeout_seconds
                self._look_at = min(self._look_at, flight.overdue_at)
            self.flights.begin(flight)
            return flight

    def idle(self, reading: "Reading") -> bool:
        """Returns whether everything is consumed, as of the reading, and there are no flights."""
        if self.flying:
            return False
        if self.individual:
            return not any(reading.free(lane.tablet, self.consumer, ()) for lane in self.lanes)
        return all(
            reading.position(lane.tablet, self.consumer) >= reading.bounds(lane.tablet)[1]
            for lane in self.lanes
        )

    # commits -------------------------------------------------------------------------------

    def hand(
        self,
        flight: InFlightBatch,
        tx: bytes,
        parts: Parts,
        ending: "ReplySink",
        attended: bool = False,
    ) -> "Waiter | None":
        """Commits a flight's transaction in its turn. Returns its Waiter, or None if its turn comes later.

        `attended`: the caller waits for the answer, and may run the engine's turn itself. Conflict, LeaseLost: it
        will never commit; Overloaded: try again.
        """
        with Uninterrupted(), once_free(self._lock):
            if flight.overdue:  # it has lost its turn, and conflicts if another reader was first
                return self.runtime.transactions.send(tx, parts, ending, attended=attended)
            if flight.state == ENDED:
                raise LeaseLost(
                    f"topic {self.info.name!r}, partition {flight.lane.number}: the reader left, or did "
                    f"nothing for {self.lease_seconds:g} s; [{flight.begin}, {flight.end}) goes to "
                    "another; keep_alive() prevents that"
                )
            flight.member.active_at = self._clock()
            return self.flights.hand(flight, tx, parts, ending, attended)

    def _report(self, flight: InFlightBatch, step: int | None, error: BaseException | None) -> None:
        if isinstance(error, ProtocolError):
            self.generation = -1  # it may have risen: whoever reads next asks
        self.ended(flight, step)

    def ended(self, flight: InFlightBatch, step: int | None, back: float | None = None) -> None:
        """Ends a flight whose transaction committed in `step`, or (None) had no effect. `back`: it was handed back,
        for so many seconds."""
        if flight.state != ENDED:
            due = None if back is None else self._clock() + back
            self._change(partial(self.flights.end, flight, step, due))

    @property
    def _at_once(self) -> float | None:
        """The `due` of a batch whose reader is gone, or too slow; None in modes that do not count this."""
        return None if self._redelivery is None else 0.0

    def close(self, error: Exception) -> None:
        """Fails the commits that wait for their turn, since the engine was closed."""
        self._change(partial(self._close, error))

    def _close(self, error: Exception) -> None:
        self.flights.fail_waiting(error)
        self.leases.changes += 1

    # waiting -------------------------------------------------------------------------------

    @property
    def changes(self) -> int:
        """Rises with each change after which a reader may find something that it did not find before."""
        return self.leases.changes + self.flights.ends

    @contextmanager
    def watch(self, member: Member, wake: Callable[[], None]) -> Iterator[None]:
        """Calls `wake`, within the `with`, when a partition that the reader may have publishes, or a lease changes
        hands."""
        self.waiters[wake] = member
        own = self.leases.own
        tablets = [lane.tablet for lane in own if lane.owner is member or lane.owner is None]
        try:
            with self.runtime.turns.watches.watch(tablets, wake):
                yield
        finally:
            self.waiters.pop(wake, None)

    def next_due(self) -> float:
        """Returns the seconds until a batch that was handed back, is held too long, or is pending, may be handed
        out."""
        if self._redelivery is None:
            return inf
        now = self._clock()
        with once_free(self._lock):
            dues = [lane.handed_back.next_due(now) for lane in self.lanes]
            dues += [flight.overdue_at for flight in self.flights.all() if flight.state == OPEN]
        pending = self.runtime.views.pending_ranges
        if any(pending(lane.tablet, self.consumer) for lane in self.lanes):
            dues.append(now + _PENDING_SECONDS)  # nobody tells when its transaction ends
        return max(0.001, min(dues, default=inf) - now)

    def release(self, partition: int, offset: int) -> None:
        """Hands the batch that begins there out at once, if it was handed back."""
        lane = self.lanes[partition]
        with Uninterrupted(), once_free(self._lock):
            lane.handed_back.release(offset)
        self.wake()

    @property
    def flying(self) -> bool:
        """True if some reader has a flight: the last end will wake the waiting readers."""
        return bool(self.flights.number)

    @property
    def empty(self) -> bool:
        """True if there are neither readers nor flights."""
        with once_free(self._lock):
            return not (self.members or self.flights.number)

    def wake(self, members: "Iterable[Member] | None" = None) -> None:
        """Wakes the waiting readers, or some of them, to look again."""
        for wake, member in list(self.waiters.items()):
            if members is None or member in members:
                wake()

    def _wake_behind(self, flight: InFlightBatch) -> None:
        """Wakes the readers for which a flight's end may change something: its own, and the lane's owner, which
        reads it again if it failed. All of them if anyone may read it, or if everything may be consumed now."""
        owner = flight.lane.owner
        last = not flight.more or self.runtime.views.has_holes  # perhaps only holes follow it
        if owner is None or (last and not self.flights.number):
            self.wake()
        else:
            self.wake((flight.member, owner))
