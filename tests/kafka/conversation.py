"""Runs a client of mode "kafka" against a scripted broker, as text (../scripted_client.py).

    init n | begin t | send t p0x3 p1x1+2 | commit t g:p0@5 | abort t | drop | plain p0x1 | plain init

A Produce of several partitions is one request with one message each: one line each.
"""

from typing import Any

from scripted_client import ScriptedHosts, batches, partition, partition_name, ranges, settings_in

from planstep.proto.ids import GROUPS, TRANSACTIONS, tablet_id
from planstep.proto.kafka.messages import (
    AddOffsets,
    AddPartitions,
    EndTxn,
    InitProducer,
    Produce,
    TxnOffsetCommit,
)
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proxy.kafka.client import Client

COORDINATOR = tablet_id(TRANSACTIONS, 0, 0)


def group(name: str) -> int:
    return tablet_id(GROUPS, 0, ord(name[0]))


def client(**settings: Any) -> Client:
    return Client(1, KafkaSettings(**settings), lambda _: COORDINATOR, group)


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


class Broker(ScriptedHosts):
    """Answers as the script says; epochs rise with each InitProducer, and with EndTxn in version 2."""

    words = ("init", "begin", "send", "commit", "abort", "drop", "plain")
    errors = "[A-Z_]+"

    def __init__(self, **settings: Any) -> None:
        super().__init__(client(**settings))
        self.epoch = -1
        self.handle = 0

    def description(self, target: int, message: Any) -> str:
        return description(target, message)

    def ended(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"epoch {value[0]} {ranges(value[1])}"
        self.handle = value
        return f"handle {value}"

    def value(self, target: int, message: Any) -> Any:
        if isinstance(message, InitProducer):
            self.epoch += 1
            return 7, self.epoch
        if isinstance(message, EndTxn):
            if message.version == 2:
                self.epoch = message.epoch + 1
            return message.producer, self.epoch
        return self.written(target, message.records) if isinstance(message, Produce) else None

    def init(self, rest: str) -> None:
        self.client.init(self.call, rest)

    def begin(self, rest: str) -> None:
        self.refused(self.client.begin(self.handle, rest.encode()))

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


def talk(script: str, **settings: Any) -> Broker:
    return Broker(**settings, **settings_in(script)).run(script)


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
