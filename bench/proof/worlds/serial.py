"""The serial execution: committed transactions one after the other, in the order of their places.

    outcomes of the coordinator, by (step, n) ─▶ conditions hold? as it was decided ─▶ effects ─▶ model
    stores of all hosts ─▶ stored(), in the model's form                     the two must be equal

Next: seeds.py.
"""

from typing import Any, Protocol

import msgpack

from ....proto.ids import COORDINATOR_ID, tablet_prefix
from ....proto.messages import ADD, ShardPart
from ....simulator import World


class Asked(Protocol):
    asked: dict[bytes, dict[int, Any]]


def expected(world: World, work: Asked) -> dict[bytes, Any]:
    """The serial execution of the committed transactions in the order of their places."""
    outcomes = []
    prefix = tablet_prefix(COORDINATOR_ID) + b"o"
    for key, (state, step, n, _, _) in world.stores[0].scan(prefix, prefix + b"\xff" * 13):
        assert state in (2, 3, 4), f"seed {world.seed}: an undecided transaction is left"
        result = world.results.get(key[5:])
        if result is not None and state != 4:
            assert (result.reason is None) == (state == 2), "one outcome for all observers"
            assert (result.step, result.n) == (step, n) or result.reason is not None
        outcomes.append((step, n, key[5:], state))
    model: dict[bytes, Any] = {}
    for step, n, tx, state in sorted(outcomes):
        if state == 4:
            continue
        asked = work.asked[tx]
        holds = all(_holds(model, tablet, part) for tablet, part in asked.items())
        assert holds == (state == 2), (
            f"seed {world.seed}: {tx!r} at {(step, n)} was decided wrongly"
        )
        if holds:
            for tablet, part in asked.items():
                _apply(model, tablet, part, step, n)
    return model


def _holds(model: dict[bytes, Any], tablet: int, part: Any) -> bool:
    at = tablet_prefix(tablet)
    if isinstance(part, ShardPart):
        for key, version in part.reads:
            row = model.get(at + b"r" + key)
            if (row[:2] if row else None) != version:
                return False
        return True
    start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
    for consumer, begin, stop in part.ranges:
        position = model.get(at + b"c" + consumer.encode(), (0, 0, 0))[2]
        if max(position, start) != begin or stop > end:
            return False
    for _, begin, stop in part.acks:
        row = model.get(at + b"cI")
        if row is None or set(range(begin, stop)) & (row[4] | set(range(start))) or stop > end:
            return False
    if any(not start <= offset <= end for _, offset, _ in part.seeks):
        return False
    if part.trim is not None and part.trim > end:
        return False
    if part.producer is not None:
        known = model.get(at + b"p" + part.producer[0])
        return known is None or part.producer[1] > known
    return True


def _apply(model: dict[bytes, Any], tablet: int, part: Any, step: int, n: int) -> None:
    at = tablet_prefix(tablet)
    if isinstance(part, ShardPart):
        for key, op, value in part.writes:
            old = model.get(at + b"r" + key)
            if op == ADD and old is not None:
                value = msgpack.packb(msgpack.unpackb(old[2]) + msgpack.unpackb(value))
            model[at + b"r" + key] = (step, n, value)
        return
    start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
    for consumer, begin, stop in part.ranges:
        row = model.get(at + b"c" + consumer.encode())
        missed = 0 if row is None else row[3] + begin - row[2]
        model[at + b"c" + consumer.encode()] = (step, n, stop, missed)
    for _, begin, stop in part.acks:
        row = model[at + b"cI"]
        missed = set(range(start)) - row[4]
        taken = row[4] | missed | set(range(begin, stop))
        model[at + b"cI"] = (step, n, None, row[3] + len(missed), taken)
    for consumer, offset, individual in part.seeks:
        row = model.get(at + b"c" + consumer.encode())
        missed = 0 if row is None else row[3]
        known = (None, missed, set(range(offset))) if individual else (offset, missed)
        model[at + b"c" + consumer.encode()] = (step, n, *known)
    if part.trim is not None and part.trim > start:
        model[at + b"m"] = (step, n, part.trim, end)
        for key in [key for key in model if key[:5] == at + b"b"]:
            if int.from_bytes(key[5:], "big") + model[key][0] <= part.trim:
                del model[key]
    if part.producer is not None:
        model[at + b"p" + part.producer[0]] = part.producer[2]
    for _, count in part.slices:
        start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
        model[at + b"b" + end.to_bytes(8, "big")] = (count, step, n)
        model[at + b"m"] = (step, n, start, end + count)


def stored(world: World) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for store in world.stores:
        for key, value in store.scan(b"\x30\0\0\0", b"\x50\0\0\0"):
            kind = key[4:5]
            if kind == b"b":
                address, length, count, step, n = value
                assert store.read_payload(address, length) == b"payload" * count
                value = (count, step, n)
            elif kind == b"p":
                value = value[0]
            elif kind == b"c" and len(value) == 5:
                ranges = (range(begin, end) for begin, end in value[4])
                taken = set(range(value[2])).union(*ranges)
                value = (*value[:2], None, value[3], taken)
            found[key] = value
    return found
