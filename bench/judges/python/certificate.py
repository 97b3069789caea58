"""Checks the certificate: replies carry places, so the one order is known and each claim of it is looked up.

    place order    T1 ── T2 ── T3 ── T4 …
    row            w     r     w     r       a read saw the last write before it
    consumer       [0,4)       [4,9)         positions tile, in this order
    partition            [0,2)       [2,5)   so do the published offsets
    real time      T1 replied before T4 began ⇒ place(T1) < place(T4)

If every read saw the last write, all dependencies point forward: the history is strictly serializable, without a
search for cycles (CHRONOS, arXiv 2504.01477). The check is one sort, and loops.

A read without a place in that order, of a transaction that aborted, or of a history without places, must still
have seen something that was: a value that some transaction wrote, and none that aborted.

Left out: ranges of rows (phantoms); consumers whose records are acknowledged one by one. An undetermined
transaction counts where another one read it, separately for each row.

Next: delivery.py.
"""

from bisect import bisect_left
from itertools import pairwise

from ..trace import CONSUME
from . import findings as names
from .feeds import Starts
from .findings import Findings
from .history import (
    BEHIND_ALL,
    INDEX,
    IS_ABORTED,
    IS_COMMITTED,
    IS_UNDETERMINED,
    IS_WRITE,
    RANK_OF_ROW,
    History,
    Log,
)


def check_certificate(history: History, findings: Findings, starts: Starts) -> None:
    """Checks the certificate. `starts`: initial positions by ("topic/consumer", partition), if not 0."""
    _places(history, findings)
    _real_time(history, findings)
    _reads(history, findings)
    _positions(history, findings, starts)
    _offsets(history, findings)


def _places(history: History, findings: Findings) -> None:
    place = history.place
    last = previous = -1
    for tx in history.ordered:
        at = place[tx]
        if at == last and at & BEHIND_ALL != BEHIND_ALL:
            text = "transactions {} and {} are both at ({}, {})"
            findings.note(names.PLACE_REPEATED, text, previous, tx, at >> 32, at & BEHIND_ALL)
        last, previous = at, tx
    for tx, (outcome, at) in enumerate(zip(history.outcome, place, strict=True)):
        if outcome == IS_COMMITTED and at < 0:
            findings.note(names.PLACE_MISSING, "transaction {} is committed without a place", tx)
        elif outcome == IS_ABORTED and at >= 0:
            text = "transaction {} is aborted and has the place ({}, {})"
            findings.note(names.PLACE_OF_ABORTED, text, tx, at >> 32, at & BEHIND_ALL)


def _real_time(history: History, findings: Findings) -> None:
    """Checks backwards, with the earliest reply of all later places; transactions at one place have no order."""
    place, begins, replies = history.place, history.begin, history.reply
    earliest, who = 1 << 63, -1  # of those after this place
    at_place, who_at_place = earliest, who  # … and at it
    last = -1
    for tx in reversed(history.ordered):
        if place[tx] != last:
            last, earliest, who = place[tx], at_place, who_at_place
        begin, reply = begins[tx], replies[tx]
        if begin is not None and begin > earliest:
            text = "transaction {} began {} ns after the reply to {}, and has a place before it"
            findings.note(names.REAL_TIME, text, tx, begin - earliest, who)
        if reply is not None and reply < at_place:
            at_place, who_at_place = reply, tx


def _reads(history: History, findings: Findings) -> None:
    operations, ordered = history.operations, history.ordered
    last = [-1] * len(history.lanes)  # the last writer of each row
    effective: dict[tuple[int, int], None] = {}  # (lane, writer) of undetermined writes with effect
    reads = 0
    for key in history.rows:
        tx, _, lane, _, _, _, version = operations[key & INDEX]
        if key & IS_WRITE:
            last[lane] = tx
            continue
        reads += 1
        if version == last[lane]:
            continue
        reader = ordered[key >> RANK_OF_ROW]
        name = _wrong(history, lane, version, key >> RANK_OF_ROW, effective)
        if name is None:
            effective[lane, version] = None
            last[lane] = version
        else:
            text = "transaction {} read {} as {} left it; the last write before its place is of {}"
            findings.note(name, text, reader, history.where(lane), _who(version), _who(last[lane]))
    findings.looked_at["reads"] = reads


def check_unordered_reads(history: History, findings: Findings, places: bool) -> None:
    """Checks reads without a place in an order. `places`: other reads have one, see `check_certificate`."""
    reads = [*history.unranked_reads, *(() if places else history.ranked_operations(0))]
    reads = [read for read in reads if read.version >= 0 and read.version != read.tx]
    unwritten = {(read.version, read.lane) for read in reads}
    if unwritten:
        unwritten.difference_update(
            (write.tx, write.lane) for write in history.ranked_operations(IS_WRITE)
        )
    for read in reads:
        tx, version = read.tx, read.version
        committed = history.outcome_of(tx) == IS_COMMITTED
        if history.outcome_of(version) == IS_ABORTED:
            name = names.DIRTY_READ if committed else names.UNCOMMITTED_DIRTY_READ
        elif (version, read.lane) in unwritten and not _wrote(history, version, read.lane):
            name = names.FOREIGN_READ if committed else names.UNCOMMITTED_FOREIGN_READ
        else:
            continue
        text = "transaction {} read {} as {} left it, which never was"
        findings.note(name, text, tx, history.where(read.lane), _who(version))
    findings.looked_at["unordered reads"] = len(reads)


def _wrote(history: History, tx: int, lane: int) -> bool:
    """Returns True if a transaction without a rank wrote the row."""
    return lane in history.written.get(tx, ())


def _wrong(
    history: History, lane: int, version: int, reader: int, effective: dict[tuple[int, int], None]
) -> str | None:
    """Names the anomaly of a read that is not of the last version; None if the writer's place is unknown."""
    if version < 0:
        return names.STALE_READ
    if history.outcome_of(version) == IS_ABORTED:
        return names.DIRTY_READ
    if version >= history.size or not history.has_write(version, lane):
        return names.FOREIGN_READ
    rank = history.rank[version]
    if rank < 0:
        return names.STALE_READ if (lane, version) in effective else None
    return names.FUTURE_READ if rank >= reader else names.STALE_READ


def _who(tx: int) -> str:
    return "nobody" if tx < 0 else f"transaction {tx}"


def _positions(history: History, findings: Findings, starts: Starts) -> None:
    doubtful: dict[int, dict[int, list[int]]] = {}
    for _, _, lane, begin, end, _, _ in history.others_of(CONSUME, IS_UNDETERMINED):
        doubtful.setdefault(lane, {}).setdefault(begin, []).append(end)
    for lane, ranges in history.consumed.items():
        _, name, partition, _ = history.lanes[lane]
        at = starts.get((name, partition), 0)
        for _, tx, begin, end, _ in ranges:
            if begin > at and not _bridged(doubtful.get(lane, {}), at, begin):
                text = "{}: transaction {} consumed from {}, the one before it only up to {}"
                findings.note(names.POSITION_GAP, text, history.where(lane), tx, begin, at)
            elif begin < at:
                text = "{}: transaction {} consumed from {}, others had consumed up to {}"
                findings.note(names.POSITION_OVERLAP, text, history.where(lane), tx, begin, at)
            at = end if end > at else at
    findings.looked_at["ranges"] = sum(map(len, history.consumed.values()))


def _bridged(doubtful: dict[int, list[int]], begin: int, end: int) -> bool:
    """Returns True if some ranges lead from `begin` to `end`: any of several attempts may count."""
    reached, todo = {begin: None}, [begin]
    while todo:
        for at in doubtful.get(todo.pop(), ()):
            if at not in reached and at <= end:
                reached[at] = None
                todo.append(at)
    return end in reached


def _offsets(history: History, findings: Findings) -> None:
    """Checks offsets that commits returned; gaps between them may hold records written without a transaction."""
    for lane, ranges in history.produced.items():
        log = history.stored.get(lane)
        at = log.offset[0] if log else -1
        for _, tx, begin, end, _ in ranges:
            if begin > at >= 0 and not _is_filled(history, log, at, begin):
                text = "{}: the commit of {} returned {}, but the one before it ended at {}"
                findings.note(names.OFFSET_GAP, text, history.where(lane), tx, begin, at)
            elif 0 <= begin < at:
                text = "{}: the commit of {} returned {}, but others had returned up to {}"
                findings.note(names.OFFSET_OVERLAP, text, history.where(lane), tx, begin, at)
            at = end if end > at else at
    for lane, log in history.stored.items():
        for before, offset in pairwise(log.offset):
            if offset > before + 1:
                text = "{}: the store has no records from {} to {}"
                findings.note(names.OFFSET_GAP, text, history.where(lane), before + 1, offset)
    findings.looked_at["published"] = sum(map(len, history.produced.values()))


def _is_filled(history: History, log: Log | None, begin: int, end: int) -> bool:
    """Returns True if all records at the offsets have no transaction, or one whose owner got no reply."""
    if log is None:
        return False
    first = bisect_left(log.offset, begin)
    owners = log.owner[first : bisect_left(log.offset, end)]
    ends = (IS_COMMITTED, IS_ABORTED)
    return len(owners) == end - begin and not any(history.outcome_of(tx) in ends for tx in owners)
