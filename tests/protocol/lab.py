"""Runs hosts on memory stores, one turn at a time, and lets a test control every frame between them."""

from typing import Any

from planstep.errors import PlanstepError
from planstep.host.host import Host
from planstep.host.inputs import Arrived, Commit, Input, Tick
from planstep.proto.ids import PROXY, SHARD, tablet_id, tablet_prefix, tx_id
from planstep.proxy.deterministic import Result
from planstep.store.memory_store import MemoryStore


def shard(host: int, number: int = 7) -> int:
    return tablet_id(SHARD, host, number)


class Lab:
    """Runs hosts by hand; `cut` holds the (source, target) pairs whose frames are lost."""

    def __init__(self, hosts: int) -> None:
        self.stores = [MemoryStore(bytes([i]) * 16) for i in range(hosts)]
        self.now_ms = 0
        self.cut: set[tuple[int, int]] = set()
        self.results: dict[bytes, Result] = {}
        self.failures: list[BaseException] = []
        self.wire: list[tuple[int, bytes]] = []
        self.hosts = [self._host(number) for number in range(hosts)]
        self._count = 0

    def _host(self, number: int) -> Host:
        store = self.stores[number]
        proxy = tablet_id(PROXY, 0, store.generation) if number == 0 else None
        return Host(number, store, len(self.stores), proxy=proxy)

    def turn(self, number: int, *inputs: Input) -> None:
        released = self.hosts[number].run(inputs, self.now_ms)
        self.failures += [error for _, error in released.failures]
        self.results.update((result.tx, result) for result in released.results)
        for target, data in released.frames:
            if (number, target) not in self.cut:
                self.wire.append((target, data))

    def deliver(self) -> None:
        """Delivers the frames under way now, but not those that result from them."""
        wire, self.wire = self.wire, []
        for target, data in wire:
            self.turn(target, Arrived(data))

    def pump(self) -> None:
        """Delivers until nothing is under way, except on cut lines."""
        while self.wire:
            self.deliver()

    def commit(self, *many: dict[int, Any]) -> list[bytes]:
        """Submits transactions in one turn, and delivers nothing yet."""
        inputs = []
        for parts in many:
            self._count += 1
            inputs.append(Commit(tx_id(self.stores[0].generation, self._count), parts))
        self.turn(0, *inputs)
        return [item.tx for item in inputs]

    def tick(self, ms: int = 100) -> None:
        self.now_ms += ms
        for number in range(len(self.hosts)):
            self.turn(number, Tick())

    def restart(self, number: int) -> None:
        """Simulates a power loss of one host."""
        self.stores[number] = self.stores[number].crash()
        self.hosts[number] = self._host(number)

    def settle(self) -> None:
        for _ in range(10):
            self.tick(500)
            self.pump()

    def fail_next_sync(self, number: int, error: PlanstepError) -> None:
        store: Any = self.stores[number]

        def commit(*args: Any) -> None:
            del store.commit
            raise error

        store.commit = commit

    def rows(self, tablet: int) -> dict[bytes, bytes]:
        prefix = tablet_prefix(tablet)
        store = self.stores[tablet >> 20 & 0xFF]
        return {key[5:]: row[2] for key, row in store.scan(prefix + b"r", prefix + b"s")}

    def leftovers(self) -> list[Any]:
        """Returns proposals, queues and staged payloads of all shards."""
        return [
            row
            for number, store in enumerate(self.stores)
            for kind in (b"q", b"s", b"t")
            for row in store.scan(
                tablet_prefix(shard(number)) + kind, tablet_prefix(shard(number)) + kind + b"\xff"
            )
        ]
