"""Draws random transactions of all kinds: consumers, producers, counters, rows, trims and seeks.

    draw ─▶ parts by tablet, from the store's current state ─▶ commit, or stage the payload and then commit

Conditions are drawn from the store's current state: most of them hold, except where another transaction came
first. Each transaction's parts are remembered: serial_model.py runs them again.

Next: serial_model.py.
"""

import random
from typing import Any

import msgpack

from ....proto.ids import PARTITION, SHARD, tablet_id
from ....proto.messages import ADD, PUT, PartitionPart, ShardPart, Slice
from ....tablets.partition import EMPTY, FORGOTTEN, Bounds, Numbers, Standing, standing
from ....tablets.shard import Row
from ..simulator.world import World

SHARDS = 3
CONSUMERS = ("c0", "c1")


def tablets(hosts: int) -> tuple[list[int], list[int]]:
    parts = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(4)]
    shards = [tablet_id(SHARD, i % hosts, 20 + i) for i in range(SHARDS)]
    return parts, shards


class Workload:
    """Makes random transactions and remembers the parts of each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(f"{world.seed}/client")
        self.ends = random.Random(f"{world.seed}/ends")
        self.requests: dict[bytes, dict[int, Any]] = {}
        self._counted = 0
        self.parts, self.shards = tablets(world.hosts)

    def payload(self, records: int) -> bytes:
        """Returns a unique payload, so that a stored record identifies its writer."""
        self._counted += 1
        return b"%d:%d" % (self._counted, records)

    def read(self, tablet: int, key: bytes) -> Any:
        return self.world.read(tablet, key)

    def bounds(self, tablet: int) -> Bounds:
        return Bounds._make(self.read(tablet, b"m") or EMPTY)

    def row(self, tablet: int, key: bytes) -> Row | None:
        row = self.read(tablet, b"r" + key)
        return None if row is None else Row._make(row)

    def consumer(self, tablet: int, consumer: str) -> Standing:
        row = self.read(tablet, b"c" + consumer.encode())
        return standing(row, self.read(tablet, FORGOTTEN))

    def last_number(self, tablet: int, producer: bytes) -> int:
        row = self.read(tablet, b"p" + producer)
        return 0 if row is None else Numbers._make(row).last

    def individual(self, tablet: int, part: PartitionPart[Slice]) -> PartitionPart[Slice]:
        """Adds acknowledgements of an individual consumer, or creates it if there is none."""
        row = self.read(tablet, b"cI")
        _, _, start, end = self.bounds(tablet)
        begin = max(0, self.random.randrange(start - 2, end + 1))
        stop = min(end, begin + self.random.randrange(1, 3))
        if row is None or begin >= stop or self.random.random() < 0.05:
            return part._replace(seeks=(("I", start, True),))
        fences = part.fences + self.fences(tablet, "I")
        return part._replace(acks=(("I", begin, stop),), fences=fences)

    def fences(self, tablet: int, consumer: str) -> tuple[tuple[str, int], ...]:
        """Returns a fence with the consumer's last known move; another move may come before the commit."""
        moved = self.consumer(tablet, consumer).moved
        return ((consumer, moved),) if moved else ()

    def submit(self) -> None:
        """Draws a transaction and submits it, unless it does nothing."""
        request = self.draw_request()
        if not any(p.writes if isinstance(p, ShardPart) else True for p in request.values()):
            return
        pieces, parts = self.split(request)
        if pieces:
            tx = self.world.commit_ahead(pieces, parts)
            self.requests[tx] = request
            if self.random.random() < 0.2:
                self.world.run(self.random.randrange(1, 8))
                self.world.rollback(tx)
        else:
            tx = self.world.commit(parts)
        self.requests[tx] = request

    def draw_request(self) -> dict[int, Any]:
        """Draws the parts of a transaction, by tablet."""
        draw = self.random
        request: dict[int, Any] = {}
        for tablet in draw.sample(self.parts, draw.randrange(0, 3)):
            part = self.with_moves(tablet, self.consume_and_publish(tablet))
            if part == PartitionPart():
                continue
            if self.ends.random() < 0.1:
                part = part._replace(end=self.bounds(tablet).end)
            request[tablet] = part
        for tablet in draw.sample(self.shards, draw.randrange(0, 3)):
            row_part = self.rows(tablet)
            if row_part.writes or request:
                request[tablet] = row_part
        return request

    def consume_and_publish(self, tablet: int) -> PartitionPart[Slice]:
        """Draws a part that consumes records of a cumulative consumer, publishes some, or does both or neither."""
        draw = self.random
        ranges: tuple[tuple[str, int, int], ...] = ()
        fences: tuple[tuple[str, int], ...] = ()
        if draw.random() < 0.6:
            consumer = draw.choice(CONSUMERS)
            begin = self.consumer(tablet, consumer).position
            end = min(self.bounds(tablet).end, begin + draw.randrange(1, 4))
            if end > begin:
                ranges = ((consumer, begin, end),)
                fences = self.fences(tablet, consumer)
        count = draw.randrange(0, 3)
        slices = ((self.payload(count), count),) if count else ()
        producer = None
        if count and draw.random() < 0.3:
            number = self.last_number(tablet, b"P") + draw.randrange(0, 2)
            producer = (b"P", number, number + count)
        return PartitionPart(ranges, slices, producer, fences=fences)

    def with_moves(self, tablet: int, part: PartitionPart[Slice]) -> PartitionPart[Slice]:
        """Now and then adds an individual consumer, or replaces the consumed ranges by a trim or a seek."""
        draw = self.random
        kind = draw.random()
        if kind < 0.3:
            return self.individual(tablet, part)
        if kind >= 0.36:
            return part
        bounds = self.bounds(tablet)
        if draw.random() < 0.5:
            trim = draw.randrange(bounds.start, bounds.end + 1)
            return part._replace(trim=trim, ranges=())
        to = draw.randrange(bounds.start, bounds.end + 1) if draw.random() < 0.8 else None
        return part._replace(ranges=(), seeks=((draw.choice(CONSUMERS), to, False),))

    def rows(self, tablet: int) -> ShardPart:
        """Draws a part that reads and writes a row, adds to a number, or only reads a row."""
        draw = self.random
        key = b"k%d" % draw.randrange(3)
        row = self.row(tablet, key)
        reads = ((key, None if row is None else row.version),)
        kind = draw.random()
        if kind < 0.4:
            writes = ((key, PUT, msgpack.packb(draw.randrange(1000))),)
            return ShardPart(reads=reads, writes=writes)
        if kind < 0.8:
            return ShardPart(writes=((b"n", ADD, msgpack.packb(1)),))
        return ShardPart(reads=reads)

    def split(self, request: dict[int, Any]) -> tuple[list[dict[int, Any]], dict[int, Any]]:
        """Returns (the pieces to stage, the parts of the commit); adds newly drawn payloads to `requests`."""
        draw = self.random
        ahead: dict[int, Any] = {}
        more: dict[int, Any] = {}
        parts = dict(request)
        for tablet, part in request.items():
            if isinstance(part, PartitionPart) and part.slices and draw.random() < 0.3:
                ahead[tablet] = (0, part.slices)
                first = part.slices
                if draw.random() < 0.3:
                    second = ((self.payload(2), 2),)
                    more[tablet] = (len(first), second)
                    first = (*first, *second)
                rest = ((self.payload(1), 1),) if draw.random() < 0.5 else ()
                request[tablet] = part._replace(slices=(*first, *rest))
                parts[tablet] = part._replace(slices=rest, staged=len(first))
        return [piece for piece in (ahead, more) if piece], parts
