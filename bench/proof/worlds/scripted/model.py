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
from .....proto.messages import ADD, CREATE, DELETE, PartitionPart, ShardPart, Slice
from .....store import MemoryStore

Contents = dict[tuple[int, bytes], Any]
"""(tablet, key) → a row without addresses; of a slice its bytes."""
Place = tuple[int, int]


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
                    _, tablets, *_ = row
                    found[tablet, name] = tablets
                elif name == b"s":
                    found[tablet, name] = row
            elif name[:1] == b"b" and kind_of(tablet) != SHARD:
                address, length, *rest = row
                found[tablet, name] = (store.read_payload(address, length), *rest)
            elif name[:1] == b"p":
                last, *_ = row
                found[tablet, name] = last
            elif name != b"x":
                found[tablet, name] = row
    return found


def differences(must: Contents, found: Contents) -> Iterator[str]:
    for key in sorted(must.keys() | found.keys()):
        if must.get(key) != found.get(key):
            tablet, name = key
            yield f"tablet {tablet:#x}, {name!r}: {found.get(key)!r}, and not {must.get(key)!r}"


def _meta(found: Contents, tablet: int) -> tuple[int, int]:
    _, _, start, end = found.get((tablet, b"m"), (0, 0, 0, 0))
    return start, end


class _Consumer(NamedTuple):
    """As it is stored; the last two are left out where they say nothing."""

    step: int = 0
    n: int = 0
    position: int = 0
    missed: int = 0
    ranges: None = None
    moved: int = 0


def _consumer(found: Contents, tablet: int, consumer: str) -> _Consumer:
    return _Consumer(*found.get((tablet, b"c" + consumer.encode()), ()))


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
    if not _are_next(found, tablet, part):
        return False
    if any(offset is None or not start <= offset <= end for _, offset, _ in part.seeks):
        return False
    if part.trim is not None and part.trim > end:
        return False
    if part.producer is not None and not part.dedupe:
        producer, first, _ = part.producer
        last = found.get((tablet, b"p" + producer))
        return last is None or bool(first > last)
    return True


def _are_next(found: Contents, tablet: int, part: PartitionPart[Slice]) -> bool:
    """Each range begins where its consumer is, which nobody has moved since, and ends within the log."""
    start, end = _meta(found, tablet)
    for consumer, begin, stop in part.ranges:
        known = _consumer(found, tablet, consumer)
        if max(known.position, start) != begin or stop > end:
            return False
        if known.moved != dict(part.fences).get(consumer, 0):
            return False
    return True


def _apply(found: Contents, tablet: int, part: Any, place: Place) -> None:
    if kind_of(tablet) == CATALOGUE:
        _name(found, tablet, part)
    elif isinstance(part, ShardPart):
        _write(found, tablet, part, place)
    else:
        _consume(found, tablet, part, place)
        _trim(found, tablet, part, place)
        _publish(found, tablet, part, place)


def _name(found: Contents, tablet: int, part: Any) -> None:
    """Creates or drops a topic or a table."""
    name = tablet, b"n" + bytes([part.kind]) + part.name.encode()
    if part.op != CREATE:
        del found[name]
        return
    first = found.get((tablet, b"s"), 1)
    found[tablet, b"s"] = first + part.parts
    found[name] = tuple(
        part.kind << 28 | (first + i) % part.hosts << 20 | first + i for i in range(part.parts)
    )


def _write(found: Contents, tablet: int, part: ShardPart, place: Place) -> None:
    for key, op, value in part.writes:
        row = found.get((tablet, b"r" + key))
        if op == ADD and row is not None:
            _, _, old = row
            value = msgpack.packb(msgpack.unpackb(old) + msgpack.unpackb(value))
        if op == DELETE:
            found.pop((tablet, b"r" + key), None)
        else:
            found[tablet, b"r" + key] = (*place, value)


def _consume(found: Contents, tablet: int, part: PartitionPart[Slice], place: Place) -> None:
    """Positions go on, or where a seek wants them."""
    for consumer, begin, stop in part.ranges:
        row = found.get((tablet, b"c" + consumer.encode()))
        known = _consumer(found, tablet, consumer)
        missed = 0 if row is None else known.missed + begin - known.position
        found[tablet, b"c" + consumer.encode()] = (*place, stop, missed, *(row or ())[4:])
    for consumer, offset, _ in part.seeks:
        missed, (step, _) = _consumer(found, tablet, consumer).missed, place
        found[tablet, b"c" + consumer.encode()] = (*place, offset, missed, None, step)


def _trim(found: Contents, tablet: int, part: PartitionPart[Slice], place: Place) -> None:
    start, end = _meta(found, tablet)
    if part.trim is None or part.trim <= start:
        return
    found[tablet, b"m"] = (*place, part.trim, end)
    for one, key in list(found):
        if one == tablet and key[:1] == b"b":
            _, count, *_ = found[one, key]
            if int.from_bytes(key[1:], "big") + count <= part.trim:
                del found[one, key]


def _publish(found: Contents, tablet: int, part: PartitionPart[Slice], place: Place) -> None:
    if part.producer is not None:
        producer, _, last = part.producer
        if last <= found.get((tablet, b"p" + producer), 0):
            return  # a repeat: accepted, without effect
        found[tablet, b"p" + producer] = last
    for data, count in part.slices:
        start, end = _meta(found, tablet)
        found[tablet, b"b" + end.to_bytes(8, "big")] = (data, count, *place)
        found[tablet, b"m"] = (*place, start, end + count)
