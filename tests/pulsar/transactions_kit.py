"""Runs a transaction coordinator of mode "pulsar" alone; participants answer when a test says so.

After each message replaying the log must give the rows.
"""

import random
from dataclasses import replace
from typing import Any

import msgpack
from coordinator_kit import CLIENT, FakeShell, Keys

from planstep.coordinator.pulsar.invariants import live_rows, violations
from planstep.coordinator.pulsar.transactions import Transactions
from planstep.proto.ids import PARTITION, tablet_id
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.proto.pulsar.messages import (
    AddPartitionToTxn,
    AddSubscriptionToTxn,
    Ended,
    EndTxn,
    EndTxnOnPartition,
    EndTxnOnSubscription,
    NewTxn,
    SwitchLog,
)
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.proto.shell import Answer

P = [tablet_id(PARTITION, 0, n) for n in range(4)]


class Coordinator:
    """Requests return (error, value), None while there is no answer."""

    def __init__(self, number: int = 0, **settings: Any) -> None:
        self.settings = replace(PulsarSettings(), **settings)
        self.settings.check()
        self.tablet_id = coordinator_tablet(number, 1)
        self.keys = Keys()
        self.requests = 0
        self._start(1, 1_000_000)

    def _start(self, epoch: int, now_ms: int) -> None:
        self.shell: Any = FakeShell(self.settings, epoch, now_ms)  # type: ignore[arg-type]
        self.tablet = self.shell.tablet = Transactions(self.tablet_id, self.keys, self.shell)
        self.tablet.begin()

    def restart(self, **settings: Any) -> None:
        """Ends the host without notice and starts it again: only the keys are left."""
        self.settings = replace(self.settings, **settings)
        stored = msgpack.packb(list(self.keys.rows.items()))
        self.keys.rows = dict(msgpack.unpackb(stored, use_list=False))
        self._start(self.shell.epoch + 1, self.shell.now_ms)

    def handle(self, message: Any) -> None:
        self.tablet.handle(message)
        self.check()

    def check(self) -> None:
        assert violations(self.keys) == []

    def _ask(self, message: Any) -> tuple[str, Any] | None:
        self.handle(message)
        return self.answer(message.request)

    def answer(self, request: int | None = None) -> tuple[str, Any] | None:
        """Returns the answer to a request, the last one if None."""
        request = self.requests if request is None else request
        answers = [s.message for s in self.shell.sent if type(s.message) is Answer]
        hits = [(a.error, a.value) for a in answers if a.request == request]
        assert len(hits) <= 1, hits
        return hits[0] if hits else None

    def _number(self) -> int:
        self.requests += 1
        return self.requests

    def new(self, timeout_ms: int = 60_000) -> Any:
        return self._ask(NewTxn(CLIENT, self._number(), timeout_ms))

    def open(self, *partitions: int, timeout_ms: int = 60_000) -> int:
        """Opens a transaction with these partitions; returns its number."""
        error, (_, least) = self.new(timeout_ms)
        assert not error
        if partitions:
            assert self.add(least, *partitions) == ("", None)
        return int(least)

    def add(self, least: int, *partitions: int) -> Any:
        return self._ask(
            AddPartitionToTxn(CLIENT, self._number(), self.tablet.number, least, partitions)
        )

    def subscribe(self, least: int, *subscriptions: tuple[int, str]) -> Any:
        return self._ask(
            AddSubscriptionToTxn(CLIENT, self._number(), self.tablet.number, least, subscriptions)
        )

    def end(self, least: int, commit: bool = True) -> Any:
        return self._ask(EndTxn(CLIENT, self._number(), self.tablet.number, least, commit))

    def ends(self) -> list[tuple[int, Any]]:
        """Returns the ends that were sent since it was asked last, with whom they were sent to."""
        kinds = EndTxnOnPartition, EndTxnOnSubscription
        hits = [s for s in self.shell.sent if type(s.message) in kinds]
        assert all(hit.durable for hit in hits)
        self.shell.sent = [s for s in self.shell.sent if type(s.message) not in kinds]
        return [(hit.target, hit.message) for hit in hits]

    def acknowledge(self, target: int, end: Any, error: str = "") -> None:
        name = end.subscription if type(end) is EndTxnOnSubscription else None
        self.handle(Ended(target, end.most, end.least, name, error))

    def acknowledge_all(self) -> int:
        """Acknowledges every end that was sent; returns how many."""
        ends = self.ends()
        for target, end in ends:
            self.acknowledge(target, end)
        return len(ends)

    def wait(self, ms: float) -> None:
        """Lets time pass: timers that are due by then wake, in order."""
        until = self.shell.now_ms + ms
        while due := [t for t in self.shell.timers if t[0] <= until]:
            timer = min(due, key=lambda t: t[0])
            self.shell.timers.remove(timer)
            self.shell.now_ms = max(self.shell.now_ms, int(timer[0]))
            self.handle(timer[1])
        self.shell.now_ms = int(until)

    def live(self) -> list[int]:
        return [*live_rows(self.keys)]

    def entries(self) -> int:
        return sum(key[:1] == b"l" for key in self.keys.rows)


def step(c: Coordinator, rng: random.Random) -> int:
    """Does one thing; returns the request's number if an end was asked for, else 0."""
    live = c.live()
    what = rng.choices(
        ("new", "add", "subscribe", "end", "switch", "acknowledge", "wait"), (6, 4, 2, 4, 1, 2, 2)
    )[0]
    if what == "new" or not live:
        c.new(rng.choice((1_000, 60_000)))
    elif what == "add":
        c.add(rng.choice(live), rng.choice(P))
    elif what == "subscribe":
        c.subscribe(rng.choice(live), (rng.choice(P), "c"))
    elif what == "end":
        c.end(rng.choice(live), rng.random() < 0.5)
        return c.requests
    elif what == "switch":
        c.handle(SwitchLog(rng.random() < 0.5))
    elif what == "acknowledge":
        for pair in c.ends():
            if rng.random() < 0.7:
                c.acknowledge(*pair)
    else:
        c.wait(rng.choice((1, 500, 4_000)))
    return 0
