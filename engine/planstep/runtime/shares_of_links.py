"""Shares the lanes of consumers among the processes of a store; it is the owner's part.

    link 3: Join, Given, Claim … ─▶ take ─┐                           ┌─▶ send(3, Shares | Claimed)
    link 3 has ended             ─▶ drop ─┼─▶ one at a time ─▶ machine ┤
    the owner's own groups       ─────────┘   (whoever is first)      └─▶ arrived, of process_shares.py

The machines are coordinator/lane_shares.py, for each consumer, and coordinator/claims.py, for each lane of an
individual one. The owner's own groups are party 0. They are alone until another process reads for their consumer.

A process that answers nothing for a lease is silent: it leaves, so that others read its lanes, and joins again with
its next frame. Any frame is an answer; where there is none, its shares are sent again to ask for one. Silence is
looked for only where a consumer has several processes.

Next: consumers_of_store.py.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any, Protocol

from ..coordinator.claims import LaneClaims, Range
from ..coordinator.lane_shares import LaneShares, Told
from ..proto.frames import Claim, Claimed, Frame, Free, Given, Join, Leave, Shares
from .deferred_signals import Uninterrupted
from .process_shares import Key, ProcessShares

HERE = 0
"""The party of the owner's own groups; links have other numbers."""
_CONSUMERS_MAX, _LANES_MAX = 1_000, 1_000_000
"""Limits of what one process reads for."""
_PAUSE = 1 / 3
"""The part of its lease after which a silent process is asked; it has the rest to answer."""


class Consumers(Protocol):
    """Answers what the owner must know of its topics."""

    def lanes(self, topic: int) -> int:
        """Returns the number of a topic's partitions, 0 for one that was dropped."""

    def individual(self, topic: int, consumer: str) -> bool: ...

    def free(self, key: Key, lane: int) -> Iterable[Range]:
        """Returns the ranges of a lane that an individual consumer has not consumed, ascending."""


class _Party:
    """A process that reads for a consumer."""

    def __init__(self, readers: int, lease_seconds: float, now: float) -> None:
        self.readers = readers
        self.lease_seconds = lease_seconds
        self.heard_at = now
        self.asked_at = inf  # since when an answer is due
        self.silent = False


class _Consumer:
    """A consumer that several processes read for, or one that is attached."""

    def __init__(self, individual: bool, lanes: LaneShares, number: int) -> None:
        self.individual = individual
        self.exclusive = False
        self.lanes = lanes
        self.number = number
        self.parties: dict[int, _Party] = {}
        self.claims: dict[int, LaneClaims] = {}
        self.owed: dict[tuple[int, int], int] = {}  # (party, lane) → records, before it is settled

    @property
    def weight(self) -> int:
        return sum(party.readers for party in self.parties.values() if not party.silent)

    def is_others(self, link: int) -> bool:
        """Returns whether it is exclusive, and a process that is not silent has it."""
        others = [party for number, party in self.parties.items() if number != link]
        return self.exclusive and not all(party.silent for party in others)

    def claims_of(self, lane: int) -> LaneClaims:
        return self.claims.setdefault(lane, LaneClaims())


class SharesOfLinks:
    """The consumers' shares at the owner. Any thread calls it; one at a time works."""

    def __init__(
        self,
        here: ProcessShares,
        consumers: Consumers,
        send: Callable[[int, Frame], None],
        *,
        settled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`send` takes (link, frame), does not wait, and ignores links that have ended. `settled`: False for an
        owner after another one, until `settle`."""
        self._here = here
        self._consumers = consumers
        self._send = send
        self._settled = settled
        self._clock = clock
        self._epoch = 0
        self._states: dict[Key, _Consumer] = {}
        self._own: deque[Frame] = deque()
        self._inbox: deque[Callable[[], None]] = deque()
        self._working = threading.Lock()
        here.own(self._own.append, self._states.__contains__, self._work)

    # what calls it -------------------------------------------------------------------------

    def take(self, link: int, frame: Frame) -> None:
        """Takes a `Join`, `Leave`, `Given`, `Claim` or `Free` of a link's."""
        self._inbox.append(partial(self._take, link, frame))
        self._work()

    def drop(self, link: int) -> None:
        """Frees all that a process has: its link has ended."""
        self._inbox.append(partial(self._drop, link))
        self._work()

    def settle(self) -> None:
        """Shares what no process has brought from the owner before: those that had lanes are back, or late."""
        self._inbox.append(self._settle)
        self._work()

    def tick(self) -> None:
        """Looks for processes that are silent. Call it about once a second while `busy`."""
        self._inbox.append(self._look)
        self._work()

    @property
    def busy(self) -> bool:
        """Returns whether some consumer has several processes."""
        return any(len(state.parties) > 1 for state in list(self._states.values()))

    def stats(self) -> dict[str, Any]:
        """Counts what processes hold: consumers, processes of each, ranges claimed."""
        states = list(self._states.values())
        claims = [lane for state in states for lane in list(state.claims.values())]
        return {
            "consumers": len(states),
            "parties": sum(len(state.parties) for state in states),
            "claims": sum(len(ranges) for lane in claims for ranges in list(lane.claims.values())),
        }

    # one at a time -------------------------------------------------------------------------

    def _work(self) -> None:
        with Uninterrupted():
            # Another thread that works takes what was added, or ends before, and then this one does.
            while (self._own or self._inbox) and self._working.acquire(blocking=False):
                try:
                    while self._own or self._inbox:
                        self._work_own()
                        if self._inbox:
                            self._inbox.popleft()()
                finally:
                    self._working.release()

    def _work_own(self) -> None:
        while self._own:
            self._take(HERE, self._own.popleft())

    def _take(self, link: int, frame: Frame) -> None:
        key = frame[0], frame[1]
        state = self._states.get(key)
        if state is not None and link in state.parties:
            self._hear(state, key, link)
        match frame:
            case Join():
                self._join(key, link, frame)
            case Leave():
                if state is not None:
                    self._leave(state, key, link)
                self._tell(link, Shares(*key, 0, ()))
            case Given():
                if state is not None:
                    given = state.lanes.given(link, frame.epoch, frame.lanes)
                    self._tell_all(state, key, given)
            case Claim():
                self._claim(state, key, link, frame)
            case Free():
                if state is not None and frame.lane in state.claims:
                    state.claims[frame.lane].free(link, frame.ranges)
                    self._serve(state, key, (frame.lane,))
            case _:
                raise AssertionError(f"{type(frame).__name__} is not about shares")

    def _join(self, key: Key, link: int, frame: Join) -> None:
        number = self._consumers.lanes(key[0])
        if not number:  # dropped: its readers find out
            self._tell(link, Shares(*key, 0, ()))
            return
        state = self._states.get(key)
        if state is None:
            individual = self._consumers.individual(*key)
            lanes = LaneShares(number, epoch=self._epoch, settled=self._settled)
            state = self._states[key] = _Consumer(individual, lanes, number)
            if link != HERE:
                self._here.share(key)  # the own group comes first, with all that it has
                self._work_own()
                state = self._states.setdefault(key, state)
        state.exclusive = frame.party is not None
        if state.is_others(link) or not (link in state.parties or self._has_room(link, number)):
            if not state.parties:
                del self._states[key]
            self._tell(link, Shares(*key, 0, ()))
            return
        party = state.parties.get(link)
        if party is None:
            party = _Party(frame.readers, frame.lease_ms / 1000, self._clock())
            state.parties[link] = party
        party.readers = frame.readers
        self._place(state, key, link, frame.lanes)

    def _has_room(self, link: int, lanes: int) -> bool:
        """Returns whether a process may read for another consumer: what it can make the owner keep has a limit."""
        mine = [state.number for state in self._states.values() if link in state.parties]
        return len(mine) < _CONSUMERS_MAX and sum(mine) + lanes <= _LANES_MAX

    def _place(self, state: _Consumer, key: Key, link: int, lanes: Iterable[int]) -> None:
        """Gives a process its part, with the lanes that it brings."""
        if state.individual:
            self._epoch += 1
            told = [Told(link, self._epoch, tuple(range(state.number)))]
        else:
            told = state.lanes.join(link, state.parties[link].readers, lanes)
        self._tell_all(state, key, told)

    def _hear(self, state: _Consumer, key: Key, link: int) -> None:
        party = state.parties[link]
        party.heard_at, party.asked_at = self._clock(), inf
        if not party.silent:
            return
        if state.is_others(link):
            del state.parties[link]
            self._tell(link, Shares(*key, 0, ()))
            return
        party.silent = False
        self._place(state, key, link, ())

    def _drop(self, link: int) -> None:
        for key, state in list(self._states.items()):
            self._leave(state, key, link)

    def _leave(self, state: _Consumer, key: Key, link: int) -> None:
        if state.parties.pop(link, None) is None:
            return
        self._empty(state, key, link)
        if not state.parties:
            del self._states[key]

    def _empty(self, state: _Consumer, key: Key, link: int) -> None:
        """Frees the lanes and ranges of a process."""
        self._tell_all(state, key, state.lanes.leave(link))
        freed = [lane for lane, claims in state.claims.items() if claims.leave(link)]
        for owed in [owed for owed in state.owed if owed[0] == link]:
            del state.owed[owed]
        self._serve(state, key, freed)

    # ranges of individual consumers --------------------------------------------------------

    def _claim(self, state: _Consumer | None, key: Key, link: int, frame: Claim) -> None:
        if state is None or link not in state.parties or frame.lane >= state.number:
            self._tell(link, Claimed(*key, frame.lane, ()))
            return
        if frame.ranges:
            mine = state.claims_of(frame.lane).bring(link, frame.ranges)
            self._tell(link, Claimed(*key, frame.lane, tuple(mine)))
        if frame.records and self._settled:
            given = self._give(state, key, (link, frame.lane), frame.records)
            self._tell(link, Claimed(*key, frame.lane, tuple(given)))
        elif frame.records:
            state.owed[link, frame.lane] = frame.records

    def _give(self, state: _Consumer, key: Key, of: tuple[int, int], records: int) -> list[Range]:
        link, lane = of
        part = state.parties[link].readers, state.weight
        return state.claims_of(lane).claim(link, records, part, self._consumers.free(key, lane))

    def _serve(self, state: _Consumer, key: Key, lanes: Iterable[int]) -> None:
        """Gives ranges that became free to those who got none."""
        for lane in lanes:
            for link, records in list(state.claims[lane].waiting.items()):
                given = self._give(state, key, (link, lane), records)
                if not given:
                    break
                self._tell(link, Claimed(*key, lane, tuple(given)))

    def _settle(self) -> None:
        self._settled = True
        for key, state in list(self._states.items()):
            self._tell_all(state, key, state.lanes.settle())
            owed, state.owed = state.owed, {}
            for (link, lane), records in owed.items():
                given = self._give(state, key, (link, lane), records)
                self._tell(link, Claimed(*key, lane, tuple(given)))

    # silence -------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._clock()
        for key, state in list(self._states.items()):
            if len(state.parties) > 1:
                for link, party in list(state.parties.items()):
                    if link != HERE and not party.silent:
                        self._look_at(state, key, link, now)

    def _look_at(self, state: _Consumer, key: Key, link: int, now: float) -> None:
        party = state.parties[link]
        pause = party.lease_seconds * _PAUSE
        if now - party.asked_at > party.lease_seconds - pause:
            party.silent = True
            self._empty(state, key, link)
            self._epoch = state.lanes.epoch = max(self._epoch, state.lanes.epoch) + 1
            self._tell(link, Shares(*key, self._epoch, ()))  # what it finds when it goes on
        elif now - party.heard_at > pause and party.asked_at == inf:
            party.asked_at = now
            self._tell_all(state, key, [self._shown(state, link)])

    def _shown(self, state: _Consumer, link: int) -> Told:
        if state.individual:
            return Told(link, self._epoch, tuple(range(state.number)))
        return state.lanes.shown(link)

    # what it tells -------------------------------------------------------------------------

    def _tell_all(self, state: _Consumer, key: Key, told: Iterable[Told]) -> None:
        self._epoch = max(self._epoch, state.lanes.epoch)
        for link, epoch, lanes in told:
            if state.parties[link].asked_at == inf:
                state.parties[link].asked_at = self._clock()
            self._tell(link, Shares(*key, epoch, lanes))

    def _tell(self, link: int, frame: Shares | Claimed) -> None:
        if link == HERE:
            self._here.arrived(frame)
        else:
            self._send(link, frame)
