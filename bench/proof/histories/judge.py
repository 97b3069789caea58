"""Checks what readers saw: each snapshot must equal the state that the writers' transactions had made by its step.

    places      T1 ── T2 ── T3 ──┬── T4 ── …        a look at the step of T3: every row has the version of its
    rows         w           w   │                  last writer so far, every log ends after its last record so
    records      +2    +1        │                  far, every position is the one committed last
                               a look
    bank: the sum; ring: one; `taken`: the positions; lists: the last appenders, in order

A state that no order of the transactions explains is a violation, even if each single read could be true.

Next: ../rows/history.py.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter

from ...judges.trace import COMMITTED, CONSUME, WRITE
from .schema import BALANCE, LISTS, TAIL, Observation
from .tapes import History

_NOWHERE = 1 << 62


def judge_looks(history: History) -> Iterator[str]:
    """Yields a sentence for each violation."""
    places = {
        row.tx: (row.step, _NOWHERE if row.n is None else row.n)
        for row in history.trace.transactions
        if row.outcome == COMMITTED and row.step is not None
    }
    yield from _backwards(history)
    yield from _by_themselves(history)
    writes = sorted(
        (places[tx], lane, tx)
        for tx, op, lane, *_ in history.trace.operations
        if op == WRITE and tx in places
    )
    yield from _rows(history, writes)
    yield from _logs(history, places)
    yield from _positions(history, places)
    yield from _lists(history, writes)


Place = tuple[int, int]
Places = dict[int, Place]
Writes = list[tuple[Place, int, int]]
"""(place, lane, transaction), in order."""


def _all(history: History) -> list[tuple[str, Observation]]:
    """Returns all looks with their readers' names, by step."""
    looks = [(name, one) for name, theirs in history.looks.items() for one in theirs]
    return sorted(looks, key=lambda one: one[1].step)


def _backwards(history: History) -> Iterator[str]:
    for name, looks in history.looks.items():
        for before, after in pairwise(looks):
            if after.step < before.step:
                yield f"{name} saw step {before.step}, and then step {after.step}"


def _by_themselves(history: History) -> Iterator[str]:
    world = history.plan.world
    for name, one in _all(history):
        if one.total != world.accounts * BALANCE:
            yield f"{name} at step {one.step}: the accounts hold {one.total:,} together"
        if one.ringed != world.ring:
            yield f"{name} at step {one.step}: a ring of {one.ringed} keys, not {world.ring}"
        if one.counts != one.positions:
            yield f"{name} at step {one.step}: taken {one.counts}, positions {one.positions}"


def _rows(history: History, writes: Writes) -> Iterator[str]:
    """Replays the writes in order, and compares all rows at each look."""
    trace, state, at = history.trace, [-1] * history.plan.world.rows, 0
    for name, one in _all(history):
        while at < len(writes) and writes[at][0][0] <= one.step:
            _, lane, tx = writes[at]
            state[lane] = tx
            at += 1
        if state != one.versions:
            pairs = zip(state, one.versions, strict=True)
            wrong = [lane for lane, (a, b) in enumerate(pairs) if a != b]
            lane = wrong[0]
            yield (
                f"{name} at step {one.step}: {len(wrong)} rows are not as the last writers left them; "
                f"{trace.lanes[lane].name}[{trace.lanes[lane].key}] is of {one.versions[lane]}, "
                f"not {state[lane]}"
            )


def _logs(history: History, places: Places) -> Iterator[str]:
    """Checks that offsets follow places, and that a look's log ends before the first record of a later step.

    The place of a plain write is unknown if its owner was killed: it may lie on either side of a look.
    """
    trace, first = history.trace, min(history.plan.world.topic_lanes().values())
    steps: dict[int, list[tuple[int, bool]]] = defaultdict(
        list
    )  # of each record, and if it is known
    last: Places = {}
    for lane, tx in zip(trace.records.lane, trace.records.tx, strict=True):
        before = last.get(lane, (0, 0))
        place = places.get(tx, before)
        if place < before:
            where = f"{trace.lanes[lane].name}/{trace.lanes[lane].partition}"
            yield f"{where}: a record of {tx}, at {place}, lies behind one of {before}"
        last[lane] = max(place, before)
        steps[lane].append((last[lane][0], tx in places))
    for name, one in _all(history):
        for i, end in enumerate(one.ends):
            known = steps[first + i]
            least = bisect_right(known, one.step, key=itemgetter(0))
            if any(sure for _, sure in known[min(end, least) : max(end, least)]):
                log = trace.lanes[first + i]
                order = [step for step, _ in known[max(0, end - 1) : end + 1]]
                yield (
                    f"{name} at step {one.step}: {log.name}/{log.partition} ends at {end}, and {least} "
                    f"of its records are of steps up to then; about the end: {order}"
                )


def _positions(history: History, places: Places) -> Iterator[str]:
    trace, first = history.trace, history.plan.world.consumer_lanes
    moves: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for tx, op, lane, _, end, _, _ in trace.operations:
        if op == CONSUME and tx in places:
            moves[lane].append((places[tx][0], end))
    for theirs in moves.values():
        theirs.sort()
    for name, one in _all(history):
        for partition, position in enumerate(one.positions):
            theirs = moves[first + partition]
            at = bisect_right(theirs, (one.step, _NOWHERE))
            expected = theirs[at - 1][1] if at else 0
            if position != expected:
                yield (
                    f"{name} at step {one.step}: the consumer stands at {position} of partition "
                    f"{partition}, and had come to {expected}"
                )


def _lists(history: History, writes: Writes) -> Iterator[str]:
    """Checks that each list ends with the last appenders, in the order of their places."""
    first = history.plan.world.row_lanes()[LISTS]
    writers: dict[int, list[int]] = defaultdict(list)
    for _, lane, tx in writes:
        writers[lane].append(tx)
    for key, (count, tail) in history.lists.items():
        order = writers[first + key][1:]  # without the list's creator
        if count != len(order) or tail != order[-TAIL:]:
            yield f"list {key} has {count} elements, the last are {tail}; appended: {order[-TAIL:]}"
