"""Records against what should be there, by brute force; and each anomaly of readers and logs, made by hand."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from planstep.bench.check import KAFKA, NONE, PLACES, anomalies, judge
from planstep.bench.check.findings import (
    ABORTED_READ,
    ABORTED_VISIBLE,
    FOREIGN,
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
    REORDERED,
    REPEATED,
    TORN,
    UNSEEN,
)
from planstep.bench.trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    PRODUCE,
    TOPIC,
    UNDETERMINED,
    Operation,
    Trace,
    Transaction,
    identity,
)
from planstep.bench.workloads.base import Verdict

Made = tuple[int, int, int]  # source, ordinal, transaction


def put(trace: Trace, partition: int, records: list[Made], topic: str = "out", at: int = 0) -> None:
    """Into the store."""
    lane = trace.lane(TOPIC, topic, partition)
    trace.records.add(lane, range(at, at + len(records)), [identity(*made) for made in records])


def show(trace: Trace, poll: int, records: dict[int, Made], at: int = 100) -> None:
    """To the reader, of partition 0."""
    values = [identity(*made) for made in records.values()]
    trace.seen.add(trace.lane(TOPIC, "out", 0), list(records), values, poll, at)


def ended(trace: Trace, tx: int, outcome: str = COMMITTED, worker: str = "", **more: int) -> None:
    trace.transactions.append(Transaction(tx, str(tx), worker or f"w{tx}", outcome, **more))


def wrote(trace: Trace, tx: int, records: int, partition: int = 0) -> None:
    lane = trace.lane(TOPIC, "out", partition)
    trace.operations.append(Operation(tx, PRODUCE, lane, records=records))


def took(
    trace: Trace, tx: int, begin: int, end: int, name: str = "in/c", partition: int = 0
) -> None:
    lane = trace.lane(CONSUMER, name, partition)
    trace.operations.append(Operation(tx, CONSUME, lane, begin, end))


def spoiled(draw: random.Random, lanes: list[list[Made]], aborted: list[int]) -> None:
    """Some of what can go wrong, or nothing."""
    for _ in range(draw.choice((0, 0, 1, 2))):
        lane = draw.choice(lanes)
        if not lane:
            continue
        at = draw.randrange(len(lane))
        match draw.randrange(5):
            case 0:
                del lane[at]
            case 1:
                lane.insert(draw.randrange(at, len(lane)), lane[at])
            case 2:
                other = draw.randrange(len(lane))
                lane[at], lane[other] = lane[other], lane[at]
            case 3 if aborted:
                lane.insert(at, (9, draw.randrange(99), draw.choice(aborted)))
            case 4:
                lane.insert(at, (9, draw.randrange(99), 77))


@pytest.mark.parametrize("fed", (False, True))
def test_the_verdict_is_that_of_brute_force(fed: bool) -> None:
    """`fed`: records name no transaction, what was consumed says whose they are."""
    draw = random.Random(1)
    wrong: Counter[str] = Counter()
    for _ in range(2_000):
        trace, lanes = Trace(), [list[Made](), list[Made]()]
        position, aborted = [0, 0], []
        for tx in range(draw.randrange(1, 6)):
            outcome = draw.choice((ABORTED, COMMITTED, COMMITTED, COMMITTED))
            source = draw.randrange(2)
            begin, count = position[source], draw.randrange(1, 4)
            took(trace, tx, begin, begin + count, partition=source)
            made = [draw.randrange(2) for _ in range(count)]
            for partition in sorted(set(made)):
                wrote(trace, tx, made.count(partition), partition)
            if outcome == COMMITTED:
                position[source] += count
                for n, partition in enumerate(made):
                    lanes[partition].append((source, begin + n, -1 if fed else tx))
            else:
                aborted.append(tx)
            ended(trace, tx, outcome)
        wanted = Counter(made for lane in lanes for made in lane)
        spoiled(draw, lanes, [] if fed else aborted)
        for partition, lane in enumerate(lanes):
            put(trace, partition, lane)
        there = Counter(made for lane in lanes for made in lane)
        first: list[list[Made]] = [[], []]
        for lane, kept in zip(lanes, first, strict=True):
            for made in lane:
                if made in wanted and made not in first[0] and made not in first[1]:
                    kept.append(made)
        brute = {
            "gone": any(made not in there for made in wanted),
            "again": sum(n - 1 for made, n in there.items() if made in wanted),
            "aborted": sum(n for made, n in there.items() if made[2] in aborted),
            "foreign": sum(n for made, n in there.items() if made[2] == 77),
            "order": sum(
                b[1] < a[1]
                for kept in first
                for source in range(2)
                for a, b in pairwise([made for made in kept if made[0] == source])
            ),
        }
        counts = judge(trace, mode=NONE, feeds={"out": "in/c"} if fed else {}).counts
        verdict = {
            "gone": LOST in counts or TORN in counts,
            "again": counts.get(REPEATED, 0),
            "aborted": counts.get(ABORTED_VISIBLE, 0),
            "foreign": counts.get(FOREIGN, 0),
            "order": counts.get(REORDERED, 0),
        }
        assert verdict == brute, (lanes, counts)
        wrong.update(name for name, found in verdict.items() if found)
        wrong["nothing"] += not any(verdict.values())
    assert len(wrong) == (5 if fed else 6) and min(wrong.values()) > 30, wrong


# whole or not at all -----------------------------------------------------------------------------


def test_part_of_a_lane_is_lost_and_a_whole_one_is_torn() -> None:
    for there, counts in (([0, 1], {}), ([0], {LOST: 1}), ([], {TORN: 1})):
        trace = Trace()
        ended(trace, 0)
        wrote(trace, 0, 2, 0)
        wrote(trace, 0, 1, 1)
        put(trace, 0, [(0, n, 0) for n in there])
        put(trace, 1, [(0, 2, 0)])
        assert judge(trace).counts == counts


def test_a_topic_that_holds_nothing_is_lost_unless_nobody_read_it() -> None:
    trace = Trace()
    ended(trace, 0)
    wrote(trace, 0, 3)
    assert judge(trace).counts == {LOST: 3}
    assert judge(trace, stored=()).counts == {}


@pytest.mark.parametrize(("there", "counts"), ((0, {}), (2, {}), (1, {TORN: 1})))
def test_of_an_undetermined_transaction_all_is_there_or_nothing(
    there: int, counts: dict[str, int]
) -> None:
    trace = Trace()
    ended(trace, 0, UNDETERMINED)
    wrote(trace, 0, 1, 0)
    wrote(trace, 0, 1, 1)
    for partition in range(there):
        put(trace, partition, [(0, partition, 0)])
    assert judge(trace).counts == counts
    passed_on = Trace()
    ended(passed_on, 0, UNDETERMINED)
    took(passed_on, 0, 0, 2)
    put(passed_on, 0, [(0, n, -1) for n in range(there)])
    assert judge(passed_on, feeds={"out": "in/c"}).counts == counts


# what feeds what ---------------------------------------------------------------------------------


def test_an_input_that_was_skipped_is_lost() -> None:
    trace = Trace()
    for tx, (begin, end) in enumerate(((0, 2), (3, 4))):
        ended(trace, tx)
        took(trace, tx, begin, end)
    put(trace, 0, [(0, 0, -1), (0, 1, -1), (0, 3, -1)])
    findings = judge(trace, feeds={"out": "in/c"})
    assert findings.counts == {LOST: 1}
    assert findings.problems() == ["lost: out has no record 2 of 0, consumed by nobody"]


def test_an_input_used_twice_is_repeated() -> None:
    """As two unfenced workers of Kafka do; each is whole, and both count."""
    trace = Trace()
    for tx in range(2):
        ended(trace, tx)
        took(trace, tx, 0, 2)
        wrote(trace, tx, 2)
    put(trace, 0, [(0, n, tx) for tx in range(2) for n in range(2)])
    assert judge(trace, mode=KAFKA, feeds={"out": "in/c"}).forbidden[REPEATED] == 2


def test_what_only_an_aborted_transaction_consumed_must_not_be_there() -> None:
    trace = Trace()
    ended(trace, 0, ABORTED)
    took(trace, 0, 0, 1)
    put(trace, 0, [(0, 0, -1), (0, 5, -1)])
    assert judge(trace, feeds={"out": "in/c"}).counts == {ABORTED_VISIBLE: 1, FOREIGN: 1}


def test_offsets_with_gaps_are_numbered_by_the_caller() -> None:
    trace = Trace()
    ended(trace, 0)
    took(trace, 0, 0, 8)
    put(trace, 0, [(0, n, -1) for n in range(3)])
    assert judge(trace, feeds={"out": "in/c"}).forbidden == {LOST: 5}
    assert judge(trace, feeds={"out": "in/c"}, offsets={("in", 0): [0, 4, 7]}).counts == {}
    assert judge(trace, feeds={"out": "in/c"}, offsets={("in", 0): [0, 4, 8]}).counts == {
        FOREIGN: 1
    }


def test_a_chain_passes_identities_on() -> None:
    trace = Trace()
    ended(trace, 0)
    ended(trace, 1)
    took(trace, 0, 0, 2, "a/c")
    took(trace, 1, 0, 2, "b/c")
    put(trace, 0, [(7, 4, -1), (7, 9, -1)], "a")
    put(trace, 0, [(7, 4, -1), (7, 9, -1)], "b")
    put(trace, 0, [(7, 4, -1)], "d")
    assert judge(trace, feeds={"b": "a/c", "d": "b/c"}).counts == {LOST: 1}


# logs and their readers --------------------------------------------------------------------------


def followed(*polls: dict[int, Made], proposed: int = 0, outcome: str = COMMITTED) -> Trace:
    """A partition with three records of one transaction, and what a reader was shown of it."""
    trace = Trace()
    ended(trace, 0, outcome, proposed=proposed)
    wrote(trace, 0, 3)
    put(trace, 0, RECORDS)
    for number, poll in enumerate(polls):
        show(trace, number, poll)
    return trace


RECORDS: list[Made] = [(0, 0, 0), (0, 1, 0), (0, 2, 0)]
A, B, C = ({n: made} for n, made in enumerate(RECORDS))


@pytest.mark.parametrize(
    ("polls", "counts"),
    (
        ([A | B, C], {}),
        ([B | C], {}),  # it began there
        ([A | B], {UNSEEN: 1}),
        ([A, C], {POLL_SKIP: 1}),
        ([A | C], {INTERNAL_POLL_SKIP: 1}),
        ([A | B, B | C], {NON_MONOTONIC_POLL: 1}),
        ([B | A, C], {INTERNAL_NON_MONOTONIC_POLL: 1, POLL_SKIP: 1}),
        ([A | {1: (0, 8, 0)}, C], {INCONSISTENT_OFFSET: 1}),
        ([A | B | C, {3: (0, 3, 0)}], {LOST: 1}),
        ([A | B | C, {3: (0, 3, 5)}], {ABORTED_READ: 1}),
    ),
)
def test_what_a_reader_was_shown(polls: list[dict[int, Made]], counts: dict[str, int]) -> None:
    assert judge(followed(*polls), mode=KAFKA).counts == counts


def test_a_reader_is_shown_nothing_too_early_and_nothing_aborted() -> None:
    assert judge(followed(A | B | C, proposed=100)).counts == {}
    assert judge(followed(A | B | C, proposed=101)).counts == {PRECOMMITTED_READ: 1}
    counts = judge(followed(A | B | C, outcome=ABORTED)).counts
    assert counts == {ABORTED_VISIBLE: 3, ABORTED_READ: 3}


def interleaved(orders: list[list[int]]) -> Trace:
    """Each partition's records by the transactions that wrote them."""
    trace = Trace()
    for tx in sorted({tx for order in orders for tx in order}):
        ended(trace, tx)
        for partition, order in enumerate(orders):
            if tx in order:
                wrote(trace, tx, order.count(tx), partition)
    for partition, order in enumerate(orders):
        put(trace, partition, [(partition, n, tx) for n, tx in enumerate(order)])
    return trace


@pytest.mark.parametrize(
    ("orders", "counts"),
    (
        ([[0, 0, 1], [0, 1, 1]], {}),
        ([[0, 1, 0]], {INTERNAL_SEND_SKIP: 1, G0: 1}),
        ([[0, 1], [1, 0]], {G0: 1}),
        ([[0, 1], [1, 2], [2, 0]], {G0: 1}),
    ),
)
def test_writes_that_interleave_are_kafkas_alone(
    orders: list[list[int]], counts: dict[str, int]
) -> None:
    trace = interleaved(orders)
    kafka, strict = judge(trace, mode=KAFKA), judge(trace, mode=NONE)
    assert kafka.counts == strict.counts == counts
    assert kafka.clean and strict.forbidden == counts


def test_circular_flow() -> None:
    """Each consumed what the other one wrote: forbidden. One of the two by order of writes: Kafka allows it."""
    trace = interleaved([[0], [1]])
    took(trace, 0, 0, 1, "out/c", 1)
    took(trace, 1, 0, 1, "out/c", 0)
    assert judge(trace, mode=KAFKA).forbidden == {G1C: 1}
    assert judge(trace, mode=KAFKA).counts == {G1C: 1, G1C_WW: 1}
    mixed = interleaved([[0, 1], [1]])
    took(mixed, 0, 0, 1, "out/c", 1)
    assert judge(mixed, mode=KAFKA).counts == {G1C_WW: 1} and judge(mixed, mode=KAFKA).clean


def test_sends_of_one_worker_lie_in_their_order() -> None:
    for replied, counts in ((10, {NON_MONOTONIC_SEND: 1}), (30, {})):
        trace = Trace()
        ended(trace, 0, worker="w", begin=0, reply=replied)
        ended(trace, 1, worker="w", begin=20, reply=40)
        wrote(trace, 0, 1)
        wrote(trace, 1, 1)
        put(trace, 0, [(0, 0, 1), (1, 0, 0)])
        assert judge(trace, mode=KAFKA).counts == counts  # with both under way nobody can tell


def test_a_log_with_a_hole_is_no_log_of_places() -> None:
    trace = Trace()
    put(trace, 0, [(0, 0, -1)])
    put(trace, 0, [(0, 1, -1)], at=3)
    assert judge(trace, mode=PLACES).counts == {OFFSET_GAP: 1}
    assert judge(trace, mode=KAFKA).counts == {}  # markers lie there


def test_room_between_offsets_is_for_plain_writes() -> None:
    for between, counts in (([(3, 0, -1)], {}), ([], {OFFSET_GAP: 1})):
        trace = Trace()
        lane = trace.lane(TOPIC, "out", 0)
        for tx, offset in enumerate((0, 2)):
            ended(trace, tx, step=tx, n=0)
            trace.operations.append(Operation(tx, PRODUCE, lane, offset, offset + 1, 1))
        put(trace, 0, [(0, 0, 0), *between])
        put(trace, 0, [(0, 1, 1)], at=2)
        found = judge(trace, mode=PLACES).counts
        assert {name: min(n, 1) for name, n in found.items()} == counts


# what is told of it ------------------------------------------------------------------------------


def test_jepsens_list_names_what_is_allowed() -> None:
    listed = anomalies(judge(interleaved([[0, 1, 0]]), mode=KAFKA))
    assert listed["G0"] == (1, True) and listed["int-send-skip"] == (1, True)
    assert listed["aborted read"] == (0, False) and listed["G1c"] == (0, False)
    assert [name for name, (_, allowed) in listed.items() if allowed] == [
        "int-send-skip",
        "unseen",
        "G0",
        "G1c with ww",
    ]


def test_a_verdict_is_told() -> None:
    trace = Trace()
    ended(trace, 0)
    wrote(trace, 0, 9)
    put(trace, 0, [(0, 1, 0), (0, 0, 0), (0, 0, 0), (0, 2, 5), (0, 3, 5)])
    verdict = Verdict()
    judge(trace).tell(verdict)
    assert (verdict.missing, verdict.duplicated, verdict.out_of_order) == (7, 1, 1)
    assert verdict.violations == {FOREIGN: 2} and not verdict.verified
    assert "lost: of transaction 0, 2 of 9 records are in out/0" in verdict.problems
    fine = Verdict()
    judge(Trace()).tell(fine)
    assert fine.verified


# what a trace does not tell ----------------------------------------------------------------------


def test_a_span_of_offsets_may_hold_others_records() -> None:
    """`records` says how many are its own; the span begins with the first of them."""
    trace = Trace()
    lane = trace.lane(TOPIC, "out", 0)
    for tx, begin, end in ((0, 0, 3), (1, 1, 4)):
        ended(trace, tx)
        trace.operations.append(Operation(tx, PRODUCE, lane, begin, end, 2))
    put(trace, 0, [(0, 0, 0), (1, 0, 1), (0, 1, 0), (1, 1, 1)])
    assert judge(trace, mode=KAFKA).forbidden == {}
    assert judge(trace, mode=KAFKA).counts == {INTERNAL_SEND_SKIP: 2, G0: 1}


@pytest.mark.parametrize("outcome", (COMMITTED, UNDETERMINED))
def test_of_whom_nothing_was_told_records_may_be_there(outcome: str) -> None:
    trace = Trace()
    ended(trace, 0)
    ended(trace, 1, outcome)
    wrote(trace, 0, 1)
    put(trace, 0, [(0, 0, 0), (1, 0, 1)])
    assert judge(trace).counts == {}


def test_who_told_where_it_wrote_wrote_nowhere_else() -> None:
    trace = Trace()
    ended(trace, 0)
    ended(trace, 1)
    wrote(trace, 0, 1, 0)
    wrote(trace, 1, 1, 1)
    put(trace, 0, [(0, 0, 0), (1, 1, 1)])
    put(trace, 1, [(1, 0, 1)])
    assert judge(trace).counts == {FOREIGN: 1}
