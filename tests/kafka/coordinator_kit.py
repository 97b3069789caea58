"""Runs a coordinator alone: its keys are in a dict, and its shell delivers nothing before a test asks for it.

`Bench` drives one; `restart` keeps the keys only, as a crashed host does.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgpack
from dict_space import DictSpace

from planstep.coordinator.kafka.groups import Groups, pending_of, position_of
from planstep.coordinator.kafka.transactions import Transactions
from planstep.proto.ids import GROUPS, PARTITION, PROXY, TRANSACTIONS, tablet_id
from planstep.proto.kafka.messages import (
    AddOffsets,
    AddPartitions,
    EndTxn,
    InitProducer,
    Join,
    Leave,
    Marked,
    Marker,
    OffsetCommit,
    TxnOffsetCommit,
)
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proto.shell import Answer, Wake

KEY_BYTES_MAX = 510
T = tablet_id(TRANSACTIONS, 0, 0)
G = tablet_id(GROUPS, 0, 0)
CLIENT = tablet_id(PROXY, 0, 0)
P = [tablet_id(PARTITION, 0, n) for n in range(4)]


class Keys(DictSpace):
    """Stores rows. Invariant: each row survives storing and reading unchanged."""

    def get(self, key: bytes) -> Any:
        assert len(key) + 4 <= KEY_BYTES_MAX, "the store would refuse it"
        return super().get(key)

    def put(self, key: bytes, value: Any) -> None:
        assert len(key) + 4 <= KEY_BYTES_MAX, "the store would refuse it"
        assert msgpack.unpackb(msgpack.packb(value), use_list=False) == value, value
        super().put(key, value)

    def append_payload(self, data: bytes) -> int:
        raise AssertionError("coordinators have no payload")


@dataclass
class Sent:
    target: int
    message: Any
    cause: Any
    durable: bool


class FakeShell:
    def __init__(self, settings: KafkaSettings, epoch: int = 1, now_ms: int = 1_000_000) -> None:
        self.settings = settings
        self.epoch, self.hosts = epoch, 1
        self.now_ms = now_ms
        self.on_reserve = False
        self.cause: Any = None
        self.tablet: Any = None
        self.gather = False  # otherwise a message with a short delay would be immediate
        self.gathered: list[Any] = []
        self.sent: list[Sent] = []
        self.timers: list[tuple[float, Any]] = []  # when, what
        self.appends: list[tuple[Any, float]] = []  # for whose sake, which share

    def send(self, target: int, message: Any) -> None:
        self.sent.append(Sent(target, message, self.cause, False))

    def after_durable(self, target: int, message: Any) -> None:
        self.sent.append(Sent(target, message, self.cause, True))

    def soon(self, message: Any) -> None:
        if self.gather:
            self.gathered.append(message)
        else:
            self.tablet.handle(message)

    def later(self, delay_ms: float, message: Any) -> None:
        self.timers.append((self.now_ms + delay_ms, message))

    def appended(self, share: float = 1.0, visible: bool = False) -> None:
        self.appends.append((self.cause, share))

    def decided(self) -> None:
        pass


class Bench:
    """Runs one coordinator: `ask` delivers a message and returns the answer, if there is one yet."""

    def __init__(self, kind: type[Transactions] | type[Groups], **settings: Any) -> None:
        self.kind = kind
        self.settings = replace(KafkaSettings(), **settings)
        self.keys = Keys()
        self.shell = FakeShell(self.settings)
        self.tablet: Any = kind(T if kind is Transactions else G, self.keys, self.shell)
        self.shell.tablet = self.tablet
        self.requests = 0

    def restart(self, begin: bool = True) -> None:
        """Ends the host without notice and starts it again: only the keys are left."""
        stored = msgpack.packb(list(self.keys.rows.items()))
        self.keys.rows = dict(msgpack.unpackb(stored, use_list=False))
        self.shell = FakeShell(self.settings, self.shell.epoch + 1, self.shell.now_ms)
        self.tablet = self.kind(self.tablet.id, self.keys, self.shell)
        self.shell.tablet = self.tablet
        if begin:
            self.tablet.begin()

    def ask(self, message: Any) -> Answer | None:
        self.tablet.handle(message)
        return self.answer(message.request)

    def answer(self, request: int) -> Answer | None:
        messages = [s.message for s in self.shell.sent if isinstance(s.message, Answer)]
        answers = [a for a in messages if a.request == request]
        assert len(answers) <= 1, answers
        return answers[0] if answers else None

    def number(self) -> int:
        self.requests += 1
        return self.requests

    def drain(self, kind: type, target: int | None = None) -> list[Any]:
        """Returns all messages of this kind that were sent, and removes them."""
        hits = [
            s
            for s in self.shell.sent
            if type(s.message) is kind and (target is None or s.target == target)
        ]
        self.shell.sent = [s for s in self.shell.sent if not any(s is hit for hit in hits)]
        return [s.message for s in hits]

    def wait(self, ms: float, only: str | None = None) -> None:
        """Lets time pass: timers due by then wake, in order."""
        until = self.shell.now_ms + ms
        while due := [t for t in self.shell.timers if t[0] <= until and only in (None, t[1].what)]:
            timer = min(due, key=lambda t: t[0])
            self.shell.timers.remove(timer)
            self.shell.now_ms = max(self.shell.now_ms, int(timer[0]))
            self.tablet.handle(timer[1])
        self.shell.now_ms = int(until)


class Coordinator(Bench):
    """Runs a transaction coordinator; answers are (error, value), None while there is none."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(Transactions, **settings)

    def _ask(self, message: Any) -> Any:
        answer = self.ask(message)
        return None if answer is None else (answer.error, answer.value)

    def init(
        self, name: str | None = "a", timeout_ms: int = 60_000, producer: int = -1, epoch: int = -1
    ) -> Any:
        return self._ask(InitProducer(CLIENT, self.number(), name, timeout_ms, producer, epoch))

    def add(self, producer: int, epoch: int, *partitions: int, name: str = "a") -> Any:
        message = AddPartitions(CLIENT, self.number(), name, producer, epoch, partitions or (P[0],))
        return self._ask(message)

    def add_offsets(self, producer: int, epoch: int, name: str = "a") -> Any:
        return self._ask(AddOffsets(CLIENT, self.number(), name, producer, epoch, G))

    def end(
        self, producer: int, epoch: int, commit: bool = True, version: int = 1, name: str = "a"
    ) -> Any:
        message = EndTxn(CLIENT, self.number(), name, producer, epoch, commit, version)
        return self._ask(message)

    def markers(self) -> list[Marker]:
        assert all(s.durable for s in self.shell.sent if isinstance(s.message, Marker))
        targets = [s.target for s in self.shell.sent if isinstance(s.message, Marker)]
        self.targets = targets
        return self.drain(Marker)

    def mark(self, marker: Marker, tablet: int, error: str = "") -> None:
        who = marker.name, marker.producer, marker.epoch
        self.tablet.handle(Marked(tablet, *who, error, marker.number))

    def mark_all(self) -> None:
        """Acknowledges every marker under way."""
        markers = self.markers()
        for marker, tablet in zip(markers, self.targets, strict=True):
            self.mark(marker, tablet)

    def row(self, name: str = "a") -> Any:
        return self.tablet.rows.get(name)

    def unacknowledged(self, name: str = "a") -> tuple[int, ...]:
        """Returns the partitions that have not acknowledged the markers."""
        partitions: tuple[int, ...] = self.tablet.markers.ending[name][2]
        return partitions

    def force(self, name: str = "a", **fields: Any) -> Any:
        """Sets fields of the row directly, to reach states that are otherwise short-lived."""
        row = self.row(name)._replace(**fields)
        self.keys.put(b"t" + name.encode(), tuple(row))
        return row

    def scan(self) -> None:
        self.tablet.handle(Wake("scan"))


class GroupCoordinator(Bench):
    """Runs a group coordinator; answers are the error, "" for none; None while there is no answer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(Groups, **settings)

    def _ask(self, message: Any) -> str | None:
        answer = self.ask(message)
        return None if answer is None else answer.error

    def join(self, member: str, group: str = "g") -> Any:
        answer = self.ask(Join(CLIENT, self.number(), group, member))
        assert answer is not None
        return answer.value if not answer.error else answer.error

    def leave(self, member: str, group: str = "g") -> str | None:
        return self._ask(Leave(CLIENT, self.number(), group, member))

    def commit(
        self, offset: int | None, generation: int = -1, member: str = "", group: str = "g"
    ) -> str | None:
        offsets = ((P[0], offset),)
        number = self.number()
        return self._ask(OffsetCommit(CLIENT, number, group, generation, member, offsets))

    def pend(
        self,
        offset: int,
        *,
        producer: int = 7,
        epoch: int = 0,
        generation: int = -1,
        member: str = "",
        group: str = "g",
        version: int = 1,
        tablet: int = P[0],
    ) -> str | None:
        who = CLIENT, self.number(), "tx", producer, epoch
        offsets = ((tablet, offset),)
        return self._ask(TxnOffsetCommit(*who, group, generation, member, offsets, version))

    def end(
        self,
        commit: bool = True,
        producer: int = 7,
        epoch: int = 0,
        coordinator_epoch: int = 1,
        version: int = 1,
        number: int = 0,
    ) -> str | None:
        marker = Marker(T, "tx", producer, epoch, commit, coordinator_epoch, version, number)
        self.tablet.handle(marker)
        answers = self.drain(Marked, T)
        assert len(answers) <= 1
        for answer in answers:
            assert (answer.tablet, answer.name) == (self.tablet.id, "tx")
            assert (answer.producer, answer.epoch) == (producer, epoch)
        return answers[0].error if answers else None

    def at(self, group: str = "g", tablet: int = P[0], stable: bool = False) -> Any:
        if stable and pending_of(self.keys, group, tablet):
            return "pending"
        return position_of(self.keys, group, tablet)

    def pending(self) -> int:
        by_part, by_producer = self.keys.scan(b"n", b"o"), self.keys.scan(b"q", b"r")
        assert {k[1:] for k, _ in by_part} == {k[9:] + k[1:9] for k, _ in by_producer}
        return len(by_part)


def failing(coordinator: Coordinator, error: str) -> None:
    """Makes the next write of a record to the log fail."""
    log = coordinator.tablet.rows.log

    class Broken:
        def append(self, record: Any, done: Any, refused: str = "") -> None:
            coordinator.tablet.rows.log = log
            done(error, None)

    coordinator.tablet.rows.log = Broken()
