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
which reader tries; the conditions of the transactions decide what counts.

What it leaves out: other processes (a store has one owner). Next: reader.py.
"""

import logging
import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ...errors import Conflict, LeaseLost, ProtocolError
from ...proto.messages import Parts
from ...runtime.deferred_signals import Uninterrupted
from .group_state import (
    ENDED,
    HANDED,
    OPEN,
    READY,
    InFlightBatch,
    LaneShares,
    Member,
    PartitionLease,
    first_gap,
)

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.group_commit import ReplySink
    from ...runtime.outcome import Commit
    from ...runtime.runtime import Runtime
    from ..transaction.snapshot_reader import Reading

LEASE_SECONDS = 30.0
_Action = Callable[[], None]
_log = logging.getLogger("planstep")


class _GroupReplySink:
    """Reports the end of a flight to the group, then to the caller that waits for it."""

    __slots__ = ("_ending", "_flight", "_group")

    def __init__(self, group: "Group", flight: InFlightBatch, ending: "ReplySink") -> None:
        self._group, self._flight, self._ending = group, flight, ending

    def set_result(self, result: "Commit", /) -> None:
        self._group.ended(self._flight, result.place.step)
        self._ending.set_result(result)

    def set_exception(self, error: BaseException, /) -> None:
        if isinstance(error, ProtocolError):
            self._group.generation = -1  # it may have risen: whoever reads next asks
        self._group.ended(self._flight, None)
        self._ending.set_exception(error)


class Group:
    """The readers of one consumer of one topic. Threads share it: `_lock` guards all of it."""

    def __init__(
        self,
        runtime: "Runtime",
        info: "TopicInfo",
        consumer: str,
        lease_seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runtime = runtime
        self.info = info
        self.consumer = consumer
        self.lease_seconds = lease_seconds
        self.shares = LaneShares(info, consumer)
        self.individual = self.shares.individual
        self.lanes = self.shares.lanes
        self.members = self.shares.members
        self.generation = -1  # the newest known, where groups have generations
        self.gone: deque[Member | InFlightBatch] = (
            deque()
        )  # from finalizers, which may take no lock
        self.waiters: dict[Callable[[], None], None] = {}
        self._clock = clock
        self._lock = threading.Lock()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with Uninterrupted(), self._lock:
            yield

    @property
    def changes(self) -> int:
        """Counts flights that ended and lanes that were released: an earlier look is out of date then."""
        return self.shares.changes

    # members -------------------------------------------------------------------------------

    def join(self, name: str, in_flight: int) -> Member:
        member = Member(name, in_flight)
        with self._locked():
            member.seen = self._clock()
            self.members[member] = None
            self.shares.share()
        self.wake()
        return member

    def refresh(self, member: Member) -> None:
        """Joins again when the membership has changed, in a mode whose groups have generations."""
        if not member.id or member.left:
            return
        if not member.active or member.generation != self.generation:
            generation = self.runtime.hooks.rejoin(self.consumer, member.id)
            with self._locked():
                self.generation = max(self.generation, generation)
                member.generation = generation

    def leave(self, member: Member) -> None:
        """Takes a reader's lanes and open flights from it; flights that were handed over run to their end."""
        with Uninterrupted():  # else who waits behind it would not hear
            with self._locked():
                then = self._leave(member)
            self._after(then)

    def renew(self, member: Member) -> None:
        """Renews the leases of a reader and of its flights."""
        with self._locked():
            now = member.seen = self._clock()
            for lane in self.lanes:
                for flight in lane.flights:
                    if flight.member is member:
                        flight.until = now + self.lease_seconds

    def _leave(self, member: Member) -> list[_Action]:
        member.left = True
        self.members.pop(member, None)
        self._expel(member)
        if member.producer is not None:
            self.runtime.hooks.retire(member.producer)
        then: list[_Action] = []
        for lane in self.lanes:
            for flight in [f for f in lane.flights if f.member is member and f.state == OPEN]:
                then += self._end(flight, None)
        self.shares.release_all(member)
        self.shares.share()
        return then

    def _expel(self, member: Member) -> None:
        if member.id:
            self.runtime.hooks.leave(self.consumer, member.id)
            self.generation = -1  # higher now: whoever reads next asks

    def tidy(self) -> None:
        """Ends lanes and flights of readers that are gone, or silent for longer than their lease."""
        with Uninterrupted():
            now = self._clock()
            with self._locked():
                before = self.changes
                then = [*self._end_gone(), *self._end_late(now)]
                self._rest_silent(now)
                changed = self.changes != before
            if changed:
                self._after(then)

    def _end_gone(self) -> list[_Action]:
        """Ends readers and transactions that were garbage-collected; their finalizers noted them in `gone`."""
        then: list[_Action] = []
        while self.gone:
            item = self.gone.popleft()
            if isinstance(item, Member):
                then += self._leave(item)
            elif item.state != ENDED:
                _log.warning(
                    "topic %r, consumer %r: the transaction of [%d, %d) in partition %d was dropped "
                    "without commit or rollback; its records are read again",
                    *(self.info.name, self.consumer, item.begin, item.end, item.lane.number),
                )
                then += self._end(item, None)
        return then

    def _end_late(self, now: float) -> list[_Action]:
        """Ends open flights whose lease ran out."""
        then: list[_Action] = []
        for lane in self.lanes:
            for flight in [f for f in lane.flights if f.state == OPEN and f.until < now]:
                flight.member.lapsed += 1
                then += self._end(flight, None)
        return then

    def _rest_silent(self, now: float) -> None:
        """Takes the lanes from readers that did nothing for a lease and have no flights."""
        for member in list(self.members):
            silent = member.seen + self.lease_seconds < now
            if member.active and silent and not member.flights:
                member.active = False
                self._expel(member)
                self.shares.release_all(member)

    # reading -------------------------------------------------------------------------------

    def lanes_for(self, member: Member) -> list[PartitionLease]:
        """Lists the lanes in which this reader may look for records; none when it has enough flights."""
        with self._locked():
            member.seen = self._clock()
            if not (member.active or member.left):
                member.active = True
                self.shares.share()
            if member.left or member.flights >= member.in_flight:
                return []
            return self.shares.offered(member)

    def under_way(self, member: Member) -> tuple[int, bool]:
        """Returns (number of a reader's flights, whether one was sent; its commit will end, and may fail)."""
        with self._locked():
            return member.flights, any(
                flight.member is member
                for lane in self.lanes
                for flight in lane.going(self.individual)
            )

    def free(
        self, member: Member, lane: PartitionLease, reading: "Reading"
    ) -> tuple[int, int] | None:
        """Returns the range to read next. The caller holds the lane's lock, and `begin`s the range it read."""
        position, _, ranges = reading.consumer(lane.tablet, self.consumer)
        end = reading.bounds(lane.tablet)[1]
        with self._locked():
            if not (self.individual or lane.owner in (None, member)):
                return None
            held = lane.held(reading.snap.step)
        shown = partial(reading.shown, lane.tablet) if self.individual else None
        return first_gap(position, end, [*ranges, *held], shown)

    def begin(
        self, member: Member, lane: PartitionLease, begin: int, end: int, changes: int
    ) -> InFlightBatch | None:
        """Makes a flight of a range that was read; None when the reader may not have it any more.

        `changes` is the lane's from before its position was looked up: a reader must not take a lane over with an
        older position.
        """
        with self._locked():
            if member.left or not self.shares.take(lane, member, changes):
                return None
            flight = InFlightBatch(lane, member, begin, end, self._clock() + self.lease_seconds)
            insort(lane.flights, flight)
            member.flights += 1
            return flight

    def idle(self, reading: "Reading") -> bool:
        """Returns whether everything is consumed, as of the reading, and there are no flights."""
        with self._locked():
            if any(lane.flights for lane in self.lanes):
                return False
        for lane in self.lanes:
            if self.individual:
                if reading.free(lane.tablet, self.consumer, ()):
                    return False
            elif reading.position(lane.tablet, self.consumer) < reading.bounds(lane.tablet)[1]:
                return False
        return True

    # commits -------------------------------------------------------------------------------

    def hand(self, flight: InFlightBatch, tx: bytes, parts: Parts, ending: "ReplySink") -> None:
        """Commits a flight's transaction in its turn.

        Conflict, LeaseLost: it will never commit; Overloaded: try again.
        """
        with self._locked():
            if flight.state == ENDED:
                raise LeaseLost(
                    f"topic {self.info.name!r}, partition {flight.lane.number}: the reader left, or did "
                    f"nothing for {self.lease_seconds:g} s; [{flight.begin}, {flight.end}) goes to "
                    "another; keep_alive() prevents that"
                )
            flight.member.seen = self._clock()
            flight.pending = (tx, parts, ending)
            flight.state = READY
            try:
                if self._in_turn(flight):
                    self._send(flight)
            except BaseException:
                flight.state = OPEN
                raise

    def _in_turn(self, flight: InFlightBatch) -> bool:
        before = self._before(flight)
        if self.individual or before is None:
            return True
        if before.end != flight.begin:
            raise self._conflict(flight, before.end)
        return before.state == HANDED and self.runtime.in_order

    def _before(self, flight: InFlightBatch) -> InFlightBatch | None:
        at = flight.lane.flights.index(flight)
        return flight.lane.flights[at - 1] if at else None

    def _conflict(self, flight: InFlightBatch, actual: int) -> Conflict:
        return Conflict(
            kind="topic",
            name=self.info.name,
            part=flight.lane.number,
            consumer=self.consumer,
            expected=flight.begin,
            actual=actual,
        )

    def _send(self, flight: InFlightBatch) -> None:
        assert flight.pending is not None
        tx, parts, ending = flight.pending
        flight.state = HANDED
        flight.pending = None
        if flight.member.id:
            self.runtime.hooks.fence(tx, self.consumer, flight.generation, flight.member.id)
        self.runtime.transactions.send(tx, parts, _GroupReplySink(self, flight, ending))

    def ended(self, flight: InFlightBatch, step: int | None) -> None:
        """Ends a flight whose transaction committed in `step`, or (None) had no effect."""
        with Uninterrupted():
            with self._locked():
                then = self._end(flight, step)
            self._after(then)

    def _end(self, flight: InFlightBatch, step: int | None) -> list[_Action]:
        """Ends a flight; flights that wait behind it are sent, or fail with it.

        Returns the actions to run after the lock is released.
        """
        if flight.state == ENDED:
            return []
        lane = flight.lane
        at = self._remove(flight)
        if step is not None:
            lane.done.append((flight.begin, flight.end, step))
        failed = step is None
        then: list[_Action] = []
        while at < len(lane.flights) and lane.flights[at].state == READY:
            after = lane.flights[at]
            try:
                if failed:
                    raise self._conflict(after, flight.begin)
                if not self._in_turn(after):
                    break
                self._send(after)
                at += 1
            except Exception as error:
                then.append(self._failing(after, error))
                self._remove(after)
                failed = True
        if lane.moving:
            self.shares.release_moving(lane)
        return then

    def _remove(self, flight: InFlightBatch) -> int:
        at = flight.lane.flights.index(flight)
        self.shares.changes += 1
        flight.lane.changes += 1
        del flight.lane.flights[at]
        flight.state = ENDED
        flight.member.flights -= 1
        return at

    def _failing(self, flight: InFlightBatch, error: Exception) -> _Action:
        assert flight.pending is not None
        (tx, _, ending), flight.pending = flight.pending, None

        def fail() -> None:
            self.runtime.transactions.rollback(tx)  # what it has sent ahead
            ending.set_exception(error)

        return fail

    def close(self, error: Exception) -> None:
        """Fails the commits that wait for their turn, since the engine was closed."""
        with Uninterrupted():
            with self._locked():
                waiting = [f for lane in self.lanes for f in lane.flights if f.pending is not None]
                then = [self._failing(flight, error) for flight in waiting]
                for flight in waiting:
                    flight.state = OPEN
            self._after(then)

    # waiting -------------------------------------------------------------------------------

    def _after(self, then: list[_Action]) -> None:
        """Runs actions without a lock, as callbacks of futures may do anything; then wakes the readers."""
        with Uninterrupted():  # they end futures
            for action in then:
                action()
        self.wake()

    @contextmanager
    def watch(self, wake: Callable[[], None]) -> Iterator[None]:
        """Calls `wake`, within the `with`, when a partition publishes or a lease changes hands."""
        self.waiters[wake] = None
        try:
            with self.runtime.turns.watches.watch(self.info.partitions, wake):
                yield
        finally:
            self.waiters.pop(wake, None)

    @property
    def flying(self) -> bool:
        """True if some reader has a flight: its end will wake the waiting readers."""
        with self._locked():
            return any(lane.flights for lane in self.lanes)

    @property
    def empty(self) -> bool:
        """True if there are neither readers nor flights."""
        with self._locked():
            return not self.members and not any(lane.flights for lane in self.lanes)

    def wake(self) -> None:
        """Wakes the waiting readers to look again."""
        for wake in list(self.waiters):
            wake()
