"""Runs anomalies as conversations: a script of several clients, with each one's answers.

    T1 begin            a transaction of client T1           T1 get k / put k v / add k n / scan p
    T1 read a c         consumer c reads topic a             T1 write a v      T1 commit / rollback
    W writer a P strict | dedupe      a plain writer of producer P on topic a      W send v 5
    show k | topic a | position a c                           the committed state

Scripts about delays run on disk, on four hosts:

    hold k | let go     holds plans and votes for the host of key k / lets them go
    T1 submit / end     commits, waits only until it has its place / has ended
    T1 ask k / answer   get k, in the background
    look k l            the keys as a read-only process sees them

Each line's answer follows "->" in the file. There is one golden per anomaly; all run on one host and on
four. To add one: write the script without answers, run with PLANSTEP_GOLDEN=write, read the result.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any

import pytest
from kit import python
from scripted import HeldNetwork, answer_line, compare, refusal, spoken_lines

import planstep
from planstep.api.transaction.routing import shard_of
from planstep.proto.ids import host_of
from planstep.proto.keys import encode_key

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))
DELAYED = sorted((Path(__file__).parent / "scripts" / "delayed").glob("*.txt"))
LOOK = """
import sys, planstep
with planstep.open(sys.argv[1], read_only=True) as db:
    print(*(f"{key}={db.table('t').get(key)}" for key in sys.argv[2:]))
"""


class Conversation:
    def __init__(self, db: planstep.Engine) -> None:
        self.db = db
        self.open: dict[str, planstep.Transaction] = {}
        self.writers: dict[str, planstep.Writer] = {}
        self.questions: dict[str, Future[Any]] = {}
        self.sent: dict[str, Future[planstep.Commit]] = {}
        self.threads = ThreadPoolExecutor(4)
        self.held: set[int] = set()
        self.network = HeldNetwork(
            db._runtime.turns.network.deliver,
            lambda host, frame: host in self.held and bool(frame.messages),
        )
        db._runtime.turns.network = self.network

    def say(self, line: str) -> str:
        words = line.split()
        if words[0] in ("show", "topic", "position"):
            return self.state(*words)
        if words[0] == "look":
            return python(LOOK, self.db.path, *words[1:]).stdout.strip()
        if words[0] == "hold":
            shards = self.db._runtime.names.tables["t"].shards
            self.held.add(host_of(shard_of(encode_key(words[1]), shards)))
            return "ok"
        if words == ["let", "go"]:
            self.held.clear()
            self.network.let_go()
            return "ok"
        client, verb, *rest = words
        if verb == "begin":
            self.open[client] = self.db.transaction()
            return "ok"
        if verb == "writer":
            topic, producer, policy = rest
            self.writers[client] = self.db.topic(topic).writer(
                producer, dedupe=policy == "dedupe", linger_records=1
            )
            return "ok"
        try:
            if verb == "send":
                return self.send(client, *rest)
            if verb in ("submit", "ask", "answer", "end"):
                return str(getattr(self, verb)(client, *rest))
            return str(getattr(self, verb)(self.open[client], *rest))
        except (planstep.Conflict, planstep.SequenceError) as error:
            return refusal(error)

    def send(self, client: str, value: str, number: str) -> str:
        self.writers[client].write(value, sequence=int(number))
        return "sent"

    def state(self, what: str, name: str, consumer: str = "") -> str:
        if what == "show":
            return str(self.db.table("t").get(name))
        if what == "topic":
            return " ".join(record.value for record in self.db.topic(name).read()) or "empty"
        return str(self.db.topic(name).position(consumer)[0])

    def submit(self, client: str) -> str:
        tx = self.open[client]
        self.sent[client] = tx.submit()
        deadline = time.monotonic() + 30
        while (state := self.db.outcome(tx.id).state) == "open" and time.monotonic() < deadline:
            time.sleep(0.001)
        return "placed" if state in ("planned", "committed") else state

    def end(self, client: str) -> str:
        self.sent[client].result(30)
        return "committed"

    def ask(self, client: str, key: str) -> str:
        question = self.questions[client] = self.threads.submit(self.open[client].get, "t", key)
        try:
            return str(question.result(0.1))
        except TimeoutError:
            return "waits"

    def answer(self, client: str) -> Any:
        return self.questions[client].result(30)

    def get(self, tx: planstep.Transaction, key: str) -> Any:
        return tx.get("t", key)

    def put(self, tx: planstep.Transaction, key: str, value: str) -> str:
        tx.put("t", key, int(value) if value.lstrip("-").isdecimal() else value)
        return "ok"

    def add(self, tx: planstep.Transaction, key: str, n: str) -> str:
        tx.add("t", key, int(n))
        return "ok"

    def scan(self, tx: planstep.Transaction, first: str, last: str) -> str:
        rows = tx.scan("t", begin=first, end=last)
        return " ".join(f"{key}={value}" for key, value in rows) or "nothing"

    def read(self, tx: planstep.Transaction, topic: str, consumer: str) -> str:
        return " ".join(tx.read(topic, consumer).values) or "nothing"

    def write(self, tx: planstep.Transaction, topic: str, value: str) -> str:
        tx.write(topic, value)
        return "ok"

    def commit(self, tx: planstep.Transaction) -> str:
        tx.commit()
        return "committed"

    def rollback(self, tx: planstep.Transaction) -> str:
        tx.rollback()
        return "rolled back"


def converse(script: Path, db: planstep.Engine) -> None:
    lines = script.read_text().splitlines()
    db.create_topic("a", partitions=1, format="utf8")
    db.create_topic("b", partitions=1, format="utf8")
    db.create_table("t", shards=4)
    talk = Conversation(db)
    answers = [
        answer_line(text, talk.say(text)) if asks else text for text, asks in spoken_lines(lines)
    ]
    talk.threads.shutdown()
    compare(script, answers, lines)


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_conversation(script: Path, hosts: int) -> None:
    with planstep.open(":memory:", hosts=hosts) as db:
        converse(script, db)


@pytest.mark.parametrize("script", DELAYED, ids=[path.stem for path in DELAYED])
def test_conversation_with_delays(script: Path, tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", hosts=4) as db:
        converse(script, db)
