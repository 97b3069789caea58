"""Runs transactions whose effects follow from how many there were: so all that is stored can be checked.

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

from ....api.engine import Engine
from .contents import difference
from .engines import CONSUMER, Shown, positions, read_all, shown

STREAMS = 3
LAG_KAFKA = 2
_KEPT = 60
_ROWS = 32


def value(stream: int, n: int) -> str:
    """Mostly some hundred bytes; now and then several pages."""
    seed = hashlib.sha256(b"%d/%d" % (stream, n)).hexdigest()
    size = 9_000 if n % 40 == 39 else 20 + int(seed[:2], 16)
    return f"{stream}/{n}/" + (seed * (size // len(seed) + 1))[:size]


def make(db: Any, mode: str) -> None:
    """What the streams need, where it is not there yet: a kill may have come in between."""
    for name in ("log", "copy"):
        db.create_topic(name, partitions=STREAMS, format="utf8", exist_ok=True)
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


def count(db: Engine) -> tuple[list[int], list[list[int]]]:
    """Returns (transactions, offsets to be consumed) of each stream, all that is there compared. Torn.

    Mode kafka: what writers left open is ended first, as by their next incarnations.
    """
    kafka = db.mode == "kafka"
    for k in range(STREAMS) if kafka else ():
        db.context.runtime.hooks.ready(f"w{k}")
    found = shown(db)
    counts = _counts(found)
    must = _made(counts, found, kafka)
    if found != must:
        raise Torn(difference(must, found))
    if not kafka:
        return counts, [[n - 1] if n else [] for n in counts]
    with db.context.look() as view:
        return counts, [read_all(view, "log", k)[1][-LAG_KAFKA:] for k in range(STREAMS)]


def look(db: Engine) -> list[int]:
    """As `count`, for who only reads: in mode kafka what is under way stays so, and hides what is behind it."""
    if db.mode != "kafka":
        return count(db)[0]
    with db.context.look() as view:
        logs = [read_all(view, "log", k)[2] for k in range(STREAMS)]
    for k, values in enumerate(logs):
        if values != [value(k, n) for n in range(len(values))]:
            raise Torn(f"log {k} has other records")
    return [len(values) for values in logs]


def _counts(found: Shown) -> list[int]:
    return [start + len(values) for start, values in found["log"]]


def _made(counts: list[int], found: Shown, kafka: bool) -> Shown:
    """Returns what so many transactions make. Where each partition begins is as it was found, unless too much is
    gone; a consumer that has read nothing is where its partition begins."""
    must: Shown = {"log": [None] * STREAMS, "copy": [None] * STREAMS}
    for k, n in enumerate(counts):
        for topic, partition in (("log", k), ("copy", (k + 1) % STREAMS)):
            start = min(found[topic][partition][0], max(0, n - _KEPT))
            must[topic][partition] = [start, [value(k, at) for at in range(start, n)]]
    must[positions("log")] = [max(n - (LAG_KAFKA if kafka else 1), 0) for n in counts]
    must[positions("copy")] = [start for start, _ in must["copy"]]
    if not kafka:
        must["rows"] = {f"count {k}": n for k, n in enumerate(counts) if n}
        for k, n in enumerate(counts):
            must["rows"] |= {str((k, at % _ROWS)): at for at in range(max(0, n - _ROWS), n)}
    return must
