"""Runs scripts that are the same for each mode; sides.py has the differences between modes.

    with hosts=4 retry_backoff_ms=5     how the store is opened: hosts, placement, what a mode's settings have
    T begin w1          a transaction of client T; in mode kafka under the transactional id w1
    T read a c          consumer c reads topic a             T write a/1 v       T commit / rollback / outcome
    T get k / put k v   rows of table t                      T submit / end      commits: asks, and waits
    R reader a c        a reader of consumer c               R next / commit / close      its batch
    write a/0 v         a record by itself                   write b v           topic b: one partition
    topic a/0 | topic a         records with offsets (v@0); values of all partitions
    snapshot a | position a c   all partitions in one snapshot; where consumer c goes on
    raw a/0             the stored log: w1:v is written by transactional id w1, commit and abort are markers
    outcomes            the number of committed transactions, and of all others that ended
    hold ends a/1       holds messages that end a transaction at that partition: markers; plans and votes
    hold markers        holds markers for all partitions
    hold commit         holds the next request to commit: EndTxn of the client; a proposal of the proxy
    hold batch          holds written records: the client's Produce or Send; the proxy's first proposal
    hold answer         holds the first answer to the next request to commit: it is asked for again
    abort open          an operator aborts the transactions that are open
    consumer a c individual    creates a consumer of that kind
    let go              lets held messages go, and names their kinds
    try LINE | answer   runs LINE in the background, "waits" if it has no answer soon; its answer. An expected
                        answer is waited for on any machine; an expected wait takes WAITS_SECONDS
    kill -9             kills the process that ran the lines so far; the store is opened again
    reopen              closes the store and opens it again

A part of a script that ends with "kill -9" runs in a process of its own, whose program is this module.

Next: test_modes.py.
"""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any

import planstep
from planstep.errors import PlanstepError

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
from scripted import answer_line, refusal, spoken_lines
from sides import SIDES

WAITS_SECONDS = 0.15
ANSWER_SECONDS = 30
NUMBERS = {name for side in SIDES.values() for name in side.numbers}
"""Settings that only some modes have: a script names them, and the other modes ignore them."""


def opened(lines: list[str], side: str, hosts: int, path: Path | str) -> planstep.Engine:
    settings: dict[str, Any] = {"hosts": hosts, "placement": "separate"}
    own: dict[str, int] = {}
    of = SIDES[side]
    for line in lines:
        if line.startswith("with "):
            for name, value in (word.split("=") for word in line.split()[1:]):
                if name not in NUMBERS:
                    settings[name] = int(value) if value.isdecimal() else value
                elif name in of.numbers:
                    own[name] = int(value)
    return planstep.open(path, mode=of.mode, **of.settings(own), **settings)


def create(db: planstep.Engine, side: str) -> None:
    db.create_topic("a", partitions=2, format="utf8")
    db.create_topic("b", partitions=1, format="utf8")
    if SIDES[side].has_tables:
        db.create_table("t", shards=4)


class Conversation:
    def __init__(self, db: planstep.Engine, side: str) -> None:
        self.db = db
        self.side = SIDES[side](db)
        self.open: dict[str, planstep.Transaction] = {}
        self.readers: dict[str, planstep.Reader] = {}
        self.sent: dict[str, Future[planstep.Commit]] = {}
        self.threads = ThreadPoolExecutor(4)
        self.tried: Future[str] | None = None

    def say(self, line: str, known: list[str] | None) -> str:
        """Runs a line and returns its answer; a tried line is waited for unless `known` expects it to wait."""
        words = line.split()
        self.side.settle()
        if words[0] == "try":
            self.tried = self.threads.submit(self.answer, words[1:])
            waits = known is None or answer_line(line, "waits") in known
            try:
                return self.tried.result(WAITS_SECONDS if waits else ANSWER_SECONDS)
            except TimeoutError:
                return "waits"
        if words == ["answer"]:
            assert self.tried is not None
            return self.tried.result(ANSWER_SECONDS)
        return self.answer(words)

    def answer(self, words: list[str]) -> str:
        who, *rest = words
        if who in self.readers and who not in self.open and rest[0] not in ("reader", "next"):
            return "no batch"
        try:
            if len(words) > 1 and who[0].isupper():
                return str(getattr(self, "client_" + rest[0])(who, *rest[1:]))
            return str(getattr(self, who)(*rest))
        except PlanstepError as error:
            return refusal(error)

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()
        self.threads.shutdown()

    # held messages ---------------------------------------------------------------------------

    def hold(self, what: str, where: str = "") -> str:
        if what in ("markers", "answer"):
            return str(getattr(self.side, "hold_" + what)())
        if what == "ends":
            self.side.hold_ends(self.tablet(where))
        elif what == "commit":
            self.side.hold_commit()
        else:
            self.side.hold_batch()
        return "ok"

    def abort(self, _open: str) -> str:
        count = self.side.abort_open()
        return f"{count} aborted" if count else "nothing is open"

    def consumer(self, topic: str, name: str, kind: str) -> str:
        self.db.topic(topic).create_consumer(name, kind=kind)
        return "ok"

    def let(self, _go: str) -> str:
        """Lets held messages go, and names their kinds."""
        return " ".join(sorted(set(self.side.let_go()))) or "nothing was held"

    # commands without a client ---------------------------------------------------------------

    def tablet(self, where: str) -> int:
        topic, _, number = where.partition("/")
        return int(self.side.runtime.names.topics[topic].partitions[int(number or 0)])

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
        return " ".join(self.side.stored(self.tablet(where))) or "nothing"

    def outcomes(self) -> str:
        turns = self.side.runtime.turns
        return f"{turns.committed} committed, {turns.conflicts} not"

    # commands of clients ---------------------------------------------------------------------

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
        self.side.submitted(tx.id)
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


def converse(
    lines: list[str], side: str, hosts: int, path: Path | str, known: list[str] | None = None
) -> list[str]:
    """Returns the answers to a script's lines; a part that ends with a kill runs in a process of its own.

    `known`: the expected answers, if there are any.
    """
    answers: list[str] = []
    at = 0
    if "kill -9" in lines:
        at = lines.index("kill -9") + 1
        command = [sys.executable, __file__, side, str(hosts), str(path)]
        told = json.dumps([lines[:at], known])
        done = subprocess.run(command, input=told, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        answers = [*done.stdout.splitlines(), answer_line("kill -9", "reopened")]
    talk: Conversation | None = None
    db = opened(lines, side, hosts, path)
    try:
        if not at:
            create(db, side)
        talk = Conversation(db, side)
        for text, asks in spoken_lines(lines[at:]):
            if text == "reopen":
                talk.close()
                db.close()
                db = opened(lines, side, hosts, path)
                talk = Conversation(db, side)
                answers.append(answer_line(text, "ok"))
            elif not text.startswith("with "):
                answers.append(answer_line(text, talk.say(text, known)) if asks else text)
    finally:
        if talk is not None:
            talk.close()
        db.close()
    return answers


def main() -> None:
    """Runs the part of a script that ends with the death of its process."""
    side, hosts, path = sys.argv[1:]
    lines, known = json.load(sys.stdin)
    db = opened(lines, side, int(hosts), path)
    create(db, side)
    talk = Conversation(db, side)
    for text, asks in spoken_lines(lines):
        if text == "kill -9":
            os.kill(os.getpid(), signal.SIGKILL)
        if not text.startswith("with "):
            print(answer_line(text, talk.say(text, known)) if asks else text, flush=True)


if __name__ == "__main__":
    main()
