"""What is to be seen of a simulated world of mode "kafka": reads as the engine does them, and the bare logs.

Next: kafka_workload.py.
"""

from typing import Any

from anomalies import Entry, History, Poll

from planstep.kafka.views import KafkaViews
from planstep.kafka.views import Look as Snapshot
from planstep.proto.batch import Batch
from planstep.proto.ids import PARTITION, host_of, tablet_id, tablet_prefix
from planstep.proto.kafka import KafkaSettings
from planstep.simulator_kafka import KafkaWorld

NOW = Snapshot()


class _Node:
    """Views look at a host that may have been started again."""

    def __init__(self, world: KafkaWorld, number: int) -> None:
        self._world, self._number = world, number

    @property
    def host(self) -> Any:
        return self._world.nodes[self._number]


class Look:
    """Two partitions of inputs, two of outputs. Each poll is in `history`; bounds are checked after each turn."""

    def __init__(self, world: KafkaWorld) -> None:
        self.world = world
        self.history = History()
        hosts = world.hosts
        self.inputs = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(2)]
        self.outputs = [tablet_id(PARTITION, (i + 2) % hosts, 20 + i) for i in range(2)]
        self.tablets = [*self.inputs, *self.outputs]
        nodes: Any = [_Node(world, i) for i in range(hosts)]
        self.views = {
            committed: KafkaViews(nodes, lambda: False, KafkaSettings(isolation=isolation), 0.0)
            for committed, isolation in ((True, "read_committed"), (False, "read_uncommitted"))
        }
        self._bounds = dict.fromkeys(self.tablets, (0, 0, 0))
        self._stands: dict[tuple[str, int], int] = {}
        world.after_turn = self._check_bounds

    def poll(
        self, reader: str, committed: bool, tablet: int, begin: int, most: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """(records, where to go on), noted."""
        views = self.views[committed]
        end = max(begin, views.now(tablet)[1])
        shown: list[tuple[int, bytes]] = []
        for piece in views.read_slices(NOW, tablet, begin, most, 1 << 20):
            values: Any = piece.batch.values[piece.lo : piece.hi]
            shown += [(piece.offset + i, value) for i, value in enumerate(values)]
        if len(shown) >= most:
            end = shown[-1][0] + 1
        at = self.world.now
        self.history.polls.append(Poll(reader, committed, tablet, begin, end, shown, at))
        return shown, end

    def read_on(self, name: str, committed: bool, tablet: int, most: int) -> None:
        begin = self._stands.get((name, tablet), 0)
        _, self._stands[name, tablet] = self.poll(name, committed, tablet, begin, most)

    def _check_bounds(self, host: int) -> None:
        """Start, last stable offset and end: in this order, and none ever falls."""
        for tablet in self.tablets:
            if host_of(tablet) == host:
                start, end, stable = self.meta(tablet)
                before = self._bounds[tablet]
                assert start <= stable <= end, f"seed {self.world.seed}: {start} {stable} {end}"
                assert all(a <= b for a, b in zip(before, (start, end, stable), strict=True))
                self._bounds[tablet] = start, end, stable

    def meta(self, tablet: int) -> tuple[int, int, int]:
        meta: Any = self.world.stores[host_of(tablet)].get(tablet_prefix(tablet) + b"m")
        return meta or (0, 0, 0)

    def _rows(self, tablet: int) -> dict[bytes, Any]:
        prefix = tablet_prefix(tablet)
        rows = self.world.stores[host_of(tablet)].scan(prefix, prefix + b"\xff")
        return {key[4:]: value for key, value in rows}

    def logs(self) -> dict[int, list[Entry]]:
        return {tablet: self._log(tablet) for tablet in self.tablets}

    def _log(self, tablet: int) -> list[Entry]:
        store = self.world.stores[host_of(tablet)]
        log = []
        for key, row in self._rows(tablet).items():
            if key[:1] == b"b":
                address, length, records, producer, _, _, kind = row[:7]
                data = store.read_payload(address, length) if length else b""
                values: Any = Batch.decode(data).values if data else []
                offset = int.from_bytes(key[1:], "big")
                log.append(Entry(offset, records, producer, kind, values))
        return log
