"""Runs a client of mode "pulsar" against scripted hosts, as text: actions, requests sent (->), ends of calls (==).

    talk(script): every line that is no "->" and no "==" is done, and what comes of it is written below it;
    the whole has to be the script again.

    with coordinators=2            settings of the client
    begin t | send t p0x3 p1x1+2 | ack t p0/s 0-5 7-9 | ack t p0/s ..12 | flush t | commit t | abort t | drop t
    plain p0x1 | plain ack p0/s 0-5
    ok WHAT | ERROR WHAT           answers the oldest request that begins so; "first" and "last" choose, too
    late WHAT                      the time-out of its request
    wait 100                       every timer of so many ms that is still awaited

p0 … are partitions of host 0, q0 … of host 1, c0 … coordinators; "x3+2" is a batch of three records and one of two.
"send t@v" sends as producer v, otherwise w. A coordinator numbers its transactions from 0.
"""

import re
from collections.abc import Callable
from typing import Any

from planstep.proto.ids import PARTITION, tablet_id
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.proto.pulsar.messages import (
    Ack,
    AddPartitionToTxn,
    AddSubscriptionToTxn,
    EndTxn,
    NewTxn,
    Send,
    TxnID,
)
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.proto.shell import Answer
from planstep.proxy.pulsar.client import Client

COORDINATORS = [coordinator_tablet(number, 2) for number in range(4)]


def partition(name: str) -> int:
    return tablet_id(PARTITION, "pq".index(name[0]), int(name[1:]))


def partition_name(tablet: int) -> str:
    return f"{'pq'[tablet >> 20 & 0xFF]}{tablet & 0xFFFFF}"


def client(coordinators: int = 1, **settings: Any) -> Client:
    return Client(1, PulsarSettings(**settings), COORDINATORS[:coordinators])


def batches(words: list[str]) -> dict[int, list[tuple[bytes, int]]]:
    result: dict[int, list[tuple[bytes, int]]] = {}
    for word in words:
        name, _, counts = word.partition("x")
        for count in counts.split("+"):
            result.setdefault(partition(name), []).append((b"d" * 10, int(count)))
    return result


def acknowledgement(where: str, words: list[str]) -> tuple[int, str, Any, int | None]:
    name, _, subscription = where.partition("/")
    if words[0].startswith(".."):
        return partition(name), subscription, (), int(words[0][2:])
    ranges = tuple((int(a), int(b)) for a, b in (word.split("-") for word in words))
    return partition(name), subscription, ranges, None


def description(target: int, message: Any) -> str:
    if isinstance(message, NewTxn):
        return f"NewTxn c{COORDINATORS.index(target)} {message.timeout_ms} ms"
    id = TxnID(message.most, message.least)
    of = str(id) if message.most >= 0 else "plain"
    if isinstance(message, Send):
        number = f"{message.producer}:{message.sequence}"
        return f"Send {partition_name(target)} {of} {number} x{message.records}"
    if isinstance(message, Ack):
        what = " ".join(f"{a}-{b}" for a, b in message.ranges)
        if message.position is not None:
            what = f"..{message.position}"
        return f"Ack {partition_name(target)}/{message.subscription} {of} {what}"
    assert COORDINATORS.index(target) == message.most
    if isinstance(message, AddPartitionToTxn):
        return f"AddPartition {of} {' '.join(map(partition_name, message.partitions))}"
    if isinstance(message, AddSubscriptionToTxn):
        names = (f"{partition_name(t)}/{name}" for t, name in message.subscriptions)
        return f"AddSubscription {of} {' '.join(names)}"
    assert isinstance(message, EndTxn)
    return f"EndTxn {of} {'commit' if message.commit else 'abort'}"


class Hosts:
    """Answers as the script says."""

    def __init__(self, **settings: Any) -> None:
        self.client = client(**settings)
        self.requests: list[tuple[str, int, Any]] = []
        self.timers: list[tuple[float, int]] = []
        self.least: dict[int, int] = {}
        self.logs: dict[int, int] = {}
        self.lines: list[str] = []
        self.calls = 0

    def collect(self) -> None:
        out, timers, ended = self.client.take()
        for target, message, _ in out:
            self.requests.append((description(target, message), target, message))
            self.lines.append("-> " + self.requests[-1][0])
        self.timers += timers
        for end in ended:
            value = end.value
            if isinstance(value, dict):
                value = " ".join(f"{partition_name(t)} {a}-{b}" for t, (a, b) in value.items())
            elif value is not None:
                value = f"by {value}"
            self.lines.append(" ".join(filter(None, ("==", end.error or "ok", value))))

    def find(self, what: str) -> tuple[str, int, Any]:
        way, _, rest = what.partition(" ")
        want = rest if way in ("first", "last") else what
        hits = [item for item in self.requests if item[0].startswith(want)]
        assert hits, f"nothing like {want!r} was asked: {self.requests}"
        return hits[-1 if way == "last" else 0]

    def value(self, target: int, message: Any) -> Any:
        if isinstance(message, NewTxn):
            number = COORDINATORS.index(target)
            self.least[number] = self.least.get(number, -1) + 1
            return number, self.least[number]
        if isinstance(message, Send):
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
            assert word == "ok" or re.fullmatch("[A-Z][A-Za-z]+", word), line
            self.answer("" if word == "ok" else word, rest)
        self.collect()

    @property
    def call(self) -> bytes:
        return b"%d" % self.calls

    @property
    def awaited(self) -> list[float]:
        return [delay for delay, token in self.timers if self.client.awaits(token)]

    def begin(self, rest: str) -> None:
        tx, *timeout_ms = rest.split()
        self.client.begin(tx.encode(), *map(int, timeout_ms))

    def send(self, rest: str) -> None:
        who, *words = rest.split()
        tx, _, producer = who.partition("@")
        error = self.client.send(tx.encode(), producer or "w", batches(words))
        self.lines += [f"== {error}"] if error else []

    def ack(self, rest: str) -> None:
        tx, where, *words = rest.split()
        error = self.client.acknowledge(tx.encode(), *acknowledgement(where, words))
        self.lines += [f"== {error}"] if error else []

    def flush(self, rest: str) -> None:
        self.client.flush(self.call, rest.encode())

    def commit(self, rest: str) -> None:
        self.client.commit(self.call, rest.encode())

    def abort(self, rest: str) -> None:
        self.client.abort(self.call, rest.encode())

    def drop(self, rest: str) -> None:
        self.client.drop(rest.encode())

    def plain(self, rest: str) -> None:
        words = rest.split()
        if words[0] == "ack":
            self.client.plain_acknowledge(self.call, *acknowledgement(words[1], words[2:]))
        else:
            self.client.plain(self.call, "w", batches(words))

    def late(self, rest: str) -> None:
        self.client.wake(self.find(rest)[2].request)

    def wait(self, rest: str) -> None:
        due = [t for delay, t in self.timers if delay == float(rest) and self.client.awaits(t)]
        assert due, f"no timer of {rest} ms: {self.timers}"
        self.timers = [item for item in self.timers if item[1] not in due]
        for token in due:
            self.client.wake(token)


COMMANDS: dict[str, Callable[[Hosts, str], None]] = {
    "begin": Hosts.begin,
    "send": Hosts.send,
    "ack": Hosts.ack,
    "flush": Hosts.flush,
    "commit": Hosts.commit,
    "abort": Hosts.abort,
    "drop": Hosts.drop,
    "plain": Hosts.plain,
    "late": Hosts.late,
    "wait": Hosts.wait,
}


def talk(script: str, **settings: Any) -> Hosts:
    lines = [line.strip() for line in script.splitlines() if line.strip()]
    settings_lines = [line for line in lines if line.startswith("with ")]
    lines = [line for line in lines if line not in settings_lines]
    for name, value in (word.split("=") for line in settings_lines for word in line.split()[1:]):
        settings[name] = int(value)
    hosts = Hosts(**settings)
    for line in lines:
        if not line.startswith(("->", "==")):
            hosts.lines.append(line)
            hosts.do(line)
    assert hosts.lines == lines
    return hosts


OPEN = """\
begin t
-> NewTxn c0 60000 ms
ok NewTxn
"""


def in_transaction(script: str, **settings: Any) -> Hosts:
    """Runs a script with an open transaction t, of id (0,0)."""
    return talk(OPEN + script, **settings)


SENT = """\
send t p0x1
-> AddPartition (0,0) p0
ok Add
-> Send p0 (0,0) w:0 x1
"""


def with_batch(script: str, **settings: Any) -> Hosts:
    """Runs a script with one batch of one record under way to p0."""
    return in_transaction(SENT + script, **settings)
