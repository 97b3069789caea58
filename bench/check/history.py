"""A trace as columns by transaction number, made once; what is judged afterwards are loops over ints.

    transactions ─▶ outcome, rank, begin, reply …     by number
    operations   ─▶ rows, consumed, produced          "rank, then where it is in the trace", sorted
    records      ─▶ by lane, in order of offsets; `owner`: the transaction whose they are

A rank is a committed transaction's number in the one order, -1 stands for all others. Where there are no
places a rank says only that it is committed.

Next: certificate.py.
"""

from operator import itemgetter

from ..trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    READ,
    TOPIC,
    UNDETERMINED,
    WRITE,
    Records,
    Trace,
)

ABSENT, IS_COMMITTED, IS_ABORTED, IS_UNDETERMINED = range(4)
_OUTCOMES = {COMMITTED: IS_COMMITTED, ABORTED: IS_ABORTED, UNDETERMINED: IS_UNDETERMINED}
BEHIND_ALL = (1 << 32) - 1
"""Stands for `n` of a transaction that only reads: behind all of its step."""
INDEX = (1 << 32) - 1
"""The part of a sorting key that says where the operation is in the trace."""
IS_WRITE = 1 << 32
RANK_OF_ROW = 33
_TOLD = itemgetter(0, 3, 4, 5, 8, 10, 14)


class History:
    """Invariant: whoever has operations has an outcome, IS_UNDETERMINED if nothing told it.

    place      step << 32 | n by number; -1: none
    ordered    committed transactions that have a place, in its order
    rows       keys of READ and WRITE of committed transactions: rank << 33 | IS_WRITE | index
    consumed, produced   by lane: rank << 32 | index, of committed ones; `others`: indexes of the others'
    written    lanes that a transaction without a rank wrote, by its number
    """

    def __init__(self, trace: Trace, places: bool) -> None:
        self.trace = trace
        self.lanes = trace.lanes
        self.operations = trace.operations
        self._transactions(places)
        self._operations()
        self.stored = by_lane(trace.records)
        self.owner = trace.records.tx
        """By record. Where its identity names nobody, the owner is found by delivery.py."""

    def _transactions(self, places: bool) -> None:
        rows = self.trace.transactions
        number = itemgetter(0)
        size = max(map(number, rows), default=-1)
        size = max(size, max(map(number, self.operations), default=-1)) + 1
        self.size = size
        self.outcome = outcome = bytearray(size)
        self.place = place = [-1] * size
        self.begin: list[int | None] = [None] * size
        self.proposed: list[int | None] = [None] * size
        self.reply: list[int | None] = [None] * size
        begins, proposals, replies = self.begin, self.proposed, self.reply
        for tx, told, step, n, begin, proposed, reply in map(_TOLD, rows):
            if outcome[tx]:
                raise ValueError(f"the trace has transaction {tx} twice")
            outcome[tx] = _OUTCOMES[told]
            if step is not None:
                place[tx] = step << 32 | (BEHIND_ALL if n is None else n)
            begins[tx], proposals[tx], replies[tx] = begin, proposed, reply
        committed = [tx for tx in range(size) if outcome[tx] == IS_COMMITTED]
        if places:
            committed = [tx for tx in committed if place[tx] >= 0]
            committed.sort(key=place.__getitem__)
        self.ordered = committed
        self.rank = rank = [-1] * size
        for at, tx in enumerate(committed):
            rank[tx] = at

    def _operations(self) -> None:
        rank, outcome = self.rank, self.outcome
        self.rows: list[int] = []
        self.consumed: dict[int, list[int]] = {}
        self.produced: dict[int, list[int]] = {}
        self.others: list[int] = []
        self.written: dict[int, list[int]] = {}
        self._writes: set[tuple[int, int]] | None = None
        rows, others = self.rows, self.others
        for index, (tx, op, lane, _, _, _, _) in enumerate(self.operations):
            at = rank[tx]
            if at < 0:
                if not outcome[tx]:
                    outcome[tx] = IS_UNDETERMINED
                if op == WRITE:
                    self.written.setdefault(tx, []).append(lane)
                elif op != READ:
                    others.append(index)
            elif op == READ:
                rows.append(at << RANK_OF_ROW | index)
            elif op == WRITE:
                rows.append(at << RANK_OF_ROW | IS_WRITE | index)
            else:
                by = self.consumed if op == CONSUME else self.produced
                if lane in by:
                    by[lane].append(at << 32 | index)
                else:
                    by[lane] = [at << 32 | index]
        rows.sort()
        for keys in (*self.consumed.values(), *self.produced.values()):
            keys.sort()

    def wrote(self, tx: int, lane: int) -> bool:
        """Whether the transaction wrote the row. Slow at first: asked only when something is wrong."""
        if self.rank[tx] < 0:
            return lane in self.written.get(tx, ())
        if self._writes is None:
            operations = self.operations
            writes = (operations[key & INDEX] for key in self.rows if key & IS_WRITE)
            self._writes = {(write[0], write[2]) for write in writes}
        return (tx, lane) in self._writes

    def told(self, tx: int) -> bool:
        """Whether the transaction is one whose outcome its owner knew."""
        return 0 <= tx < self.size and self.outcome[tx] in (IS_COMMITTED, IS_ABORTED)

    def consumer_lanes(self, name: str) -> dict[int, int]:
        """partition → lane, of "topic/consumer"."""
        return self._of(CONSUMER, name)

    def topic_lanes(self, name: str) -> dict[int, int]:
        """partition → lane."""
        return self._of(TOPIC, name)

    def _of(self, kind: str, name: str) -> dict[int, int]:
        return {
            lane.partition: number
            for number, lane in enumerate(self.lanes)
            if lane.kind == kind and lane.name == name
        }

    def others_of(self, op: str, *outcomes: int) -> list[int]:
        """Indexes of operations of transactions without a rank, by their outcome; all when none is named."""
        operations, outcome = self.operations, self.outcome
        return [
            index
            for index in self.others
            if operations[index][1] == op
            and (not outcomes or outcome[operations[index][0]] in outcomes)
        ]

    def where(self, lane: int) -> str:
        """In words, as in "orders/3" and "accounts[7]"."""
        _, name, partition, key = self.lanes[lane]
        return f"{name}[{key}]" if partition < 0 else f"{name}/{partition}"


def by_lane(records: Records) -> dict[int, list[int]]:
    """Where each lane's records are in the columns, in order of their offsets."""
    found: dict[int, list[int]] = {}
    for at, lane in enumerate(records.lane):
        if lane in found:
            found[lane].append(at)
        else:
            found[lane] = [at]
    offsets = records.offset
    for places in found.values():
        places.sort(key=offsets.__getitem__)
    return found


def by_poll(seen: Records) -> dict[int, list[int]]:
    """Where what was shown of each lane is in the columns, in the order in which it was."""
    found: dict[int, list[int]] = {}
    for at, lane in enumerate(seen.lane):
        found.setdefault(lane, []).append(at)
    return found
