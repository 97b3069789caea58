"""Runs transactions whose effects follow from their number, so that a check can compute the whole content.

    transaction n of stream k:   log[k] ◀ value(k, n)      copy[k + 1] ◀ the same
                                 rows: (k, n mod 32) = n, count k + 1     position of c in log[k]: n

A stream is one thread with one transaction at a time. After a kill the content must be exactly that of some
number of transactions of each stream; the number is that of the acknowledged ones, or one more. Old records are
trimmed, so segments are removed and rewritten, and a check reads all that is left.

Mode "kafka" has no rows; a stream is a transactional id there, and offsets have gaps. A commit is answered
before its records are visible, the next one only after that: so a stream consumes the record before the last.

Next: bench/proof/rows/kill9.py.
"""

import hashlib
from typing import Any

from ....api.engine import Engine
from .contents import difference
from .engines import CONSUMER, Content, content_of, positions, read_all

STREAMS = 3
LAG_KAFKA = 2
_KEPT = 60
_ROWS = 32


def value(stream: int, n: int) -> str:
    """Returns a record's value: mostly some hundred bytes, now and then several pages."""
    seed = hashlib.sha256(b"%d/%d" % (stream, n)).hexdigest()
    size = 9_000 if n % 40 == 39 else 20 + int(seed[:2], 16)
    return f"{stream}/{n}/" + (seed * (size // len(seed) + 1))[:size]


def make(db: Any) -> None:
    """Creates the topics and the table if missing: a kill may have come in between."""
    for name in ("log", "copy"):
        db.create_topic(name, partitions=STREAMS, format="utf8", exist_ok=True)
    if db.mode != "kafka":
        db.create_table("rows", shards=STREAMS, exist_ok=True)


class Stream:
    """One thread's transactions, from the `n`-th on. `next`: offsets of records to consume."""

    def __init__(self, db: Any, number: int, n: int, next: list[int]) -> None:
        self.db, self.number, self.n, self.next = db, number, n, next
        self.kafka = db.mode == "kafka"

    def step(self) -> None:
        """Runs one transaction; returns when it is committed."""
        number, n = self.number, self.n
        worker = f"w{number}" if self.kafka else None
        with self.db.transaction(worker=worker) as tx:
            data = value(number, n)
            tx.write("log", data, partition=number)
            tx.write("copy", data, partition=(number + 1) % STREAMS)
            if not self.kafka:
                tx.put("rows", (number, n % _ROWS), n)
                tx.add("rows", f"count {number}", 1)
            if len(self.next) >= (LAG_KAFKA if self.kafka else 1):
                # In mode "kafka" offsets of markers lie between, which are not compared.
                begin = self.next.pop(0)
                tx.consume("log", CONSUMER, number, begin, begin + 1)
            commit = tx.commit()
        self.next.append(commit.published["log", number][0])
        self.n += 1

    def tidy(self) -> None:
        """Trims old records now and then, between transactions; the trim is not acknowledged to the parent."""
        if not self.kafka and self.n % _KEPT == 0 and self.n > _KEPT:
            self.db.topic("log").trim(self.n - _KEPT, partition=self.number)
            self.db.topic("copy").trim(self.n - _KEPT, partition=(self.number + 1) % STREAMS)


class Torn(Exception):
    """The content is not that of any number of transactions."""


def count(db: Engine) -> tuple[list[int], list[list[int]]]:
    """Returns (transactions, offsets to consume) of each stream, after comparing all content. Torn.

    Mode kafka: it first ends writers' open transactions, as their next incarnations would.
    """
    kafka = db.mode == "kafka"
    for k in range(STREAMS) if kafka else ():
        db.context.runtime.hooks.ready(f"w{k}")
    content = content_of(db)
    counts = [start + len(values) for start, values in content["log"]]
    must = _expected(counts, content, kafka)
    if content != must:
        raise Torn(difference(must, content))
    if not kafka:
        return counts, [[n - 1] if n else [] for n in counts]
    with db.context.open_view() as view:
        logs = [read_all(view, "log", k)[-LAG_KAFKA:] for k in range(STREAMS)]
    return counts, [[offset for offset, _ in log] for log in logs]


def view(db: Engine) -> list[int]:
    """Returns the counts like `count`, without writing: in mode kafka open transactions stay open, and hide the
    records behind them.
    """
    if db.mode != "kafka":
        return count(db)[0]
    with db.context.open_view() as view:
        logs = [read_all(view, "log", k) for k in range(STREAMS)]
    for k, log in enumerate(logs):
        if any(data != value(k, n) for n, (_, data) in enumerate(log)):
            raise Torn(f"log {k} has other records")
    return [len(log) for log in logs]


def _expected(counts: list[int], content: Content, kafka: bool) -> Content:
    """Returns the content that so many transactions make. Partitions begin as in `content`, unless too much is
    gone; a consumer that has read nothing is at its partition's begin.
    """
    must: Content = {"log": [None] * STREAMS, "copy": [None] * STREAMS}
    for k, n in enumerate(counts):
        for topic, partition in (("log", k), ("copy", (k + 1) % STREAMS)):
            start = min(content[topic][partition][0], max(0, n - _KEPT))
            must[topic][partition] = [start, [value(k, at) for at in range(start, n)]]
    must[positions("log")] = [max(n - (LAG_KAFKA if kafka else 1), 0) for n in counts]
    must[positions("copy")] = [start for start, _ in must["copy"]]
    if not kafka:
        must["rows"] = {f"count {k}": n for k, n in enumerate(counts) if n}
        for k, n in enumerate(counts):
            must["rows"] |= {str((k, at % _ROWS)): at for at in range(max(0, n - _ROWS), n)}
    return must
