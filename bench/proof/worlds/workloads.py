"""Generates the simulator's transactions; each workload keeps an invariant that can be checked at the end.

    feeder, consume-transform-produce, zombie   one transaction uses an input; the output names the input
    bank, ring, lists                            the total, the cycle, the elements and their order
    pair                                         x and y written blindly, read one after the other (YDB's anomaly)
    contention                                   several transactions consume the same range
    drops                                        a partition's life: written, dropped, cleaned, never seen again

A worker reads the stored state, and submits the transaction that follows from it. If another transaction
changed that state in between, the submitted one is refused at its step.

Next: final_invariants.py, mixed.py.
"""

from typing import Any, NamedTuple

import msgpack

from ....coordinator.plan import PLANNED, OutcomeRow
from ....proto.ids import COORDINATOR_ID, PARTITION, SHARD, tablet_id
from ....proto.messages import ADD, PUT, Clean, PartitionPart, ShardPart
from ....tablets.participant import DROPPED
from ....tablets.shard import Row
from .mixed import Workload
from .readers import Key, Readers

ACCOUNTS, RING, START = 6, 6, 100
WORKER, HOT = "w", "hot"
_LOST = 400
"""The number of looks after which an unknown drop, whose client is gone, counts as lost."""


class Places(NamedTuple):
    """The tablets of these workloads; the mixed one has its own."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    hot: int
    shards: tuple[int, ...]


def places(hosts: int) -> Places:
    *parts, hot = [tablet_id(PARTITION, (i * 3 + 1) % hosts, 30 + i) for i in range(5)]
    shards = tuple(tablet_id(SHARD, (i + 1) % hosts, 40 + i) for i in range(3))
    return Places(tuple(parts[:2]), tuple(parts[2:]), hot, shards)


class NamedWorkloads(Workload):
    """Runs the workloads by name, with the tools of the mixed one."""

    def __init__(self, world: Any, weights: dict[str, float]) -> None:
        super().__init__(world)
        self.at = places(world.hosts)
        self.weights = weights
        self.readers = self.make_readers()
        self.by_name = {
            "mixed": self.submit,
            "transform": self.transform,
            "zombie": self.zombie,
            "bank": self.bank,
            "ring": self.ring,
            "lists": self.lists,
            "pair": self.pair,
            "contention": self.contention,
            "drops": self.drops,
        }
        self.names = [*weights]
        self._old: dict[int, dict[int, Any]] = {}
        self._pairs = 0
        self._mortal = 0
        self.cleaning: dict[int, None] = {}
        self.workload_of: dict[bytes, str] = {}

    def make_readers(self) -> Readers:
        return Readers(self.world)

    def go(self) -> None:
        """Submits one or a few transactions of a workload drawn by weight."""
        name = self.random.choices(self.names, [*self.weights.values()])[0]
        self.by_name[name]()
        if self.random.random() < 0.15:
            self.read_snapshot()

    def ask(self, parts: dict[int, Any], name: str) -> bytes:
        tx = self.world.commit(parts)
        self.requests[tx] = parts
        self.workload_of[tx] = name
        return tx

    # inputs used once ----------------------------------------------------------------------

    def feed(self, tablet: int) -> None:
        count = self.random.randrange(1, 4)
        self.ask({tablet: PartitionPart(slices=((self.payload(count), count),))}, "feed")

    def _work(self, tablet: int) -> dict[int, Any] | None:
        begin = self.consumer(tablet, WORKER).position
        stop = min(self.bounds(tablet).end, begin + self.random.randrange(1, 5))
        if stop <= begin:
            return None
        payload = b"%d %d %d" % (tablet, begin, stop)
        shard = self.at.shards[tablet % 3]
        return {
            tablet: PartitionPart(ranges=((WORKER, begin, stop),)),
            self.random.choice(self.at.outputs): PartitionPart(slices=((payload, stop - begin),)),
            shard: ShardPart(writes=((b"u%d" % tablet, ADD, msgpack.packb(stop - begin)),)),
        }

    def transform(self) -> None:
        tablet = self.random.choice(self.at.inputs)
        parts = self._work(tablet)
        if parts is None:
            self.feed(tablet)
        else:
            self.ask(parts, "transform")

    def zombie(self) -> None:
        """Submits a transaction from an old read, like a worker that was paused while another went on."""
        tablet = self.random.choice(self.at.inputs)
        old = self._old.pop(tablet, None)
        if old is not None:
            self.ask(old, "zombie")
            return
        parts = self._work(tablet)
        if parts is None:
            self.feed(tablet)
            return
        self._old[tablet] = parts
        if self.random.random() < 0.7:
            self.ask(parts, "zombie")
        self._repeat()

    def _repeat(self) -> None:
        """Sends a producer's numbers again, like a writer without an answer: published once, or refused."""
        tablet = self.at.outputs[0]
        last = self.last_number(tablet, b"Z")
        first = max(1, last - self.random.randrange(0, 3))
        count = self.random.randrange(1, 4)
        session = self.random.choice((b"one", b"one", b"two"))
        part = PartitionPart(
            slices=((b"numbered", count),),
            producer=(b"Z", first, first + count - 1),
            dedupe=True,
            session=session,
        )
        self.ask({tablet: part}, "zombie")

    # rows with a meaning -------------------------------------------------------------------

    def _on(self, i: int) -> int:
        return self.at.shards[i % len(self.at.shards)]

    def _rows(self, keys: list[tuple[int, bytes]]) -> list[Row | None]:
        return [self.row(tablet, key) for tablet, key in keys]

    def _write(self, rows: list[tuple[int, bytes, Row | None, Any]], name: str) -> None:
        """Submits writes of rows, each (tablet, key, the row as it was read, new value)."""
        parts: dict[int, Any] = {}
        for tablet, key, row, value in rows:
            part = parts.get(tablet, ShardPart())
            reads = (*part.reads, (key, row.version if row else None))
            writes = (*part.writes, (key, PUT, msgpack.packb(value)))
            parts[tablet] = ShardPart(reads=reads, writes=writes)
        self.ask(parts, name)

    def accounts(self) -> list[tuple[int, bytes]]:
        return [(self._on(i), b"a%d" % i) for i in range(ACCOUNTS)]

    def bank(self) -> None:
        keys = self.accounts()
        rows = self._rows(keys)
        values = [msgpack.unpackb(row.value) for row in rows if row is not None]
        if len(values) < len(rows):
            self._write([(*k, row, START) for k, row in zip(keys, rows, strict=True)], "bank")
            return
        a, b = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randrange(1, 10)
        self._write(
            [(*keys[a], rows[a], values[a] - amount), (*keys[b], rows[b], values[b] + amount)],
            "bank",
        )

    def cycle(self) -> list[tuple[int, bytes]]:
        return [(self._on(i), b"g%d" % i) for i in range(RING)]

    def ring(self) -> None:
        """Swaps two neighbours of the ring (FoundationDB's Cycle): a ▶ b ▶ c ▶ d becomes a ▶ c ▶ b ▶ d."""
        keys = self.cycle()
        rows = self._rows(keys)
        after = [msgpack.unpackb(row.value) for row in rows if row is not None]
        if len(after) < RING:
            self._write(
                [(*keys[i], rows[i], (i + 1) % RING) for i in range(RING)],
                "ring",
            )
            return
        a = self.random.randrange(RING)
        b = after[a]
        c = after[b]
        if len({a: 0, b: 0, c: 0}) < 3:
            return  # the rows were read while they changed, and form no cycle
        changed = ((a, c), (b, after[c]), (c, b))
        self._write([(*keys[i], rows[i], to) for i, to in changed], "ring")

    def lists(self) -> None:
        tablet = self.random.choice(self.at.shards)
        row = self.row(tablet, b"list")
        elements = msgpack.unpackb(row.value) if row else []
        self._counted += 1
        element = self._counted
        parts: dict[int, Any] = {
            tablet: ShardPart(
                reads=((b"list", row.version if row else None),),
                writes=((b"list", PUT, msgpack.packb([*elements[-60:], element])),),
            ),
            self.at.outputs[1]: PartitionPart(slices=((b"list %d" % element, 1),)),
        }
        self.ask(parts, "lists")

    def pair(self) -> None:
        """Writes the same number to x and y, on two tablets, without reading them."""
        self._pairs += 1
        value = msgpack.packb(self._pairs)
        x, y = self.at.shards[:2]
        self.ask(
            {t: ShardPart(writes=((k, PUT, value),)) for t, k in ((x, b"x"), (y, b"y"))}, "pair"
        )

    def contention(self) -> None:
        tablet = self.at.hot
        begin, end = self.consumer(tablet, HOT).position, self.bounds(tablet).end
        if end <= begin:
            self.feed(tablet)
            return
        for _ in range(self.random.randrange(1, 4)):
            stop = self.random.randrange(begin, end) + 1
            shard = ShardPart(writes=((b"hot", ADD, msgpack.packb(stop - begin)),))
            range_ = PartitionPart(ranges=((HOT, begin, stop),))
            self.ask({tablet: range_, self.at.shards[0]: shard}, "contention")

    # dropped partitions --------------------------------------------------------------------

    def drops(self) -> None:
        """Writes to a partition that is dropped at some time, and goes on writing for a while."""
        at, draw = self.at, self.random
        tablet = tablet_id(PARTITION, self._mortal % self.world.hosts, 100 + self._mortal)
        if tablet not in self.cleaning and draw.random() < 0.2:
            drop = PartitionPart(drop=True)
            note = ShardPart(writes=((b"drops", ADD, msgpack.packb(1)),))
            tx = self.ask({tablet: drop, at.shards[1]: note}, "drops")
            self.cleaning[tablet] = None
            self.world.after(20.0, self._clean, tablet, tx, 0)
        else:
            if tablet in self.cleaning and draw.random() < 0.3:
                self._mortal += 1
            writes = PartitionPart(slices=((self.payload(1), 1),))
            self.ask({tablet: writes, at.outputs[1]: PartitionPart(slices=((b"w", 1),))}, "drops")

    def _clean(self, tablet: int, tx: bytes, went: int) -> None:
        """Cleans a dropped partition piece by piece, as maintenance does; a piece may be lost."""
        if self.read(tablet, DROPPED) is not None:
            self.world.deliver(tablet, Clean(self.random.choice((2, 100))))
        elif self._has_ended(tx) or went > _LOST:
            del self.cleaning[tablet]
            return
        self.world.after(30.0, self._clean, tablet, tx, went + 1)

    def _has_ended(self, tx: bytes) -> bool:
        """Returns whether a transaction is decided or refused; False also while it is unknown."""
        row = self.read(COORDINATOR_ID, b"o" + tx)
        return tx in self.world.results if row is None else OutcomeRow._make(row).state != PLANNED

    # reading snapshots ---------------------------------------------------------------------

    def read_snapshot(self) -> None:
        kind = self.random.choice(("bank", "ring", "pair", "rows", "inputs"))
        apart_ms = self.random.choice((0.0, 0.0, 1.0, 20.0))
        if kind == "bank":
            keys = tuple(Key("row", t, k) for t, k in self.accounts())
        elif kind == "ring":
            keys = tuple(Key("row", t, k) for t, k in self.cycle())
        elif kind == "pair":
            x, y = Key("row", self.at.shards[0], b"x"), Key("row", self.at.shards[1], b"y")
            self.readers.read(kind, (x,), 0.0, lambda: self.readers.read(kind, (y,), 0.0))
            return
        elif kind == "rows":
            keys = tuple(Key("row", t, k) for t in self.shards for k in (b"n", b"k0", b"k1"))
            keys += tuple(Key("bounds", t) for t in self.parts)
        else:
            keys = tuple(Key("consumer", t, WORKER.encode()) for t in self.at.inputs)
            keys += tuple(Key("row", self.at.shards[t % 3], b"u%d" % t) for t in self.at.inputs)
        shuffled = list(keys)
        self.random.shuffle(shuffled)
        self.readers.read(kind, tuple(shuffled), apart_ms)
