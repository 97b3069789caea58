"""Runs a client against a scripted broker, as text: actions, requests sent (->), ends of calls (==).

    talk(script): every line that is no "->" and no "==" is done, and what comes of it is written below it;
    the whole has to be the script again.

    with max_in_flight=1      settings of the client
    init n | begin t | send t p0x3 p1x1+2 | commit t g:p0@5 | abort t | drop | plain p0x1 | plain init
    ok WHAT | ERROR WHAT      answers the oldest request that begins so; "first" and "last" choose, too
    late WHAT                 its request timeout
    wait 100                  every timer of so many ms that is still awaited

p0 … are partitions of host 0, q0 … of host 1, "x3+2" is a batch of three records and one of two.
A Produce of several partitions is one request with one message each: one line each.
"""

import re
from collections.abc import Callable
from typing import Any

from planstep.proto.ids import GROUPS, PARTITION, TRANSACTIONS, tablet_id
from planstep.proto.kafka.messages import (
    AddOffsets,
    AddPartitions,
    EndTxn,
    InitProducer,
    Produce,
    TxnOffsetCommit,
)
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proto.shell import Answer
from planstep.proxy.kafka.client import Client

COORDINATOR = tablet_id(TRANSACTIONS, 0, 0)


def partition(name: str) -> int:
    return tablet_id(PARTITION, "pqrs".index(name[0]), int(name[1:]))


def partition_name(tablet: int) -> str:
    return f"{'pqrs'[tablet >> 20 & 0xFF]}{tablet & 0xFFFFF}"


def group(name: str) -> int:
    return tablet_id(GROUPS, 0, ord(name[0]))


def client(**settings: Any) -> Client:
    return Client(1, KafkaSettings(**settings), lambda _: COORDINATOR, group)


def batches(words: list[str]) -> dict[int, list[tuple[bytes, int]]]:
    result: dict[int, list[tuple[bytes, int]]] = {}
    for word in words:
        name, _, counts = word.partition("x")
        for count in counts.split("+"):
            result.setdefault(partition(name), []).append((b"d" * 10, int(count)))
    return result


def offsets(words: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for word in words:
        name, at = word.split(":")
        tablet, offset = at.split("@")
        result[name] = (4, "m1", ((partition(tablet), int(offset)),))
    return result


def description(target: int, message: Any) -> str:
    kind = type(message).__name__
    if isinstance(message, InitProducer):
        again = f" {message.producer}/{message.epoch}" if message.producer >= 0 else ""
        return f"{kind} {message.name or 'plain'}{again}"
    by = f"{kind} {message.producer}/{message.epoch}"
    if isinstance(message, AddPartitions):
        return f"{by} {' '.join(map(partition_name, message.partitions))}"
    if isinstance(message, AddOffsets):
        return f"{by} {chr(message.coordinator & 0xFFFFF)}"
    if isinstance(message, EndTxn):
        return f"{by} {'commit' if message.commit else 'abort'}"
    if isinstance(message, Produce):
        to, of = partition_name(target), f"{message.producer}/{message.epoch}"
        return f"{kind} {to} {of} seq {message.sequence} x{message.records}"
    assert isinstance(message, TxnOffsetCommit)
    at = " ".join(f"{partition_name(t)}@{offset}" for t, offset in message.offsets)
    return f"{by} {message.group} {at} by {message.member} of {message.generation}"


class Broker:
    """Answers as the script says; epochs rise with each InitProducer, and with EndTxn in version 2."""

    def __init__(self, **settings: Any) -> None:
        self.client = client(**settings)
        self.requests: list[tuple[str, int, Any]] = []
        self.timers: list[tuple[float, int]] = []
        self.epoch = -1
        self.logs: dict[int, int] = {}
        self.lines: list[str] = []
        self.calls = 0
        self.handle = 0

    def collect(self) -> None:
        out, timers, ended = self.client.take()
        for target, message, _ in out:
            self.requests.append((description(target, message), target, message))
            self.lines.append("-> " + self.requests[-1][0])
        self.timers += timers
        for end in ended:
            value = end.value
            if isinstance(value, tuple):
                value = f"epoch {value[0]} {self.ranges(value[1])}"
            elif isinstance(value, dict):
                value = self.ranges(value)
            elif value is not None:
                self.handle = value
                value = f"handle {value}"
            self.lines.append(" ".join(filter(None, ("==", end.error or "ok", value))).strip())

    @staticmethod
    def ranges(value: dict[int, tuple[int, int]]) -> str:
        return " ".join(f"{partition_name(t)} {a}-{b}" for t, (a, b) in value.items())

    def find(self, what: str) -> tuple[str, int, Any]:
        way, _, rest = what.partition(" ")
        want = rest if way in ("first", "last") else what
        hits = [item for item in self.requests if item[0].startswith(want)]
        assert hits, f"nothing like {want!r} was asked: {self.requests}"
        return hits[-1 if way == "last" else 0]

    def value(self, target: int, message: Any) -> Any:
        if isinstance(message, InitProducer):
            self.epoch += 1
            return 7, self.epoch
        if isinstance(message, EndTxn):
            if message.version == 2:
                self.epoch = message.epoch + 1
            return message.producer, self.epoch
        if isinstance(message, Produce):
            self.logs[target] = self.logs.get(target, 0) + message.records
            return self.logs[target] - message.records
        return None

    def answer(self, error: str, what: str) -> None:
        item = self.find(what)
        self.requests.remove(item)
        _, target, message = item
        value = None if error else self.value(target, message)
        self.client.handle(Answer(message.request, target, error, value))

    def do(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        self.calls += 1
        if word in COMMANDS:
            COMMANDS[word](self, rest)
        else:
            assert word == "ok" or re.fullmatch("[A-Z_]+", word), line
            self.answer("" if word == "ok" else word, rest)
        self.collect()

    @property
    def call(self) -> bytes:
        return b"%d" % self.calls

    def init(self, rest: str) -> None:
        self.client.init(self.call, rest)

    def begin(self, rest: str) -> None:
        error = self.client.begin(self.handle, rest.encode())
        self.lines += [f"== {error}"] if error else []

    def send(self, rest: str) -> None:
        tx, *words = rest.split()
        self.client.send(self.handle, tx.encode(), batches(words))

    def commit(self, rest: str) -> None:
        tx, *words = rest.split()
        self.client.commit(self.call, self.handle, tx.encode(), offsets(words))

    def abort(self, rest: str) -> None:
        self.client.abort(self.call, self.handle, rest.split()[0].encode())

    def drop(self, rest: str) -> None:
        self.client.drop(self.handle)

    def plain(self, rest: str) -> None:
        if rest == "init":
            self.client.init(self.call, None)
        else:
            self.client.plain(self.call, batches(rest.split()))

    def late(self, rest: str) -> None:
        self.client.wake(self.find(rest)[2].request)

    def wait(self, rest: str) -> None:
        awaits = self.client.awaits
        due = [token for delay, token in self.timers if delay == float(rest) and awaits(token)]
        assert due, f"no timer of {rest} ms: {self.timers}"
        self.timers = [item for item in self.timers if item[1] not in due]
        for token in due:
            self.client.wake(token)


COMMANDS: dict[str, Callable[[Broker, str], None]] = {
    "init": Broker.init,
    "begin": Broker.begin,
    "send": Broker.send,
    "commit": Broker.commit,
    "abort": Broker.abort,
    "drop": Broker.drop,
    "plain": Broker.plain,
    "late": Broker.late,
    "wait": Broker.wait,
}


def talk(script: str, **settings: Any) -> Broker:
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    settings_lines = [line for line in lines if line.startswith("with ")]
    lines = [line for line in lines if line not in settings_lines]
    for name, value in (word.split("=") for line in settings_lines for word in line.split()[1:]):
        settings[name] = int(value)
    broker = Broker(**settings)
    for line in lines:
        if not line.startswith(("->", "==")):
            broker.lines.append(line)
            broker.do(line)
    assert broker.lines == lines
    return broker


OPEN = """\
init n
-> InitProducer n
ok Init
== ok handle 1
begin t
"""


def in_transaction(script: str, **settings: Any) -> Broker:
    """Runs a script with a producer at epoch 0 and an open transaction t."""
    return talk(OPEN + script, **settings)


ADDED = """\
send t p0x1
-> AddPartitions 7/0 p0
ok Add
-> Produce p0 7/0 seq 0 x1
"""


def with_batch(script: str, **settings: Any) -> Broker:
    """Runs a script with one batch of one record under way to p0, in version 1."""
    return in_transaction(ADDED + script, **settings)
