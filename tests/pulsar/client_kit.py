"""Runs a client of mode "pulsar" against scripted hosts, as text (../scripted_client.py).

    begin t | send t p0x3 p1x1+2 | ack t p0/s 0-5 7-9 | ack t p0/s ..12 | flush t | commit t | abort t | drop t
    plain p0x1 | plain ack p0/s 0-5

c0 … are coordinators, each numbers its transactions from 0. "send t@v" sends as producer v, otherwise w.
"""

from typing import Any

from scripted_client import ScriptedHosts, batches, partition, partition_name, settings_in

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
from planstep.proxy.pulsar.client import Client

COORDINATORS = [coordinator_tablet(number, 2) for number in range(4)]


def client(coordinators: int = 1, **settings: Any) -> Client:
    return Client(1, PulsarSettings(**settings), COORDINATORS[:coordinators])


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


class Hosts(ScriptedHosts):
    words = ("begin", "send", "ack", "flush", "commit", "abort", "drop", "plain")

    def __init__(self, **settings: Any) -> None:
        super().__init__(client(**settings))
        self.least: dict[int, int] = {}

    def description(self, target: int, message: Any) -> str:
        return description(target, message)

    def ended(self, value: Any) -> str:
        return f"by {value}"

    def value(self, target: int, message: Any) -> Any:
        if isinstance(message, NewTxn):
            number = COORDINATORS.index(target)
            self.least[number] = self.least.get(number, -1) + 1
            return number, self.least[number]
        return self.written(target, message.records) if isinstance(message, Send) else None

    @property
    def awaited(self) -> list[float]:
        return [delay for delay, token in self.timers if self.client.awaits(token)]

    def begin(self, rest: str) -> None:
        tx, *timeout_ms = rest.split()
        self.client.begin(tx.encode(), *map(int, timeout_ms))

    def send(self, rest: str) -> None:
        who, *words = rest.split()
        tx, _, producer = who.partition("@")
        self.refused(self.client.send(tx.encode(), producer or "w", batches(words)))

    def ack(self, rest: str) -> None:
        tx, where, *words = rest.split()
        self.refused(self.client.acknowledge(tx.encode(), *acknowledgement(where, words)))

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


def talk(script: str, **settings: Any) -> Hosts:
    return Hosts(**settings, **settings_in(script)).run(script)


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
