"""What the outcomes explain: the committed transactions one after the other, in the order of their places.

    asked, by id + the coordinator's outcomes ─▶ sorted by place ─▶ holds? applied ─▶ contents
    the stores of all hosts ───────────────────────────────────────────────────────▶ contents, the same

A model in the plainest words, with nothing of the tablets' code in it: a log is a list, a table a dict. It
also says where a decision was wrong: a transaction whose conditions held at its place and that was
aborted, or the other way round.

What it leaves out: individual consumers, range reads, MAX and MIN; sim's model has them.

Next: runner.py.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack

from .....coordinator.plan import ABORTED, COMMITTED, PLANNED, REFUSED, OutcomeRow
from .....proto.ids import (
    CATALOGUE,
    COORDINATOR_ID,
    SHARD,
    kind_of,
    tablet_prefix,
    tx_text,
)
from .....proto.messages import ADD, CREATE, DELETE, PartitionPart, ShardPart
from .....store import MemoryStore

Contents = dict[tuple[int, bytes], Any]
"""(tablet, key) → a row without addresses; of a slice its bytes."""


class Known(NamedTuple):
    """How a transaction ended, as the coordinator has it."""

    step: int
    n: int
    tx: bytes
    state: int


def outcomes(store: MemoryStore) -> list[Known]:
    """All, in the order of their places; those without one come first."""
    prefix = tablet_prefix(COORDINATOR_ID) + b"o"
    rows = store.scan(prefix, prefix + b"\xff" * 13)
    found = [(key[5:], OutcomeRow._make(row)) for key, row in rows]
    return sorted(Known(row.step, row.n, tx, row.state) for tx, row in found)


def explained(
    known: Iterable[Known], asked: dict[bytes, dict[int, Any]]
) -> tuple[Contents, list[str]]:
    """(what must be stored, what was decided wrongly)."""
    found: Contents = {}
    wrong: list[str] = []
    for one in known:
        if one.state == PLANNED:
            wrong.append(f"{tx_text(one.tx)} is planned and has no end")
        if one.state in (REFUSED, PLANNED):
            continue
        parts = asked[one.tx]
        holds = all(_holds(found, tablet, part) for tablet, part in parts.items())
        if holds != (one.state == COMMITTED):
            ended = "committed" if one.state == COMMITTED else "aborted"
            wrong.append(f"{tx_text(one.tx)} at {one.step, one.n} was {ended}: it should not be")
        if one.state != ABORTED:
            for tablet, part in parts.items():
                _apply(found, tablet, part, (one.step, one.n))
    return found, wrong


def stored(stores: Iterable[MemoryStore]) -> Contents:
    """What the tablets hold, with payloads in place of addresses."""
    found: Contents = {}
    for store in stores:
        for key, row in store.scan(b"\x20\0\0\0", b"\x50\0\0\0"):
            tablet, name = int.from_bytes(key[:4], "big"), key[4:]
            if kind_of(tablet) == CATALOGUE:
                if name[:1] == b"n":
                    found[tablet, name] = row[1]
                elif name == b"s":
                    found[tablet, name] = row
            elif name[:1] == b"b" and kind_of(tablet) != SHARD:
                found[tablet, name] = (store.read_payload(row[0], row[1]), *row[2:])
            elif name[:1] == b"p":
                found[tablet, name] = row[0]
            elif name != b"x":
                found[tablet, name] = row
    return found


def differences(must: Contents, found: Contents) -> Iterator[str]:
    for key in sorted(must.keys() | found.keys()):
        if must.get(key) != found.get(key):
            tablet, name = key
            yield f"tablet {tablet:#x}, {name!r}: {found.get(key)!r}, and not {must.get(key)!r}"


def _meta(found: Contents, tablet: int) -> tuple[int, int]:
    row = found.get((tablet, b"m"), (0, 0, 0, 0))
    return row[2], row[3]


def _holds(found: Contents, tablet: int, part: Any) -> bool:
    if kind_of(tablet) == CATALOGUE:
        there = (tablet, b"n" + bytes([part.kind]) + part.name.encode()) in found
        wanted: bool = part.op != CREATE
        return there == wanted
    if isinstance(part, ShardPart):
        rows = ((found.get((tablet, b"r" + key)), version) for key, version in part.reads)
        return all((row[:2] if row else None) == version for row, version in rows)
    assert isinstance(part, PartitionPart)
    start, end = _meta(found, tablet)
    for consumer, begin, stop in part.ranges:
        row = found.get((tablet, b"c" + consumer.encode()), (0, 0, 0))
        moved = row[5] if len(row) > 5 else 0
        if max(row[2], start) != begin or stop > end or moved != dict(part.fences).get(consumer, 0):
            return False
    if any(offset is None or not start <= offset <= end for _, offset, _ in part.seeks):
        return False
    if part.trim is not None and part.trim > end:
        return False
    if part.producer is not None and not part.dedupe:
        known = found.get((tablet, b"p" + part.producer[0]))
        return known is None or bool(part.producer[1] > known)
    return True


def _apply(found: Contents, tablet: int, part: Any, place: tuple[int, int]) -> None:
    if kind_of(tablet) == CATALOGUE:
        name = tablet, b"n" + bytes([part.kind]) + part.name.encode()
        if part.op == CREATE:
            first = found.get((tablet, b"s"), 1)
            found[tablet, b"s"] = first + part.parts
            found[name] = tuple(
                part.kind << 28 | (first + i) % part.hosts << 20 | first + i
                for i in range(part.parts)
            )
        else:
            del found[name]
        return
    if isinstance(part, ShardPart):
        for key, op, value in part.writes:
            row = found.get((tablet, b"r" + key))
            if op == ADD and row is not None:
                value = msgpack.packb(msgpack.unpackb(row[2]) + msgpack.unpackb(value))
            if op == DELETE:
                found.pop((tablet, b"r" + key), None)
            else:
                found[tablet, b"r" + key] = (*place, value)
        return
    start, end = _meta(found, tablet)
    for consumer, begin, stop in part.ranges:
        row = found.get((tablet, b"c" + consumer.encode()))
        missed = 0 if row is None else row[3] + begin - row[2]
        found[tablet, b"c" + consumer.encode()] = (*place, stop, missed, *(row or ())[4:])
    for consumer, offset, _ in part.seeks:
        row = found.get((tablet, b"c" + consumer.encode()))
        missed = row[3] if row else 0
        found[tablet, b"c" + consumer.encode()] = (*place, offset, missed, None, place[0])
    if part.trim is not None and part.trim > start:
        found[tablet, b"m"] = (*place, part.trim, end)
        for one, key in [key for key in found if key[0] == tablet and key[1][:1] == b"b"]:
            if int.from_bytes(key[1:], "big") + found[one, key][1] <= part.trim:
                del found[one, key]
    if part.producer is not None:
        producer = tablet, b"p" + part.producer[0]
        if part.producer[2] <= found.get(producer, 0):
            return  # a repeat: accepted, without effect
        found[producer] = part.producer[2]
    for data, count in part.slices:
        start, end = _meta(found, tablet)
        found[tablet, b"b" + end.to_bytes(8, "big")] = (data, count, *place)
        found[tablet, b"m"] = (*place, start, end + count)
