"""Turns a trace into columns by transaction number and by lane, once, so that checks are loops over ints.

    transactions ─▶ outcome, rank, begin, reply …   by number
    operations   ─▶ rows                            "rank, then its place in the trace", sorted
                    consumed, produced              by lane: ranges of committed ones, by rank
    records      ─▶ stored                          by lane, in order of offsets, with their owners

A rank is a committed transaction's number in the one order, -1 stands for all others. Without places a rank says
only that it is committed.

Next: certificate.py.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter

from ..trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    READ,
    UNDETERMINED,
    WRITE,
    Operation,
    Records,
    Trace,
)

ABSENT, IS_COMMITTED, IS_ABORTED, IS_UNDETERMINED = range(4)
_OUTCOMES = {COMMITTED: IS_COMMITTED, ABORTED: IS_ABORTED, UNDETERMINED: IS_UNDETERMINED}
BEHIND_ALL = (1 << 32) - 1
"""Value of `n` for a transaction that only reads: after all others of its step."""
INDEX = (1 << 32) - 1
"""The part of a row's key that is the operation's index in the trace."""
IS_WRITE = 1 << 32
RANK_OF_ROW = 33
_FACTS = itemgetter(0, 2, 3, 4, 5, 8, 10, 14)
"""tx, worker, outcome, step, n, begin, proposed, reply."""
Range = tuple[int, int, int, int, int]
"""A committed transaction's range in a lane: rank, number, [begin, end) of offsets or -1, number of records."""


class Log(Records):
    """The records of one lane, in the order of their offsets, or, for those seen, of the polls.

    `owner` is the record's transaction, from its identity, or as delivery.py finds it; `lane` is empty.
    """

    __slots__ = ("owner",)

    def __init__(self) -> None:
        super().__init__()
        self.owner = array("q")

    def sort(self) -> None:
        order = sorted(range(len(self.offset)), key=self.offset.__getitem__)
        if order != list(range(len(order))):
            for name in ("offset", "source", "ordinal", "tx"):
                column = getattr(self, name)
                setattr(self, name, array("q", [column[i] for i in order]))


class History:
    """The columns of a trace.

    Invariant: every number up to the highest has an outcome, IS_UNDETERMINED where the trace has none.

    place      step << 32 | n by number; -1: none
    ordered    committed transactions (with places: those that have one), in the one order
    rows       keys of READ and WRITE of committed transactions: rank << 33 | IS_WRITE | index
    others     CONSUME and PRODUCE of transactions without a rank; `written`: the rows that each of these wrote;
               `unranked_reads`: their READs
    """

    def __init__(self, trace: Trace, places: bool) -> None:
        self.trace = trace
        self.lanes = trace.lanes
        self.operations = trace.operations
        self._transactions(places)
        self._operations()
        self.stored = _by_lane(trace.records)
        for log in self.stored.values():
            log.sort()
            log.owner = log.tx
        self.seen = _by_lane(trace.seen)

    def _transactions(self, places: bool) -> None:
        rows = self.trace.transactions
        numbers = map(itemgetter(0), chain(rows, self.operations))
        self.size = size = 1 + max(numbers, default=-1)
        self.outcome = outcome = bytearray(size)
        self.place = place = [-1] * size
        self.worker = workers = [""] * size
        self.begin: list[int | None] = [None] * size
        self.proposed: list[int | None] = [None] * size
        self.reply: list[int | None] = [None] * size
        begins, proposals, replies = self.begin, self.proposed, self.reply
        for tx, worker, name, step, n, begin, proposed, reply in map(_FACTS, rows):
            if outcome[tx]:
                raise ValueError(f"the trace has transaction {tx} twice")
            outcome[tx], workers[tx] = _OUTCOMES[name], worker
            if step is not None:
                place[tx] = step << 32 | (BEHIND_ALL if n is None else n)
            begins[tx], proposals[tx], replies[tx] = begin, proposed, reply
        self.outcome = outcome.replace(bytes([ABSENT]), bytes([IS_UNDETERMINED]))
        self.ordered = [tx for tx in range(size) if outcome[tx] == IS_COMMITTED]
        if places:
            self.ordered = [tx for tx in self.ordered if place[tx] >= 0]
            self.ordered.sort(key=place.__getitem__)
        self.rank = rank = [-1] * size
        for at, tx in enumerate(self.ordered):
            rank[tx] = at

    def _operations(self) -> None:
        rank = self.rank
        self.rows: list[int] = []
        self.others: list[Operation] = []
        self.unranked_reads: list[Operation] = []
        self.written: dict[int, list[int]] = {}
        self.consumed: dict[int, list[Range]] = defaultdict(list)
        self.produced: dict[int, list[Range]] = defaultdict(list)
        rows, consumed, produced = self.rows, self.consumed, self.produced
        for index, operation in enumerate(self.operations):
            tx, op, lane, begin, end, records, _ = operation
            at = rank[tx]
            if at < 0:
                if op == WRITE:
                    self.written.setdefault(tx, []).append(lane)
                elif op == READ:
                    self.unranked_reads.append(operation)
                else:
                    self.others.append(operation)
            elif op == READ:
                rows.append(at << RANK_OF_ROW | index)
            elif op == WRITE:
                rows.append(at << RANK_OF_ROW | IS_WRITE | index)
            else:
                ranges = consumed if op == CONSUME else produced
                count = records or (end - begin if begin >= 0 else 0)
                ranges[lane].append((at, tx, begin, end, count))
        rows.sort()
        for of_lane in (*consumed.values(), *produced.values()):
            of_lane.sort(key=itemgetter(0))

    def has_write(self, tx: int, lane: int) -> bool:
        """Returns True if the transaction wrote the row. The first call is slow; only errors need it."""
        if self.rank[tx] < 0:
            return lane in self.written.get(tx, ())
        return (tx, lane) in self._writes

    def ranked_operations(self, is_write: int) -> Iterator[Operation]:
        """Yields the WRITEs (`is_write`: IS_WRITE) or READs (0) of transactions with a rank, in their order."""
        operations = self.operations
        return (operations[key & INDEX] for key in self.rows if key & IS_WRITE == is_write)

    @cached_property
    def _writes(self) -> set[tuple[int, int]]:
        return {(write[0], write[2]) for write in self.ranked_operations(IS_WRITE)}

    @cached_property
    def producers(self) -> set[int]:
        """The transactions with a rank that have a PRODUCE; slow to make, and only errors need it."""
        return {tx for ranges in self.produced.values() for _, tx, *_ in ranges}

    def outcome_of(self, tx: int) -> int:
        """Returns a transaction's outcome, ABSENT for a number that the trace does not have."""
        return self.outcome[tx] if 0 <= tx < self.size else ABSENT

    def lanes_of(self, kind: str, name: str) -> dict[int, int]:
        """Returns partition → lane, of a topic, or of a consumer "topic/consumer"."""
        return {
            lane.partition: number
            for number, lane in enumerate(self.lanes)
            if lane.kind == kind and lane.name == name
        }

    def others_of(self, op: str, outcome: int) -> list[Operation]:
        """Returns operations of transactions without a rank, by their outcome."""
        return [o for o in self.others if o.op == op and self.outcome[o.tx] == outcome]

    def where(self, lane: int) -> str:
        """Names a lane in words, as in "orders/3" and "accounts[7]"."""
        _, name, partition, key = self.lanes[lane]
        return f"{name}[{key}]" if partition < 0 else f"{name}/{partition}"


def _by_lane(records: Records) -> dict[int, Log]:
    names = [name for name in Records.__slots__ if name != "lane" and getattr(records, name)]
    logs: dict[int, Log] = defaultdict(Log)
    begin = 0
    for lane, run in groupby(records.lane):
        end = begin + len(list(run))
        for name in names:
            getattr(logs[lane], name).extend(getattr(records, name)[begin:end])
        begin = end
    return logs
