"""Executes committed transactions one after the other, by place, and compares the result with the stores.

    outcomes of the coordinator, by (step, n) ─▶ conditions hold? as decided ─▶ effects ─▶ model
    stores of all hosts ─▶ stored(), in the model's form                     the two must be equal

Conditions are evaluated again: a needless abort is as wrong as a forbidden commit. The offsets that a client was
told must be those at which the model publishes.
Next: final_invariants.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from ....coordinator.plan import COMMITTED, PLANNED, REFUSED, STATES, OutcomeRow
from ....proto.ids import CATALOGUE, COORDINATOR_ID, tablet_id, tablet_prefix, tx_text
from ....proto.messages import (
    ADD,
    CREATE,
    DROP,
    CataloguePart,
    PartitionPart,
    ShardPart,
    Slice,
)
from ....proxy.deterministic import Result
from ....tablets.catalogue import SEQUENCE, dropped_key, name_key
from ....tablets.partition import EMPTY, FORGOTTEN, Bounds, Entry, Numbers, standing
from ....tablets.shard import Row
from ..simulator.world import World
from .readers import Seen

Place = tuple[int, int]


class Published(NamedTuple):
    """A published slice, with its bytes in place of their address."""

    data: bytes
    records: int
    step: int
    n: int


class Producer(NamedTuple):
    """The last number that a producer has published, and the session that sent it."""

    last: int
    session: bytes | None


class Consumer(NamedTuple):
    """A consumer: a cumulative one has a `position`, an individual one the offsets `taken`.

    `moved` is the step of its last move.
    """

    step: int = 0
    n: int = 0
    position: int | None = None
    missed: int = 0
    taken: set[int] | None = None
    moved: int = 0


class Serial:
    """Executes a world's transactions serially, from the outcomes.

    `model`: the expected rows; `order`: committed transactions, by place; `wrong`: contradictions.
    """

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
                result = world.results.get(tx)
                for tablet, part in asked[tx].items():
                    begin = self._end(tablet)
                    _apply(self.model, tablet, part, step, n)
                    if result is not None and isinstance(part, PartitionPart) and part.slices:
                        self._offsets(result, tablet, begin)
        while left:
            self._shown(left.pop())

    def _outcomes(self, world: World) -> Iterator[tuple[int, int, bytes, int]]:
        known: dict[bytes, None] = {}
        for key, row in world.rows(COORDINATOR_ID, b"o"):
            tx, (state, step, n, _, _) = key[1:], OutcomeRow._make(row)
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

    def _end(self, tablet: int) -> int:
        bounds: Bounds = self.model.get(tablet_prefix(tablet) + b"m", EMPTY)
        return bounds.end

    def _offsets(self, result: Result, tablet: int, begin: int) -> None:
        """B20: checks the offsets of published records in a client's answer; an accepted repeat has none."""
        end = self._end(tablet)
        should = (begin, end) if end > begin else None
        if tablet not in result.details or result.details[tablet] != should:
            heard = f"was told {result.details.get(tablet)} of tablet {tablet:#x}, not {should}"
            self.wrong.append(f"B20: {tx_text(result.tx)} {heard}")

    def _shown(self, seen: Seen) -> None:
        """B17: checks that a snapshot showed the state after all transactions up to its step."""
        for key, value in seen.values.items():
            at = tablet_prefix(key.tablet)
            if key.what == "row":
                should = self.model.get(at + b"r" + key.key)
            elif key.what == "bounds":
                bounds = self.model.get(at + b"m", EMPTY)
                should = (bounds.start, bounds.end)
            else:
                row = self.model.get(at + b"c" + key.key, Consumer())
                moved = _moved(self.model, at, key.key.decode())
                should = (row.position, row.missed, (), moved)
            if value != should:
                self.wrong.append(f"B17: snapshot {seen.step} has {value} at {key}, not {should}")


def _moved(model: dict[bytes, Any], at: bytes, consumer: str) -> int:
    """Returns the step of a consumer's last move, or of the last consumer forgotten in this partition."""
    row: Consumer | None = model.get(at + b"c" + consumer.encode())
    forgotten, _ = model.get(at + FORGOTTEN, (0, 0))
    return int(forgotten) if row is None else row.moved


def _holds(model: dict[bytes, Any], tablet: int, part: Any) -> bool:
    at = tablet_prefix(tablet)
    if at in model:
        return False  # dropped: nothing can commit there any more
    if isinstance(part, CataloguePart):
        known = model.get(at + name_key(part.kind, part.name))
        return known is None if part.op == CREATE else known is not None and known[0] == part.id
    if isinstance(part, ShardPart):
        rows = ((model.get(at + b"r" + key), version) for key, version in part.reads)
        return all((row.version if row else None) == version for row, version in rows)
    bounds: Bounds = model.get(at + b"m", EMPTY)
    return (
        _are_known(model, at, part)
        and part.end in (None, bounds.end)
        and _are_next(model, at, bounds, part)
        and _are_untaken(model, at, bounds, part)
        and _are_within(bounds, part)
        and _is_new(model, at, part)
    )


def _are_known(model: dict[bytes, Any], at: bytes, part: PartitionPart[Slice]) -> bool:
    """Returns whether each consumer's last move is the one that the transaction knows."""
    fences = dict(part.fences)
    consumers = {**fences, **{name: 0 for name, _, _ in part.ranges + part.acks}}
    return all(_moved(model, at, name) == fences.get(name, 0) for name in consumers)


def _are_next(
    model: dict[bytes, Any], at: bytes, bounds: Bounds, part: PartitionPart[Slice]
) -> bool:
    """Returns whether each range begins at its consumer's position and ends within the log."""
    for consumer, begin, stop in part.ranges:
        known = model.get(at + b"c" + consumer.encode(), Consumer(position=0))
        if max(known.position, bounds.start) != begin or stop > bounds.end:
            return False
    return True


def _are_untaken(
    model: dict[bytes, Any], at: bytes, bounds: Bounds, part: PartitionPart[Slice]
) -> bool:
    """Returns whether the offsets that an individual consumer takes exist and are not taken yet."""
    for _, begin, stop in part.acks:
        row = model.get(at + b"cI")
        if row is None or stop > bounds.end:
            return False
        if set(range(begin, stop)) & (row.taken | set(range(bounds.start))):
            return False
    return True


def _are_within(bounds: Bounds, part: PartitionPart[Slice]) -> bool:
    """Returns whether seeks stay within the log and trims do not pass its end."""
    start, end = bounds.start, bounds.end
    if any(offset is not None and not start <= offset <= end for _, offset, _ in part.seeks):
        return False
    return part.trim is None or part.trim <= end


def _is_new(model: dict[bytes, Any], at: bytes, part: PartitionPart[Slice]) -> bool:
    """Returns whether a producer's numbers are new, or an accepted repeat of published ones."""
    if part.producer is None:
        return True
    producer, first, last = part.producer
    known = model.get(at + b"p" + producer)
    if known is None or first > known.last:
        return True
    foreign = part.session is not None and part.session != known.session
    return part.dedupe and not foreign and bool(last <= known.last)


def _apply(model: dict[bytes, Any], tablet: int, part: Any, step: int, n: int) -> None:
    at, place = tablet_prefix(tablet), (step, n)
    if isinstance(part, CataloguePart):
        _name(model, at, part, step)
    elif isinstance(part, ShardPart):
        _write(model, at, part, place)
    elif part.drop:
        for key in [key for key in model if key[:4] == at]:
            del model[key]
        model[at] = None
    else:
        _consume(model, at, part, place)
        _seek(model, at, part, place)
        _trim(model, at, part, place)
        _publish(model, at, part, place)


def _name(model: dict[bytes, Any], at: bytes, part: CataloguePart, step: int) -> None:
    """Creates or drops a topic or a table; these worlds ask the catalogue for nothing else."""
    key = at + name_key(part.kind, part.name)
    if part.op == CREATE:
        first = model.get(at + SEQUENCE, 1)
        numbers = range(first, first + part.parts)
        tablets = tuple(tablet_id(part.kind, number % part.hosts, number) for number in numbers)
        model[key] = (first, tablets, part.format, step, part.options)
        model[at + SEQUENCE] = first + part.parts
    else:
        assert part.op == DROP, part
        _, tablets, *_ = model.pop(key)
        model[at + dropped_key(part.id)] = (part.kind, part.name, tablets, step)


def _write(model: dict[bytes, Any], at: bytes, part: ShardPart, place: Place) -> None:
    for key, op, value in part.writes:
        old = model.get(at + b"r" + key)
        if op == ADD and old is not None:
            value = msgpack.packb(msgpack.unpackb(old.value) + msgpack.unpackb(value))
        model[at + b"r" + key] = Row(*place, value)


def _consume(model: dict[bytes, Any], at: bytes, part: PartitionPart[Slice], place: Place) -> None:
    for consumer, begin, stop in part.ranges:
        row = model.get(at + b"c" + consumer.encode())
        missed = 0 if row is None else row.missed + begin - row.position
        moved = _moved(model, at, consumer)
        model[at + b"c" + consumer.encode()] = Consumer(*place, stop, missed, None, moved)
    start = model.get(at + b"m", EMPTY).start
    for _, begin, stop in part.acks:
        row = model[at + b"cI"]
        below = set(range(start)) - row.taken
        taken = row.taken | below | set(range(begin, stop))
        model[at + b"cI"] = Consumer(*place, None, row.missed + len(below), taken, row.moved)


def _seek(model: dict[bytes, Any], at: bytes, part: PartitionPart[Slice], place: Place) -> None:
    """Moves consumers; a seek without an offset forgets the consumer."""
    step, _ = place
    for consumer, offset, individual in part.seeks:
        row = model.get(at + b"c" + consumer.encode())
        if offset is None:
            if row is not None:
                del model[at + b"c" + consumer.encode()]
                model[at + FORGOTTEN] = place
            continue
        missed = 0 if row is None else row.missed
        position, taken = (None, set(range(offset))) if individual else (offset, None)
        known = Consumer(*place, position, missed, taken, step)
        model[at + b"c" + consumer.encode()] = known


def _trim(model: dict[bytes, Any], at: bytes, part: PartitionPart[Slice], place: Place) -> None:
    bounds = model.get(at + b"m", EMPTY)
    if part.trim is None or part.trim <= bounds.start:
        return
    model[at + b"m"] = Bounds(*place, part.trim, bounds.end)
    for key in [key for key in model if key[:5] == at + b"b"]:
        if int.from_bytes(key[5:], "big") + model[key].records <= part.trim:
            del model[key]


def _publish(model: dict[bytes, Any], at: bytes, part: PartitionPart[Slice], place: Place) -> None:
    if part.producer is not None:
        producer, _, last = part.producer
        numbers = model.get(at + b"p" + producer)
        if numbers is not None and last <= numbers.last:
            return  # an accepted repeat has no effect
        model[at + b"p" + producer] = Producer(last, part.session)
    for data, count in part.slices:
        _, _, start, end = model.get(at + b"m", EMPTY)
        model[at + b"b" + end.to_bytes(8, "big")] = Published(data, count, *place)
        model[at + b"m"] = Bounds(*place, start, end + count)


def stored(world: World) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for store in world.stores:
        for key, value in store.scan(b"\x20\0\0\0", b"\x50\0\0\0"):
            kind = key[4:5]
            if key[0] >> 4 == CATALOGUE:
                pass  # the catalogue's rows have the model's form already
            elif kind == b"b":
                address, length, count, step, n = Entry._make(value)
                value = Published(store.read_payload(address, length), count, step, n)
            elif kind == b"p":
                numbers = Numbers._make(value)
                value = Producer(numbers.last, numbers.session)
            elif kind == b"c":
                step, n, position, missed, ranges, moved = standing(value, None)
                value = Consumer(step, n, position, missed, None, moved)
                if ranges is not None:
                    taken = set(range(position)).union(*(range(b, e) for b, e in ranges))
                    value = Consumer(step, n, None, missed, taken, moved)
            found[key] = value
    return found
