"""Transactions whose effects follow from how many there were: so all that is stored can be checked.

    transaction n of stream k:   log[k] ◀ value(k, n)      copy[k + 1] ◀ the same
                                 rows: (k, n mod 32) = n, count k + 1     position of c in log[k]: n

A stream is one thread and one transaction at a time. What is there after a kill must be what so many
transactions of each stream make, to the byte; and how many is between those that were acknowledged and one
more. Old records are trimmed: segments go, are rewritten, and a check reads all that is left.

Mode "kafka" has no rows; a stream is a transactional id there, and offsets have gaps. A commit is answered
before its records are visible, the next one only behind them: so a stream consumes the record before the last.

Next: bench/proof/rows/kill9.py.
"""

import hashlib
from typing import Any

STREAMS = 3
CONSUMER = "c"
LAG_KAFKA = 2
_KEPT = 60
_ROWS = 32
_AT_ONCE = 1_000


def value(stream: int, n: int) -> bytes:
    """Mostly some hundred bytes; now and then several pages."""
    seed = hashlib.sha256(b"%d/%d" % (stream, n)).digest()
    size = 9_000 if n % 40 == 39 else 20 + seed[0]
    return b"%d/%d/" % (stream, n) + (seed * (size // len(seed) + 1))[:size]


def make(db: Any, mode: str) -> None:
    """What the streams need, where it is not there yet: a kill may have come in between."""
    for name in ("log", "copy"):
        db.create_topic(name, partitions=STREAMS, format="bytes", exist_ok=True)
    if mode != "kafka":
        db.create_table("rows", shards=STREAMS, exist_ok=True)


class Stream:
    """One thread's transactions, from the `n`-th on. `next`: offsets of records to be consumed."""

    def __init__(self, db: Any, mode: str, number: int, n: int, next: list[int]) -> None:
        self.db, self.number, self.n, self.next = db, number, n, next
        self.behind = LAG_KAFKA if mode == "kafka" else 1
        self.kafka = mode == "kafka"

    def step(self) -> None:
        """One transaction; returns when it is committed."""
        number, n = self.number, self.n
        worker = f"w{number}" if self.kafka else None
        with self.db.transaction(worker=worker) as tx:
            data = value(number, n)
            tx.write("log", data, partition=number)
            tx.write("copy", data, partition=(number + 1) % STREAMS)
            if not self.kafka:
                tx.put("rows", (number, n % _ROWS), n)
                tx.add("rows", f"count {number}", 1)
            if len(self.next) >= self.behind:
                # In mode "kafka" offsets of markers lie between, which nobody compares.
                begin = self.next.pop(0)
                tx.consume("log", CONSUMER, number, begin, begin + 1)
            done = tx.commit()
        self.next.append(done.published["log", number][0])
        self.n += 1

    def tidy(self) -> None:
        """Trims, now and then: between transactions, and acknowledged to nobody."""
        if not self.kafka and self.n % _KEPT == 0 and self.n > _KEPT:
            self.db.topic("log").trim(self.n - _KEPT, partition=self.number)
            self.db.topic("copy").trim(self.n - _KEPT, partition=(self.number + 1) % STREAMS)


class Torn(Exception):
    """What is stored is nothing that any number of transactions makes."""


def count(db: Any, mode: str) -> tuple[list[int], list[list[int]]]:
    """(transactions, offsets to be consumed) of each stream, all that is there compared. Torn."""
    if mode == "kafka":
        return _count_kafka(db)
    with db.snapshot() as view:
        counts = [view.bounds("log")[k][1] for k in range(STREAMS)]
        rows = dict(view.scan("rows"))
        positions = view.position("log", CONSUMER)
        for k, n in enumerate(counts):
            _same(f"copy of {k}", view.bounds("copy")[(k + 1) % STREAMS][1], n)
            _same(f"position of {k}", positions[k], max(n - 1, 0))
            _same(f"count of {k}", rows.pop(f"count {k}", 0), n)
            for at in range(max(0, n - _ROWS), n):
                _same(f"row {at} of {k}", rows.pop((k, at % _ROWS), None), at)
            for topic, partition in (("log", k), ("copy", (k + 1) % STREAMS)):
                start = view.bounds(topic)[partition][0]
                if start > max(0, n - _KEPT):
                    raise Torn(f"{topic} {k} begins at {start} of {n}")
                _same_values(k, start, n, _values(view, topic, partition, start, n))
        _same("rows that nobody wrote", rows, {})
    return counts, [[n - 1] if n else [] for n in counts]


def _values(view: Any, topic: str, partition: int, start: int, end: int) -> list[bytes]:
    values: list[bytes] = []
    while start + len(values) < end:
        batch = view.read(topic, start + len(values), partition=partition, max_records=_AT_ONCE)
        if not len(batch):
            break
        values += batch.values
    return values


def _same_values(stream: int, start: int, end: int, values: list[bytes]) -> None:
    _same(f"records of {stream}", len(values), end - start)
    for n, data in enumerate(values, start):
        if data != value(stream, n):
            raise Torn(f"record {n} of {stream} is {data[:40]!r}…")


def _count_kafka(db: Any) -> tuple[list[int], list[list[int]]]:
    """What its writers left open is ended first, as by their next incarnations."""
    runtime = db.context.runtime
    for k in range(STREAMS):
        runtime.hooks.ready(f"w{k}")
    for name in ("log", "copy"):
        for tablet in runtime.names.topics[name].partitions:
            runtime.hooks.wait_stable(tablet)
    counts: list[int] = []
    left: list[list[int]] = []
    for k in range(STREAMS):
        offsets, values = _all(db, "log", k)
        _same_values(k, 0, len(values), values)
        _same_values(k, 0, len(values), _all(db, "copy", (k + 1) % STREAMS)[1])
        position = db.topic("log").position(CONSUMER)[k]
        consumed = sum(offset < position for offset in offsets)
        _same(f"consumed of {k}", consumed, max(len(offsets) - LAG_KAFKA, 0))
        counts.append(len(values))
        left.append(offsets[-LAG_KAFKA:])
    return counts, left


def look(db: Any, mode: str) -> list[int]:
    """As `count`, for who only reads: in mode "kafka" what is under way stays so, and hides what is behind it."""
    if mode != "kafka":
        return count(db, mode)[0]
    counts = []
    for k in range(STREAMS):
        _, values = _all(db, "log", k)
        _same_values(k, 0, len(values), values)
        counts.append(len(values))
    return counts


def _all(db: Any, topic: str, partition: int) -> tuple[list[int], list[bytes]]:
    offsets: list[int] = []
    values: list[bytes] = []
    start = 0
    while True:
        batch = db.topic(topic).read(start, partition=partition, max_records=_AT_ONCE)
        if not len(batch):
            return offsets, values
        offsets += [offset for _, offset in batch.offsets]
        values += batch.values
        start = batch.ends[partition]


def _same(what: str, found: Any, must: Any) -> None:
    if found != must:
        raise Torn(f"{what}: {found!r}, and not {must!r}")
