"""Defines short scripts of client transactions, each with the final state expected, for runner.py to interrupt.

    Scenario: steps of wants ─▶ runner.py runs it ─▶ goal: the expected final state, checked directly

A want is a transaction that the client wants done once, however often its attempts fail (`Want`). A step's wants
are submitted together; the next step begins when they have ended. The parts of a want are made for each attempt,
since a client that runs a transaction again reads again.

The goals do not use the model of serial_model.py. So an error stays hidden only if both the model and the goal
miss it.

Next: kafka_runner.py, the scenarios of mode "kafka"; bench/proof/rows/reboots.py, which interrupts them all.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack

from .....proto.ids import CATALOGUE_ID, PARTITION, SHARD, tablet_id
from .....proto.messages import (
    ADD,
    CREATE,
    DROP,
    PUT,
    CataloguePart,
    PartitionPart,
    ShardPart,
    Slice,
)
from .....tablets.catalogue import name_key
from .....tablets.shard import Row
from .runner import Rebooted, Want

Parts = dict[int, Any]
Steps = list[list[Want]]


class Scenario(NamedTuple):
    """`steps` makes the steps of a run; `goal` yields what is wrong at its end."""

    steps: Callable[["Tablets"], Steps]
    goal: Callable[["Tablets", Rebooted], Iterator[str]]


class Tablets:
    """Spreads partitions and shards over the hosts: consecutive ones live on different hosts."""

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts
        self.p = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(3)]
        self.s = [tablet_id(SHARD, (i + 1) % hosts, 20 + i) for i in range(3)]


def _write(*values: bytes, **fields: Any) -> PartitionPart[Slice]:
    return PartitionPart(slices=tuple((value, 1) for value in values), **fields)


def _consume(begin: int, end: int) -> PartitionPart[Slice]:
    return PartitionPart(ranges=(("c", begin, end),))


def _add(number: int = 1) -> ShardPart:
    return ShardPart(writes=((b"n", ADD, msgpack.packb(number)),))


def _put(key: bytes, value: bytes) -> ShardPart:
    return ShardPart(writes=((key, PUT, value),))


def _same(parts: Parts, **how: Any) -> Want:
    """Returns a want with the same parts for every attempt."""
    return Want(lambda run: parts, **how)


def _must(what: str, actual: object, *good: object) -> Iterator[str]:
    if actual not in good:
        yield f"{what}: {actual!r}, and not {' or '.join(map(repr, good))}"


def _number(run: Rebooted, tablet: int) -> int:
    row = run.read(tablet, b"rn")
    number: int = 0 if row is None else msgpack.unpackb(Row._make(row).value)
    return number


# one partition, several ------------------------------------------------------------------------


def _one(t: Tablets) -> Steps:
    return [[_same({t.p[1]: _write(b"%d" % i)})] for i in range(3)]


def _one_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    yield from _must("records", run.payloads(t.p[1]), [b"0", b"1", b"2"])


def _two(t: Tablets) -> Steps:
    return [
        [_same({t.p[0]: _write(b"%d" % i), t.p[1]: _write(b"%d" % i), t.p[2]: _write(b"x", b"y")})]
        for i in range(2)
    ]


def _two_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    for tablet in t.p[:2]:
        yield from _must("records", run.payloads(tablet), [b"0", b"1"])
    yield from _must("records", run.payloads(t.p[2]), [b"x", b"y", b"x", b"y"])


# consume, transform, produce -------------------------------------------------------------------


def _transform(t: Tablets) -> Steps:
    def next_one(run: Rebooted) -> Parts:
        at = run.position(t.p[0], "c")
        return {
            t.p[0]: _consume(at, at + 1),
            t.p[1]: _write(b"from %d" % at),
            t.s[0]: _add(),
            t.s[1]: _put(b"last", b"%d" % at),
        }

    return [[_same({t.p[0]: _write(b"a", b"b")})], [Want(next_one)], [Want(next_one)]]


def _transform_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    yield from _must("outputs", run.payloads(t.p[1]), [b"from 0", b"from 1"])
    yield from _must("the count", _number(run, t.s[0]), 2)
    yield from _must("the position", run.position(t.p[0], "c"), 2)


def _two_consumers(t: Tablets) -> Steps:
    both = [
        _same({t.p[0]: _consume(0, 1), t.p[i]: _write(b"%d" % i), t.s[0]: _add()}, may_fail=True)
        for i in (1, 2)
    ]
    return [[_same({t.p[0]: _write(b"a")})], both]


def _two_consumers_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    outputs = run.payloads(t.p[1]) + run.payloads(t.p[2])
    yield from _must("outputs of one record", outputs, [b"1"], [b"2"])
    yield from _must("the count", _number(run, t.s[0]), 1)


def _two_on_a_row(t: Tablets) -> Steps:
    def insert(value: bytes) -> ShardPart:
        return ShardPart(reads=((b"k", None),), writes=((b"k", PUT, value),))

    both = [
        _same({t.s[0]: insert(b"%d" % i), t.p[0]: _write(b"%d" % i)}, may_fail=True) for i in (1, 2)
    ]

    def change(run: Rebooted) -> Parts:
        read = ((b"k", run.version(t.s[0], b"k")),)
        return {t.s[0]: ShardPart(reads=read, writes=((b"k", PUT, b"3"),)), t.s[2]: _add()}

    return [both, [Want(change)]]


def _two_on_a_row_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    yield from _must("records", run.payloads(t.p[0]), [b"1"], [b"2"])
    yield from _must("the row", (run.read(t.s[0], b"rk") or (0, 0, b""))[2], b"3")
    yield from _must("the count", _number(run, t.s[2]), 1)


# sent ahead ------------------------------------------------------------------------------------


def _ahead(t: Tablets) -> Steps:
    parts = {t.p[1]: _write(b"a", b"b"), t.p[2]: _write(b"c"), t.s[0]: _add()}
    return [[_same(parts, ahead=True)], [_same({t.p[1]: _write(b"behind")})]]


def _ahead_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    yield from _must("records", run.payloads(t.p[1]), [b"a", b"b", b"behind"])
    yield from _must("records", run.payloads(t.p[2]), [b"c"])
    yield from _must("the count", _number(run, t.s[0]), 1)


def _rolled_back(t: Tablets) -> Steps:
    parts = {t.p[1]: _write(b"never"), t.p[2]: _write(b"never"), t.s[0]: _add()}
    return [[_same(parts, ahead=True, gives_up=True)], [_same({t.p[1]: _write(b"a")})]]


def _rolled_back_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    yield from _must("records", run.payloads(t.p[1]) + run.payloads(t.p[2]), [b"a"])
    yield from _must("the count", _number(run, t.s[0]), 0)


# names -----------------------------------------------------------------------------------------


def _names(t: Tablets) -> Steps:
    key = name_key(PARTITION, "t")

    def part(op: int, id: int = 0) -> CataloguePart:
        return CataloguePart(PARTITION, "t", 2, "bytes", t.hosts, op, id)

    def write(run: Rebooted) -> Parts:
        row = run.read(CATALOGUE_ID, key)
        return dict.fromkeys(row[1], _write(b"a"))

    def drop(run: Rebooted) -> Parts:
        row = run.read(CATALOGUE_ID, key)
        return {
            CATALOGUE_ID: part(DROP, row[0]),
            **dict.fromkeys(row[1], PartitionPart(drop=True)),
        }

    create = _same({CATALOGUE_ID: part(CREATE)})
    again = _same({CATALOGUE_ID: part(CREATE)})
    return [[create], [Want(write)], [Want(drop)], [again], [Want(write)]]


def _names_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    row = run.read(CATALOGUE_ID, name_key(PARTITION, "t"))
    tablets = row[1] if row else ()
    yield from _must("records", [run.payloads(tablet) for tablet in tablets], [[b"a"], [b"a"]])
    yield from _must("its first tablet", row and row[0], 3)


# positions, bounds, numbers --------------------------------------------------------------------


def _trim(t: Tablets) -> Steps:
    three = [[_same({t.p[1]: _write(b"%d" % i)})] for i in range(3)]
    return [
        *three,
        [_same({t.p[1]: _consume(0, 1)})],
        [_same({t.p[1]: PartitionPart(trim=2)})],
        [_same({t.p[1]: PartitionPart(seeks=(("c", 3, False),)), t.s[0]: _add()})],
    ]


def _trim_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    yield from _must("records", run.payloads(t.p[1]), [b"2"])
    yield from _must("bounds", (run.read(t.p[1], b"m") or ())[2:], (2, 3))
    yield from _must("the position", run.position(t.p[1], "c"), 3)


def _numbers(t: Tablets) -> Steps:
    def write(first: int) -> Want:
        part = _write(b"%d" % first, b"%d" % (first + 1))
        part = part._replace(producer=(b"p", first, first + 1), dedupe=True)
        return _same({t.p[1]: part}, blind=True)

    return [[write(1)], [write(3)], [write(5)]]


def _numbers_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    yield from _must("records", run.payloads(t.p[1]), [b"%d" % i for i in range(1, 7)])


def _chain(t: Tablets) -> Steps:
    """Each transaction holds only after the one before it, like commits of a reader that does not wait."""
    chain = [
        _same(
            {t.p[0]: _consume(i, i + 1), t.p[1]: _write(b"%d" % i), t.s[i]: _add()}, may_fail=i > 0
        )
        for i in range(3)
    ]
    rows = [_same({t.s[0]: _add(), t.s[1]: _add()}), _same({t.s[1]: _add(), t.p[2]: _write(b"c")})]
    return [[_same({t.p[0]: _write(b"x", b"y", b"z")})], [*chain, *rows]]


def _chain_goal(t: Tablets, run: Rebooted) -> Iterator[str]:
    moved = run.position(t.p[0], "c")
    yield from _must("how far it came", moved, 1, 2, 3)
    yield from _must("outputs", run.payloads(t.p[1]), [b"%d" % i for i in range(moved)])
    yield from _must("records", run.payloads(t.p[2]), [b"c"])
    counts = [_number(run, shard) for shard in t.s]
    yield from _must("counts", counts, [2, 2 + (moved > 1), int(moved > 2)])


SCENARIOS = {
    "one partition": Scenario(_one, _one_goal),
    "several partitions": Scenario(_two, _two_goal),
    "consume, produce, table": Scenario(_transform, _transform_goal),
    "two on one consumer": Scenario(_two_consumers, _two_consumers_goal),
    "two on one row": Scenario(_two_on_a_row, _two_on_a_row_goal),
    "sent ahead": Scenario(_ahead, _ahead_goal),
    "sent ahead, rolled back": Scenario(_rolled_back, _rolled_back_goal),
    "create, write, drop, create": Scenario(_names, _names_goal),
    "trim and seek": Scenario(_trim, _trim_goal),
    "producer's numbers again": Scenario(_numbers, _numbers_goal),
    "a chain in one turn": Scenario(_chain, _chain_goal),
}
