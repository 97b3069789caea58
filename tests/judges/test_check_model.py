"""Tests the checker against brute force on small random histories, right and wrong, replayed in order."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from planstep.bench.judges.python import IN_PLACE, PLANNED, judge
from planstep.bench.judges.python.findings import (
    DIRTY_READ,
    FOREIGN_READ,
    FUTURE_READ,
    OFFSET_GAP,
    OFFSET_OVERLAP,
    PLACE_REPEATED,
    POSITION_GAP,
    POSITION_OVERLAP,
    REAL_TIME,
    STALE_READ,
)
from planstep.bench.judges.python.logs import components
from planstep.bench.judges.trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    PRODUCE,
    READ,
    ROW,
    TOPIC,
    UNDETERMINED,
    WRITE,
    Operation,
    Trace,
    Transaction,
)

READS = (DIRTY_READ, STALE_READ, FUTURE_READ, FOREIGN_READ)
POSITIONS = (POSITION_GAP, POSITION_OVERLAP)
OFFSETS = (OFFSET_GAP, OFFSET_OVERLAP)


class Drawing:
    """Draws a few transactions over two rows, a consumer and a partition: correct, or nearly so."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.trace = draw, Trace()
        self.rows = [self.trace.lane(ROW, "t", key=key) for key in "ab"]
        self.consumer = self.trace.lane(CONSUMER, "in/c", 0)
        self.topic = self.trace.lane(TOPIC, "out", 0)
        self.count = draw.randrange(1, 7)
        self.last = {lane: -1 for lane in self.rows}
        self.position, self.offset, self.clock = 0, 10, 0
        self.wrong = draw.random() < 0.7
        for tx in draw.sample(range(self.count), self.count):
            self.transaction(tx)
        draw.shuffle(self.trace.transactions)

    def bent(self, value: int, by: int) -> int:
        wrong = self.wrong and self.draw.random() < 0.15
        return value + self.draw.choice((-by, by)) if wrong else value

    def transaction(self, tx: int) -> None:
        draw = self.draw
        committed = draw.random() >= 0.2
        operations = [*self.reads(tx), *self.moves(tx, committed), *self.writes(tx, committed)]
        self.clock += draw.randrange(3)
        begin, reply = self.clock - draw.randrange(1, 5), self.clock + draw.randrange(1, 5)
        if self.wrong and draw.random() < 0.2:
            begin, reply = begin + 8, reply + 8
        step, n = (draw.choice((self.clock, self.clock + 1)), tx) if committed else (None, None)
        draw.shuffle(operations)
        self.trace.operations += operations
        outcome = COMMITTED if committed else ABORTED
        self.trace.transactions.append(
            Transaction(tx, str(tx), "w", outcome, step, n, begin=begin, reply=reply)
        )

    def reads(self, tx: int) -> Iterator[Operation]:
        for lane in self.rows:
            if self.draw.random() < 0.5:
                version = self.last[lane]
                if self.wrong and self.draw.random() < 0.2:
                    version = self.draw.randrange(-1, self.count)
                yield Operation(tx, READ, lane, version=version)

    def moves(self, tx: int, committed: bool) -> Iterator[Operation]:
        """Yields the operations that consume and publish."""
        if self.draw.random() < 0.7:
            begin = self.bent(self.position, 1)
            end = begin + self.draw.randrange(1, 3)
            yield Operation(tx, CONSUME, self.consumer, begin, end)
            self.position = end if committed else self.position
        if self.draw.random() < 0.7 and committed:
            begin = self.bent(self.offset, 1)
            yield Operation(tx, PRODUCE, self.topic, begin, begin + 1, 1)
            self.offset = begin + 1

    def writes(self, tx: int, committed: bool) -> Iterator[Operation]:
        for lane in self.rows:
            if self.draw.random() < 0.5:
                yield Operation(tx, WRITE, lane)
                if committed:
                    self.last[lane] = tx


def random_trace(draw: random.Random) -> Trace:
    return Drawing(draw).trace


def replayed(trace: Trace) -> dict[str, bool]:
    """Returns by group whether something is wrong, by brute force over every pair and every operation."""
    placed = sorted(
        (row for row in trace.transactions if row.outcome == COMMITTED),
        key=lambda row: (row.step, row.n),
    )
    mine = {row.tx: [o for o in trace.operations if o.tx == row.tx] for row in placed}
    rows: dict[int, int] = {}
    reads = False
    for row in placed:
        reads |= any(o.op == READ and o.version != rows.get(o.lane, -1) for o in mine[row.tx])
        rows |= {o.lane: row.tx for o in mine[row.tx] if o.op == WRITE}
    real_time = any(
        (later.reply or 0) < (earlier.begin or 0)
        for i, earlier in enumerate(placed)
        for later in placed[i + 1 :]
    )
    spans = {
        op: [(o.begin, o.end) for row in placed for o in mine[row.tx] if o.op == op]
        for op in (CONSUME, PRODUCE)
    }
    consumed, produced = spans[CONSUME], spans[PRODUCE]
    return {
        "reads": reads,
        "real time": real_time,
        "positions": any(a[1] != b[0] for a, b in pairwise([(0, 0), *consumed])),
        "offsets": any(a[1] != b[0] for a, b in pairwise(produced)),
    }


def test_the_verdict_is_that_of_brute_force() -> None:
    draw = random.Random(1)
    wrong = dict.fromkeys(("reads", "real time", "positions", "offsets", "nothing"), 0)
    for _ in range(3_000):
        trace = random_trace(draw)
        counts = judge(trace, mode=PLANNED, stored=()).counts
        verdict = {
            "reads": any(name in counts for name in READS),
            "real time": REAL_TIME in counts,
            "positions": any(name in counts for name in POSITIONS),
            "offsets": any(name in counts for name in OFFSETS),
        }
        assert verdict == replayed(trace), (trace, counts)
        for name, is_wrong in verdict.items():
            wrong[name] += is_wrong
        wrong["nothing"] += not any(verdict.values())
    assert min(wrong.values()) > 150, wrong  # each verdict occurred both ways


def reachable(edges: dict[int, list[int]], begin: int) -> set[int]:
    nodes, todo = set[int](), [begin]
    while todo:
        for to in edges.get(todo.pop(), ()):
            if to not in nodes:
                nodes.add(to)
                todo.append(to)
    return nodes


def test_components_are_those_that_reach_each_other() -> None:
    draw = random.Random(2)
    cycles = 0
    for _ in range(500):
        edges = {tx: [to for to in range(7) if to != tx and draw.random() < 0.2] for tx in range(7)}
        reach = {tx: reachable(edges, tx) for tx in edges}
        wanted = {
            frozenset(other for other in reach if other in reach[tx] and tx in reach[other])
            for tx in reach
            if tx in reach[tx]
        }
        assert {frozenset(component) for component in components(edges)} == wanted
        cycles += bool(wanted)
    assert cycles > 100


def small(*transactions: Transaction, operations: list[Operation] | None = None) -> Trace:
    trace = Trace(transactions=list(transactions), operations=operations or [])
    trace.lane(ROW, "t", key="a")
    trace.lane(CONSUMER, "in/c", 0)
    return trace


def committed(tx: int, step: int | None, n: int | None = 0, **more: int) -> Transaction:
    return Transaction(tx, str(tx), "w", COMMITTED, step, n, **more)


def test_places_are_given_once_and_to_the_committed_only() -> None:
    assert judge(small(committed(0, 1), committed(1, 1)), mode=PLANNED).counts == {
        PLACE_REPEATED: 1
    }
    assert judge(small(committed(0, None)), mode=PLANNED).counts == {"place missing": 1}
    aborted = Transaction(0, "0", "w", ABORTED, 1, 0)
    assert judge(small(aborted), mode=PLANNED).counts == {"place of an aborted one": 1}


def test_those_that_only_read_share_a_place_behind_their_step() -> None:
    reads = [Operation(tx, READ, 0, version=0) for tx in (1, 2)]
    writes = [Operation(0, WRITE, 0), Operation(3, WRITE, 0)]
    readers = (committed(1, 1, None, begin=5, reply=6), committed(2, 1, None, begin=7, reply=8))
    rows = (committed(0, 1, 7), *readers, committed(3, 2))
    assert judge(small(*rows, operations=[*reads, *writes]), mode=PLANNED).counts == {}
    early = [reads[0]._replace(version=-1), reads[1], *writes]
    assert judge(small(*rows, operations=early), mode=PLANNED).counts == {STALE_READ: 1}


def read_of(version: int) -> Trace:
    """Makes a transaction that read this version of a row."""
    aborted = Transaction(1, "1", "w", ABORTED)
    rows = (committed(0, 1), aborted, committed(2, 2), committed(3, 3), committed(4, 1, 1))
    operations = [Operation(tx, WRITE, 0) for tx in (0, 1, 3)]
    operations.append(Operation(2, READ, 0, version=version))
    return small(*rows, operations=operations)


@pytest.mark.parametrize(
    ("version", "name"),
    ((1, DIRTY_READ), (-1, STALE_READ), (3, FUTURE_READ), (4, FOREIGN_READ), (9, FOREIGN_READ)),
)
def test_a_wrong_read_is_called_by_its_name(version: int, name: str) -> None:
    assert judge(read_of(version), mode=PLANNED).counts == {name: 1}


def seen_then(version: int) -> Trace:
    """Makes a write of unknown outcome that one transaction read, and a later one that read this version."""
    unknown = Transaction(1, "1", "w", UNDETERMINED)
    rows = (committed(0, 1), unknown, committed(2, 2), committed(3, 3), committed(4, 4))
    writes = [Operation(tx, WRITE, 0) for tx in (0, 1, 3)]
    reads = [Operation(2, READ, 0, version=1), Operation(4, READ, 0, version=version)]
    return small(*rows, operations=[*writes, *reads])


def test_an_undetermined_write_counts_once_seen_and_does_not_come_back() -> None:
    assert judge(seen_then(3), mode=PLANNED).counts == {}
    assert judge(seen_then(1), mode=PLANNED).counts == {STALE_READ: 1}


def bridged(*tries: tuple[int, int]) -> Trace:
    """Makes ranges [0, 2) and [5, 6) that were consumed, and one transaction of unknown outcome with these."""
    unknown = Transaction(1, "1", "w", UNDETERMINED)
    spans = [(0, 0, 2), (2, 5, 6), *((1, *span) for span in tries)]
    operations = [Operation(tx, CONSUME, 1, begin, end) for tx, begin, end in spans]
    return small(committed(0, 1), unknown, committed(2, 2), operations=operations)


def test_an_undetermined_range_may_fill_a_gap() -> None:
    for tries, counts in (
        (((2, 5),), {}),
        (((2, 4), (4, 5), (2, 6)), {}),
        (((2, 4),), {POSITION_GAP: 1}),
        (((2, 6),), {POSITION_GAP: 1}),
    ):
        assert judge(bridged(*tries), mode=PLANNED).counts == counts


def test_where_a_consumer_stood_before() -> None:
    trace = small(committed(0, 1), operations=[Operation(0, CONSUME, 1, 7, 9)])
    assert judge(trace, mode=PLANNED).counts == {POSITION_GAP: 1}
    assert judge(trace, mode=PLANNED, starts={("in/c", 0): 7}).counts == {}


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="transaction 0 twice"):
        judge(small(committed(0, 1), committed(0, 2)), mode=PLANNED)
    with pytest.raises(ValueError, match="mode is one of"):
        judge(small(), mode="serial")
    assert judge(Trace(), mode=PLANNED).clean and judge(Trace(), mode=IN_PLACE).clean
