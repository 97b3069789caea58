"""Generates histories of a correct system from a seed; tests and benchmarks of the judges use them.

    decisions             ──d1──d2──d3──d4──▶   the one order: step by step, some transactions in each
    a transaction         begin ──── d ── reply    several run at once: their intervals overlap

A judge must accept such a history, and reject it once plant.py has put an error into it. A step is a group of
transactions that are decided together.

Each transaction consumes a few records of one input partition, makes one record of each of them in one of the
output partitions, reads a row and writes another. Some abort, some only read, some have an unknown outcome. A
follower reads the outputs during the run.

Next: plant.py, which plants the errors.
"""

import random
from array import array
from bisect import bisect_right
from dataclasses import dataclass

from ..trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    PRODUCE,
    READ,
    ROW,
    TOPIC,
    UNDETERMINED,
    WRITE,
    Operation,
    Records,
    Trace,
    Transaction,
)

OUTPUT, CONSUMER_NAME, TABLE = "out", "in/worker", "accounts"
FEEDS = {OUTPUT: CONSUMER_NAME}
Place = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Mix:
    """Parameters of a history: shares of all transactions, times in nanoseconds.

    `passed_on`: output records name no transaction (-1), as in a resharding.
    """

    inputs: int = 8
    outputs: int = 8
    rows: int = 1_000
    workers: int = 16
    aborted: float = 0.05
    read_only: float = 0.03
    undetermined: float = 0.001
    consumed_max: int = 3
    passed_on: bool = False
    step_ns: int = 200_000
    latency_ns: int = 2_000_000


def generate(transactions: int, seed: int, mix: Mix | None = None) -> Trace:
    """Returns a clean history of kind "planned", with the topics of FEEDS."""
    return _Generator(transactions, random.Random(seed), mix or Mix()).trace


class _Generator:
    """Goes through the transactions in the order of their decisions; numbers follow their begins."""

    def __init__(self, transactions: int, draw: random.Random, mix: Mix) -> None:
        self.draw, self.mix = draw, mix
        self.trace = trace = Trace(about={"generated": transactions})
        self.inputs = [trace.lane(CONSUMER, CONSUMER_NAME, p) for p in range(mix.inputs)]
        self.outputs = [trace.lane(TOPIC, OUTPUT, p) for p in range(mix.outputs)]
        self.rows = [trace.lane(ROW, TABLE, key=str(k)) for k in range(mix.rows)]
        self.last = [-1] * mix.rows
        self.position = [0] * mix.inputs
        self.records = [Records() for _ in range(mix.outputs)]
        self.visible = [array("q") for _ in range(mix.outputs)]  # when each could be read
        self.history: list[tuple[Transaction, list[Operation]]] = []
        self._draw(transactions)
        self.history.sort(key=lambda one: one[0].reply or 0)
        trace.transactions = [row for row, _ in self.history]
        trace.operations = [operation for _, operations in self.history for operation in operations]
        for partition, records in enumerate(self.records):
            self._copy(partition, 0, len(records), trace.records)
        self._read()

    def _copy(self, partition: int, begin: int, end: int, into: Records) -> None:
        into.lane.extend([self.outputs[partition]] * (end - begin))
        for column in ("offset", "source", "ordinal", "tx"):
            getattr(into, column).extend(getattr(self.records[partition], column)[begin:end])

    def _draw(self, transactions: int) -> None:
        draw, mix = self.draw, self.mix
        uniform, latency = draw.random, mix.latency_ns
        decided, now = [], 0
        for _ in range(transactions):
            if uniform() < 0.25:
                now += 1 + int(uniform() * 2 * mix.step_ns)
            decided.append(now)
        begins = [at - int(latency * (0.1 + uniform())) for at in decided]
        first = min(begins, default=0)
        numbers = [0] * transactions
        for number, i in enumerate(sorted(range(transactions), key=begins.__getitem__)):
            numbers[i] = number
        step, n, before = 0, 0, -1
        readers: list[tuple[int, int, int]] = []  # of the step: their place is after all of it
        for tx, begin, at in zip(numbers, begins, decided, strict=True):
            if at != before:
                self._readers(step, readers)
                step, n, before = step + 1, 0, at
            times, kind = (begin - first, at - first), uniform()
            if kind < mix.read_only:
                readers.append((tx, *times))
                continue
            outcome = COMMITTED
            if kind < mix.read_only + mix.aborted:
                outcome = ABORTED
            elif kind < mix.read_only + mix.aborted + mix.undetermined:
                outcome = UNDETERMINED
            counts = outcome == COMMITTED or (outcome == UNDETERMINED and uniform() < 0.5)
            operations = self._work(tx, counts, outcome == COMMITTED, at - first)
            place = (step, n) if outcome == COMMITTED else (None, None)
            n += outcome == COMMITTED
            self._end(tx, outcome, place, *times, operations)
        self._readers(step, readers)

    def _readers(self, step: int, readers: list[tuple[int, int, int]]) -> None:
        for tx, begin, decided in readers:
            keys = {self._row(): None, self._row(): None}
            operations = [Operation(tx, READ, self.rows[k], version=self.last[k]) for k in keys]
            self._end(tx, COMMITTED, (step, None), begin, decided, operations)
        readers.clear()

    def _end(
        self, tx: int, outcome: str, place: Place, begin: int, decided: int, work: list[Operation]
    ) -> None:
        reply = decided + int(self.mix.latency_ns * (0.1 + self.draw.random()))
        row = Transaction(
            tx,
            f"1-{tx}",
            f"worker-{tx % self.mix.workers}",
            outcome,
            *place,
            begin=begin,
            proposed=(begin + decided) // 2,
            decided=decided,
            visible=decided,
            reply=None if outcome == UNDETERMINED else reply,
        )
        self.history.append((row, work))

    def _row(self) -> int:
        """Draws a row; some rows are hot."""
        return int(self.draw.random() ** 2 * self.mix.rows)

    def _work(self, tx: int, counts: bool, has_offsets: bool, at: int) -> list[Operation]:
        """Returns a transaction's operations; it changes the state if it `counts`."""
        draw, mix = self.draw, self.mix
        source = int(draw.random() * mix.inputs)
        begin = self.position[source]
        end = begin + 1 + int(draw.random() * mix.consumed_max)
        outputs: dict[int, list[int]] = {}
        for ordinal in range(begin, end):
            outputs.setdefault((ordinal // 2 * 7 + source) % mix.outputs, []).append(ordinal)
        operations = [Operation(tx, CONSUME, self.inputs[source], begin, end)]
        for partition, ordinals in outputs.items():
            lane, count = self.outputs[partition], len(ordinals)
            records = self.records[partition]
            offset = len(records)
            span = (offset, offset + count) if has_offsets else (-1, -1)
            operations.append(Operation(tx, PRODUCE, lane, *span, count))
            if counts:
                records.offset.extend(range(offset, offset + count))
                records.source.extend([source] * count)
                records.ordinal.extend(ordinals)
                records.tx.extend([-1 if mix.passed_on else tx] * count)
                self.visible[partition].extend([at] * count)
        read, target = self._row(), self._row()
        operations.append(Operation(tx, READ, self.rows[read], version=self.last[read]))
        operations.append(Operation(tx, WRITE, self.rows[target]))
        if counts:
            self.position[source] = end
            self.last[target] = tx
        return operations

    def _read(self) -> None:
        """Simulates a follower that polls one partition after the other, and gets the visible records."""
        at, poll = 0, 0
        partitions = len(self.records)
        ends = [0] * partitions
        last = max((times[-1] for times in self.visible if times), default=-1)
        while at <= last:
            at += 1 + int(self.draw.random() * 2 * self.mix.step_ns)
            for partition in range(partitions):
                begin, end = ends[partition], bisect_right(self.visible[partition], at - 1)
                if end > begin:
                    reads = self.trace.seen
                    self._copy(partition, begin, end, reads)
                    reads.poll.extend([poll] * (end - begin))
                    reads.at.extend([at] * (end - begin))
                    ends[partition] = end
                    poll += 1
