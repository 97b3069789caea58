"""Plants one error in a correct history, as a control: without it a clean verdict proves nothing.

    lost · repeated · reordered · torn · aborted data visible     in the store
    dirty read · stale read · real-time violation                 in the reads and times of transactions
    dirty or foreign read by an uncommitted one                   … of an aborted one
    position gap · position overlap                               in what they consumed
    input used twice · acknowledged twice                         … of a history without places

Only changed parts are copied. An added or removed record moves the later ones, as in a store. The follower's
records are left out then, for they would contradict every one of these.

Next: ../../../tests/judges/test_check_planted.py.
"""

import random
from array import array
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from ..trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    INDIVIDUAL,
    PRODUCE,
    READ,
    WRITE,
    Operation,
    Records,
    Trace,
)
from . import findings as names

_COLUMNS = ("lane", "offset", "source", "ordinal", "tx")
Fits = Callable[[Operation], bool]


def plant(trace: Trace, kind: str, seed: int) -> Trace:
    """Returns a copy of a clean trace with one anomaly of the kind.

    KeyError for another kind; ValueError where the history has no place for it.
    """
    return _PLANTS[kind](trace, random.Random(seed))


def _some(draw: random.Random, count: int, fits: Callable[[int], bool]) -> int:
    """Returns a fitting index: the first at or after a random one."""
    begin = draw.randrange(count) if count else 0
    for i in range(begin, begin + count):
        if fits(i % count):
            return i % count
    raise ValueError("nothing in this history can be changed in that way")


def _outcomes(trace: Trace) -> dict[int, str]:
    return {row.tx: row.outcome for row in trace.transactions}


# operations ----------------------------------------------------------------------------------


def _change(trace: Trace, at: int, field: str, value: int) -> Trace:
    """Changes a field of the operation at this index."""
    operations = trace.operations.copy()
    operations[at] = Operation(**{**operations[at]._asdict(), field: value})
    return replace(trace, operations=operations)


def _one_of(
    trace: Trace, draw: random.Random, op: str, fits: Fits, outcome: str = COMMITTED
) -> int:
    """Returns the index of an operation of a transaction with that outcome."""
    outcomes, operations = _outcomes(trace), trace.operations

    def is_one(i: int) -> bool:
        one = operations[i]
        return one.op == op and outcomes.get(one.tx) == outcome and fits(one)

    return _some(draw, len(operations), is_one)


def _dirty_read(trace: Trace, draw: random.Random) -> Trace:
    at = _one_of(trace, draw, READ, lambda one: True)
    rows = trace.transactions
    aborted = rows[_some(draw, len(rows), lambda i: rows[i].outcome == ABORTED)].tx
    return _change(trace, at, "version", aborted)


def _read_by_aborted(trace: Trace, draw: random.Random, outcome: str) -> Trace:
    """Makes an aborted transaction read what a transaction with that outcome left, which did not write the row."""
    at = _one_of(trace, draw, READ, lambda one: True, ABORTED)
    read, rows = trace.operations[at], trace.transactions
    writers = {one.tx for one in trace.operations if one.op == WRITE and one.lane == read.lane}

    def fits(i: int) -> bool:
        return rows[i].outcome == outcome and rows[i].tx not in writers | {read.tx}

    return _change(trace, at, "version", rows[_some(draw, len(rows), fits)].tx)


def _dirty_read_by_aborted(trace: Trace, draw: random.Random) -> Trace:
    return _read_by_aborted(trace, draw, ABORTED)


def _foreign_read_by_aborted(trace: Trace, draw: random.Random) -> Trace:
    return _read_by_aborted(trace, draw, COMMITTED)


def _stale_read(trace: Trace, draw: random.Random) -> Trace:
    """Makes a read return an earlier version."""
    at = _one_of(trace, draw, READ, lambda one: one.version >= 0)
    read = trace.operations[at]
    places = {row.tx: (row.step, row.n) for row in trace.transactions if row.n is not None}
    writers = [o.tx for o in trace.operations if o.op == WRITE and o.lane == read.lane]
    mine = places.get(read.version)
    before = [tx for tx in writers if mine and tx in places and places[tx] < mine]
    return _change(trace, at, "version", draw.choice([-1, *before]))


def _position_gap(trace: Trace, draw: random.Random) -> Trace:
    last: dict[int, int] = {}
    outcomes = _outcomes(trace)
    for one in trace.operations:
        if one.op == CONSUME and outcomes.get(one.tx) == COMMITTED:
            last[one.lane] = max(last.get(one.lane, 0), one.end)
    at = _one_of(
        trace, draw, CONSUME, lambda one: one.end - one.begin > 1 and one.end < last[one.lane]
    )
    return _change(trace, at, "end", trace.operations[at].end - 1)


def _position_overlap(trace: Trace, draw: random.Random) -> Trace:
    at = _one_of(trace, draw, CONSUME, lambda one: one.begin > 0)
    return _change(trace, at, "begin", trace.operations[at].begin - 1)


def _acknowledged_twice(trace: Trace, draw: random.Random) -> Trace:
    """Makes a range overlap where records are acknowledged one by one."""
    lanes = [
        lane._replace(key=INDIVIDUAL) if lane.kind == CONSUMER else lane for lane in trace.lanes
    ]
    return replace(_position_overlap(trace, draw), lanes=lanes)


def _real_time(trace: Trace, draw: random.Random) -> Trace:
    """Moves a transaction's begin and reply before the latest begin of all with earlier places."""
    rows = trace.transactions
    placed = [i for i, row in enumerate(rows) if row.outcome == COMMITTED and row.n is not None]
    placed.sort(key=lambda i: (rows[i].step or 0, rows[i].n or 0))
    at = draw.randrange(len(placed) // 2, len(placed))
    later = rows[placed[at]]
    begin = max(rows[i].begin or 0 for i in placed[:at])
    changed = trace.transactions.copy()
    changed[placed[at]] = later._replace(
        begin=begin - 3, proposed=begin - 2, decided=None, visible=None, reply=begin - 1
    )
    return replace(trace, transactions=changed)


# records -------------------------------------------------------------------------------------


def _without(trace: Trace, begin: int, end: int) -> Trace:
    """Removes the records at these indices, all of one lane."""
    records = deepcopy(trace.records)
    _move(records, records.lane[begin], end, begin - end)
    for name in _COLUMNS:
        del getattr(records, name)[begin:end]
    return replace(trace, records=records, seen=Records())


def _with(trace: Trace, at: int, lane: int, offset: int, identity: tuple[int, int, int]) -> Trace:
    """Inserts a record before the index `at`."""
    records = deepcopy(trace.records)
    _move(records, lane, at, 1)
    for name, value in zip(_COLUMNS, (lane, offset, *identity), strict=True):
        column: array[int] = getattr(records, name)
        column.insert(at, value)
    return replace(trace, records=records, seen=Records())


def _move(records: Records, lane: int, at: int, by: int) -> None:
    """Moves the offsets of the lane's records from index `at` on; there may be none."""
    while at < len(records) and records.lane[at] == lane:
        records.offset[at] += by
        at += 1


def _pair(trace: Trace, draw: random.Random) -> int:
    """Returns the index of the first of two adjacent records of one transaction and source."""
    records = trace.records
    columns = records.lane, records.source, records.tx
    return _some(draw, len(records) - 1, lambda i: all(c[i] == c[i + 1] for c in columns))


def _lost(trace: Trace, draw: random.Random) -> Trace:
    at = _pair(trace, draw)
    return _without(trace, at, at + 1)


def _repeated(trace: Trace, draw: random.Random) -> Trace:
    records = trace.records
    at = draw.randrange(len(records))
    identity = records.source[at], records.ordinal[at], records.tx[at]
    return _with(trace, at + 1, records.lane[at], records.offset[at] + 1, identity)


def _reordered(trace: Trace, draw: random.Random) -> Trace:
    at = _pair(trace, draw)
    records = deepcopy(trace.records)
    ordinal = records.ordinal
    ordinal[at], ordinal[at + 1] = ordinal[at + 1], ordinal[at]
    return replace(trace, records=records, seen=Records())


def _torn(trace: Trace, draw: random.Random) -> Trace:
    """Removes all that a transaction wrote to one of its partitions."""
    by_tx: dict[int, list[Operation]] = {}
    outcomes = _outcomes(trace)
    for one in trace.operations:
        if one.op == PRODUCE and outcomes.get(one.tx) == COMMITTED:
            by_tx.setdefault(one.tx, []).append(one)
    torn = [operations for operations in by_tx.values() if len(operations) > 1]
    one = draw.choice(torn[_some(draw, len(torn), lambda i: True)])
    places = list(zip(trace.records.lane, trace.records.offset, strict=True))
    at = _some(draw, len(places), lambda i: places[i] == (one.lane, one.begin))
    return _without(trace, at, at + one.records)


def _aborted_visible(trace: Trace, draw: random.Random) -> Trace:
    records = trace.records
    lanes = dict.fromkeys(records.lane)
    at = _one_of(trace, draw, PRODUCE, lambda one: one.lane in lanes, ABORTED)
    one = trace.operations[at]
    at = max(i for i, lane in enumerate(records.lane) if lane == one.lane)
    identity = (records.source[at], records.ordinal[at] + 1, one.tx)
    return _with(trace, at + 1, one.lane, records.offset[at] + 1, identity)


_PLANTS: dict[str, Callable[[Trace, random.Random], Trace]] = {
    names.LOST: _lost,
    names.REPEATED: _repeated,
    names.REORDERED: _reordered,
    names.TORN: _torn,
    names.ABORTED_VISIBLE: _aborted_visible,
    names.DIRTY_READ: _dirty_read,
    names.STALE_READ: _stale_read,
    names.REAL_TIME: _real_time,
    names.POSITION_GAP: _position_gap,
    names.POSITION_OVERLAP: _position_overlap,
    names.UNCOMMITTED_DIRTY_READ: _dirty_read_by_aborted,
    names.UNCOMMITTED_FOREIGN_READ: _foreign_read_by_aborted,
    names.USED_TWICE: _position_overlap,
    names.ACKNOWLEDGED_TWICE: _acknowledged_twice,
}
WITHOUT_PLACES = (
    *(names.USED_TWICE, names.ACKNOWLEDGED_TWICE, names.DIRTY_READ),
    *(names.UNCOMMITTED_DIRTY_READ, names.UNCOMMITTED_FOREIGN_READ),
)
"""Kinds that a history of kind "in-place" or "none" shows; only those of reads are about kind "planned", too."""
IN_STORES, IN_TRACES = tuple(_PLANTS)[:5], tuple(_PLANTS)[5:-2]
KINDS = (*IN_STORES, *IN_TRACES)
