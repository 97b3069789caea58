"""The language of the scripts that are said in each mode, and who answers them.

    with hosts=4 retry_backoff_ms=5     how the store is opened: hosts, placement, what KafkaSettings has
    T begin w1          a transaction of client T; in mode kafka under the transactional id w1
    T read a c          consumer c reads topic a             T write a/1 v       T commit / rollback / outcome
    T get k / put k v   rows of table t                      T submit / end      commits: asks, and waits
    R reader a c        a reader of consumer c               R next / commit / close      its batch
    write a/0 v         a record by itself                   write b v           topic b: one partition
    topic a/0 | topic a         records with offsets (v@0); values of all partitions
    snapshot a | position a c   all partitions in one snapshot; where consumer c goes on
    raw a/0             what is stored: w1:v is written by transactional id w1, commit and abort are markers
    outcomes            how many transactions committed, and how many ended otherwise
    hold ends a/1       what ends a transaction at that partition waits: markers; plans and votes
    hold markers        markers wait, for all partitions
    hold commit         the next request to commit waits: EndTxn of the client; a proposal of the proxy
    hold batch          what is written waits: the client's Produce; what the proxy proposes first
    let go              of what is held; tells what that was
    try LINE | answer   in the background: "waits" if it has no answer soon; its answer. What is to be answered
                        at once is waited for, however slow the machine is; what is to wait, for WAITS_SECONDS
    kill -9             of the process that has said all this; the store is opened again
    reopen              closed, and opened again

A part of a script that ends with "kill -9" is said in a process of its own, which is this module run.

Next: test_modes.py.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from functools import partial
from pathlib import Path
from typing import Any

import planstep
from planstep.coordinator.kafka.states import PREPARED, Transaction
from planstep.errors import PlanstepError
from planstep.proto.batch import Batch
from planstep.proto.ids import PARTITION, TRANSACTIONS, host_of, kind_of, tablet_id, tablet_prefix
from planstep.proto.kafka.messages import (
    COMMIT,
    PLAIN,
    TRANSACTIONAL,
    EndTxn,
    InitProducer,
    Marker,
    Produce,
    TrimTo,
)
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proto.messages import Plan, Propose, ReadSet
from planstep.runtime.network import HeldLine

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
from scripted import HeldMessages, refusal, said_in, told

SIDES = {"deterministic": ("deterministic", 1), "kafka": ("kafka", 1), "kafka-2": ("kafka", 2)}
WAITS_SECONDS = 0.15
ANSWER_SECONDS = 30
QUICK = KafkaSettings(
    marker_retry_ms=60_000, retry_backoff_ms=5, concurrent_backoff_ms=5, max_block_ms=20_000
)
_NUMBERS = {field.name for field in dataclasses.fields(KafkaSettings)}


def opened(lines: list[str], side: str, hosts: int, path: Path | str) -> planstep.Engine:
    mode, version = SIDES[side]
    settings: dict[str, Any] = {"hosts": hosts, "placement": "separate"}
    kafka = dataclasses.replace(QUICK, protocol_version=version)
    for line in lines:
        if line.startswith("with "):
            for name, value in (word.split("=") for word in line.split()[1:]):
                if name in _NUMBERS:
                    kafka = dataclasses.replace(kafka, **{name: int(value)})
                else:
                    settings[name] = int(value) if value.isdecimal() else value
    return planstep.open(path, mode=mode, kafka=kafka, **settings)


def create(db: planstep.Engine) -> None:
    db.create_topic("a", partitions=2, format="utf8")
    db.create_topic("b", partitions=1, format="utf8")
    if db._runtime.mode == "deterministic":
        db.create_table("t", shards=4)


class Conversation:
    def __init__(self, db: planstep.Engine) -> None:
        self.db = db
        self.runtime: Any = db._runtime
        self.kafka = self.runtime.mode == "kafka"
        self.held = HeldMessages(self.runtime)
        self.line: HeldLine | None = None
        self.late: type = EndTxn
        # What is held ends transactions there; None: anywhere.
        self.waiting: tuple[int, ...] | None = ()
        self.open: dict[str, planstep.Transaction] = {}
        self.readers: dict[str, planstep.Reader] = {}
        self.sent: dict[str, Future[planstep.Commit]] = {}
        self.threads = ThreadPoolExecutor(4)
        self.tried: Future[str] | None = None

    def say(self, line: str, is_answered: bool = False) -> str:
        """`is_answered`: what is tried is known not to wait."""
        words = line.split()
        if self.kafka:
            self.settle()
        if words[0] == "try":
            self.tried = self.threads.submit(self.answer, words[1:])
            try:
                return self.tried.result(ANSWER_SECONDS if is_answered else WAITS_SECONDS)
            except TimeoutError:
                return "waits"
        if words == ["answer"]:
            assert self.tried is not None
            return self.tried.result(ANSWER_SECONDS)
        return self.answer(words)

    def answer(self, words: list[str]) -> str:
        who, *rest = words
        try:
            if len(words) > 1 and who[0].isupper():
                return str(getattr(self, "client_" + rest[0])(who, *rest[1:]))
            return str(getattr(self, who)(*rest))
        except PlanstepError as error:
            return refusal(error)

    def close(self) -> None:
        self.threads.shutdown()
        for reader in self.readers.values():
            reader.close()

    # what is on its way ----------------------------------------------------------------------

    def settle(self) -> None:
        """Until what was sent is written, and what was decided is marked, but for what is held back."""
        deadline = time.monotonic() + 60
        while self.is_under_way():
            assert time.monotonic() < deadline, "it does not settle"
            time.sleep(0.0005)

    def is_under_way(self) -> bool:
        runtime = self.runtime
        if self.waiting is None or (self.line is not None and self.late is Produce):
            return False
        with runtime.hooks.client.locked():
            for tx, opened in runtime.hooks.writing.open.items():
                producer = opened.producer
                if opened.ending:
                    return True
                if producer.tx == tx and producer.dead is None:
                    core = runtime.hooks.client.core._producers.get(producer.handle)
                    running = core is None or core.state.name == "IN_TRANSACTION"
                    if running and runtime.hooks.client.outstanding(tx):
                        return True
        for node in runtime.nodes:
            prefix = tablet_prefix(tablet_id(TRANSACTIONS, node.host.number, 0))
            for _, value in node.host.store.scan(prefix + b"t", prefix + b"u"):
                row = Transaction(*value)
                held = set(row.partitions) & set(self.waiting)
                others = set(row.partitions) - held
                if row.state in PREPARED and (
                    not held or any(self.is_open_at(tablet, row.producer) for tablet in others)
                ):
                    return True
        return False

    def is_open_at(self, tablet: int, producer: int) -> bool:
        """The partition, or group coordinator, has not heard of the transaction's end."""
        store, prefix = self.runtime.nodes[host_of(tablet)].host.store, tablet_prefix(tablet)
        if kind_of(tablet) == PARTITION:
            return any(row == producer for _, row in store.scan(prefix + b"o", prefix + b"p"))
        pending = producer.to_bytes(8, "big")
        return any(key.endswith(pending) for key, _ in store.scan(prefix + b"n", prefix + b"o"))

    def hold(self, what: str, where: str = "") -> str:
        if what == "ends":
            tablet = self.tablet(where)
            self.waiting = (tablet,)
            self.held.holds = lambda target, message: (
                isinstance(message, (Marker, Plan, ReadSet)) and target == tablet
            )
        elif what == "markers":
            if not self.kafka:
                return "there are none"
            self.waiting = None
            self.held.holds = lambda target, message: isinstance(message, Marker)
        elif self.kafka:
            self.late = EndTxn if what == "commit" else Produce
            is_first = _once(lambda message: type(message) is EndTxn)
            self.through = self.runtime.hooks.client.line
            self.line = HeldLine(
                self.through,
                is_first if what == "commit" else lambda message: type(message) is Produce,
            )
            self.runtime.hooks.client.line = self.line
        else:
            once = _once(lambda m: type(m) is Propose)
            self.held.holds = lambda target, message: kind_of(target) == PARTITION and once(message)
        return "ok"

    def let(self, _go: str) -> str:
        """Tells what had been kept back."""
        kept = self.held.let_go()
        if self.line is not None:
            kept += [self.late.__name__] * len(self.line.held)
            self.runtime.hooks.client.line = self.through
            self.line.let_go()
            self.line = None
            # One more request behind it: when that is answered, it has been taken.
            make = partial(InitProducer, name="nobody", timeout_ms=60_000)
            self.runtime.hooks.requests.request(self.runtime.hooks.coordinator_of("w1"), make)
            self.runtime.hooks.requests.request(self.tablet("a"), partial(TrimTo, offset=0))
        self.waiting = ()
        return " ".join(sorted(set(kept))) or "nothing was held"

    # what anybody does -----------------------------------------------------------------------

    def tablet(self, where: str) -> int:
        topic, _, number = where.partition("/")
        return int(self.runtime.names.topics[topic].partitions[int(number or 0)])

    def write(self, where: str, value: str) -> str:
        topic, _, number = where.partition("/")
        return f"@{self.db.topic(topic).write(value, partition=int(number or 0)).offset}"

    def topic(self, where: str) -> str:
        name, slash, number = where.partition("/")
        if not slash:
            return " ".join(self.db.topic(name).read().values) or "nothing"
        records = self.db.topic(name).read(partition=int(number))
        return " ".join(f"{record.value}@{record.offset}" for record in records) or "nothing"

    def snapshot(self, topic: str) -> str:
        with self.db.snapshot() as view:
            return " ".join(view.read(topic).values) or "nothing"

    def position(self, topic: str, consumer: str) -> str:
        return " ".join(map(str, self.db.topic(topic).position(consumer).values()))

    def raw(self, where: str) -> str:
        tablet = self.tablet(where)
        store = self.runtime.views._nodes[host_of(tablet)].host.store
        prefix = tablet_prefix(tablet) + b"b"
        names = {}
        if self.kafka:
            for node in self.runtime.nodes:
                own = tablet_prefix(tablet_id(TRANSACTIONS, node.host.number, 0))
                for key, row in node.host.store.scan(own + b"t", own + b"u"):
                    names[row[0]] = key[5:].decode()
        found = []
        for key, row in store.scan(prefix, prefix + b"\xff" * 9):
            address, length, _, *rest = row
            first = int.from_bytes(key[-8:], "big")
            kind = rest[3] if self.kafka else PLAIN
            who = f"{names[rest[0]]}:" if kind == TRANSACTIONAL else ""
            if kind in (PLAIN, TRANSACTIONAL):
                for number, value in enumerate(
                    Batch.decode(store.read_payload(address, length)).values
                ):
                    found.append(f"{who}{(value or b'').decode()}@{first + number}")
            else:
                found.append(f"{'commit' if kind == COMMIT else 'abort'}({names[rest[0]]})@{first}")
        return " ".join(found) or "nothing"

    def outcomes(self) -> str:
        return f"{self.runtime.turns.committed} committed, {self.runtime.turns.conflicts} not"

    # what clients do -------------------------------------------------------------------------

    def client_begin(self, who: str, worker: str | None = None) -> str:
        self.open[who] = self.db.transaction(worker=worker)
        return "ok"

    def client_read(self, who: str, topic: str, consumer: str) -> str:
        return " ".join(self.open[who].read(topic, consumer).values) or "nothing"

    def client_write(self, who: str, where: str, value: str) -> str:
        topic, _, number = where.partition("/")
        self.open[who].write(topic, value, partition=int(number or 0))
        return "ok"

    def client_get(self, who: str, key: str) -> Any:
        return self.open[who].get("t", key)

    def client_put(self, who: str, key: str, value: str) -> str:
        self.open[who].put("t", key, value)
        return "ok"

    def client_commit(self, who: str) -> str:
        self.open[who].commit()
        return "committed"

    def client_rollback(self, who: str) -> str:
        self.open[who].rollback()
        return "rolled back"

    def client_outcome(self, who: str) -> str:
        return self.open[who].outcome().state

    def client_submit(self, who: str) -> str:
        tx = self.open[who]
        self.sent[who] = tx.submit()
        while not self.kafka and self.db.outcome(tx.id).state == "open":
            time.sleep(0.0005)
        return "ok"

    def client_end(self, who: str) -> str:
        self.sent[who].result(30)
        return "committed"

    def client_reader(self, who: str, topic: str, consumer: str) -> str:
        self.readers[who] = self.db.reader(topic, consumer, max_records=1, name=who)
        return "ok"

    def client_next(self, who: str) -> str:
        reader = self.readers[who]
        leased = reader.read(timeout=0 if reader.idle() else 5)
        if leased is None:
            return "nothing"
        self.open[who] = leased.tx
        return " ".join(leased.batch.values)

    def client_close(self, who: str) -> str:
        self.readers[who].close()
        return "ok"


def _once(wanted: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The first one, not its repeats."""
    seen: list[Any] = []

    def is_first(message: Any) -> bool:
        if not seen and wanted(message):
            seen.append(message)
            return True
        return False

    return is_first


def converse(
    lines: list[str], side: str, hosts: int, path: Path | str, known: list[str] | None = None
) -> list[str]:
    """The answers to a script's lines, in which a process may be killed: that part has one of its own.

    `known`: the answers that are expected, if they are."""
    answers: list[str] = []
    at = 0
    if "kill -9" in lines:
        at = lines.index("kill -9") + 1
        command = [sys.executable, __file__, side, str(hosts), str(path)]
        done = subprocess.run(
            command, input=json.dumps(lines[:at]), capture_output=True, text=True, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        answers = [*done.stdout.splitlines(), told("kill -9", "reopened")]
    talk: Conversation | None = None
    db = opened(lines, side, hosts, path)
    try:
        if not at:
            create(db)
        talk = Conversation(db)
        for said, asks in said_in(lines[at:]):
            if said == "reopen":
                talk.close()
                db.close()
                db = opened(lines, side, hosts, path)
                talk = Conversation(db)
                answers.append(told(said, "ok"))
            elif not said.startswith("with "):
                waits = known is None or told(said, "waits") in known
                answers.append(told(said, talk.say(said, not waits)) if asks else said)
    finally:
        if talk is not None:
            talk.close()
        db.close()
    return answers


def main() -> None:
    """The part of a script that ends with the death of its process."""
    side, hosts, path = sys.argv[1:]
    lines = json.load(sys.stdin)
    db = opened(lines, side, int(hosts), path)
    create(db)
    talk = Conversation(db)
    for said, asks in said_in(lines):
        if said == "kill -9":
            os.kill(os.getpid(), signal.SIGKILL)
        if not said.startswith("with "):
            print(told(said, talk.say(said)) if asks else said, flush=True)


if __name__ == "__main__":
    main()
