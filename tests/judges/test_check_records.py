"""Tests the verdict on records against brute force, and each anomaly of readers and logs, made by hand."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from histories import Identity, add_consume, add_produce, add_transaction, of_an_aborted_one, put

from planstep.bench.compare.workloads.base import Verdict
from planstep.bench.judges.python import IN_PLACE, NONE, judge
from planstep.bench.judges.python.findings import (
    ABORTED_VISIBLE,
    FOREIGN,
    LOST,
    REORDERED,
    REPEATED,
    TORN,
)
from planstep.bench.judges.trace import (
    ABORTED,
    COMMITTED,
    UNDETERMINED,
    Trace,
)


def spoiled(draw: random.Random, lanes: list[list[Identity]], aborted: list[int]) -> None:
    """Damages records in some random way, or not at all."""
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


@pytest.mark.parametrize(
    "stored, counts",
    [(0, {LOST: 2}), (1, {LOST: 1, ABORTED_VISIBLE: 1}), (2, {ABORTED_VISIBLE: 2})],
)
def test_an_aborted_one_may_not_have_happened(stored: int, counts: dict[str, int]) -> None:
    """Even without places, where no gap in the positions reveals it."""
    assert judge(of_an_aborted_one(stored), mode=IN_PLACE, feeds={"out": "in/c"}).counts == counts


def random_records(
    draw: random.Random, outcomes: tuple[str, ...], fed: bool
) -> tuple[Trace, list[list[Identity]], list[int]]:
    """Makes some transactions; returns the records of each partition, not yet stored, and the aborted ones.

    `fed`: records name no transaction, and the consumed ranges tell whose they are.
    """
    trace, lanes = Trace(), [list[Identity](), list[Identity]()]
    position, aborted = [0, 0], list[int]()
    for tx in range(draw.randrange(1, 6)):
        outcome = draw.choice(outcomes)
        source = draw.randrange(2)
        begin, count = position[source], draw.randrange(1, 4)
        add_consume(trace, tx, begin, begin + count, partition=source)
        partitions = [draw.randrange(2) for _ in range(count)]
        for partition in sorted(set(partitions)):
            add_produce(trace, tx, partitions.count(partition), partition)
        if outcome == ABORTED:
            aborted.append(tx)
        else:
            position[source] += count
            for at, partition in enumerate(partitions):
                lanes[partition].append((source, begin + at, -1 if fed else tx))
        add_transaction(trace, tx, outcome)
    return trace, lanes, aborted


@pytest.mark.parametrize("fed", (False, True))
def test_the_verdict_is_that_of_brute_force(fed: bool) -> None:
    draw = random.Random(1)
    wrong: Counter[str] = Counter()
    for _ in range(2_000):
        trace, lanes, aborted = random_records(draw, (ABORTED, *[COMMITTED] * 3), fed)
        wanted = Counter(record for lane in lanes for record in lane)
        spoiled(draw, lanes, [] if fed else aborted)
        for partition, lane in enumerate(lanes):
            put(trace, partition, lane)
        stored = Counter(record for lane in lanes for record in lane)
        first: list[list[Identity]] = [[], []]
        for lane, firsts in zip(lanes, first, strict=True):
            for record in lane:
                if record in wanted and record not in first[0] and record not in first[1]:
                    firsts.append(record)
        brute = {
            "gone": any(record not in stored for record in wanted),
            "again": sum(n - 1 for record, n in stored.items() if record in wanted),
            "aborted": sum(n for record, n in stored.items() if record[2] in aborted),
            "foreign": sum(n for record, n in stored.items() if record[2] == 77),
            "order": sum(
                b[1] < a[1]
                for firsts in first
                for source in range(2)
                for a, b in pairwise([record for record in firsts if record[0] == source])
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
        wrong.update(name for name, is_wrong in verdict.items() if is_wrong)
        wrong["nothing"] += not any(verdict.values())
    assert len(wrong) == (5 if fed else 6) and min(wrong.values()) > 30, wrong


# whole or not at all -----------------------------------------------------------------------------


def test_part_of_a_lane_is_lost_and_a_whole_one_is_torn() -> None:
    for stored, counts in (([0, 1], {}), ([0], {LOST: 1}), ([], {TORN: 1})):
        trace = Trace()
        add_transaction(trace, 0)
        add_produce(trace, 0, 2, 0)
        add_produce(trace, 0, 1, 1)
        put(trace, 0, [(0, n, 0) for n in stored])
        put(trace, 1, [(0, 2, 0)])
        assert judge(trace).counts == counts


def test_a_topic_that_holds_nothing_is_lost_unless_nobody_read_it() -> None:
    trace = Trace()
    add_transaction(trace, 0)
    add_produce(trace, 0, 3)
    assert judge(trace).counts == {LOST: 3}
    assert judge(trace, stored=()).counts == {}


@pytest.mark.parametrize(("stored", "counts"), ((0, {}), (2, {}), (1, {TORN: 1})))
def test_of_an_undetermined_transaction_all_is_there_or_nothing(
    stored: int, counts: dict[str, int]
) -> None:
    trace = Trace()
    add_transaction(trace, 0, UNDETERMINED)
    add_produce(trace, 0, 1, 0)
    add_produce(trace, 0, 1, 1)
    for partition in range(stored):
        put(trace, partition, [(0, partition, 0)])
    assert judge(trace).counts == counts
    passed_on = Trace()
    add_transaction(passed_on, 0, UNDETERMINED)
    add_consume(passed_on, 0, 0, 2)
    put(passed_on, 0, [(0, n, -1) for n in range(stored)])
    assert judge(passed_on, feeds={"out": "in/c"}).counts == counts


# what feeds what ---------------------------------------------------------------------------------


def test_an_input_that_was_skipped_is_lost() -> None:
    trace = Trace()
    for tx, (begin, end) in enumerate(((0, 2), (3, 4))):
        add_transaction(trace, tx)
        add_consume(trace, tx, begin, end)
    put(trace, 0, [(0, 0, -1), (0, 1, -1), (0, 3, -1)])
    findings = judge(trace, feeds={"out": "in/c"})
    assert findings.counts == {LOST: 1}
    assert findings.problems() == ["lost: out has no record 2 of 0, consumed by nobody"]


def test_an_input_used_twice_is_repeated() -> None:
    """Two unfenced workers of Kafka do this; each transaction is whole, and both count."""
    trace = Trace()
    for tx in range(2):
        add_transaction(trace, tx)
        add_consume(trace, tx, 0, 2)
        add_produce(trace, tx, 2)
    put(trace, 0, [(0, n, tx) for tx in range(2) for n in range(2)])
    assert judge(trace, mode=IN_PLACE, feeds={"out": "in/c"}).forbidden[REPEATED] == 2


def test_what_only_an_aborted_transaction_consumed_must_not_be_there() -> None:
    trace = Trace()
    add_transaction(trace, 0, ABORTED)
    add_consume(trace, 0, 0, 1)
    put(trace, 0, [(0, 0, -1), (0, 5, -1)])
    assert judge(trace, feeds={"out": "in/c"}).counts == {ABORTED_VISIBLE: 1, FOREIGN: 1}


def test_offsets_with_gaps_are_numbered_by_the_caller() -> None:
    trace = Trace()
    add_transaction(trace, 0)
    add_consume(trace, 0, 0, 8)
    put(trace, 0, [(0, n, -1) for n in range(3)])
    assert judge(trace, feeds={"out": "in/c"}).forbidden == {LOST: 5}
    assert judge(trace, feeds={"out": "in/c"}, offsets={("in", 0): [0, 4, 7]}).counts == {}
    assert judge(trace, feeds={"out": "in/c"}, offsets={("in", 0): [0, 4, 8]}).counts == {
        FOREIGN: 1
    }


def test_a_chain_passes_identities_on() -> None:
    trace = Trace()
    add_transaction(trace, 0)
    add_transaction(trace, 1)
    add_consume(trace, 0, 0, 2, "a/c")
    add_consume(trace, 1, 0, 2, "b/c")
    put(trace, 0, [(7, 4, -1), (7, 9, -1)], "a")
    put(trace, 0, [(7, 4, -1), (7, 9, -1)], "b")
    put(trace, 0, [(7, 4, -1)], "d")
    assert judge(trace, feeds={"b": "a/c", "d": "b/c"}).counts == {LOST: 1}


# texts of the findings ---------------------------------------------------------------------------


def test_a_verdict_is_told() -> None:
    trace = Trace()
    add_transaction(trace, 0)
    add_produce(trace, 0, 9)
    put(trace, 0, [(0, 1, 0), (0, 0, 0), (0, 0, 0), (0, 2, 5), (0, 3, 5)])
    verdict = Verdict()
    judge(trace).tell(verdict)
    assert (verdict.missing, verdict.duplicated, verdict.out_of_order) == (7, 1, 1)
    assert verdict.violations == {FOREIGN: 2} and not verdict.verified
    assert "lost: of transaction 0, 2 of 9 records are in out/0" in verdict.problems
    fine = Verdict()
    judge(Trace()).tell(fine)
    assert fine.verified


# traces with less information --------------------------------------------------------------------


@pytest.mark.parametrize("outcome", (COMMITTED, UNDETERMINED))
def test_of_whom_nothing_was_told_records_may_be_there(outcome: str) -> None:
    trace = Trace()
    add_transaction(trace, 0)
    add_transaction(trace, 1, outcome)
    add_produce(trace, 0, 1)
    put(trace, 0, [(0, 0, 0), (1, 0, 1)])
    assert judge(trace).counts == {}


def test_who_told_where_it_wrote_wrote_nowhere_else() -> None:
    trace = Trace()
    add_transaction(trace, 0)
    add_transaction(trace, 1)
    add_produce(trace, 0, 1, 0)
    add_produce(trace, 1, 1, 1)
    put(trace, 0, [(0, 0, 0), (1, 1, 1)])
    put(trace, 1, [(1, 0, 1)])
    assert judge(trace).counts == {FOREIGN: 1}
