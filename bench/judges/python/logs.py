"""Finds anomalies of logs and of their readers, by the names of Jepsen's Kafka tests.

    seen      records that the follower got during the run, poll by poll      against
    records   records of the store at the end                                 and transactions' outcomes

    poll 7  [4 5 _ 7]    6 is stored and was skipped: internal poll skip
    poll 8  [9 …         8 is stored: poll skip;  [6 …: non-monotonic poll

Jepsen's lost write is "lost" here, its duplicate "repeated": delivery.py finds them in the whole store. A cycle is
a strongly connected component of more than one transaction, counted once:

    ww   the next one in a partition     wr   consumed the other one's records, up to its highest record
    G0   ww alone     G1c   wr alone     G1c with ww   both

ALLOWED has the anomalies that Kafka's model allows without any fault. Writes of transactions interleave, since data
lies in place before its transaction ends; and a stopped follower has not read everything. In a mode with places
only the latter is allowed.

Left out: anti-dependencies (G-single, G2), since Kafka does not isolate positions of a partition, and a
certificate needs no search. Skips by rebalancing: the follower has its partitions to itself.

Next: ../trace.py.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias, TypeVar

from ..trace import COMMITTED, INDIVIDUAL, TOPIC
from . import findings as names
from .findings import Findings
from .history import ABSENT, IS_ABORTED, IS_COMMITTED, History, Log

ALLOWED = (names.G0, names.G1C_WW, names.INTERNAL_SEND_SKIP, names.UNSEEN)
ALLOWED_ELSEWHERE = (names.UNSEEN,)
Node = TypeVar("Node", bound=Hashable)
Edges: TypeAlias = dict[Node, list[Node]]


def readable(history: History) -> dict[int, int]:
    """Returns the times when committed transactions could be read, in nanoseconds since the run's zero.

        offset   A A B B A │commit B│ … │commit A│      B can be read only after A's marker, too

    Readers of committed records stop at the first record of an open transaction (the last stable offset). So a
    transaction can be read once its own markers are there, and those of all that have records before its last one.

    Left out: aborted transactions, whose records the store does not show; the time of each partition's marker,
    since only that of the last one is known.
    """
    visible_at = {
        row.tx: row.visible
        for row in history.trace.transactions
        if row.outcome == COMMITTED and row.visible is not None
    }
    readable_at = dict(visible_at)
    for log in history.stored.values():
        latest = -1
        for tx, _ in groupby(log.owner):
            at = visible_at.get(tx)
            if at is not None:
                latest = max(latest, at)
                readable_at[tx] = max(readable_at[tx], latest)
    return readable_at


def check_reader(history: History, findings: Findings) -> None:
    """Checks the records that the follower got."""
    for lane, reads in history.seen.items():
        log = history.stored.get(lane) or Log()
        if not _agrees(reads, log):
            _polls(history, findings, lane, reads, log)
            _values(history, findings, lane, reads, log)
        unseen = len(log.offset) - bisect_right(log.offset, max(reads.offset))
        text = "{}: the reader stopped after {}"
        findings.add(names.UNSEEN, unseen, text, history.where(lane), max(reads.offset))
        _early(history, findings, lane, reads, log)
    findings.looked_at["seen"] = len(history.trace.seen)


def _agrees(reads: Log, log: Log) -> bool:
    """Returns True if it got exactly the stored records, from its beginning on: the usual case."""
    begin = bisect_left(log.offset, reads.offset[0])
    end = begin + len(reads.offset)
    return all(
        getattr(log, name)[begin:end] == getattr(reads, name)
        for name in ("offset", "source", "ordinal", "tx")
    )


def _polls(history: History, findings: Findings, lane: int, reads: Log, log: Log) -> None:
    """Checks for each record, in order of arrival, that it follows the one before."""
    stored, where = log.offset, history.where(lane)
    last = poll = -1
    for offset, number in zip(reads.offset, reads.poll, strict=True):
        inside = number == poll
        if 0 <= last and offset <= last:
            name = names.INTERNAL_NON_MONOTONIC_POLL if inside else names.NON_MONOTONIC_POLL
            findings.note(name, "{}: poll {} returned {} after {}", where, number, offset, last)
        elif 0 <= last < offset - 1:
            skipped = bisect_left(stored, offset) - bisect_right(stored, last)
            if skipped:
                name = names.INTERNAL_POLL_SKIP if inside else names.POLL_SKIP
                text = "{}: poll {} went from {} to {} and skipped {} records"
                findings.note(name, text, where, number, last, offset, skipped)
        last, poll = offset, number


def _values(history: History, findings: Findings, lane: int, reads: Log, log: Log) -> None:
    """Checks that each record is the stored one."""
    where = history.where(lane)
    identities = zip(log.source, log.ordinal, log.tx, strict=True)
    final = dict(zip(log.offset, identities, strict=True))
    records = zip(reads.source, reads.ordinal, reads.tx, strict=True)
    for offset, identity in zip(reads.offset, records, strict=True):
        stored = final.get(offset)
        state = history.outcome_of(identity[2])
        if stored == identity or state == IS_ABORTED:
            continue
        if stored is None:
            text = "{} at {}: the reader got a record of transaction {}, which the store lacks at the end"
            name = names.LOST if state == IS_COMMITTED or identity[2] < 0 else names.ABORTED_READ
            findings.note(name, text, where, offset, identity[2])
        else:
            text = "{} at {}: the reader got (source, ordinal, transaction) {}, the store has {}"
            findings.note(names.INCONSISTENT_OFFSET, text, where, offset, identity, stored)


def _whose(reads: Log, log: Log) -> Sequence[int]:
    """Returns the transactions of the records; for records that name none, their owners in the store."""
    if min(reads.tx) >= 0:
        return reads.tx
    owners = dict(zip(log.offset, log.owner, strict=True)) if log.offset else {}
    pairs = zip(reads.tx, reads.offset, strict=True)
    return [tx if tx >= 0 else owners.get(offset, -1) for tx, offset in pairs]


def _early(history: History, findings: Findings, lane: int, reads: Log, log: Log) -> None:
    """Notes records of transactions that had not asked to commit by then, or that aborted."""
    where, proposed = history.where(lane), history.proposed
    last, state = (-1, -1), ABSENT
    records = zip(_whose(reads, log), reads.poll, reads.at, reads.offset, strict=True)
    for tx, poll, at, offset in records:
        if (tx, poll) != last:
            last, state = (tx, poll), history.outcome_of(tx)
            proposed_at = proposed[tx] if state else None
            if proposed_at is not None and 0 <= at < proposed_at:
                text = "{} at {}: the reader got it {} ns before transaction {} called commit"
                findings.note(names.PRECOMMITTED_READ, text, where, offset, proposed_at - at, tx)
        if state == IS_ABORTED:
            text = "{} at {}: the reader got a record of the aborted transaction {}"
            findings.note(names.ABORTED_READ, text, where, offset, tx)


def check_logs(history: History, findings: Findings) -> None:
    """Checks the order of transactions in logs. Linear in records and consumed ranges."""
    workers = history.worker
    ww: Edges[int] = {}
    for lane, log in history.stored.items():
        last = -1
        earlier: dict[int, None] = {}
        latest: dict[str, int] = {}  # by worker
        for tx in log.owner:
            if tx == last or not 0 <= tx < history.size:
                continue
            later = latest.get(workers[tx], -1)
            if tx in earlier:
                text = "{}: records of transaction {} lie before and after those of {}"
                findings.note(names.INTERNAL_SEND_SKIP, text, history.where(lane), tx, last)
            elif later > tx and _ended_before(history, tx, later):
                text = "{}: transaction {} lies after {}, which the same worker began later"
                findings.note(names.NON_MONOTONIC_SEND, text, history.where(lane), tx, later)
            latest[workers[tx]] = max(later, tx)
            earlier[tx] = None
            if last >= 0:
                ww.setdefault(last, []).append(tx)
            last = tx
    _inputs(history, findings)
    for name, cycle in cycles(ww, _consumers(history)):
        findings.note(name, "{} transactions, among them {}", len(cycle), sorted(cycle)[:4])


def _inputs(history: History, findings: Findings) -> None:
    """Notes committed ranges of a consumer that begin within an earlier one, by offset: an input counts once."""
    for lane, ranges in history.consumed.items():
        individual = history.lanes[lane].key == INDIVIDUAL
        name = names.ACKNOWLEDGED_TWICE if individual else names.USED_TWICE
        reached = -1
        for begin, end, tx in sorted((begin, end, tx) for _, tx, begin, end, _ in ranges):
            if begin < reached:
                text = "{}: transaction {} consumed from {}, others up to {}"
                findings.note(name, text, history.where(lane), tx, begin, reached)
            reached = max(reached, end)


def _ended_before(history: History, tx: int, later: int) -> bool:
    """Returns True if one had ended when the other began, since a worker may have several under way."""
    reply, begin = history.reply[tx], history.begin[later]
    return reply is not None and begin is not None and reply <= begin


def _consumers(history: History) -> Edges[int]:
    """Returns edges from a writer to its consumers, by the highest record of each range."""
    edges: Edges[int] = {}
    for lane, ranges in history.consumed.items():
        _, name, partition, _ = history.lanes[lane]
        source = history.lanes_of(TOPIC, name.rpartition("/")[0]).get(partition, -1)
        log = history.stored.get(source, Log())
        for _, tx, begin, end, _ in ranges:
            highest = bisect_left(log.offset, end) - 1
            if highest >= 0 and log.offset[highest] >= begin:
                writer = log.owner[highest]
                if writer >= 0 and writer != tx:
                    edges.setdefault(writer, []).append(tx)
    return edges


def cycles(ww: Edges[Node], wr: Edges[Node]) -> Iterator[tuple[str, list[Node]]]:
    """Yields each cycle with its name. The simulated worlds use it, too."""
    both = {tx: [*ww.get(tx, ()), *wr.get(tx, ())] for tx in ww | wr}
    for name, edges, needed in ((names.G0, ww, ww), (names.G1C, wr, wr), (names.G1C_WW, both, wr)):
        for component in components(edges):
            inside = set(component)
            if any(to in inside for tx in component for to in needed.get(tx, ())):
                yield name, component


def components(edges: Edges[Node]) -> Iterator[list[Node]]:
    """Yields strongly connected components of more than one node (Tarjan), without recursion."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    held: dict[Node, None] = {}  # the stack, in order
    for root in edges:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        held[root] = None
        path = [(root, iter(edges.get(root, ())))]
        while path:
            tx, following = path[-1]
            for to in following:
                if to not in order:
                    order[to] = low[to] = len(order)
                    held[to] = None
                    path.append((to, iter(edges.get(to, ()))))
                    break
                if to in held:
                    low[tx] = min(low[tx], order[to])
            else:
                path.pop()
                if path:
                    before = path[-1][0]
                    low[before] = min(low[before], low[tx])
                if low[tx] == order[tx]:
                    component = _down_to(tx, held)
                    if len(component) > 1:
                        yield component


def _down_to(tx: Node, held: dict[Node, None]) -> list[Node]:
    """Takes nodes off the stack, down to and including one."""
    component = [held.popitem()[0]]
    while component[-1] != tx:
        component.append(held.popitem()[0])
    return component
