"""Defines a history's tables and topics; each row and each record names the transaction that wrote it.

    accounts   key → [tx, balance]         bank: the sum never changes          three shards
    ring       key → [tx, next]            always one ring through all keys
    lists      key → [tx, count, [last …]] list-append: the transactions that appended, in order
    taken      partition → [tx, count]     equals the consumer's position
    in, out    consumed records, and the records made of them      feeds: out ◀─ in/worker
    log        appended to, two partitions at a time

A row's `tx` is the number of the transaction that wrote it, so a read shows its version without asking the
engine. Records begin with their identity (judges/trace.py): source is the transaction that first wrote the
record, ordinal its index there.

All processes number lanes alike: rows first, then partitions, then positions.

Next: writer.py.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...judges.trace import CONSUMER, ROW, TOPIC, Lane

PARTITIONS = 8
SHARDS = 3
BALANCE = 100
TAIL = 12
"""The number of last appenders that a list keeps."""
IN, OUT, LOG, WORKER = "in", "out", "log", "worker"
ACCOUNTS, RING, LISTS, TAKEN = "accounts", "ring", "lists", "taken"
TOPICS = (IN, OUT, LOG)
FEEDS = {OUT: f"{IN}/{WORKER}"}


class World(NamedTuple):
    """Sets the number of rows of each table: fewer rows mean more conflicts."""

    accounts: int = 2000
    ring: int = 1000
    lists: int = 500

    @property
    def tables(self) -> dict[str, int]:
        return {
            ACCOUNTS: self.accounts,
            RING: self.ring,
            LISTS: self.lists,
            TAKEN: PARTITIONS,
        }

    @property
    def rows(self) -> int:
        return sum(self.tables.values())

    def row_lanes(self) -> dict[str, int]:
        """Returns the first lane of each table; add the key."""
        first, first_lanes = 0, {}
        for table, count in self.tables.items():
            first_lanes[table] = first
            first += count
        return first_lanes

    def topic_lanes(self) -> dict[str, int]:
        """Returns the first lane of each topic; add the partition."""
        return {name: self.rows + i * PARTITIONS for i, name in enumerate(TOPICS)}

    @property
    def consumer_lanes(self) -> int:
        """The first lane of the consumer's positions."""
        return self.rows + len(TOPICS) * PARTITIONS

    def lanes(self) -> list[Lane]:
        lanes = [
            Lane(ROW, table, -1, str(key))
            for table, count in self.tables.items()
            for key in range(count)
        ]
        lanes += [Lane(TOPIC, name, p) for name in TOPICS for p in range(PARTITIONS)]
        return lanes + [Lane(CONSUMER, f"{IN}/{WORKER}", p) for p in range(PARTITIONS)]

    def first_rows(self, tx: int) -> Iterator[tuple[str, int, Any]]:
        """Yields (table, key, value) of the initial rows, written by `tx`."""
        for key in range(self.accounts):
            yield ACCOUNTS, key, [tx, BALANCE]
        for key in range(self.ring):
            yield RING, key, [tx, (key + 1) % self.ring]
        for key in range(self.lists):
            yield LISTS, key, [tx, 0, []]
        for key in range(PARTITIONS):
            yield TAKEN, key, [tx, 0]


class Observation(NamedTuple):
    """Everything that a reader saw at one step."""

    begin: int
    reply: int
    step: int
    total: int
    """The sum of all balances."""
    ringed: int
    """The number of keys on the ring from key 0 back to key 0."""
    versions: list[int]
    """By lane: the transaction that wrote the row."""
    counts: list[int]
    """The counts of `taken`, by partition."""
    ends: list[int]
    """The ends of all partitions, in the order of their lanes."""
    positions: list[int]


def observe(view: Any, world: World, begin: int, clock: Any) -> Observation:
    """Reads everything from a SnapshotView."""
    rows = {table: dict(view.scan(table)) for table in world.tables}
    following, at, ringed = rows[RING], 0, 0
    while ringed <= world.ring:
        at, ringed = following[at][1], ringed + 1
        if at == 0:
            break
    bounds = [view.bounds(name) for name in TOPICS]
    positions = view.position(IN, WORKER)
    return Observation(
        begin,
        clock(),
        view.step,
        sum(row[1] for row in rows[ACCOUNTS].values()),
        ringed,
        [rows[table][key][0] for table, count in world.tables.items() for key in range(count)],
        [rows[TAKEN][key][1] for key in range(PARTITIONS)],
        [bounds[i][p][1] for i in range(len(TOPICS)) for p in range(PARTITIONS)],
        [positions.get(p, 0) for p in range(PARTITIONS)],
    )
