"""Has processes of one store share the lanes of a consumer, and checks that each lane has one process.

    GroupReader ─ lanes that its share has ─▶ a flight each: a range of records, consumed by a transaction
                └ a lane is taken away ─▶ its flight ends ─▶ given ─▶ another process has it

A link's end takes all its lanes at once, and so does an owner that did not know of it. What is under way there by
then may meet another process: conditions decide.

The shares are the real ones, of processes and of the owner (runtime/process_shares.py, shares_of_links.py).

Next: seed.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgpack

from .....coordinator.claims import Range
from .....proto.ids import PARTITION, SHARD, tablet_id
from .....proto.messages import ADD, PartitionPart, ShardPart
from .....runtime.process_shares import Key, ProcessShares
from ...simulator.attached_world import AttachedWorld
from ...simulator.process import UP, Process

CONSUMER = "group"
KEY: Key = (tablet_id(PARTITION, 0, 60), CONSUMER)
COUNTER = tablet_id(SHARD, 0, 60)
_LEASE_SECONDS = 30.0


class LaneUser:
    """A group that reads the lanes that its share has, with one flight at a time in each (ShareUser)."""

    def __init__(self, process: ProcessShares, key: Key, lanes: int, readers: int = 1) -> None:
        self.lane_count = lanes
        self.reading = readers
        self.own = dict.fromkeys(range(lanes))
        self.going: dict[int, None] = {}
        self.flights: dict[int, Any] = {}
        self.share = process.open(key, self, _LEASE_SECONDS, False)
        self._process = process
        process.begin(self.share)

    @property
    def readers(self) -> int:
        return self.reading or int(bool(self.flights))

    @property
    def has(self) -> list[int]:
        """The lanes that it may read, or still reads."""
        return [*self.own, *self.going]

    def change(self, change: Callable[[], None]) -> None:
        change()
        if not self.share.alone:
            self.share.weigh(self.readers)
            given = [lane for lane in self.going if lane not in self.flights]
            for lane in given:
                del self.going[lane]
            self.share.give(given)
        self._process.deliver()

    def set_lanes(self, lanes: Iterable[int]) -> None:
        own = dict.fromkeys(lanes)
        self.going = {lane: None for lane in self.has if lane not in own}
        self.own = own

    def changed(self) -> None: ...

    def ranges(self) -> Mapping[int, tuple[Sequence[Range], Sequence[Range]]]:
        return {}

    def weigh(self, readers: int) -> None:
        self.reading = readers
        self.change(lambda: None)


class Lanes:
    """The lanes of the consumer; the owner asks it (Consumers)."""

    def __init__(self, number: int) -> None:
        self.tablets = [tablet_id(PARTITION, 0, 60 + n) for n in range(number)]

    def lanes(self, topic: int) -> int:
        return len(self.tablets)

    def individual(self, topic: int, consumer: str) -> bool:
        return False

    def free(self, key: Key, lane: int) -> Iterable[Range]:
        return ()


class GroupReader(LaneUser):
    """The group of one process. A flight is a transaction that is not answered yet."""

    def __init__(self, group: "Group", process: Process) -> None:
        self.told = False
        """Its lanes are those that the owner has told since the link began."""
        self._lost: dict[int, None] = {}
        self._group = group
        super().__init__(process.runtime.shares, KEY, len(group.lanes.tablets))

    def change(self, change: Callable[[], None]) -> None:
        super().change(change)
        self._group.check()

    @property
    def holds(self) -> list[int]:
        """The lanes that it has at this owner: not those that went with its last link, though a flight is there."""
        return [lane for lane in self.has if lane not in self._lost]

    def set_lanes(self, lanes: Iterable[int]) -> None:
        super().set_lanes(lanes)
        lost = self._lost if self.told else self.going
        self._lost = {lane: None for lane in lost if lane in self.going}
        self.told = True

    def changed(self) -> None:
        self.told = False  # the link is lost


class Group:
    """The groups of all processes. Invariant: no lane is of two processes that the owner knows."""

    def __init__(self, world: AttachedWorld, lanes: Lanes, work: Any) -> None:
        self.world = world
        self.lanes = lanes
        self.readers: dict[int, GroupReader] = {}
        self.flights = self.moves = 0
        self._work = work
        self._holder: dict[int, int] = {}

    def go(self, process: Process) -> None:
        """Ends flights that are answered, and begins others, in a process; or writes what is to be read."""
        reader = self.readers.get(process.number)
        draw = self._work.random
        if reader is None:
            reader = self.readers[process.number] = GroupReader(self, process)
        if draw.random() < 0.3:
            self._feed(draw.randrange(reader.lane_count))
        if draw.random() < 0.1:
            reader.weigh(draw.choice((0, 1, 1, 2)))
        for lane in list(reader.flights):
            if self._is_answered(reader.flights[lane]):
                reader.change(partial(reader.flights.pop, lane))
        for lane in list(reader.own):
            if reader.readers and lane in reader.own and lane not in reader.flights:
                self._consume(reader, lane)

    def _feed(self, lane: int) -> None:
        part = PartitionPart(slices=((self._work.payload(2), 2),))
        self._work.ask({self.lanes.tablets[lane]: part}, "group")

    def _consume(self, reader: GroupReader, lane: int) -> None:
        tablet, work = self.lanes.tablets[lane], self._work
        begin, end = work.consumer(tablet, CONSUMER).position, work.bounds(tablet).end
        if begin < end:
            reader.flights[lane] = b""  # an id may have to be waited for
            row = ShardPart(writes=((b"%d" % lane, ADD, msgpack.packb(end - begin)),))
            part = PartitionPart(ranges=((CONSUMER, begin, end),))
            reader.flights[lane] = work.ask({tablet: part, COUNTER: row}, "group")
            self.flights += 1

    def _is_answered(self, tx: bytes) -> bool:
        return tx in self.world.results or tx in self.world.given_up

    def check(self) -> None:
        """Checks that a lane has one process, of those that the owner knows to have some."""
        holders: dict[int, int] = {}
        for number, reader in self._known():
            for lane in reader.holds:
                other = holders.setdefault(lane, number)
                if other != number:
                    self.world.wrong(f"B41: lane {lane} is of processes {other} and {number}")
        for lane, number in holders.items():
            self.moves += self._holder.get(lane, number) != number
            self._holder[lane] = number

    def _known(self) -> Iterator[tuple[int, GroupReader]]:
        owner = self.world.owner()
        for number, reader in self.readers.items():
            process = self.world.processes[number]
            if process.status == UP and (process is owner or (process.linked and reader.told)):
                yield number, reader

    def used_once(self) -> Iterator[str]:
        """B22: compares the positions with the counters, which count the records that were consumed."""
        work = self._work
        for lane, tablet in enumerate(self.lanes.tablets):
            row = work.row(COUNTER, b"%d" % lane)
            used = msgpack.unpackb(row.value) if row else 0
            position = work.consumer(tablet, CONSUMER).position
            if position != used:
                yield f"B22: of lane {lane} {used} records were consumed, its position is {position}"
