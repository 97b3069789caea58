"""Tests the client against a real coordinator and real partitions, over a line that loses, repeats and reorders.

Each message is delivered at its own time, and the host restarts now and then: messages to it are lost, and what it
has in memory. Partitions drop repeats (deduplication). What a reader is shown, and what is acknowledged, is what
the client was told. Scenario 37: a transaction over several partitions and subscriptions is everywhere or nowhere.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from buffer_kit import Topic
from coordinator_kit import FakeShell

from planstep.coordinator.pulsar.invariants import violations
from planstep.coordinator.pulsar.transactions import Transactions
from planstep.proto.batch import encode_batch
from planstep.proto.ids import PARTITION, PROXY, tablet_id
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.proto.pulsar.messages import Seek
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.proxy.pulsar.client import UNDETERMINED, Client, Ended
from planstep.tablets.pulsar.partition import Partition

COORDINATORS = [coordinator_tablet(number, 1) for number in range(2)]
PARTITIONS = [tablet_id(PARTITION, 0, number) for number in range(3)]
INPUTS = 120
"""The messages that each partition has at first; transactions acknowledge them."""
CLIENT = tablet_id(PROXY, 0, 0)
QUICK = {
    "request_timeout_ms": 300,
    "operation_timeout_ms": 4_000,
    "transaction_timeout_ms": 3_000,
    "participant_timeout_ms": 300,
    "end_retry_ms": 100,
}


@dataclass
class Told:
    """One transaction: what it did, by partition, and how its end was told."""

    words: dict[int, list[str]] = field(default_factory=dict)
    acked: set[tuple[int, int]] = field(default_factory=set)
    """(tablet, offset)."""
    positions: dict[int, int] = field(default_factory=dict)
    end: str = ""


class World:
    """A client, and one host with coordinators and partitions. `events`: (when, number, what, detail)."""

    def __init__(self, draw: random.Random, faults: float, **settings: Any) -> None:
        self.draw = draw
        self.faults = faults
        self.settings = PulsarSettings(**{**QUICK, **settings})
        self.client = Client(CLIENT, self.settings, COORDINATORS)
        self.topics = {tablet: Topic() for tablet in PARTITIONS}
        self.rows = {tablet: Topic().space for tablet in COORDINATORS}
        self.now_ms, self.epoch, self.number = 1_000_000.0, 0, 0
        self.events: list[tuple[float, int, str, Any]] = []
        self.ended: dict[bytes, Ended] = {}
        for topic in self.topics.values():
            for name, individual in (("one", True), ("all", False)):
                topic.tell(Seek(CLIENT, 0, name, 0, individual))
            topic.send("i " * INPUTS)
        self.start()

    def start(self) -> None:
        self.epoch += 1
        self.events = [event for event in self.events if event[2] in ("wake", "answer")]
        self.tablets: dict[int, Any] = {}
        self.shells: dict[int, Any] = {}
        for tablet in (*COORDINATORS, *PARTITIONS):
            shell: Any = FakeShell(self.settings, self.epoch, int(self.now_ms))  # type: ignore[arg-type]
            if tablet in self.rows:
                shell.tablet = Transactions(tablet, self.rows[tablet], shell)
                shell.tablet.begin()
            else:
                topic = self.topics[tablet]
                topic.copy = None
                shell.tablet = topic.tablet = Partition(tablet, topic.space, shell)  # type: ignore[arg-type]
            self.tablets[tablet], self.shells[tablet] = shell.tablet, shell
        self.take()

    def at(self, delay_ms: float, what: str, detail: Any) -> None:
        self.number += 1
        self.events.append((self.now_ms + delay_ms, self.number, what, detail))

    def travel(self, what: str, detail: Any) -> None:
        copies = 1
        if self.draw.random() < self.faults:
            copies = self.draw.choice((0, 2))
        for _ in range(copies):
            slow = 20 if self.draw.random() < self.faults else 1
            self.at(self.draw.random() * slow * 30, what, detail)

    def take(self) -> None:
        out, timers, ended = self.client.take()
        for target, message, _ in out:
            self.travel("request", (target, message))
        for delay_ms, token in timers:
            self.at(delay_ms, "wake", token)
        self.ended.update((end.call, end) for end in ended)
        for tablet, shell in self.shells.items():
            for item in shell.sent:
                to_client = item.target == CLIENT
                self.travel("answer" if to_client else "request", (item.target, item.message))
            for due_ms, message in shell.timers:
                self.at(due_ms - self.now_ms, "timer", (tablet, message))
            shell.sent, shell.timers = [], []

    def step(self) -> None:
        event = min(self.events)
        self.events.remove(event)
        self.now_ms, _, what, detail = event
        for shell in self.shells.values():
            shell.now_ms = int(self.now_ms)
        if what == "wake":
            self.client.wake(detail)
        elif what == "answer":
            self.client.handle(detail[1])
        else:
            target, message = detail
            self.tablets[target].handle(message)
            if target in self.rows:
                assert violations(self.rows[target]) == []
            else:
                self.topics[target].check()
        self.take()
        if self.draw.random() < self.faults / 50:
            self.start()

    def until(self, call: bytes) -> Ended:
        self.take()
        while call not in self.ended:
            self.step()
        return self.ended[call]

    def operate(self, tx: bytes, told: Told) -> None:
        """Sends words, a batch each, and acknowledges inputs, half of it after a while."""
        for n in range(self.draw.randrange(6)):
            tablet = self.draw.choice(PARTITIONS)
            kind = self.draw.choice(("send", "send", "send", "one", "one", "one", "all"))
            low = self.draw.randrange(INPUTS - 1)
            if kind == "send":
                word = f"{tx.decode()}.{n}"
                data = encode_batch([word.encode()], timestamp_ms=0)
                if not self.client.send(tx, "w", {tablet: [(data, 1)]}):
                    told.words.setdefault(tablet, []).append(word)
            elif kind == "one":
                if not self.client.acknowledge(tx, tablet, "one", ((low, low + 2),)):
                    told.acked |= {(tablet, low), (tablet, low + 1)}
            elif not self.client.acknowledge(tx, tablet, "all", position=low):
                told.positions[tablet] = low
            self.take()
            for _ in range(self.draw.choice((0, 0, 3))):
                self.step()

    def shown(self) -> dict[int, list[str]]:
        return {tablet: topic.read() for tablet, topic in self.topics.items()}

    def acknowledged(self) -> set[tuple[int, int]]:
        found = set()
        for tablet in PARTITIONS:
            cursor = self.tablets[tablet].subscriptions.cursor("one")
            ranges = (0, cursor.position), *cursor.ranges
            found |= {(tablet, at) for low, high in ranges for at in range(low, high)}
        return {(tablet, at) for tablet, at in found if at < INPUTS}


def play(seed: int, faults: float, **settings: Any) -> dict[str, int]:
    """Runs transactions, a few at a time; returns how often each end was told."""
    draw = random.Random(seed)
    world = World(draw, faults, **settings)
    told: dict[bytes, Told] = {}
    for round in range(6):
        calls: dict[bytes, tuple[bytes, bool]] = {}
        for n in range(3):
            tx = b"%d.%d" % (round, n)
            told[tx] = Told()
            world.client.begin(tx)
            world.operate(tx, told[tx])
            if draw.random() < 0.1:
                world.client.drop(tx)  # its process dies
                told[tx].end = "died"
                continue
            commit = draw.random() < 0.7
            (world.client.commit if commit else world.client.abort)(b"c" + tx, tx)
            calls[b"c" + tx] = tx, commit
        for call, (tx, commit) in calls.items():
            told[tx].end = world.until(call).error or ("committed" if commit else "aborted")
            world.client.drop(tx)
    end = world.now_ms + 20_000
    world.faults = 0
    while world.events and min(world.events)[0] < end:
        world.step()
    judge(told, world)
    counts: dict[str, int] = {}
    for one in told.values():
        counts[one.end] = counts.get(one.end, 0) + 1
    return counts


def judge(told: dict[bytes, Told], world: World) -> None:
    shown, acknowledged = world.shown(), world.acknowledged()
    counted: set[tuple[int, int]] = set()
    for tx, one in told.items():
        mine = f"{tx.decode()}."
        seen = {t: [word for word in words if word.startswith(mine)] for t, words in shown.items()}
        seen = {tablet: words for tablet, words in seen.items() if words}
        done = one.end == "committed"
        if one.end == UNDETERMINED:
            done = bool(seen) or (bool(one.acked) and one.acked <= acknowledged - counted)
        assert seen == (one.words if done else {}), (tx, one)
        if done:
            assert one.acked <= acknowledged, (tx, one)
            assert not one.acked & counted, "an input counts once"
            counted |= one.acked
            for tablet, position in one.positions.items():
                assert world.tablets[tablet].subscriptions.cursor("all").position >= position
    assert acknowledged == counted


def test_without_faults_only_conflicts_fail() -> None:
    counts = play(1, 0.0)
    assert counts.keys() <= {"committed", "aborted", "died", "TransactionHasOperationFailed"}
    assert counts["committed"] > 5


@pytest.mark.parametrize("ended_kept", [0, 100])
@pytest.mark.parametrize("faults", [0.1, 0.4])
def test_the_client_is_told_what_happened(ended_kept: int, faults: float) -> None:
    """Forgotten ended transactions make a commit whose answer was lost one that is not known (A5)."""
    counts: dict[str, int] = {}
    for seed in range(8):
        batching = seed % 2 == 0
        for name, count in play(
            seed,
            faults,
            deduplication=True,
            ended_kept=ended_kept,
            log_batching=batching,
            ack_log_batching=seed % 3 == 0,
        ).items():
            counts[name] = counts.get(name, 0) + count
    assert counts["committed"] > 10 and counts["aborted"] > 5
    if faults > 0.1:
        assert "TransactionHasOperationFailed" in counts
        assert (UNDETERMINED in counts) is (ended_kept == 0)


def test_a14_without_deduplication_a_batch_may_be_written_twice() -> None:
    """The answer to the first sending is lost; nothing else is."""
    world = World(random.Random(1), 0.0)
    data = encode_batch([b"x"], timestamp_ms=0)
    world.client.begin(b"t")
    world.client.send(b"t", "w", {PARTITIONS[0]: [(data, 1)]})
    world.client.commit(b"c", b"t")
    world.take()
    lost = 0
    while b"c" not in world.ended:
        when, number, what, detail = min(world.events)
        if what == "answer" and detail[1].tablet == PARTITIONS[0] and not lost:
            world.events.remove((when, number, what, detail))
            lost += 1
        world.step()
    assert not world.ended[b"c"].error
    assert world.shown()[PARTITIONS[0]][INPUTS:] == ["x", "x"]
