"""Plants one error in a correct history, as a control: without it a clean verdict proves nothing.

    lost · repeated · reordered · torn · aborted data visible     in the store
    dirty read · stale read · real-time violation                 in the reads and times of transactions
    position gap · position overlap                               in what they consumed

Only changed parts are copied. An added or removed record moves the later ones, as in a store. The follower's
records are left out then, for they would contradict every one of these.

Next: ../../../tests/judges/test_check_planted.py.
"""

import random
from array import array
from collections.abc import Callable
from dataclasses import replace

from ..trace import ABORTED, COMMITTED, CONSUME, PRODUCE, READ, WRITE, Operation, Records, Trace
from .findings import (
    ABORTED_VISIBLE,
    DIRTY_READ,
    LOST,
    POSITION_GAP,
    POSITION_OVERLAP,
    REAL_TIME,
    REORDERED,
    REPEATED,
    STALE_READ,
    TORN,
)

_COLUMNS = ("lane", "offset", "source", "ordinal", "tx")


def plant(trace: Trace, kind: str, seed: int) -> Trace:
    """Returns a copy of a clean trace of mode "places" with one anomaly of the kind.

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


def _operation(trace: Trace, at: int, changed: Operation) -> Trace:
    operations = trace.operations.copy()
    operations[at] = changed
    return replace(trace, operations=operations)


def _committed(
    trace: Trace, draw: random.Random, op: str, fits: Callable[[Operation], bool]
) -> int:
    outcomes, operations = _outcomes(trace), trace.operations

    def chosen(i: int) -> bool:
        one = operations[i]
        return one.op == op and outcomes.get(one.tx) == COMMITTED and fits(one)

    return _some(draw, len(operations), chosen)


def _dirty_read(trace: Trace, draw: random.Random) -> Trace:
    at = _committed(trace, draw, READ, lambda one: True)
    rows = trace.transactions
    aborted = rows[_some(draw, len(rows), lambda i: rows[i].outcome == ABORTED)].tx
    return _operation(trace, at, trace.operations[at]._replace(version=aborted))


def _stale_read(trace: Trace, draw: random.Random) -> Trace:
    """Makes a read return an earlier version."""
    at = _committed(trace, draw, READ, lambda one: one.version >= 0)
    read = trace.operations[at]
    places = {row.tx: (row.step, row.n) for row in trace.transactions if row.n is not None}
    writers = [o.tx for o in trace.operations if o.op == WRITE and o.lane == read.lane]
    mine = places.get(read.version)
    before = [tx for tx in writers if mine and tx in places and places[tx] < mine]
    return _operation(trace, at, read._replace(version=draw.choice([-1, *before])))


def _position_gap(trace: Trace, draw: random.Random) -> Trace:
    last: dict[int, int] = {}
    outcomes = _outcomes(trace)
    for one in trace.operations:
        if one.op == CONSUME and outcomes.get(one.tx) == COMMITTED:
            last[one.lane] = max(last.get(one.lane, 0), one.end)
    at = _committed(
        trace, draw, CONSUME, lambda one: one.end - one.begin > 1 and one.end < last[one.lane]
    )
    one = trace.operations[at]
    return _operation(trace, at, one._replace(end=one.end - 1))


def _position_overlap(trace: Trace, draw: random.Random) -> Trace:
    at = _committed(trace, draw, CONSUME, lambda one: one.begin > 0)
    one = trace.operations[at]
    return _operation(trace, at, one._replace(begin=one.begin - 1))


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


def _copied(records: Records) -> Records:
    copied = Records()
    for name in _COLUMNS:
        getattr(copied, name).extend(getattr(records, name))
    return copied


def _without(trace: Trace, begin: int, end: int) -> Trace:
    """Removes the records at these indices, all of one lane."""
    records = _copied(trace.records)
    _move(records, records.lane[begin], end, begin - end)
    for name in _COLUMNS:
        del getattr(records, name)[begin:end]
    return replace(trace, records=records, seen=Records())


def _with(trace: Trace, at: int, lane: int, offset: int, identity: tuple[int, int, int]) -> Trace:
    """Inserts a record before the index `at`."""
    records = _copied(trace.records)
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

    def fits(i: int) -> bool:
        return all(column[i] == column[i + 1] for column in columns)

    return _some(draw, len(records) - 1, fits)


def _identity(records: Records, i: int) -> tuple[int, int, int]:
    return records.source[i], records.ordinal[i], records.tx[i]


def _lost(trace: Trace, draw: random.Random) -> Trace:
    at = _pair(trace, draw)
    return _without(trace, at, at + 1)


def _repeated(trace: Trace, draw: random.Random) -> Trace:
    records = trace.records
    at = draw.randrange(len(records))
    lane, offset = records.lane[at], records.offset[at] + 1
    return _with(trace, at + 1, lane, offset, _identity(records, at))


def _reordered(trace: Trace, draw: random.Random) -> Trace:
    at = _pair(trace, draw)
    records = _copied(trace.records)
    ordinal = records.ordinal
    ordinal[at], ordinal[at + 1] = ordinal[at + 1], ordinal[at]
    return replace(trace, records=records, seen=Records())


def _torn(trace: Trace, draw: random.Random) -> Trace:
    """Removes all that a transaction wrote to one of its partitions."""
    made: dict[int, list[Operation]] = {}
    outcomes = _outcomes(trace)
    for one in trace.operations:
        if one.op == PRODUCE and outcomes.get(one.tx) == COMMITTED:
            made.setdefault(one.tx, []).append(one)
    torn = [operations for operations in made.values() if len(operations) > 1]
    one = draw.choice(torn[_some(draw, len(torn), lambda i: True)])
    records = trace.records
    at = _some(
        draw,
        len(records),
        lambda i: records.lane[i] == one.lane and records.offset[i] == one.begin,
    )
    return _without(trace, at, at + one.records)


def _aborted_visible(trace: Trace, draw: random.Random) -> Trace:
    outcomes = _outcomes(trace)
    operations, records = trace.operations, trace.records
    lanes = dict.fromkeys(records.lane)

    def fits(i: int) -> bool:
        one = operations[i]
        return one.op == PRODUCE and outcomes.get(one.tx) == ABORTED and one.lane in lanes

    one = operations[_some(draw, len(operations), fits)]
    at = max(i for i, lane in enumerate(records.lane) if lane == one.lane)
    identity = (records.source[at], records.ordinal[at] + 1, one.tx)
    return _with(trace, at + 1, one.lane, records.offset[at] + 1, identity)


_PLANTS: dict[str, Callable[[Trace, random.Random], Trace]] = {
    LOST: _lost,
    REPEATED: _repeated,
    REORDERED: _reordered,
    TORN: _torn,
    ABORTED_VISIBLE: _aborted_visible,
    DIRTY_READ: _dirty_read,
    STALE_READ: _stale_read,
    REAL_TIME: _real_time,
    POSITION_GAP: _position_gap,
    POSITION_OVERLAP: _position_overlap,
}
IN_STORES, IN_TRACES = tuple(_PLANTS)[:5], tuple(_PLANTS)[5:]
KINDS = (*IN_STORES, *IN_TRACES)
