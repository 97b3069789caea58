"""What a history is made in: tables whose rows say who wrote them, topics whose records do.

    accounts   key → [tx, balance]         bank: the sum never changes          three shards
    ring       key → [tx, next]            always one ring through all keys
    lists      key → [tx, count, [last …]] list-append: the transactions that appended, in order
    taken      partition → [tx, count]     as many as the consumer's position says
    in, out    what is consumed, and what was made of it      feeds: out ◀─ in/worker
    log        appended to, two partitions at a time

A row's `tx` is the number of the transaction that wrote it: a read tells which version it saw without asking
the engine. Records begin with their identity (judges/trace.py): source is the transaction that wrote the first of
them, ordinal which of its records.

Lanes are numbered alike in all processes: rows first, then partitions, then positions.

Next: writer.py.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...judges.trace import CONSUMER, ROW, TOPIC, Lane

PARTITIONS = 8
SHARDS = 3
BALANCE = 100
TAIL = 12
"""Of a list that many are kept."""
IN, OUT, LOG, WORKER = "in", "out", "log", "worker"
ACCOUNTS, RING, LISTS, TAKEN = "accounts", "ring", "lists", "taken"
TOPICS = (IN, OUT, LOG)
FEEDS = {OUT: f"{IN}/{WORKER}"}


class World(NamedTuple):
    """How many rows there are: fewer are hotter."""

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
        """The first lane of each table; a key is a number."""
        first, found = 0, {}
        for table, count in self.tables.items():
            found[table] = first
            first += count
        return found

    def topic_lanes(self) -> dict[str, int]:
        """The first lane of each topic; a partition is a number."""
        return {name: self.rows + i * PARTITIONS for i, name in enumerate(TOPICS)}

    @property
    def consumer_lanes(self) -> int:
        """The first."""
        return self.rows + len(TOPICS) * PARTITIONS

    def lanes(self) -> list[Lane]:
        made = [
            Lane(ROW, table, -1, str(key))
            for table, count in self.tables.items()
            for key in range(count)
        ]
        made += [Lane(TOPIC, name, p) for name in TOPICS for p in range(PARTITIONS)]
        return made + [Lane(CONSUMER, f"{IN}/{WORKER}", p) for p in range(PARTITIONS)]

    def first_rows(self, tx: int) -> Iterator[tuple[str, int, Any]]:
        """(table, key, value) as they are before anything happens; `tx` writes them."""
        for key in range(self.accounts):
            yield ACCOUNTS, key, [tx, BALANCE]
        for key in range(self.ring):
            yield RING, key, [tx, (key + 1) % self.ring]
        for key in range(self.lists):
            yield LISTS, key, [tx, 0, []]
        for key in range(PARTITIONS):
            yield TAKEN, key, [tx, 0]


class Look(NamedTuple):
    """Everything as a reader saw it at one step."""

    begin: int
    reply: int
    step: int
    total: int
    """Of all balances."""
    ringed: int
    """How many keys the ring goes through from key 0 until it is there again."""
    versions: list[int]
    """By lane, who wrote the row."""
    counts: list[int]
    """Of `taken`, by partition."""
    ends: list[int]
    """Of topics' partitions, as their lanes."""
    positions: list[int]

    def words(self) -> list[int]:
        return [
            *self[:5],
            *self.versions,
            *self.counts,
            *self.ends,
            *self.positions,
        ]

    @classmethod
    def of(cls, words: "list[int]", world: World) -> "Look":
        at, parts = 5, []
        for size in (world.rows, PARTITIONS, len(TOPICS) * PARTITIONS, PARTITIONS):
            parts.append(words[at : at + size])
            at += size
        begin, reply, step, total, ringed = words[:5]
        return cls(begin, reply, step, total, ringed, *parts)


def look(view: Any, world: World, begin: int, clock: Any) -> Look:
    """`view`: a SnapshotView."""
    rows = {table: dict(view.scan(table)) for table in world.tables}
    following, at, ringed = rows[RING], 0, 0
    while ringed <= world.ring:
        at, ringed = following[at][1], ringed + 1
        if at == 0:
            break
    bounds = [view.bounds(name) for name in TOPICS]
    positions = view.position(IN, WORKER)
    return Look(
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
