"""The serial execution: committed transactions one after the other, in the order of their places.

    outcomes of the coordinator, by (step, n) ─▶ conditions hold? as it was decided ─▶ effects ─▶ model
    stores of all hosts ─▶ stored(), in the model's form                     the two must be equal

Conditions are evaluated again: an abort that needed not be is as wrong as a commit that must not.
Next: final_invariants.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgpack

from ....coordinator.plan import COMMITTED, PLANNED, REFUSED, STATES, OutcomeRow
from ....proto.ids import COORDINATOR_ID, tablet_prefix, tx_text
from ....proto.messages import ADD, ShardPart
from ....tablets.partition import FORGOTTEN, standing
from ..simulator.world import World
from .readers import Seen


class Asked(Protocol):
    asked: dict[bytes, dict[int, Any]]


class Serial:
    """`model`: what is to be stored; `order`: the committed, by place; `wrong`: what contradicts it."""

    def __init__(
        self, world: World, asked: dict[bytes, dict[int, Any]], seen: Sequence[Seen] = ()
    ) -> None:
        self.model: dict[bytes, Any] = {}
        self.order: list[tuple[int, int, bytes]] = []
        self.wrong: list[str] = []
        self.refused = 0
        left = sorted(seen, key=lambda one: one.step, reverse=True)
        for step, n, tx, state in sorted(self._outcomes(world)):
            while left and left[-1].step < step:
                self._shown(left.pop())
            holds = all(_holds(self.model, tablet, part) for tablet, part in asked[tx].items())
            if holds != (state == COMMITTED):
                self.wrong.append(
                    f"B18: {tx_text(tx)} at {(step, n)} was {STATES[state]}; its conditions "
                    f"{'held' if holds else 'did not hold'} there: {asked[tx]}"
                )
            if holds:
                self.order.append((step, n, tx))
                for tablet, part in asked[tx].items():
                    _apply(self.model, tablet, part, step, n)
        while left:
            self._shown(left.pop())

    def _outcomes(self, world: World) -> Iterator[tuple[int, int, bytes, int]]:
        prefix = tablet_prefix(COORDINATOR_ID) + b"o"
        known: dict[bytes, None] = {}
        for key, row in world.stores[0].scan(prefix, prefix + b"\xff" * 13):
            tx, (state, step, n, _, _) = key[5:], OutcomeRow._make(row)
            known[tx] = None
            if state == PLANNED:
                self.wrong.append(f"B12: {tx_text(tx)} is left undecided")
                continue
            result = world.results.get(tx)
            if result is not None and (
                (result.reason is None) != (state == COMMITTED)
                or (result.reason is None and (result.step, result.n) != (step, n))
            ):
                self.wrong.append(
                    f"B12: {tx_text(tx)} is {STATES[state]}, its client heard {result}"
                )
            if state == REFUSED:
                self.refused += 1
            else:
                yield step, n, tx, state
        for tx, result in world.results.items():
            if result.reason is None and tx not in known:
                self.wrong.append(f"B12: {tx_text(tx)} was told committed, and nobody knows it")

    def _shown(self, seen: Seen) -> None:
        """What a snapshot showed is what the transactions up to its step had made."""
        for key, value in seen.values.items():
            at = tablet_prefix(key.tablet)
            if key.what == "row":
                should = self.model.get(at + b"r" + key.key)
            elif key.what == "bounds":
                should = self.model.get(at + b"m", (0, 0, 0, 0))[2:]
            else:
                row = self.model.get(at + b"c" + key.key, (0, 0, None, 0))
                should = (*row[2:4], (), _moved(self.model, at, key.key.decode()))
            if value != should:
                self.wrong.append(f"B17: snapshot {seen.step} has {value} at {key}, not {should}")


def expected(world: World, work: Asked) -> dict[bytes, Any]:
    """What is to be stored; raises where outcomes contradict it."""
    serial = Serial(world, work.asked)
    assert not serial.wrong, f"seed {world.seed}: {serial.wrong[0]}"
    return serial.model


def _moved(model: dict[bytes, Any], at: bytes, consumer: str) -> int:
    """The step of a consumer's last move; rows of consumers end with it."""
    row = model.get(at + b"c" + consumer.encode())
    moved: int = row[-1] if row is not None else model.get(at + FORGOTTEN, (0,))[0]
    return moved


def _holds(model: dict[bytes, Any], tablet: int, part: Any) -> bool:
    at = tablet_prefix(tablet)
    if at in model:
        return False  # dropped: nothing comes behind that
    if isinstance(part, ShardPart):
        for key, version in part.reads:
            row = model.get(at + b"r" + key)
            if (row[:2] if row else None) != version:
                return False
        return True
    start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
    fences = dict(part.fences)
    for consumer in {**fences, **{row[0]: 0 for row in part.ranges + part.acks}}:
        if _moved(model, at, consumer) != fences.get(consumer, 0):
            return False
    if part.end is not None and part.end != end:
        return False
    for consumer, begin, stop in part.ranges:
        position = model.get(at + b"c" + consumer.encode(), (0, 0, 0))[2]
        if max(position, start) != begin or stop > end:
            return False
    for _, begin, stop in part.acks:
        row = model.get(at + b"cI")
        if row is None or set(range(begin, stop)) & (row[4] | set(range(start))) or stop > end:
            return False
    if any(offset is not None and not start <= offset <= end for _, offset, _ in part.seeks):
        return False
    if part.trim is not None and part.trim > end:
        return False
    if part.producer is not None:
        known = model.get(at + b"p" + part.producer[0])
        if known is not None and part.producer[1] <= known[0]:
            foreign = part.session is not None and part.session != known[1]
            return part.dedupe and not foreign and part.producer[2] <= known[0]
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
    if part.drop:
        for key in [key for key in model if key[:4] == at]:
            del model[key]
        model[at] = None
        return
    start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
    for consumer, begin, stop in part.ranges:
        row = model.get(at + b"c" + consumer.encode())
        missed = 0 if row is None else row[3] + begin - row[2]
        moved = _moved(model, at, consumer)
        model[at + b"c" + consumer.encode()] = (step, n, stop, missed, moved)
    for _, begin, stop in part.acks:
        row = model[at + b"cI"]
        missed = set(range(start)) - row[4]
        taken = row[4] | missed | set(range(begin, stop))
        model[at + b"cI"] = (step, n, None, row[3] + len(missed), taken, row[-1])
    for consumer, offset, individual in part.seeks:
        row = model.get(at + b"c" + consumer.encode())
        if offset is None:
            if row is not None:
                del model[at + b"c" + consumer.encode()]
                model[at + FORGOTTEN] = (step, n)
            continue
        missed = 0 if row is None else row[3]
        known: Any = (None, missed, set(range(offset))) if individual else (offset, missed)
        model[at + b"c" + consumer.encode()] = (step, n, *known, step)
    if part.trim is not None and part.trim > start:
        model[at + b"m"] = (step, n, part.trim, end)
        for key in [key for key in model if key[:5] == at + b"b"]:
            if int.from_bytes(key[5:], "big") + model[key][1] <= part.trim:
                del model[key]
    if part.producer is not None:
        numbers = model.get(at + b"p" + part.producer[0])
        if numbers is not None and part.producer[2] <= numbers[0]:
            return  # a repeat: accepted, without effect
        model[at + b"p" + part.producer[0]] = (part.producer[2], part.session)
    for data, count in part.slices:
        start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
        model[at + b"b" + end.to_bytes(8, "big")] = (data, count, step, n)
        model[at + b"m"] = (step, n, start, end + count)


def stored(world: World) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for store in world.stores:
        for key, value in store.scan(b"\x30\0\0\0", b"\x50\0\0\0"):
            kind = key[4:5]
            if kind == b"b":
                address, length, count, step, n = value
                value = (store.read_payload(address, length), count, step, n)
            elif kind == b"p":
                value = (value[0], value[2])
            elif kind == b"c":
                step, n, position, missed, ranges, moved = standing(value, None)
                value = (step, n, position, missed, moved)
                if ranges is not None:
                    taken = set(range(position)).union(*(range(b, e) for b, e in ranges))
                    value = (step, n, None, missed, taken, moved)
            found[key] = value
    return found
