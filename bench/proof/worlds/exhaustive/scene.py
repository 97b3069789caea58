"""Defines the scenes of a small world: the hosts of a partition and a shard, and the transactions to submit.

    Scene.kinds: names ─▶ KINDS ─▶ parts_of: by tablet

Next: invariants.py.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from .....proto.ids import PARTITION, SHARD, tablet_id
from .....proto.messages import ADD, PUT, PartitionPart, ShardPart, Slice

ONE = b"\x01"  # msgpack's


@dataclass(frozen=True)
class Scene:
    """Holds the hosts of the partition and the shard, and the transactions, as names of `KINDS`."""

    name: str
    hosts: int
    partition: int
    shard: int
    kinds: tuple[str, ...]
    separate: bool = False
    crashes: int = 1
    repeats: int = 1
    losses: int = 1

    @cached_property
    def tablets(self) -> tuple[int, int]:
        return tablet_id(PARTITION, self.partition, 10), tablet_id(SHARD, self.shard, 20)


@lru_cache(64)
def parts_of(scene: Scene, kind: str) -> dict[int, Any]:
    """Returns the parts of a transaction of `kind`, by tablet. The partition has two records at the start."""
    partition, shard = scene.tablets
    first, second = KINDS[kind]
    return {partition: first, shard: second}


KINDS: dict[str, tuple[PartitionPart[Slice], ShardPart]] = {
    # Consumes, writes a record and a row: two of these conflict at both tablets.
    "consume": (
        PartitionPart((("c", 0, 1),), ((b"out", 1),)),
        ShardPart(writes=((b"a", PUT, ONE),)),
    ),
    "next": (PartitionPart((("c", 1, 2),)), ShardPart(writes=((b"a", PUT, b"\x02"),))),
    # Reads the row that the others write, and publishes to the same partition.
    "read": (PartitionPart((), ((b"seen", 1),)), ShardPart(reads=((b"a", None),))),
    # Shares nothing with the others except the partition that it publishes to; both tablets vote, both receive.
    "count": (
        PartitionPart((("d", 0, 1),), ((b"more", 1),)),
        ShardPart(writes=((b"n", ADD, ONE),)),
    ),
}
