"""Lives one life of a process that copies records beside others: it reads, writes and consumes in transactions.

    writer    transaction n ─▶ in[p] and log[own] ◀ "process.life/n"     now and then one that is rolled back
    process   in[p] ─▶ 2 workers of a group over all processes ─▶ out[p] ◀ the same, and who copied it
    looker    the new records of all partitions ─▶ where they end, how many there are

A life says what it was answered, with times of one clock. Errors after which a mode's application goes on are no
reason to end: a commit that was refused, or of which nobody knows.

Next: ../rows/struck_copies.py, which judges.
"""

import itertools
import os
import random
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

from ....api.columns.batch import ReadBatch
from ....api.engine import Engine
from ....api.transaction.transaction import Transaction
from ....errors import Aborted, IoError, Overloaded, Undetermined
from ..histories.planted import PLANTS
from .forked import Say, small_steps
from .modes import CONSUMER, mode_of
from .sharers import Begun, Owning, SharedStore, obey, state_of

IN, LOG, OUT = TOPICS = "in", "log", "out"
PARTITIONS = 8
LANES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
NEVER = "never"
_WORKERS = 2
_BATCH = 5
_PAUSE_SECONDS = 0.02
_LOOK_SECONDS = 0.15
_EACH_SECONDS = 0.005
_ROLLED_BACK, _ENDS = 0.1, 0.7
_DEFINITE = (Aborted, IoError, Overloaded)
_GOES_ON = (*_DEFINITE, Undetermined)
clock = time.monotonic_ns


class Wrote(NamedTuple):
    """A writer's transaction was committed. `offsets`: of its records, in `in` and in `log`.

    `shown`: an earlier one was seen in `log`, in the writer's own partition: nothing is left open there.
    """

    writer: str
    n: int
    reply: int
    offsets: dict[tuple[str, int], int]
    shown: bool


class Refused(NamedTuple):
    """A writer's transaction was refused: it has no effect."""

    writer: str
    n: int


class Looked(NamedTuple):
    """A process has seen all records there were: by lane, the end of the last one, and how many."""

    begin: int
    reply: int
    ends: tuple[int, ...]
    counts: tuple[int, ...]


class Again(NamedTuple):
    """`process` has ended with an error, and begun again."""

    error: str


class Life(NamedTuple):
    """A life of process `number`. `individual`: the consumer."""

    store: SharedStore
    number: int
    life: int
    seed: int
    individual: bool
    planted: str

    def __str__(self) -> str:
        return f"{self.number}.{self.life}"


class Copier:
    """The writer, the copying workers and the looker of one life."""

    def __init__(self, life: Life, db: Engine, say: Say) -> None:
        self.life, self.db = life, db
        self.owning = Owning(db, say)
        self._say = say
        self._writer = f"writer-{life.number}"
        self._draw = random.Random(f"{life.seed}-{life}")
        self._stopped, self._closing = threading.Event(), threading.Event()
        self._clients = [self._thread(self._write), self._thread(self._look)]
        self._copies = self._thread(self._copy)

    def _thread(self, body: Any) -> threading.Thread:
        def run() -> None:
            try:
                body()
            except BaseException as error:
                self._say(f"x {body.__name__} ended: {error!r}")
                os._exit(1)

        return threading.Thread(target=run)

    def prepare(self) -> None:
        for topic in TOPICS:
            self.db.create_topic(topic, partitions=PARTITIONS, format="utf8")
        if self.life.individual:
            self.db.topic(IN).create_consumer(CONSUMER, "individual")

    def begin(self) -> None:
        """Begins. Mostly it ends what the life before has left open; else the first transaction does, or time."""
        if self._draw.random() < _ENDS:
            with suppress(*_GOES_ON):
                mode_of(self.db).end_open(self.db, [self._writer])
        for thread in (*self._clients, self._copies):
            thread.start()

    def stop(self) -> None:
        """Ends the clients; what there is is copied on."""
        self._stopped.set()
        for thread in self._clients:
            thread.join()

    def close(self) -> None:
        self._closing.set()
        self._copies.join()

    def tell(self) -> None:
        self.owning.notice()
        db = self.db
        lanes = {lane.number for group in db.context.groups for lane in group.leases.own}
        under_way = int(self._is_unsettled())
        self._say(state_of(db, under_way, db.topic(IN).lag(CONSUMER), tuple(sorted(lanes))))

    def _is_unsettled(self) -> bool:
        try:
            return mode_of(self.db).is_unsettled(self.db)
        except Aborted:  # a wait for the ends of others' transactions has timed out
            return True

    def _write(self) -> None:
        writer, own, draw, shown = str(self.life), (LOG, self.life.number), self._draw, False
        for n in itertools.count():
            lanes = (IN, draw.randrange(PARTITIONS)), own
            try:
                if draw.random() < _ROLLED_BACK:
                    tx = self._begin(lanes, NEVER)
                    tx.flush()
                    tx.rollback()
                commit = self._begin(lanes, f"{writer}/{n}").commit()
            except _DEFINITE:
                self._say(Refused(writer, n))
            except Undetermined:
                pass
            else:
                spans = commit.published  # mode "pulsar": without a place for what was sent twice
                offsets = {lane: span[0] for lane in lanes if (span := spans.get(lane)) is not None}
                self._say(Wrote(writer, n, clock(), offsets, shown))
                shown = shown or self._is_shown(offsets.get(own))
            if self._stopped.wait(draw.uniform(0, _PAUSE_SECONDS)):
                return

    def _is_shown(self, offset: int | None) -> bool:
        with self.db.context.open_view() as view:
            return offset is not None and view.bounds(LOG)[self.life.number][1] > offset

    def _begin(self, lanes: tuple[tuple[str, int], ...], value: str) -> Transaction:
        tx = self.db.transaction(worker=self._writer)
        for topic, partition in lanes:
            tx.write(topic, value, partition=partition)
        return tx

    def _copy(self) -> None:
        def copy(tx: Transaction, batch: ReadBatch) -> None:
            for (partition, _), value in zip(batch.offsets, batch.values, strict=True):
                tx.write(OUT, f"{value} {self.life}", partition=partition)

        while not self._closing.is_set():
            try:
                self.db.process(
                    copy,
                    IN,
                    CONSUMER,
                    workers=_WORKERS,
                    worker=f"copier-{self.life.number}",
                    max_records=_BATCH,
                    stop=self._closing,
                )
            except _GOES_ON as error:
                self._say(Again(type(error).__name__))

    def _look(self) -> None:
        """Looks at everything now and then, and notices when this process has become the owner."""
        at, ends, counts = ([0] * len(LANES) for _ in range(3))
        due = 0.0
        while not self._stopped.wait(_EACH_SECONDS):
            self.owning.notice()
            if time.monotonic() < due:
                continue
            begin = clock()
            with self.db.context.open_view() as view:
                for lane, (topic, partition) in enumerate(LANES):
                    while batch := view.read(topic, at[lane], partition, 1_000):
                        counts[lane] += len(batch)
                        ends[lane] = batch.offsets[-1][1] + 1
                        at[lane] = batch.ends[partition]
            self._say(Looked(begin, clock(), tuple(ends), tuple(counts)))
            due = time.monotonic() + self._draw.uniform(0, 2 * _LOOK_SECONDS)


def live(life: Life, say: Say, listen: int) -> None:
    """Lives a life."""
    small_steps()
    if life.planted:
        PLANTS[life.planted]()
    with life.store.open() as db:
        copier = Copier(life, db, say)
        if not life.life and not life.number:
            copier.prepare()
        say(Begun())
        copier.begin()
        obey(listen, copier.stop, copier.tell, say)
        copier.close()
