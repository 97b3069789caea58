"""Draws messages of the modes whose clients send requests, and feeds those of mode "pulsar" to a host.

    a message's fields, by their types ─▶ numbers that are mostly unknown, names that no topic may have
                                            └─▶ the tablets of one host: it answers, or ignores; it never stops

Next: decoders.py.
"""

from dataclasses import fields
from random import Random
from typing import Any

from planstep.host.host import Host
from planstep.host.inputs import Deliver, Tick
from planstep.proto.batch import encode_batch
from planstep.proto.ids import PARTITION, PROXY, tablet_id
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.proto.pulsar.messages import (
    CODES,
    AbortTxn,
    AddPartitionToTxn,
    AddSubscriptionToTxn,
    DropPartition,
    Ended,
    EndTxn,
    NewTxn,
    Seek,
    Send,
    SwitchLog,
)
from planstep.proto.pulsar.settings import ERRORS
from planstep.proto.shell import Answer
from planstep.store.memory_store import MemoryStore

NAMES = "c", "a/b", "n\0l", "", "é", "n" * 401
NUMBERS = 0, 1, 2, 7, 1 << 31, 1 << 62
"""Drawn for fields of messages: names that no topic may have, and numbers that are mostly unknown there."""


def drawn_message(random: Random, kind: type) -> Any:
    """Makes a message with odd values of the right types, by its fields' annotations."""
    return kind(**{field.name: _field(random, _annotation(field.type)) for field in fields(kind)})


def _annotation(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and "[" not in str(kind) else str(kind)


def _field(random: Random, annotation: str) -> Any:
    if "None" in annotation and random.random() < 0.3:
        return None
    if annotation.startswith("tuple[tuple[int, int]"):
        return tuple(
            (random.choice(NUMBERS), random.choice(NUMBERS)) for _ in range(random.randrange(3))
        )
    if annotation.startswith("tuple[tuple[int, str]"):
        return tuple(
            (random.choice(NUMBERS), random.choice(NAMES)) for _ in range(random.randrange(3))
        )
    if annotation.startswith("tuple[int"):
        return tuple(random.choice(NUMBERS) for _ in range(random.randrange(3)))
    kind = annotation.split(" | ")[0]
    if kind == "bool":
        return random.random() < 0.5
    if kind == "int":
        return random.choice(NUMBERS)
    if kind == "bytes":
        return random.choice([b"", b"x" * 20, encode_batch([b"v"], None, None, 1_700_000_000_000)])
    return random.choice(NAMES)


_COORDINATOR = coordinator_tablet(0, 1)
_PARTITION = tablet_id(PARTITION, 0, 1)
_PARTITIONS = [_PARTITION, tablet_id(PARTITION, 0, 9)]
"""A topic's partition, and one that no topic has."""
_PROXY = tablet_id(PROXY, 0, 1)
_OF_COORDINATOR = NewTxn, AddPartitionToTxn, AddSubscriptionToTxn, EndTxn, AbortTxn, Ended
_KINDS = [kind for kind in CODES.values() if kind is not DropPartition]


class PulsarHost:
    """A host of mode "pulsar" with one coordinator and one partition, which has a subscription "c"."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._host = Host(0, MemoryStore(), 1, mode="pulsar")
        self._now = 1
        self._run(Tick())
        self._run(
            Deliver(_PARTITION, Seek(_PROXY, 1, "c", 0, True)),
            Deliver(_PARTITION, self._send(2)),
            Deliver(_COORDINATOR, NewTxn(_PROXY, 3, 60_000)),
        )

    def _send(self, request: int) -> Send:
        data = encode_batch([b"v"], None, None, 1_700_000_000_000)
        return Send(_PROXY, request, -1, -1, "p", request, data, 1)

    def _run(self, *inputs: Any) -> list[Answer]:
        """Runs a turn over the inputs, and turns over what they leave to do at once; returns the answers."""
        answers: list[Answer] = []
        waiting = list(inputs)
        while waiting:
            self._now += 1
            released = self._host.run(waiting, self._now)
            for _, error in released.failures:
                raise error
            answers += [answer for _, answer, _ in released.answers]
            waiting = [delayed.deliver for delayed in released.delayed if not delayed.delay_ms]
        return answers

    def feed(self, random: Random) -> str:
        """Delivers one odd message; returns what went wrong, or ""."""
        kind = random.choice(_KINDS)
        message = drawn_message(random, kind)
        for name in ("client", "source"):
            if hasattr(message, name):
                setattr(message, name, _PROXY)
        way = random.randrange(4)
        if hasattr(message, "most") and way:
            known = (0, random.randrange(3)) if way > 1 else (-1, -1)
            message.most, message.least = known
        if hasattr(message, "low_water_mark"):  # no live one is below it
            message.most, message.least = abs(message.most), abs(message.least)
            message.low_water_mark = random.randrange(-1, message.least)
        if kind is AddPartitionToTxn:
            message.partitions = tuple(random.sample(_PARTITIONS, random.randrange(3)))
        if kind is AddSubscriptionToTxn:
            message.subscriptions = tuple((p, random.choice(NAMES)) for p in _PARTITIONS)
        if kind is Send:  # who sends counts the records of its batch
            message.records = 1
        target = _COORDINATOR if kind in _OF_COORDINATOR else _PARTITION
        if kind is SwitchLog and random.random() < 0.5:
            target = _COORDINATOR
        try:
            answers = self._run(Deliver(target, message))
        except BaseException as error:
            self._start()  # it may have stopped
            return f"{message!r:.300}: {type(error).__name__}: {error!s:.150}"
        unknown = [answer for answer in answers if answer.error and answer.error not in ERRORS]
        return f"{message!r:.300}: {unknown}" if unknown else ""

    def ends(self) -> str:
        """Returns what is wrong with the host after all, or ""."""
        answers = self._run(Deliver(_PARTITION, self._send(1 << 40)))
        return "" if [answer.error for answer in answers] == [""] else f"afterwards {answers}"
