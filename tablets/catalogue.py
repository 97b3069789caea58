"""Records names of topics and tables, their tablets, and consumers' kinds, in a tablet that a host runs.

Keys, behind the tablet's prefix:

    n<kind 1><name>      (id, tablets, format, step, options)      options: (name, value) pairs
    c<id 4><consumer>    (individual, step)                        only consumers that were created; True as a
                         third value: it is exclusive
    d<id 4>              (kind, name, tablets, step)               dropped, not yet cleaned
    s                    next tablet number, never reused: a store has 2^20 of them for its life

A tablet is a part of the store that takes part in transactions: a partition, a shard, or this catalogue. A step is
the number of a group of transactions in the one order. `individual`: the consumer's kind, else it is cumulative.
Other consumers exist by their committed positions alone.

Participants of each operation:

    create                catalogue alone; new tablets start empty and need no message
    alter                 catalogue alone
    drop                  catalogue, and every tablet, which learns the decision: no later transaction touches it
    create, drop a consumer   catalogue, and every partition: the position is set or forgotten

Names are keys here; no file is named after them. Maintenance removes a dropped tablet's rows bit by bit
(runtime/maintenance.py).

Leaves out: changing the number of partitions or shards of a topic or table that exists.
Next: coordinator/plan.py, which orders these operations with all other transactions.
"""

from typing import TypeAlias

from ..proto.ids import TABLETS_MAX, tablet_id
from ..proto.messages import (
    ALTER,
    CLEANED,
    CREATE,
    CREATE_CONSUMER,
    DROP,
    DROP_CONSUMER,
    CataloguePart,
)
from ..proto.reasons import NameExists, NameGone, NumbersUsedUp, Why
from ..proto.stored import Stored
from .participant import Participant

SEQUENCE = b"s"


def name_key(kind: int, name: str) -> bytes:
    return b"n" + bytes([kind]) + name.encode()


def consumer_key(topic: int, consumer: str) -> bytes:
    return b"c" + topic.to_bytes(4, "big") + consumer.encode()


def dropped_key(first: int) -> bytes:
    return b"d" + first.to_bytes(4, "big")


NameRow: TypeAlias = tuple[int, tuple[int, ...], str, int, tuple[tuple[str, Stored], ...]]
"""(id, tablets, format, step, options)"""


class Catalogue(Participant[CataloguePart, CataloguePart]):
    __slots__ = ()

    def check(self, body: CataloguePart, early: bool) -> Why | None:
        part = CataloguePart(*body)
        if part.op == CLEANED:
            return None
        known: NameRow | None = self.space.get(name_key(part.kind, part.name))
        if part.op != CREATE:
            if known is None or known[0] != part.id:
                return NameGone(part.kind, part.name)
            consumer: tuple[bool, int] | None = self.space.get(consumer_key(part.id, part.consumer))
            if part.op == CREATE_CONSUMER and consumer is not None:
                return NameExists(part.consumer)
            return None
        if known is not None:
            return NameExists(part.name)
        first: int = self.space.get(SEQUENCE) or 1
        if first + part.parts > TABLETS_MAX:
            return NumbersUsedUp(part.name, part.parts, TABLETS_MAX - first)
        return None

    def stage(self, tx: bytes, part: CataloguePart) -> CataloguePart:
        return part

    def apply(self, body: CataloguePart, step: int, n: int) -> None:
        part = CataloguePart(*body)
        space = self.space
        key = name_key(part.kind, part.name)
        if part.op == CREATE:
            first: int = space.get(SEQUENCE) or 1
            tablets = tuple(
                tablet_id(part.kind, (first + i) % part.hosts, first + i) for i in range(part.parts)
            )
            space.put(SEQUENCE, first + part.parts)
            space.put(key, (first, tablets, part.format, step, part.options))
        elif part.op == ALTER:
            known: NameRow = space.get(key)
            space.put(key, (*known[:4], part.options))
        elif part.op == DROP:
            row: NameRow = space.get(key)
            _, tablets, _, _, _ = row
            space.put(dropped_key(part.id), (part.kind, part.name, tablets, step))
            space.delete(key)
            begin = consumer_key(part.id, "")
            for consumer, _ in space.scan(begin, begin + b"\xff"):
                space.delete(consumer)
        elif part.op == CLEANED:
            space.delete(dropped_key(part.id))
        elif part.op == CREATE_CONSUMER:
            options = dict(part.options)
            consumer_row = bool(options.get("individual")), step
            exclusive = (True,) if options.get("exclusive") else ()
            space.put(consumer_key(part.id, part.consumer), consumer_row + exclusive)
        elif part.op == DROP_CONSUMER:
            space.delete(consumer_key(part.id, part.consumer))

    def must_wait_for(self, earlier: CataloguePart, later: CataloguePart) -> bool:
        return True
