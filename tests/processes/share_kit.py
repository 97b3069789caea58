"""Shares parts of the tests of shares: a line that keeps the order of frames, and a group that reads lanes."""

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planstep.bench.proof.worlds.attached.groups import LaneUser
from planstep.coordinator.claims import Range, merged, without
from planstep.proto.frames import Frame
from planstep.runtime.process_shares import Key, ProcessShares
from planstep.runtime.shares_of_links import SharesOfLinks

KEY: Key = (0x20000001, "c")


class Log:
    """The lanes of a store's only topic: how far each log goes, and what was consumed. It is Consumers, too."""

    def __init__(self, lanes: int, records: int = 0, individual: bool = False) -> None:
        self.ends = [records] * lanes
        self.consumed: list[list[Range]] = [[] for _ in range(lanes)]
        self.is_individual = individual
        self.conflicts = 0

    def lanes(self, topic: int) -> int:
        return len(self.ends) if topic == KEY[0] else 0

    def individual(self, topic: int, consumer: str) -> bool:
        return self.is_individual

    def free(self, key: Key, lane: int) -> Iterable[Range]:
        return without([(0, self.ends[lane])], self.consumed[lane])

    def consume(self, lane: int, begin: int, end: int) -> bool:
        """Consumes a range, as a transaction's condition has it; False for a conflict."""
        if without([(begin, end)], self.consumed[lane]) != [(begin, end)]:
            self.conflicts += 1
            return False
        self.consumed[lane] = merged([*self.consumed[lane], (begin, end)])
        return True

    @property
    def done(self) -> bool:
        return all(not list(self.free(KEY, lane)) for lane in range(len(self.ends)))


class Reads(LaneUser):
    """A group that reads the lanes that its share has, one flight at a time in each lane."""

    def __init__(self, process: ProcessShares, log: Log, *, readers: int = 1) -> None:
        self.log = log
        self.individual = log.is_individual
        super().__init__(process, KEY, len(log.ends), readers)

    def ranges(self) -> Mapping[int, tuple[Sequence[Range], Sequence[Range]]]:
        held = self.flights.items() if self.individual else ()
        return {lane: ([flight], []) for lane, flight in held}

    def look(self, lane: int, most: int) -> None:
        """Begins a flight in a lane, if it may and there are records."""
        if lane not in self.own or lane in self.flights or not self.readers:
            return
        claims = None
        if self.individual and not self.share.alone:
            claims = self.share.claims_of(lane)
        free = list(self.log.free(KEY, lane))
        if claims is not None:
            free = without(free, claims.others(self.log.ends[lane]))
            if not free:
                claims.prune(self.log.ends[lane], ())
            records = claims.wanted(not free, self.log.ends[lane], most, 0.0)
            if records:
                self.share.claim(lane, records)
        if free:
            begin, end = free[0]
            self.flights[lane] = begin, min(end, begin + most)
            assert claims is None or claims.begin(*self.flights[lane])
        self._process.deliver()

    def end(self, lane: int, commit: bool) -> None:
        """Ends a lane's flight; a commit may be a conflict."""

        def change() -> None:
            begin, end = self.flights.pop(lane)
            committed = commit and self.log.consume(lane, begin, end)
            if self.individual and not self.share.alone:
                claims = self.share.claims_of(lane)
                claims.end(begin, end, committed)
                if not claims.claimed:
                    self.share.free(lane)

        self.change(change)


class Lines:
    """An owner and its links, in memory. Frames arrive when they are carried; a link's end loses those on it."""

    def __init__(self, log: Log, draw: random.Random | None = None, settled: bool = True) -> None:
        self.now = 0.0
        self.draw = draw or random.Random(0)
        self.here = ProcessShares()
        self.log = log
        self.up: dict[int, deque[Frame]] = {}
        self.down: dict[int, deque[Frame]] = {}
        self.ends: dict[int, ProcessShares] = {}
        self.links = self.new_owner(settled)

    def new_owner(self, settled: bool) -> SharesOfLinks:
        self.links = SharesOfLinks(
            self.here, self.log, self.send, settled=settled, clock=lambda: self.now
        )
        return self.links

    def send(self, link: int, frame: Frame) -> None:
        if link in self.down:
            self.down[link].append(frame)

    def attach(self, number: int, process: ProcessShares) -> None:
        self.up[number], self.down[number] = deque(), deque()
        self.ends[number] = process
        process.attach(self.up[number].append)

    def cut(self, number: int) -> None:
        """Ends a link, with all that is on it."""
        process = self.ends.pop(number)
        del self.up[number], self.down[number]
        process.lost()
        self.links.drop(number)

    def carry_up(self, number: int) -> bool:
        if not self.up[number]:
            return False
        self.links.take(number, self.up[number].popleft())
        return True

    def carry_down(self, number: int) -> bool:
        if not self.down[number]:
            return False
        frame: Any = self.down[number].popleft()
        self.ends[number].arrived(frame)
        return True

    def carry_all(self) -> None:
        while any(self.carry_up(n) | self.carry_down(n) for n in list(self.ends)):
            pass
