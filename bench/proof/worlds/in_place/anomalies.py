"""Finds anomalies in a history of transactions over logs, under the names of Jepsen's Kafka tests.

    history   transactions and plain writes: the values sent, by partition and in order, and the end
              polls: reader, partition, [begin, end), the records shown
    logs      the final partitions, entry by entry, with markers

Every value is sent once. A transaction's end is "committed" or "aborted" if its client was told so, else
"unknown": then all of it counts, or nothing.

Next: reads.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ....judges.python.logs import Edges, cycles

ALLOWED = ("G0", "G1c with ww", "internal send skip")
"""Anomalies that are allowed even without faults, because writes of transactions interleave."""
WAITS = "reader that waits for an open transaction"
NOT_TOLD = "committed, and its client was not told"
TWO_HANDS = "input in two hands"
"""Allowed, too, and counted by who sees them; `find` does not look for them."""
PLAIN, TRANSACTIONAL, COMMIT, ABORT = range(4)


@dataclass(eq=False)
class Tx:
    """A transaction; without `transactional` a plain write, of which a part may be stored if it failed.

    `asked_at`: when its client asked for the end, if it did; `commits`: whether it asked for a commit.
    """

    who: str
    transactional: bool = True
    number: int = 0
    sends: list[tuple[int, tuple[bytes, ...]]] = field(default_factory=list)
    reads: list[bytes] = field(default_factory=list)
    asked_at: float | None = None
    commits: bool = False
    end: str = "unknown"

    def values(self) -> list[bytes]:
        return [value for _, values in self.sends for value in values]


class Poll(NamedTuple):
    """One poll. `reader`: a reader that continues from poll to poll and reads to the end, "" for any other."""

    reader: str
    committed: bool
    tablet: int
    begin: int
    end: int
    records: list[tuple[int, bytes]]
    at: float


class Entry(NamedTuple):
    offset: int
    records: int
    producer: int
    kind: int
    values: list[bytes]
    txn: int | None = None
    """The transaction's id, in a mode that has them: a marker ends that one, else all before it of its producer."""

    @property
    def ended_by(self) -> int:
        """Returns what the marker names that ends the entry."""
        return self.producer if self.txn is None else self.txn


Logs = dict[int, list[Entry]]
Readable = Mapping[int, list[tuple[int, bytes]]]
Values = dict[int, bytes]
"""Values by offset."""
Graph = Edges[Tx]
Note = Callable[..., None]


@dataclass
class History:
    txs: list[Tx] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)


def visible(log: list[Entry]) -> list[tuple[int, bytes]]:
    """Returns (offset, value) of each committed record: a producer's next marker decides, so it reads backwards."""
    records: list[tuple[int, bytes]] = []
    ends: dict[int, int] = {}
    for entry in reversed(log):
        if entry.kind in (COMMIT, ABORT):
            ends[entry.ended_by] = entry.kind
        elif entry.kind == PLAIN or ends.get(entry.ended_by) == COMMIT:
            offsets = range(entry.offset, entry.offset + len(entry.values))
            records += reversed(list(zip(offsets, entry.values, strict=True)))
    return records[::-1]


def everything(log: list[Entry]) -> list[tuple[int, bytes]]:
    return [(entry.offset + j, value) for entry in log for j, value in enumerate(entry.values)]


def find(history: History, logs: Logs) -> dict[str, list[str]]:
    """Returns examples of each anomaly found, by its name."""
    examples: dict[str, list[str]] = {}

    def note(name: str, *what: object) -> None:
        examples.setdefault(name, []).append(" ".join(map(str, what)))

    by_value = {value: tx for tx in history.txs for value in tx.values()}
    readable = {tablet: visible(log) for tablet, log in logs.items()}
    counts = {value for rows in readable.values() for _, value in rows}
    _logs(logs, note)
    _polls(history, logs, readable, by_value, note)
    for tx in history.txs:
        values = tx.values()
        there = [value for value in values if value in counts]
        if len(there) < len(values):
            if tx.end == "committed":
                note("lost write", tx.who, values)
            if tx.transactional and there:
                note("torn transaction", tx.who, tx.end, len(there), "of", values)
        if tx.transactional and there and (tx.end == "aborted" or not tx.commits):
            note("aborted write counts", tx.who, there)
    _orders(history, logs, counts, note)
    for name, cycle in cycles(_written_behind(readable, by_value), _read(readable, by_value)):
        note(name, *[(tx.who, tx.values()) for tx in cycle])
    return examples


def _logs(logs: Logs, note: Note) -> None:
    at: dict[bytes, tuple[int, int]] = {}
    for tablet, log in logs.items():
        end = 0
        for entry in log:
            if entry.offset != end:
                note("gap", tablet, end, entry)
            end = entry.offset + entry.records
        for offset, value in everything(log):
            if value in at:
                note("duplicate", value, at[value], (tablet, offset))
            at[value] = tablet, offset


def _polls(
    history: History, logs: Logs, readable: Readable, by_value: dict[bytes, Tx], note: Note
) -> None:
    stored = {tablet: dict(everything(log)) for tablet, log in logs.items()}
    committed = {tablet: dict(rows) for tablet, rows in readable.items()}
    stands: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        could_show = (committed if poll.committed else stored)[poll.tablet]
        _records(poll, stored[poll.tablet], could_show, by_value, note)
        _skipped(poll, could_show, note)
        if poll.reader:
            _went_on(poll, stands, note)
    for (reader, tablet), end in stands.items():
        log = logs[tablet]
        if log and end < log[-1].offset + log[-1].records:
            note("unseen", reader, tablet, end)


def _records(
    poll: Poll, stored: Values, could_show: Values, by_value: dict[bytes, Tx], note: Note
) -> None:
    """Checks that shown records are in order, as stored, and of a transaction committed by then."""
    last = poll.begin - 1
    for offset, value in poll.records:
        if offset <= last or offset >= poll.end:
            note("internal non-monotonic poll", poll)
        last = offset
        tx = by_value[value]
        if stored.get(offset) != value:
            note("inconsistent offset", poll.tablet, offset, value)
        if poll.committed and tx.transactional:
            if tx.end == "aborted" or offset not in could_show:
                note("aborted read", poll.reader, offset, value)
            if tx.asked_at is None or poll.at < tx.asked_at:
                note("precommitted read", poll.reader, offset, value)


def _skipped(poll: Poll, could_show: Values, note: Note) -> None:
    offsets, records = range(max(poll.begin, 0), poll.end), dict(poll.records)
    missed = [offset for offset in offsets if offset in could_show and offset not in records]
    if missed:
        note("internal poll skip", poll, missed)


def _went_on(poll: Poll, stands: dict[tuple[str, int], int], note: Note) -> None:
    """Checks that a reader begins where its last poll ended."""
    before = stands.get((poll.reader, poll.tablet), poll.begin)
    if poll.begin > before:
        note("poll skip", poll.reader, before, poll.begin)
    if poll.begin < before or poll.end < poll.begin:
        note("non-monotonic poll", poll.reader, before, poll.begin)
    stands[poll.reader, poll.tablet] = poll.end


def _orders(history: History, logs: Logs, counts: set[bytes], note: Note) -> None:
    """Checks that each producer's records lie in the order of its sends.

    A client that got a new producer id, since its epochs ran out, counts as another producer: nothing fences late
    messages of the old id, nor does Kafka.
    """
    at = {
        value: (entry.offset + j, entry.producer)
        for log in logs.values()
        for entry in log
        for j, value in enumerate(entry.values)
    }
    last: dict[tuple[str, int, int], int] = {}
    for tx in history.txs:
        mine: dict[int, list[int]] = {}
        for tablet, values in tx.sends:
            for value in values:
                if value not in at:
                    continue
                offset, producer = at[value]
                if offset < last.get((tx.who, tablet, producer), -1):
                    note("non-monotonic send", tx.who, tablet, value)
                last[tx.who, tablet, producer] = offset
                if value in counts:
                    mine.setdefault(tablet, []).append(offset)
        for tablet, offsets in mine.items():
            if tx.transactional and offsets != list(range(offsets[0], offsets[-1] + 1)):
                note("internal send skip", tx.who, tablet, offsets)


def _written_behind(readable: Readable, by_value: dict[bytes, Tx]) -> Graph:
    edges: Graph = {}
    for rows in readable.values():
        last = None
        for _, value in rows:
            tx = by_value[value]
            if last is not None and last is not tx:
                edges.setdefault(last, []).append(tx)
            last = tx
    return edges


def _read(readable: Readable, by_value: dict[bytes, Tx]) -> Graph:
    """Returns edges from each writer to the committed transactions that read its values."""
    edges: Graph = {}
    for tx in dict.fromkeys(by_value[value] for rows in readable.values() for _, value in rows):
        for value in tx.reads:
            if by_value[value] is not tx:
                edges.setdefault(by_value[value], []).append(tx)
    return edges


def exactly_once(
    logs: Logs, inputs: Iterable[int], outputs: Iterable[int], by_place: bool = False
) -> dict[str, list[str]]:
    """Checks that each committed input has exactly one committed output, b"o<value>/<attempt>".

    `by_place`: inputs and outputs may be repeated by resending; so an input is named by its place.
    """
    examples: dict[str, list[str]] = {}
    there = (value for tablet in outputs for _, value in visible(logs[tablet]))
    uses = Counter(value.split(b"/")[0] for value in (dict.fromkeys(there) if by_place else there))
    wanted = {
        b"o" + (place(tablet, offset) if by_place else value): None
        for tablet in inputs
        for offset, value in visible(logs[tablet])
    }
    for value in wanted:
        name = {0: "input lost", 1: ""}.get(uses[value], "input used twice")
        if name:
            examples.setdefault(name, []).append(str(value))
    for value in uses:
        if value not in wanted:
            examples.setdefault("output of nothing", []).append(str(value))
    return examples


def not_told(history: History, logs: Logs) -> int:
    """Counts the transactions that are committed, and their client was not told so."""
    counts = {value for log in logs.values() for _, value in visible(log)}
    unknown = [tx for tx in history.txs if tx.transactional and tx.end != "committed"]
    return sum(any(value in counts for value in tx.values()) for tx in unknown)


def place(tablet: int, offset: int) -> bytes:
    return b"%x.%d" % (tablet, offset)
