"""Runs transactions whose effects follow from their number, so that a check can compute the whole content.

    transaction n of stream k:   log[k] ◀ value(k, n)      copy[k + 1] ◀ the same
                                 rows: (k, n mod 32) = n, count k + 1     position of c in log[k]: n

A stream is one thread with one transaction at a time. After a kill the content must be exactly that of some
number of transactions of each stream; the number is that of the acknowledged ones, or one more. Old records are
trimmed, so segments are removed and rewritten, and a check reads all that is left.

A mode with data in place has no rows; a stream is a worker there, some transactions are rolled back, and offsets
have gaps. Where a commit is answered before its records are visible, a stream consumes the record before the last.

Next: bench/proof/rows/kill9.py.
"""

import hashlib
from typing import Any

from ....api.engine import Engine
from ....errors import Aborted
from .contents import difference
from .engines import Content, content_of, end_what_was_open, positions, read_all
from .modes import CONSUMER, mode_of

STREAMS = 3
_KEPT = 60
_ROWS = 32
_ROLLED_BACK = 8


def value(stream: int, n: int) -> str:
    """Returns a record's value: mostly some hundred bytes, now and then several pages."""
    seed = hashlib.sha256(b"%d/%d" % (stream, n)).hexdigest()
    size = 9_000 if n % 40 == 39 else 20 + int(seed[:2], 16)
    return f"{stream}/{n}/" + (seed * (size // len(seed) + 1))[:size]


def _in_place(db: Any) -> bool:
    return not db.context.runtime.hooks.has_tables


def make(db: Any, individual: bool = False) -> None:
    """Creates the topics and the table if missing: a kill may have come in between. `individual`: the consumer."""
    for name in ("log", "copy"):
        db.create_topic(name, partitions=STREAMS, format="utf8", exist_ok=True)
    if individual:
        db.topic("log").create_consumer(CONSUMER, "individual", exist_ok=True)
    if not _in_place(db):
        db.create_table("rows", shards=STREAMS, exist_ok=True)


class Stream:
    """One thread's transactions, from the `n`-th on. `next`: offsets of records to consume."""

    def __init__(self, db: Any, number: int, n: int, next: list[int]) -> None:
        self.db, self.number, self.n, self.next = db, number, n, next
        self.in_place, self.lag = _in_place(db), mode_of(db).lag

    def step(self) -> None:
        """Runs one transaction; returns when it is committed. One in place may time out: then it runs again."""
        while True:
            try:
                return self._step()
            except Aborted as error:
                if not (self.in_place and error.retryable):
                    raise

    def _step(self) -> None:
        number, n = self.number, self.n
        worker = f"w{number}" if self.in_place else None
        if self.in_place and n % _ROLLED_BACK == _ROLLED_BACK - 1:
            with self.db.transaction(worker=worker) as tx:
                tx.write("log", "never", partition=number)
                tx.flush()
                tx.rollback()
        with self.db.transaction(worker=worker) as tx:
            data = value(number, n)
            tx.write("log", data, partition=number)
            tx.write("copy", data, partition=(number + 1) % STREAMS)
            if not self.in_place:
                tx.put("rows", (number, n % _ROWS), n)
                tx.add("rows", f"count {number}", 1)
            oldest = self.next[0] if len(self.next) >= self.lag else None
            if oldest is not None:  # offsets of markers may lie between, which are not compared
                tx.consume("log", CONSUMER, number, oldest, oldest + 1)
            commit = tx.commit()
        if oldest is not None:
            del self.next[0]
        self.next.append(commit.published["log", number][0])
        self.n += 1

    def tidy(self) -> None:
        """Trims old records now and then, between transactions; the trim is not acknowledged to the parent."""
        if not self.in_place and self.n % _KEPT == 0 and self.n > _KEPT:
            self.db.topic("log").trim(self.n - _KEPT, partition=self.number)
            self.db.topic("copy").trim(self.n - _KEPT, partition=(self.number + 1) % STREAMS)


class Torn(Exception):
    """The content is not that of any number of transactions."""


def count(db: Engine, end: bool = True) -> tuple[list[int], list[list[int]]]:
    """Returns (transactions, offsets to consume) of each stream, after comparing all content. Torn.

    It waits for the ends of what earlier writers left open. `end`: it ends that first, as a mode can.
    """
    if end:
        end_what_was_open(db, [f"w{k}" for k in range(STREAMS)])
    content = content_of(db)
    counts = [start + len(values) for start, values in content["log"]]
    lag = mode_of(db).lag
    must = _expected(counts, content, _in_place(db), lag)
    if content != must:
        raise Torn(difference(must, content))
    if not _in_place(db):
        return counts, [[n - 1] if n else [] for n in counts]
    with db.context.open_view() as view:
        logs = [read_all(view, "log", k)[-lag:] for k in range(STREAMS)]
    return counts, [[offset for offset, _ in log] for log in logs]


def view(db: Engine) -> list[int]:
    """Returns the counts like `count`, without writing: what is open in place stays open, and hides the records
    behind it.
    """
    if not _in_place(db):
        return count(db)[0]
    with db.context.open_view() as view:
        logs = [read_all(view, "log", k) for k in range(STREAMS)]
    for k, log in enumerate(logs):
        if any(data != value(k, n) for n, (_, data) in enumerate(log)):
            raise Torn(f"log {k} has other records")
    return [len(log) for log in logs]


def _expected(counts: list[int], content: Content, in_place: bool, lag: int) -> Content:
    """Returns the content that so many transactions make. Partitions begin as in `content`, unless too much is
    gone; a consumer that has read nothing is at its partition's begin.
    """
    must: Content = {"log": [None] * STREAMS, "copy": [None] * STREAMS}
    for k, n in enumerate(counts):
        for topic, partition in (("log", k), ("copy", (k + 1) % STREAMS)):
            start = min(content[topic][partition][0], max(0, n - _KEPT))
            must[topic][partition] = [start, [value(k, at) for at in range(start, n)]]
    must[positions("log")] = [max(n - lag, 0) for n in counts]
    must[positions("copy")] = [start for start, _ in must["copy"]]
    if not in_place:
        must["rows"] = {f"count {k}": n for k, n in enumerate(counts) if n}
        for k, n in enumerate(counts):
            must["rows"] |= {str((k, at % _ROWS)): at for at in range(max(0, n - _ROWS), n)}
    return must
