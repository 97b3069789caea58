"""Sends the commits of a group's in-flight batches to the engine, each in its turn.

    of a lane:   [0, 10) handed ─ its end ─▶ [10, 25) ready: is sent now ─▶ [25, 30) open: fn works on it
                              └ failed ─▶ [10, 25) fails with it, as it does not follow the position

Of a cumulative consumer a commit is handed over right after the one before where turns keep their order, else when
that one has ended. For an individual consumer no commit waits. The group locks; nothing here does.

Next: consumer_group.py.
"""

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import Conflict
from ...proto.messages import Parts
from .group_state import ENDED, HANDED, OPEN, READY, InFlightBatch, LaneLeases, Member

if TYPE_CHECKING:
    from ...runtime.group_commit import ReplySink, Waiter
    from ...runtime.outcome import Commit
    from ...runtime.runtime import Runtime


@dataclass(slots=True, eq=False)
class _GroupReplySink:
    """Reports the end of a flight to the group, then to the caller that waits for it."""

    flights: "Flights"
    flight: InFlightBatch
    ending: "ReplySink"

    def set_result(self, result: "Commit", /) -> None:
        self.flights.report(self.flight, result.place.step, None)
        self.ending.set_result(result)

    def set_exception(self, error: BaseException, /) -> None:
        self.flights.report(self.flight, None, error)
        self.ending.set_exception(error)


class Flights:
    """The flights of a group. Invariant: `number` counts those in its lanes."""

    def __init__(
        self,
        runtime: "Runtime",
        topic: str,
        leases: LaneLeases,
        report: Callable[[InFlightBatch, int | None, BaseException | None], None],
    ) -> None:
        """`report` takes the end of a flight that was sent: its step, or the error."""
        self.report = report
        self.number = 0
        self.ends = 0
        """The number of flights that have ended."""
        self.ended: list[InFlightBatch] = []
        """Flights that the change under way has ended; the group clears it."""
        self.later: list[Callable[[], None]] = []
        """Ends futures, whose callbacks may do anything: the group calls them without its lock."""
        self._runtime = runtime
        self._topic = topic
        self._leases = leases

    def all(self) -> list[InFlightBatch]:
        return [flight for lane in self._leases.lanes for flight in lane.flights]

    def of(self, member: Member) -> list[InFlightBatch]:
        return [flight for flight in self.all() if flight.member is member]

    def begin(self, flight: InFlightBatch) -> None:
        insort(flight.lane.flights, flight)
        flight.member.flights += 1
        self.number += 1

    def hand(
        self, flight: InFlightBatch, tx: bytes, parts: Parts, ending: "ReplySink", attended: bool
    ) -> "Waiter | None":
        """Commits an open flight's transaction in its turn; see Group.hand."""
        flight.pending = (tx, parts, ending)
        flight.state = READY
        try:
            return self._send(flight, attended) if self._in_turn(flight) else None
        except BaseException:
            flight.state = OPEN
            raise

    def _in_turn(self, flight: InFlightBatch) -> bool:
        at = flight.lane.flights.index(flight)
        if self._leases.individual or not at:
            return True
        before = flight.lane.flights[at - 1]
        if before.end != flight.begin:
            raise self._conflict(flight, before.end)
        return before.state == HANDED and self._runtime.in_order

    def _conflict(self, flight: InFlightBatch, actual: int) -> Conflict:
        return Conflict(
            kind="topic",
            name=self._topic,
            part=flight.lane.number,
            consumer=self._leases.consumer,
            expected=flight.begin,
            actual=actual,
        )

    def _send(self, flight: InFlightBatch, attended: bool = False) -> "Waiter":
        assert flight.pending is not None
        tx, parts, ending = flight.pending
        flight.state = HANDED
        flight.pending = None
        consumer, member = self._leases.consumer, flight.member
        if member.id:
            self._runtime.hooks.fence(tx, consumer, flight.generation, member.id)
        sink = _GroupReplySink(self, flight, ending)
        return self._runtime.transactions.send(tx, parts, sink, attended=attended)

    def end(self, flight: InFlightBatch, step: int | None, due: float | None = None) -> None:
        """Ends a flight, which committed in `step`, or (None) had no effect; flights that wait behind it are sent,
        or fail with it. `due`: it was handed back until then."""
        if flight.state == ENDED:
            return
        lane = flight.lane
        at = self._remove(flight)
        if due is not None:
            lane.handed_back.add(flight.begin, flight.end, due)
        if step is not None:
            flight.committed = True
            lane.done.append((flight.begin, flight.end, step))
        failed = step is None
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
                self._fail(after, error)
                self._remove(after)
                failed = True
        if lane.moving:
            self._leases.release_moving(lane)

    def _remove(self, flight: InFlightBatch) -> int:
        at = flight.lane.flights.index(flight)
        self.ended.append(flight)
        self.ends += 1
        self.number -= 1
        flight.lane.changes += 1
        del flight.lane.flights[at]
        flight.state = ENDED
        flight.member.flights -= 1
        return at

    def _fail(self, flight: InFlightBatch, error: Exception) -> None:
        assert flight.pending is not None
        (tx, _, ending), flight.pending = flight.pending, None

        def fail() -> None:
            self._runtime.transactions.rollback(tx)  # what it has sent ahead
            ending.set_exception(error)

        self.later.append(fail)

    def fail_waiting(self, error: Exception) -> None:
        """Fails the commits that wait for their turn."""
        for flight in self.all():
            if flight.pending is not None:
                self._fail(flight, error)
                flight.state = OPEN
