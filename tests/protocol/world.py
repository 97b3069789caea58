"""Runs a small table and topics on an in-memory engine, for scenarios that use the runtime directly."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planstep.proto.batch import encode_batch
from planstep.proto.messages import PUT, PartitionPart, ShardPart
from planstep.runtime.network import Network
from planstep.runtime.open_runtime import open_runtime
from planstep.runtime.open_stores import OpenOptions
from planstep.runtime.outcome import Commit
from planstep.runtime.runtime import Runtime


def records(*values: bytes) -> tuple[tuple[bytes, int], ...]:
    return ((encode_batch(list(values)), len(values)),)


class World:
    """`a`, `b`: topics of 4 partitions; `rows`: a table of 4 shards. Tablets are spread over the hosts."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.a = runtime.schema.create_topic("a", 4, "bytes").partitions
        self.b = runtime.schema.create_topic("b", 4, "bytes").partitions
        self.rows = runtime.schema.create_table("rows", 4, "msgpack").shards

    def commit(self, parts: dict[int, Any]) -> Commit:
        return self.runtime.transactions.commit(self.runtime.new_tx(), parts, timeout=30)

    def submit(self, parts: dict[int, Any]) -> "Future[Commit]":
        return self.runtime.transactions.submit(self.runtime.new_tx(), parts)

    def put(self, shard: int, key: bytes, value: bytes) -> Commit:
        return self.commit({self.rows[shard]: ShardPart(writes=((key, PUT, value),))})

    def write(self, tablet: int, *values: bytes) -> Commit:
        return self.commit({tablet: PartitionPart(slices=records(*values))})

    def get(self, shard: int, key: bytes) -> Any:
        with self.runtime.snapshot() as snap:
            row = self.runtime.views.read_row(snap, self.rows[shard], key)
        return row

    def end(self, tablet: int) -> int:
        with self.runtime.snapshot() as snap:
            end: int = self.runtime.views.bounds(snap, tablet)[1]
        return end

    def position(self, tablet: int, consumer: str = "c") -> int:
        with self.runtime.snapshot() as snap:
            known = self.runtime.views.consumer(snap, tablet, consumer)
            position: int = known[0] or 0
        return position


class FaultyNetwork(Network):
    """Loses and repeats frames, each with a probability, and delays some past later ones."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._held: list[tuple[int, int, bytes]] = []
        self._lock = threading.Lock()

    def send(self, source: int, target: int, data: bytes) -> None:
        with self._lock:
            chance = self._random.random
            copies = 0 if chance() < 0.05 else 2 if chance() < 0.05 else 1
            now = 0
            for _ in range(copies):
                if chance() < 0.2:
                    self._held.append((self._random.randrange(1, 4), target, data))
                else:
                    now += 1
        for _ in range(now):
            super().send(source, target, data)

    def tick(self) -> None:
        with self._lock:
            due = [(target, data) for ticks, target, data in self._held if ticks <= 1]
            self._held = [(ticks - 1, t, data) for ticks, t, data in self._held if ticks > 1]
            self._random.shuffle(due)
        for target, data in due:
            super().send(-1, target, data)


@contextmanager
def world(
    hosts: int,
    path: Path | str = ":memory:",
    *,
    faults: int | None = None,
    placement: str = "shared",
    rtt_ms: float = 0.0,
) -> Iterator[World]:
    network: Network = Network() if faults is None else FaultyNetwork(faults)
    options = OpenOptions(hosts=hosts, network=network, placement=placement, rtt_ms=rtt_ms)
    runtime = open_runtime(path, options)
    try:
        yield World(runtime)
    finally:
        runtime.close()
