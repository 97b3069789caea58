"""Executes committed transactions one after the other, by place, and compares the result with the stores.

    outcomes of the coordinator, by (step, n) ─▶ conditions hold? as decided ─▶ effects ─▶ model
    stores of all hosts ─▶ stored(), in the model's form                     the two must be equal

Conditions are evaluated again: a needless abort is as wrong as a forbidden commit. The offsets that a client was
told must be those at which the model publishes.
Next: final_invariants.py.
"""

from collections import defaultdict
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
from ....tablets.participant import DROPPED
from ....tablets.partition import EMPTY, FORGOTTEN, Bounds, Entry, Numbers, standing
from ....tablets.shard import Row
from ..simulator.world import World
from .readers import SnapshotRead

Place = tuple[int, int]
Rows = dict[bytes, Any]
"""A tablet's rows, by their keys there; one that was dropped has only `DROPPED`."""


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
        self,
        world: World,
        requests: dict[bytes, dict[int, Any]],
        reads: Sequence[SnapshotRead] = (),
    ) -> None:
        self._tablets: defaultdict[int, Rows] = defaultdict(dict)
        self.order: list[tuple[int, int, bytes]] = []
        self.wrong: list[str] = []
        waiting = sorted(reads, key=lambda one: one.step, reverse=True)
        for step, n, tx, state in sorted(self._outcomes(world)):
            while waiting and waiting[-1].step < step:
                self._check_read(waiting.pop())
            parts = [(tablet, self._tablets[tablet], part) for tablet, part in requests[tx].items()]
            holds = all(_holds(rows, part) for _, rows, part in parts)
            holds = holds and not (state != COMMITTED and world.may_abort(tx))
            if holds != (state == COMMITTED):
                self.wrong.append(
                    f"B18: {tx_text(tx)} at {(step, n)} was {STATES[state]}; its conditions "
                    f"{'held' if holds else 'did not hold'} there: {requests[tx]}"
                )
            if holds:
                self.order.append((step, n, tx))
                result = world.results.get(tx)
                for tablet, rows, part in parts:
                    begin = _bounds(rows).end
                    _apply(rows, part, (step, n))
                    if result is not None and isinstance(part, PartitionPart) and part.slices:
                        self._offsets(world, result, tablet, begin)
        while waiting:
            self._check_read(waiting.pop())
        self.model = {
            tablet_prefix(tablet) + key: value
            for tablet, rows in self._tablets.items()
            for key, value in rows.items()
        }

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
            if state != REFUSED:
                yield step, n, tx, state
        for tx, result in world.results.items():
            if result.reason is None and tx not in known:
                self.wrong.append(f"B12: {tx_text(tx)} was told committed, and nobody knows it")

    def _offsets(self, world: World, result: Result, tablet: int, begin: int) -> None:
        """B20: checks the offsets of published records in a client's answer; an accepted repeat has none."""
        end = _bounds(self._tablets[tablet]).end
        should = (begin, end) if end > begin else None
        told = result.details.get(tablet, ())
        if told != should and not (told is None and world.forgets(tablet, begin)):
            heard = f"was told {result.details.get(tablet)} of tablet {tablet:#x}, not {should}"
            self.wrong.append(f"B20: {tx_text(result.tx)} {heard}")

    def _check_read(self, read: SnapshotRead) -> None:
        """B17: checks that a snapshot showed the state after all transactions up to its step."""
        for key, value in read.values.items():
            rows = self._tablets[key.tablet]
            should: Any
            if key.what == "row":
                should = rows.get(b"r" + key.key)
            elif key.what == "bounds":
                should = _bounds(rows)[2:]
            else:
                row = rows.get(b"c" + key.key, Consumer())
                should = (row.position, row.missed, (), _last_move(rows, key.key.decode()))
            if value != should:
                self.wrong.append(f"B17: snapshot {read.step} has {value} at {key}, not {should}")


def _bounds(rows: Rows) -> Bounds:
    bounds: Bounds = rows.get(b"m", EMPTY)
    return bounds


def _last_move(rows: Rows, consumer: str) -> int:
    """Returns the step of a consumer's last move, or of the last consumer forgotten in this partition."""
    row: Consumer | None = rows.get(b"c" + consumer.encode())
    forgotten, _ = rows.get(FORGOTTEN, (0, 0))
    return int(forgotten) if row is None else row.moved


def _holds(rows: Rows, part: Any) -> bool:
    if DROPPED in rows:
        return False  # nothing can commit there any more
    if isinstance(part, CataloguePart):
        known = rows.get(name_key(part.kind, part.name))
        return known is None if part.op == CREATE else known is not None and known[0] == part.id
    if isinstance(part, ShardPart):
        read = ((rows.get(b"r" + key), version) for key, version in part.reads)
        return all((row.version if row else None) == version for row, version in read)
    return (
        _are_known(rows, part)
        and part.end in (None, _bounds(rows).end)
        and _are_next(rows, part)
        and _are_untaken(rows, part)
        and _are_within(rows, part)
        and _is_new(rows, part)
    )


def _are_known(rows: Rows, part: PartitionPart[Slice]) -> bool:
    """Returns whether each consumer's last move is the one that the transaction knows."""
    fences = dict(part.fences)
    consumers = {**fences, **{name: 0 for name, _, _ in part.ranges + part.acks}}
    return all(_last_move(rows, name) == fences.get(name, 0) for name in consumers)


def _are_next(rows: Rows, part: PartitionPart[Slice]) -> bool:
    """Returns whether each range begins at its consumer's position and ends within the log."""
    _, _, start, end = _bounds(rows)
    for consumer, begin, stop in part.ranges:
        known = rows.get(b"c" + consumer.encode(), Consumer(position=0))
        if max(known.position, start) != begin or stop > end:
            return False
    return True


def _are_untaken(rows: Rows, part: PartitionPart[Slice]) -> bool:
    """Returns whether the offsets that an individual consumer takes exist and are not taken yet."""
    _, _, start, end = _bounds(rows)
    for _, begin, stop in part.acks:
        row = rows.get(b"cI")
        if row is None or stop > end or set(range(begin, stop)) & (row.taken | set(range(start))):
            return False
    return True


def _are_within(rows: Rows, part: PartitionPart[Slice]) -> bool:
    """Returns whether seeks stay within the log and trims do not pass its end."""
    _, _, start, end = _bounds(rows)
    if any(offset is not None and not start <= offset <= end for _, offset, _ in part.seeks):
        return False
    return part.trim is None or part.trim <= end


def _is_new(rows: Rows, part: PartitionPart[Slice]) -> bool:
    """Returns whether a producer's numbers are new, or an accepted repeat of published ones."""
    if part.producer is None:
        return True
    producer, first, last = part.producer
    known = rows.get(b"p" + producer)
    if known is None or first > known.last:
        return True
    foreign = part.session is not None and part.session != known.session
    return part.dedupe and not foreign and bool(last <= known.last)


def _apply(rows: Rows, part: Any, place: Place) -> None:
    if isinstance(part, CataloguePart):
        _name(rows, part, place)
    elif isinstance(part, ShardPart):
        _write(rows, part, place)
    elif part.drop:
        rows.clear()
        rows[DROPPED] = None
    else:
        _consume(rows, part, place)
        _seek(rows, part, place)
        _trim(rows, part, place)
        _publish(rows, part, place)


def _name(rows: Rows, part: CataloguePart, place: Place) -> None:
    """Creates or drops a topic or a table; these worlds ask the catalogue for nothing else."""
    step, _ = place
    key = name_key(part.kind, part.name)
    if part.op == CREATE:
        first = rows.get(SEQUENCE, 1)
        numbers = range(first, first + part.parts)
        tablets = tuple(tablet_id(part.kind, number % part.hosts, number) for number in numbers)
        rows[key] = (first, tablets, part.format, step, part.options)
        rows[SEQUENCE] = first + part.parts
    else:
        assert part.op == DROP, part
        _, tablets, *_ = rows.pop(key)
        rows[dropped_key(part.id)] = (part.kind, part.name, tablets, step)


def _write(rows: Rows, part: ShardPart, place: Place) -> None:
    for key, op, value in part.writes:
        old = rows.get(b"r" + key)
        if op == ADD and old is not None:
            value = msgpack.packb(msgpack.unpackb(old.value) + msgpack.unpackb(value))
        rows[b"r" + key] = Row(*place, value)


def _consume(rows: Rows, part: PartitionPart[Slice], place: Place) -> None:
    for consumer, begin, stop in part.ranges:
        row = rows.get(b"c" + consumer.encode())
        missed = 0 if row is None else row.missed + begin - row.position
        moved = _last_move(rows, consumer)
        rows[b"c" + consumer.encode()] = Consumer(*place, stop, missed, None, moved)
    for _, begin, stop in part.acks:
        row = rows[b"cI"]
        below = set(range(_bounds(rows).start)) - row.taken
        taken = row.taken | below | set(range(begin, stop))
        rows[b"cI"] = Consumer(*place, None, row.missed + len(below), taken, row.moved)


def _seek(rows: Rows, part: PartitionPart[Slice], place: Place) -> None:
    """Moves consumers; a seek without an offset forgets the consumer."""
    step, _ = place
    for consumer, offset, individual in part.seeks:
        key = b"c" + consumer.encode()
        if offset is None:
            if rows.pop(key, None) is not None:
                rows[FORGOTTEN] = place
            continue
        missed = rows.get(key, Consumer()).missed
        position, taken = (None, set(range(offset))) if individual else (offset, None)
        rows[key] = Consumer(*place, position, missed, taken, step)


def _trim(rows: Rows, part: PartitionPart[Slice], place: Place) -> None:
    _, _, start, end = _bounds(rows)
    if part.trim is None or part.trim <= start:
        return
    rows[b"m"] = Bounds(*place, part.trim, end)
    for key in [key for key in rows if key[:1] == b"b"]:
        if int.from_bytes(key[1:], "big") + rows[key].records <= part.trim:
            del rows[key]


def _publish(rows: Rows, part: PartitionPart[Slice], place: Place) -> None:
    if part.producer is not None:
        producer, _, last = part.producer
        known = rows.get(b"p" + producer)
        if known is not None and last <= known.last:
            return  # an accepted repeat has no effect
        rows[b"p" + producer] = Producer(last, part.session)
    for data, count in part.slices:
        _, _, start, end = _bounds(rows)
        rows[b"b" + end.to_bytes(8, "big")] = Published(data, count, *place)
        rows[b"m"] = Bounds(*place, start, end + count)


def stored_rows(world: World) -> dict[bytes, Any]:
    rows: dict[bytes, Any] = {}
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
            rows[key] = value
    return rows
