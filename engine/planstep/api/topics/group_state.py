"""Defines the parts of a group of readers: members, lanes (partitions) and flights (in-flight batches).

The group locks; nothing here does. Next: consumer_group.py.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...proto.messages import Parts

if TYPE_CHECKING:
    from ...runtime.group_commit import ReplySink

OPEN, READY, HANDED, ENDED = "open", "ready", "handed", "ended"


class Member:
    """The state of one reader in its group."""

    def __init__(self, name: str, in_flight: int) -> None:
        self.name = name
        self.in_flight = in_flight
        self.flights = 0
        self.lanes = 0
        self.turn = 0
        self.seen = 0.0
        self.producer: Any = None  # who writes for it, where writers have identities
        self.id = ""  # in a group that has generations
        self.generation = -1
        self.lapsed = 0  # flights that nobody ended within the lease
        self.active = False  # it has read, and not been silent for longer than its lease since
        self.left = False


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
        # Flights that ended, and owners that left: what was looked up before is old.
        self.changes = 0
        self.flights: list[InFlightBatch] = []
        self.done: list[tuple[int, int, int]] = []  # committed: (begin, end, step)
        self.lock = threading.Lock()  # held while it is read from

    def held(self, step: int) -> list[tuple[int, int]]:
        """Returns the ranges that a reader at this step must skip, in order."""
        self.done = [done for done in self.done if done[2] > step]
        return sorted(
            [(begin, end) for begin, end, _ in self.done]
            + [(flight.begin, flight.end) for flight in self.flights]
        )

    def going(self, individual: bool) -> "Iterator[InFlightBatch]":
        """Yields the flights that were sent and do not wait for one that was not."""
        for flight in self.flights:
            if flight.sent:
                yield flight
            elif not individual:
                return


class InFlightBatch:
    """An in-flight batch: offsets [begin, end) of a lane, and the reader whose transaction has them."""

    __slots__ = (
        "begin",
        "end",
        "generation",
        "lane",
        "member",
        "pending",
        "sent",
        "state",
        "until",
    )

    def __init__(
        self, lane: PartitionLease, member: Member, begin: int, end: int, until: float
    ) -> None:
        self.lane = lane
        self.member = member
        self.generation = member.generation
        self.begin, self.end = begin, end
        self.until = until
        self.state = OPEN
        self.sent = False  # by its owner, who need do nothing more for it
        self.pending: tuple[bytes, Parts, ReplySink] | None = None

    def __lt__(self, other: "InFlightBatch") -> bool:
        return self.begin < other.begin


def first_gap(
    position: int,
    end: int,
    taken: Iterable[tuple[int, int]],
    shown: Callable[[int, int], tuple[int, int] | None] | None,
) -> tuple[int, int] | None:
    """Returns the first free range of [position, end), before or between the taken ones; None when there is none.

    `shown` cuts a range to begin at its first record, or returns None if it has none. Without `shown` each offset
    has a record.
    """
    for begin, stop in [*sorted(taken), (end, end)]:
        if position < min(begin, end):
            gap = position, min(begin, end)
            left = gap if shown is None else shown(*gap)
            if left is not None:
                return left
        position = max(position, stop)
    return None
