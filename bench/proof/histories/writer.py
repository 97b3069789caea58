"""Runs one life of the writing process: eight threads with dozens of open transactions each, until kill -9.

    first    transactions that the last life left undecided ─▶ db.outcome(id) ─▶ tape of ends
    then     each thread draws: a transfer, a turn of the ring, appends to lists and logs, one consumer
             batch, a plain write, a read-only transaction. Two threads wait for each commit, the others submit.
             Now and then a thread does not wait but asks for the outcome, then reads. A transaction is
             on its thread's tape before the commit is requested, its end on the tape of ends after it is known

Run as python -m planstep.bench.proof.histories.writer SPEC, a JSON file (Life).

Leaves out: deleted rows (an absent row names no writer). Undetermined plain writes are never resolved, as the
caller has no id to ask for.

Next: reader.py.
"""

import itertools
import json
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import planstep

from ...judges.trace import identity
from . import journal as tape
from .planted import PLANTS
from .reader import look
from .schema import (
    ACCOUNTS,
    IN,
    LISTS,
    LOG,
    OUT,
    PARTITIONS,
    RING,
    SHARDS,
    TAIL,
    TAKEN,
    TOPICS,
    WORKER,
    World,
)

THREADS = 8
WAITING = 2
"""The number of threads that wait for each commit."""
WINDOW = 24
"""The number of commits that each other thread has under way."""
TAPE_WORDS = 1 << 24
_FILL = b"." * 40
_ASK_AGAIN_S = 0.0002
_LOOK_EACH_S = 0.1
_LAST_LOOKS = 3
_MIX = (
    ("transfer", 24),
    ("asking", 4),
    ("append", 16),
    ("log", 16),
    ("consume", 10),
    ("produce", 14),
    ("turn", 6),
    ("view", 6),
    ("level", 2),
    ("plain", 2),
    ("regret", 2),
)
Published = Mapping[tuple[str, int], tuple[int, int] | None]
clock = time.monotonic_ns


@dataclass(frozen=True)
class LifeSpec:
    """Tells one life what to do.

    `life` counts from 0. `transactions`: the number to run, unless killed. `numbers`: the first transaction number.
    `ids`: (number, id) of the life before's undecided transactions. `planted`: the bug of the negative control.
    `url`: the shared log of a replicated store, whose owner looks at everything, too; `reads`: how.
    """

    store: str
    tapes: str
    hosts: int
    world: World
    seed: int
    life: int
    transactions: int
    numbers: int
    ids: list[tuple[int, str]]
    planted: str = ""
    url: str = ""
    reads: Literal["confirmed", "local"] = "confirmed"


class Enough(Exception):
    """The life has run its transactions."""


class Writer:
    def __init__(self, life: LifeSpec, db: planstep.Engine) -> None:
        self.life, self.db, self.world = life, db, life.world
        self.rows = life.world.row_lanes()
        self.topics = life.world.topic_lanes()
        self.numbers: Iterator[int] = itertools.count(life.numbers)
        self.last = life.numbers + life.transactions
        self._ends = tape.MmapJournal(Path(life.tapes) / "ends", TAPE_WORDS)
        self._lock = threading.Lock()
        self._written = threading.Event()
        self.failed: BaseException | None = None

    def on_done(self, tx: int, future: "Future[planstep.Commit]") -> None:
        """Records a commit's end; the callback of its future."""
        error = future.exception()
        if error is None:
            commit = future.result()
            self.end(tx, tape.IS_COMMITTED, commit.place, commit.published)
        elif isinstance(error, (planstep.Aborted, planstep.Fenced)):
            self.end(tx, tape.IS_ABORTED)
        elif not isinstance(error, planstep.Undetermined):
            self.failed = error

    def end(
        self,
        tx: int,
        outcome: int,
        place: planstep.Place | None = None,
        published: Published = MappingProxyType({}),
    ) -> None:
        """Records a transaction's end; its owner learns of it now."""
        reply, (step, n) = clock(), place or (tape.UNKNOWN, None)
        words = [tx, outcome, step, tape.UNKNOWN if n is None else n, reply]
        for (topic, partition), span in published.items():
            if span is not None:
                words += (self.topics[topic] + partition, *span)
        with self._lock:
            self._ends.add(words)

    def resolve(self) -> None:
        """Asks for the outcomes left undecided by the life before; an unknown id was never submitted."""
        for tx, name in self.life.ids:
            self.ask(tx, name)

    def ask(self, tx: int, name: str) -> str:
        """Asks until there is an outcome, and records it as the reply: no later transaction may precede it."""
        while (outcome := self.db.outcome(name)).state in ("open", "planned"):
            time.sleep(_ASK_AGAIN_S)
        if outcome.state == "committed":
            self.end(tx, tape.IS_COMMITTED, outcome.place)
        else:
            self.end(tx, tape.IS_ABORTED)
        return outcome.state

    def prepare(self) -> None:
        """Creates the topics and tables, and commits the first rows in an ordinary transaction."""
        for name in TOPICS:
            self.db.create_topic(name, partitions=PARTITIONS)
        for table in self.world.tables:
            self.db.create_table(table, shards=SHARDS)
        client = Client(self, 0, "client-first")
        client.submit(client.first_rows).result()

    def run(self) -> None:
        windows = [1] * WAITING + [WINDOW] * (THREADS - WAITING)
        clients = [Client(self, n, f"client-{n}", window) for n, window in enumerate(windows)]
        threads = [threading.Thread(target=client.run) for client in clients]
        looking = threading.Thread(target=self.look)
        for thread in threads:
            thread.start()
        if self.life.url:
            looking.start()
        for thread in threads:
            thread.join()
        self._written.set()
        if self.life.url:
            looking.join()
        if self.failed is not None:
            raise self.failed

    def look(self) -> None:
        """Looks again and again, and a few times more when nothing can be written any longer."""
        with (Path(self.life.tapes) / "looks").open("w") as lines, suppress(planstep.Fenced):
            more = _LAST_LOOKS
            while more:
                more -= self._written.wait(_LOOK_EACH_S)
                look(self.db, self.world, lines, clock())


class Client:
    """Runs one thread's transactions. `_words`: the journal words of the current transaction's operations."""

    def __init__(self, writer: Writer, number: int, name: str, window: int = 1) -> None:
        """`window`: how many of its commits may be under way; 1: it waits for each."""
        self._writer, self._db, self._world = writer, writer.db, writer.world
        life, self._number, self._window = writer.life, number, window
        self._tape = tape.MmapJournal(Path(life.tapes) / name, TAPE_WORDS)
        self._draw = random.Random(f"{life.seed}-{life.life}-{number}")
        self._words: list[int] = []
        self._tx = 0
        self._consuming: Future[Any] | None = None
        self._rows, self._topics = writer.rows, writer.topics

    def run(self) -> None:
        writer = self._writer
        names, shares = zip(*_MIX, strict=True)
        under_way: deque[Future[Any]] = deque()
        try:
            with suppress(Enough, planstep.Fenced):
                while writer.failed is None:
                    kind = self._draw.choices(names, shares)[0]
                    busy = self._consuming is not None and not self._consuming.done()
                    if kind == "consume" and busy:
                        kind = "log"  # the position to consume from is not known yet
                    if kind in ("plain", "regret", "asking"):
                        getattr(self, kind)()
                        continue
                    future = self.submit(getattr(self, kind))
                    if kind == "consume":
                        self._consuming = future
                    under_way.append(future)
                    if len(under_way) >= self._window:
                        under_way.popleft().exception()
            for future in under_way:
                future.exception()
        except BaseException as error:
            writer.failed = error
            raise

    # running transactions -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Takes the next transaction's number. Enough."""
        self._tx, self._words = next(self._writer.numbers), []
        if self._tx >= self._writer.last:
            raise Enough

    def submit(self, body: Callable[[planstep.Transaction], None]) -> "Future[Any]":
        tx = self._build(body)
        number, future = self._tx, tx.submit()
        future.add_done_callback(partial(self._writer.on_done, number))
        return future

    def _build(self, body: Callable[[planstep.Transaction], None]) -> planstep.Transaction:
        """Returns a transaction with all its operations, recorded on the tape just before its commit. Enough."""
        self._begin()
        begin, tx = clock(), self._db.transaction()
        body(tx)
        generation, counter = tx.id.split("-")
        words = [self._tx, begin, clock(), int(generation), int(counter)]
        self._tape.add(words + self._words)
        return tx

    def regret(self) -> None:
        """Rolls a transaction back: none of it may ever be seen."""
        self._build(self.both).rollback()
        self._writer.end(self._tx, tape.IS_ABORTED)

    def asking(self) -> None:
        """Commits without waiting for the disk, asks for the outcome, then reads."""
        tx, number = self._build(self.both), self._tx
        try:
            commit = tx.commit(timeout=0)
        except planstep.Aborted:
            self._writer.end(number, tape.IS_ABORTED)
        except planstep.Undetermined:
            if self._writer.ask(number, tx.id) == "unknown":
                raise AssertionError(f"{tx.id} was sent, and nothing is known of it") from None
        else:
            self._writer.end(number, tape.IS_COMMITTED, commit.place, commit.published)
        self.submit(self.view)

    def plain(self) -> None:
        """Writes a record without a transaction of the caller."""
        self._begin()
        number, begin = self._tx, clock()
        partition = self._draw.randrange(PARTITIONS)
        lane = self._topics[IN] + partition
        self._operation(tape.PRODUCE, lane, 1)
        self._tape.add([number, begin, begin, tape.PLAIN, tape.PLAIN, *self._words])
        record = identity(number, 0, number) + _FILL
        written = self._db.topic(IN).write(record, partition=partition)
        published = {(IN, partition): (written.offset, written.offset + 1)}
        self._writer.end(number, tape.IS_COMMITTED, written.place, published)

    def _operation(
        self, code: int, lane: int, begin: int = -1, end: int = -1, version: int = -1
    ) -> None:
        self._words += (code, lane, begin, end, version)

    def _get(self, tx: planstep.Transaction, table: str, key: int) -> Any:
        row: Any = tx.get(table, key)
        self._operation(tape.READ, self._rows[table] + key, version=row[0])
        return row

    def _put(self, tx: planstep.Transaction, table: str, key: int, *value: Any) -> None:
        tx.put(table, key, [self._tx, *value])
        self._operation(tape.WRITE, self._rows[table] + key)

    def _write(self, tx: planstep.Transaction, topic: str, partition: int, count: int) -> None:
        """Writes new records, whose identities name this transaction as their source."""
        number, words = self._tx, self._words
        counts = zip(words[:: tape.OPERATION_WORDS], words[2 :: tape.OPERATION_WORDS], strict=True)
        first = sum(count for code, count in counts if code == tape.PRODUCE)
        values = [identity(number, first + i, number) + _FILL for i in range(count)]
        tx.write_batch(topic, values, partition=partition)
        self._operation(tape.PRODUCE, self._topics[topic] + partition, count)

    # kinds of transactions ------------------------------------------------------------------------

    def first_rows(self, tx: planstep.Transaction) -> None:
        for table, key, value in self._world.first_rows(self._tx):
            tx.put(table, key, value)
            self._operation(tape.WRITE, self._rows[table] + key)

    def transfer(self, tx: planstep.Transaction) -> None:
        payer, paid = self._draw.sample(range(self._world.accounts), 2)
        amount = self._draw.randrange(1, 10)
        _, has = self._get(tx, ACCOUNTS, payer)
        _, had = self._get(tx, ACCOUNTS, paid)
        self._put(tx, ACCOUNTS, payer, has - amount)
        self._put(tx, ACCOUNTS, paid, had + amount)

    def append(self, tx: planstep.Transaction) -> None:
        key = self._draw.randrange(self._world.lists)
        _, count, tail = self._get(tx, LISTS, key)
        self._put(tx, LISTS, key, count + 1, [*tail[1 - TAIL :], self._tx])

    def log(self, tx: planstep.Transaction) -> None:
        for partition in self._draw.sample(range(PARTITIONS), 2):
            self._write(tx, LOG, partition, 2)

    def both(self, tx: planstep.Transaction) -> None:
        self.transfer(tx)
        self.log(tx)

    def produce(self, tx: planstep.Transaction) -> None:
        self._write(tx, IN, self._draw.randrange(PARTITIONS), 2)

    def consume(self, tx: planstep.Transaction) -> None:
        """Consumes from its own partition; now and then from another one, where one of the two conflicts."""
        draw, partition = self._draw, self._number % PARTITIONS
        if draw.random() < 0.05:
            partition = draw.randrange(PARTITIONS)
        batch = tx.read(IN, WORKER, max_records=8, partition=partition)
        if not batch:
            self.append(tx)
            return
        begin, end = batch.offsets[0][1], batch.ends[partition]
        number = self._tx
        values = [value[:16] + number.to_bytes(8, "little") + _FILL for value in batch.values]
        tx.write_batch(OUT, values, partition=partition)
        self._operation(tape.PRODUCE, self._topics[OUT] + partition, len(values))
        self._operation(tape.CONSUME, self._world.consumer_lanes + partition, begin, end)
        _, count = self._get(tx, TAKEN, partition)
        self._put(tx, TAKEN, partition, count + end - begin)

    def turn(self, tx: planstep.Transaction) -> None:
        """Swaps two neighbours of the ring: a ─▶ b ─▶ c ─▶ d becomes a ─▶ c ─▶ b ─▶ d."""
        a = self._draw.randrange(self._world.ring)
        _, b = self._get(tx, RING, a)
        _, c = self._get(tx, RING, b)
        _, d = self._get(tx, RING, c)
        self._put(tx, RING, a, c)
        self._put(tx, RING, b, d)
        self._put(tx, RING, c, b)

    def view(self, tx: planstep.Transaction) -> None:
        for key in self._draw.sample(range(self._world.accounts), 3):
            self._get(tx, ACCOUNTS, key)
        self._get(tx, LISTS, self._draw.randrange(self._world.lists))

    def level(self, tx: planstep.Transaction) -> None:
        """Spreads the money of a few neighbouring accounts evenly among them."""
        begin = self._draw.randrange(self._world.accounts - 4)
        rows: list[Any] = list(tx.scan(ACCOUNTS, begin=begin, end=begin + 4))
        for key, (version, _) in rows:
            self._operation(tape.READ, self._rows[ACCOUNTS] + int(key), version=version)
        total = sum(balance for _, (_, balance) in rows)
        for i, (key, _) in enumerate(rows):
            share = total // len(rows) + (i < total % len(rows))
            self._put(tx, ACCOUNTS, int(key), share)


def main(spec: str) -> int:
    fields = json.loads(Path(spec).read_text())
    life = LifeSpec(**{**fields, "world": World(*fields["world"])})
    if life.planted:
        PLANTS[life.planted]()
    began = clock()
    shared: Any = {}
    if life.url:
        shared = {"replicate": planstep.Replicate(life.url, reads=life.reads), "takeover": True}
    opened = planstep.open(life.store, mode="deterministic", hosts=life.hosts, **shared)
    with suppress(planstep.Fenced), opened as db:
        writer = Writer(life, db)
        (Path(life.tapes) / "opened").write_text(str(clock() - began))
        if not life.life:
            writer.prepare()
        writer.resolve()
        writer.run()
    (Path(life.tapes) / "closed").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
