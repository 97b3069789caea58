"""Lives one life of the real engine in mode "kafka" or "pulsar", and journals its actions, until it is killed.

    feeders ─▶ "in" 0 1 ─▶ workers, each its partition, each its name ─▶ "out" 0 1
    plain writes ─▶ │                     readers of committed data ◀───────────────── both

    journal, a line each, written before the action, except for its results:
      ["tx", number, who, transactional]   ["reads", number, values]   ["send", number, topic, partition, values]
      ["ask", number, at, commits]   ["end", number, "committed" or "aborted"]
      ["poll", topic, partition, begin, end, [[offset, value], …], at]   ["waits", topic, partition]
      ["acks", number]: an acknowledgement for each transaction that has read

Rivals: now and then a second one of the same name begins while the first one's transaction is open, does the same
work, and commits before it. Where names are fenced it is a successor, and the first is a zombie; else both go
on, and what they acknowledge decides. Twins are two of one name that begin at the same moment, on two threads, with
threads switched as often as Python can. Anything in no journal never happened: a killed process has written a
line, or has not. From time to time it prints the number of sends and acknowledgements so far. The last life is not
killed: it uses all inputs, commits once more, and closes.

Next: killed_lives.py.
"""

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import planstep
from planstep.proto.mode_settings import ModeSettings

TOPICS = "in", "out"
LAST = "last"
"""The topic of what a life commits as it closes."""
PARTITIONS = 2
LIFE_SECONDS_MAX = 120
"""A life that has not done its share by then hangs."""
_SLOW_MS = 50.0
CONSUMER = "g"
_EMPTY_READS = 3
"""After so many empty reads in a row, the last life has used all inputs; if lag is known, there is none, either."""
_SETTINGS: dict[str, Callable[..., ModeSettings]] = {
    "kafka": planstep.KafkaSettings,
    "pulsar": planstep.PulsarSettings,
}


class Life:
    """One life. Invariant: a value is sent once, and is in the journal before it is sent."""

    def __init__(self, db: planstep.Engine, config: dict[str, Any]) -> None:
        self.db = db
        self.life: int = config["life"]
        self.last: bool = config["last"]
        self.stands: dict[str, int] = config["stands"]
        self.rivals: float = config["rivals"]
        self.made: bool = bool(config["kind"])
        """The consumer was made before it is read for."""
        self.sends = self.acks = 0
        self._seed = f"{config['seed']}/{self.life}"
        self._journal = os.open(config["journal"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.number = itertools.count(1).__next__  # threads share it

    def note(self, *line: Any) -> None:
        os.write(self._journal, json.dumps(line).encode() + b"\n")

    def value(self, of: str | None = None) -> str:
        own = f"{self.life}.{self.number()}"
        return own if of is None else f"o{of}/{own}"

    # transactions --------------------------------------------------------------------------

    def begin(self, who: str, name: str) -> tuple[int, planstep.Transaction]:
        n = self.number()
        self.note("tx", n, f"{who}.{self.life}", True)
        return n, self.db.transaction(worker=name)

    def send(
        self, n: int, tx: planstep.Transaction, topic: str, partition: int, values: list[str]
    ) -> None:
        self.note("send", n, topic, partition, values)
        self.sends += 1
        tx.write_batch(topic, [value.encode() for value in values], partition=partition)

    def end(self, n: int, tx: planstep.Transaction, commit: bool) -> None:
        self.note("ask", n, time.monotonic(), commit)
        try:
            if commit:
                tx.commit()
            else:
                tx.rollback()
        except planstep.Aborted:
            self.note("end", n, "aborted")
        except planstep.Undetermined:
            pass
        else:
            self.note("end", n, "committed" if commit else "aborted")

    def take_back(self, n: int, tx: planstep.Transaction) -> None:
        """Rolls back what was refused; a refused flush has done so already."""
        with suppress(planstep.TransactionClosed):
            tx.rollback()
        self.note("end", n, "aborted")

    def feeder(self, name: str) -> None:
        draw = random.Random(f"{self._seed}/{name}")
        for _ in range(1 if self.last else 1 << 30):
            rival = draw.random() < self.rivals
            n, tx = self.begin(name, name)
            try:
                self._feed(draw, n, tx)
                if rival:
                    m, other = self.begin(f"{name}, its rival", name)
                    self._feed(draw, m, other)
                    self.end(m, other, True)
                    self.note("rival")
            except planstep.Aborted:  # a refused write allows only a rollback
                self.take_back(n, tx)
                continue
            self.end(n, tx, draw.random() < 0.85)

    def _feed(self, draw: random.Random, n: int, tx: planstep.Transaction) -> None:
        for _ in range(draw.randrange(1, 5)):
            values = [self.value() for _ in range(draw.randrange(1, 4))]
            self.send(n, tx, "in", draw.randrange(PARTITIONS), values)
            if draw.random() < 0.2:
                tx.flush()
                time.sleep(draw.uniform(0, 0.05))  # readers look while it is open

    def worker(self, partition: int) -> None:
        name = f"work-{partition}"
        draw = random.Random(f"{self._seed}/{name}")
        empty = 0
        while not self.last or empty < _EMPTY_READS or self._behind():
            tx = self.db.transaction(worker=name)
            n = self._transform(draw, tx, name, partition)
            if n is None:
                empty += 1
                continue
            empty = 0
            if draw.random() < self.rivals:
                self.end(n, tx, True)
                self._twins(draw, name, partition)
                continue
            if draw.random() < self.rivals:
                rival = self.db.transaction(worker=name)
                again = self._transform(draw, rival, f"{name}, its rival", partition)
                if again is not None:
                    self.end(again, rival, True)
                self.note("rival")
            self.end(n, tx, draw.random() < 0.9)

    def _twins(self, draw: random.Random, name: str, partition: int) -> None:
        """Has two threads begin under one name at once; each does the same work, and commits."""
        ready, failed = threading.Barrier(2), list[BaseException]()
        seeds = [draw.random(), draw.random()]

        def live(n: int) -> None:
            own = random.Random(seeds[n])
            ready.wait(LIFE_SECONDS_MAX)
            with suppress(planstep.Aborted):  # as it begins, or reads: fenced by the other one
                tx = self.db.transaction(worker=name)
                number = self._transform(own, tx, f"{name}, twin {n}", partition)
                if number is not None:
                    self.end(number, tx, True)

        switching = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            twins = [threading.Thread(target=_run, args=(partial(live, n), failed)) for n in (0, 1)]
            for twin in twins:
                twin.start()
            for twin in twins:
                twin.join()
        finally:
            sys.setswitchinterval(switching)
        if failed:
            raise failed[0]
        self.note("twins")

    def _behind(self) -> bool:
        return self.made and bool(self.db.topic("in").lag(CONSUMER))

    def _transform(
        self, draw: random.Random, tx: planstep.Transaction, who: str, partition: int
    ) -> int | None:
        """Copies records in a transaction; returns its number in the journal. With no records, or if a write was
        refused, it rolls back and returns None.
        """
        most = draw.randrange(1, 9)
        batch = tx.read("in", CONSUMER, max_records=most, partition=partition, timeout=0.2)
        values = [value.decode() for value in batch.values]
        if not values:
            tx.rollback()
            return None
        n = self.number()
        self.note("tx", n, f"{who}.{self.life}", True)
        self.note("reads", n, values)
        try:
            for value in values:
                self.send(n, tx, "out", draw.randrange(PARTITIONS), [self.value(value)])
        except planstep.Aborted:  # a refused write allows only a rollback
            self.take_back(n, tx)
            return None
        self.note("acks", n)
        self.acks += 1
        return n

    def plain(self) -> None:
        draw = random.Random(f"{self._seed}/plain")
        while not self.last:
            n = self.number()
            self.note("tx", n, f"plain.{self.life}", False)
            partition, values = draw.randrange(PARTITIONS), [self.value(), self.value()]
            self.note("send", n, "in", partition, values)
            self.sends += 1
            encoded = [value.encode() for value in values]
            self.db.topic("in").write_batch(encoded, partition=partition)
            self.note("end", n, "committed")
            time.sleep(draw.uniform(0, 0.05))

    def reader(self) -> None:
        """Reads on from the position of the previous life's reader, as its journal says."""
        draw = random.Random(f"{self._seed}/reader")
        while not self.last:
            topic, partition = draw.choice(TOPICS), draw.randrange(PARTITIONS)
            self.poll(topic, partition, draw.randrange(1, 200))
            time.sleep(0.005)

    def poll(self, topic: str, partition: int, most: int) -> int:
        begin = self.stands.get(f"{topic}/{partition}", 0)
        batch = self.db.topic(topic).read(start=begin, partition=partition, max_records=most)
        end = batch.ends.get(partition, begin)
        offsets = [offset for _, offset in batch.offsets]
        records = list(zip(offsets, (value.decode() for value in batch.values), strict=True))
        if records or end > begin:  # offsets passed without a record are judged too
            self.note("poll", topic, partition, begin, end, records, time.monotonic())
        self.stands[f"{topic}/{partition}"] = end
        tablet = self.db.context.runtime.names.topics[topic].partitions[partition]
        views: Any = self.db.context.runtime.views
        _, stored, shown = views.log_meta(tablet)
        if end == shown < stored:
            self.note("waits", topic, partition)
        return len(records)

    def live(self, works: Sequence[Callable[[], None]]) -> None:
        """Runs each on a thread of its own, until all have ended or one fails."""
        failed: list[BaseException] = []
        threads = [
            threading.Thread(target=_run, args=(work, failed), daemon=True) for work in works
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not failed:
            os.write(1, b"%d\n" % (self.sends + self.acks))
            time.sleep(0.01)
        if failed:
            raise failed[0]


def main(text: str) -> None:
    config = json.loads(text)
    mode = config["mode"]
    settings: Any = {mode: _SETTINGS[mode](**config["settings"])}
    with planstep.open(
        Path(config["store"]),
        mode=mode,
        hosts=config["hosts"],
        placement=config["placement"],
        **settings,
    ) as db:
        for topic in (*TOPICS, LAST):
            db.create_topic(topic, partitions=PARTITIONS, exist_ok=True)
        if config["kind"] and CONSUMER not in db.topic("in").consumers():
            db.topic("in").create_consumer(CONSUMER, start="earliest", kind=config["kind"])
        life = Life(db, config)
        feeders = [partial(life.feeder, name) for name in ("feed-0", "feed-1")]
        workers = [partial(life.worker, partition) for partition in range(PARTITIONS)]
        if not life.last:
            life.live([*feeders, *workers, life.plain, life.reader])
            return
        life.live(feeders)
        for tablet in db.context.runtime.names.topics["in"].partitions:
            db.context.runtime.hooks.wait_stable(tablet)  # what an earlier life left open
        life.live(workers)
        leave(db)


def leave(db: planstep.Engine) -> None:
    """Commits just before the engine closes, with slow lines between its hosts. Readers must see it then."""
    turns: Any = db.context.runtime.turns
    network, through = turns.network, turns.network.send
    network.send = lambda *frame: turns.delays.after(_SLOW_MS, partial(through, *frame))
    with db.transaction(worker="leaves") as tx:
        tx.write_batch(LAST, [b"last"] * PARTITIONS, partition=range(PARTITIONS))


def _run(work: Callable[[], None], failed: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        failed.append(error)
