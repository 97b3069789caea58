"""Anomalies told as conversations: a script of several clients, and what each was answered.

    T1 begin            a transaction of client T1           T1 get k / put k v / add k n / scan p
    T1 read a c         consumer c reads topic a             T1 write a v      T1 commit / rollback
    W writer a P strict | dedupe      a plain writer of producer P on topic a      W send v 5
    show k | topic a | position a c                           what anybody sees now

Each line's answer stands behind "->" in the file. One golden per anomaly; all run on one host and on
four. To write a new one: the script without answers, then PLANSTEP_GOLDEN=write, then read it.
"""

import os
from pathlib import Path
from typing import Any

import pytest

import planstep

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


class Conversation:
    def __init__(self, db: planstep.Engine) -> None:
        self.db = db
        self.open: dict[str, planstep.Transaction] = {}
        self.writers: dict[str, planstep.Writer] = {}

    def say(self, line: str) -> str:
        words = line.split()
        if words[0] in ("show", "topic", "position"):
            return self.look(*words)
        client, verb, *rest = words
        if verb == "begin":
            self.open[client] = self.db.transaction()
            return "ok"
        if verb == "writer":
            topic, producer, how = rest
            self.writers[client] = self.db.topic(topic).writer(
                producer, dedupe=how == "dedupe", linger_records=1
            )
            return "ok"
        try:
            if verb == "send":
                return self.send(client, *rest)
            return str(getattr(self, verb)(self.open[client], *rest))
        except planstep.Conflict as error:
            what = error.consumer or error.producer or error.key or "range"
            return f"CONFLICT on {error.name} {what}"

    def send(self, client: str, value: str, number: str) -> str:
        self.writers[client].write(value, sequence=int(number))
        return "sent"

    def look(self, what: str, name: str, consumer: str = "") -> str:
        if what == "show":
            return str(self.db.table("t").get(name))
        if what == "topic":
            return " ".join(record.value for record in self.db.topic(name).read()) or "empty"
        return str(self.db.topic(name).position(consumer)[0])

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


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_conversation(script: Path, hosts: int) -> None:
    lines = script.read_text().splitlines()
    with planstep.open(":memory:", hosts=hosts) as db:
        db.create_topic("a", partitions=1, format="utf8")
        db.create_topic("b", partitions=1, format="utf8")
        db.create_table("t", shards=4)
        talk = Conversation(db)
        told = []
        for line in lines:
            said = line.split(" -> ")[0].rstrip()
            if not said or said.startswith("#"):
                told.append(said)
            else:
                told.append(f"{said:24} -> {talk.say(said)}")
    if os.environ.get("PLANSTEP_GOLDEN") == "write":
        script.write_text("\n".join(told) + "\n")
    assert told == lines
