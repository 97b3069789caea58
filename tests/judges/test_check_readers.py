"""Tests anomalies of logs and of their readers, each made by hand, next to a history without any."""

import pytest
from histories import Identity, add_consume, add_produce, add_transaction, put, show

from planstep.bench.judges.python import IN_PLACE, NONE, PLANNED, judge
from planstep.bench.judges.python.findings import (
    ABORTED_READ,
    ABORTED_VISIBLE,
    G0,
    G1C,
    G1C_WW,
    INCONSISTENT_OFFSET,
    INTERNAL_NON_MONOTONIC_POLL,
    INTERNAL_POLL_SKIP,
    INTERNAL_SEND_SKIP,
    LOST,
    NON_MONOTONIC_POLL,
    NON_MONOTONIC_SEND,
    OFFSET_GAP,
    POLL_SKIP,
    PRECOMMITTED_READ,
    UNSEEN,
)
from planstep.bench.judges.trace import (
    ABORTED,
    COMMITTED,
    PRODUCE,
    TOPIC,
    Operation,
    Trace,
)


def followed(*polls: dict[int, Identity], proposed: int = 0, outcome: str = COMMITTED) -> Trace:
    """Makes a partition with three records of one transaction, and a reader's polls of it."""
    trace = Trace()
    add_transaction(trace, 0, outcome, proposed=proposed)
    add_produce(trace, 0, 3)
    put(trace, 0, RECORDS)
    for number, poll in enumerate(polls):
        show(trace, number, poll)
    return trace


RECORDS: list[Identity] = [(0, 0, 0), (0, 1, 0), (0, 2, 0)]
A, B, C = ({n: record} for n, record in enumerate(RECORDS))


POLLS: list[tuple[list[dict[int, Identity]], dict[str, int]]] = [
    ([A | B, C], {}),
    ([B | C], {}),  # the reader began there
    ([A | B], {UNSEEN: 1}),
    ([A, C], {POLL_SKIP: 1}),
    ([A | C], {INTERNAL_POLL_SKIP: 1}),
    ([A | B, B | C], {NON_MONOTONIC_POLL: 1}),
    ([B | A, C], {INTERNAL_NON_MONOTONIC_POLL: 1, POLL_SKIP: 1}),
    ([A | {1: (0, 8, 0)}, C], {INCONSISTENT_OFFSET: 1}),
    ([A | B | C, {3: (0, 3, 0)}], {LOST: 1}),
    ([A | B | C, {3: (0, 3, 5)}], {ABORTED_READ: 1}),
]


@pytest.mark.parametrize(("polls", "counts"), POLLS)
def test_what_a_reader_was_shown(polls: list[dict[int, Identity]], counts: dict[str, int]) -> None:
    assert judge(followed(*polls), mode=IN_PLACE).counts == counts


def test_a_reader_is_shown_nothing_too_early_and_nothing_aborted() -> None:
    assert judge(followed(A | B | C, proposed=100)).counts == {}
    assert judge(followed(A | B | C, proposed=101)).counts == {PRECOMMITTED_READ: 1}
    counts = judge(followed(A | B | C, outcome=ABORTED)).counts
    assert counts == {ABORTED_VISIBLE: 3, ABORTED_READ: 3}


def interleaved(orders: list[list[int]]) -> Trace:
    """Makes partitions whose records were written by these transactions, in this order."""
    trace = Trace()
    for tx in sorted({tx for order in orders for tx in order}):
        add_transaction(trace, tx)
        for partition, order in enumerate(orders):
            if tx in order:
                add_produce(trace, tx, order.count(tx), partition)
    for partition, order in enumerate(orders):
        put(trace, partition, [(partition, n, tx) for n, tx in enumerate(order)])
    return trace


ORDERS: list[tuple[list[list[int]], dict[str, int]]] = [
    ([[0, 0, 1], [0, 1, 1]], {}),
    ([[0, 1, 0]], {INTERNAL_SEND_SKIP: 1, G0: 1}),
    ([[0, 1], [1, 0]], {G0: 1}),
    ([[0, 1], [1, 2], [2, 0]], {G0: 1}),
]


@pytest.mark.parametrize(("orders", "counts"), ORDERS)
def test_writes_that_interleave_are_kafkas_alone(
    orders: list[list[int]], counts: dict[str, int]
) -> None:
    trace = interleaved(orders)
    kafka, strict = judge(trace, mode=IN_PLACE), judge(trace, mode=NONE)
    assert kafka.counts == strict.counts == counts
    assert kafka.clean and strict.forbidden == counts


def circle() -> Trace:
    """Makes two transactions that consume each other's record."""
    trace = interleaved([[0], [1]])
    add_consume(trace, 0, 0, 1, "out/c", 1)
    add_consume(trace, 1, 0, 1, "out/c", 0)
    return trace


def mixed_circle() -> Trace:
    """Makes two of which one consumes the other's record, and the other writes behind the one's."""
    trace = interleaved([[0, 1], [1]])
    add_consume(trace, 0, 0, 1, "out/c", 1)
    return trace


def test_circular_flow() -> None:
    """Each consumed the other's record: forbidden. If one edge is an order of writes, Kafka allows it."""
    trace, mixed = circle(), mixed_circle()
    assert judge(trace, mode=IN_PLACE).forbidden == {G1C: 1}
    assert judge(trace, mode=IN_PLACE).counts == {G1C: 1, G1C_WW: 1}
    assert judge(mixed, mode=IN_PLACE).counts == {G1C_WW: 1} and judge(mixed, mode=IN_PLACE).clean


def sent_by_one(replied: int) -> Trace:
    """Makes two transactions of one worker, the first answered at that time; their records lie the other way."""
    trace = Trace()
    add_transaction(trace, 0, worker="w", begin=0, reply=replied)
    add_transaction(trace, 1, worker="w", begin=20, reply=40)
    add_produce(trace, 0, 1)
    add_produce(trace, 1, 1)
    put(trace, 0, [(0, 0, 1), (1, 0, 0)])
    return trace


def test_sends_of_one_worker_lie_in_their_order() -> None:
    for replied, counts in ((10, {NON_MONOTONIC_SEND: 1}), (30, {})):
        anomalies = judge(sent_by_one(replied), mode=IN_PLACE).counts
        assert anomalies == counts  # undecidable if both are under way


def test_a_log_with_a_hole_is_no_log_of_places() -> None:
    trace = Trace()
    put(trace, 0, [(0, 0, -1)])
    put(trace, 0, [(0, 1, -1)], at=3)
    assert judge(trace, mode=PLANNED).counts == {OFFSET_GAP: 1}
    assert judge(trace, mode=IN_PLACE).counts == {}  # markers lie there


def with_room(between: list[Identity]) -> Trace:
    """Makes two transactions whose records leave room for one, and what lies there."""
    trace = Trace()
    lane = trace.lane(TOPIC, "out", 0)
    for tx, offset in enumerate((0, 2)):
        add_transaction(trace, tx, step=tx, n=0)
        trace.operations.append(Operation(tx, PRODUCE, lane, offset, offset + 1, 1))
    put(trace, 0, [(0, 0, 0), *between])
    put(trace, 0, [(0, 1, 1)], at=2)
    return trace


def test_room_between_offsets_is_for_plain_writes() -> None:
    for between, counts in (([(3, 0, -1)], {}), ([], {OFFSET_GAP: 1})):
        anomalies = judge(with_room(between), mode=PLANNED).counts
        assert {name: min(n, 1) for name, n in anomalies.items()} == counts


def test_a_span_of_offsets_may_hold_others_records() -> None:
    """`records` is the number of its own records; the span begins with the first of them."""
    trace = Trace()
    lane = trace.lane(TOPIC, "out", 0)
    for tx, begin, end in ((0, 0, 3), (1, 1, 4)):
        add_transaction(trace, tx)
        trace.operations.append(Operation(tx, PRODUCE, lane, begin, end, 2))
    put(trace, 0, [(0, 0, 0), (1, 0, 1), (0, 1, 0), (1, 1, 1)])
    assert judge(trace, mode=IN_PLACE).forbidden == {}
    assert judge(trace, mode=IN_PLACE).counts == {INTERNAL_SEND_SKIP: 2, G0: 1}


def test_a_transaction_can_be_read_once_those_before_it_are_over() -> None:
    """It is readable once every transaction with an earlier record in its partitions has ended."""
    trace = Trace()
    for tx, visible in ((0, 500), (1, 100), (2, 300)):
        add_transaction(trace, tx, visible=visible)
    add_transaction(trace, 3)  # time unknown
    put(trace, 0, [(1, 0, 1), (0, 0, 0), (2, 0, 2), (0, 1, 0)])
    put(trace, 1, [(3, 0, 3), (1, 1, 1)])
    assert judge(trace, mode=IN_PLACE, stored=()).readable == {0: 500, 1: 100, 2: 500}
    assert judge(trace, mode=NONE, stored=()).readable == {}


def passed_on(at: int, mode: str) -> Trace:
    """Makes records that are passed on unchanged by two transactions; the second's is shown at that time."""
    trace = Trace()
    for tx, proposed in ((0, 50), (1, 200)):
        place = {"step": tx, "n": 0} if mode == PLANNED else {}
        add_transaction(trace, tx, proposed=proposed, **place)
        add_consume(trace, tx, tx, tx + 1)
    put(trace, 0, [(0, 0, -1), (0, 1, -1)])
    show(trace, 0, {0: (0, 0, -1)}, at=100)
    show(trace, 1, {1: (0, 1, -1)}, at=at)
    return trace


@pytest.mark.parametrize("mode", [PLANNED, IN_PLACE])
def test_a_record_that_names_nobody_is_of_who_consumed_its_origin(mode: str) -> None:
    """A record passed on unchanged still counts as shown too early if its transaction had not asked to commit."""
    feeds = {"out": "in/c"}
    assert judge(passed_on(300, mode), mode=mode, feeds=feeds).clean
    assert judge(passed_on(150, mode), mode=mode, feeds=feeds).forbidden == {PRECOMMITTED_READ: 1}
