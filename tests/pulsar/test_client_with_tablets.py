"""Tests the client against a real coordinator and real partitions, over a line that loses, repeats and reorders.

Each message is delivered at its own time, and the host restarts now and then: messages to it are lost, and what it
has in memory. Partitions drop repeats (deduplication). What a reader is shown is what the client was told.
"""

import random
from typing import Any

import pytest
from buffer_kit import Topic
from coordinator_kit import FakeShell

from planstep.coordinator.pulsar.invariants import violations
from planstep.coordinator.pulsar.transactions import Transactions
from planstep.proto.batch import encode_batch
from planstep.proto.ids import PARTITION, PROXY, tablet_id
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.proxy.pulsar.client import UNDETERMINED, Client, Ended
from planstep.tablets.pulsar.partition import Partition

COORDINATORS = [coordinator_tablet(number, 1) for number in range(2)]
PARTITIONS = [tablet_id(PARTITION, 0, number) for number in range(3)]
CLIENT = tablet_id(PROXY, 0, 0)
QUICK = {
    "request_timeout_ms": 300,
    "operation_timeout_ms": 4_000,
    "transaction_timeout_ms": 3_000,
    "participant_timeout_ms": 300,
    "end_retry_ms": 100,
}


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

    def send(self, tx: bytes, words: list[str]) -> dict[int, list[str]]:
        """Sends each word as a batch, half of them after a while; returns them by partition."""
        sent: dict[int, list[str]] = {}
        for word in words:
            tablet = self.draw.choice(PARTITIONS)
            data = encode_batch([word.encode()], timestamp_ms=0)
            if not self.client.send(tx, "w", {tablet: [(data, 1)]}):
                sent.setdefault(tablet, []).append(word)
            self.take()
            for _ in range(self.draw.choice((0, 0, 3))):
                self.step()
        return sent

    def shown(self) -> dict[int, list[str]]:
        return {tablet: topic.read() for tablet, topic in self.topics.items()}


def play(seed: int, faults: float, **settings: Any) -> dict[str, int]:
    """Runs transactions, a few at a time; returns how often each end was told."""
    draw = random.Random(seed)
    world = World(draw, faults, **settings)
    sent: dict[bytes, dict[int, list[str]]] = {}
    told: dict[bytes, str] = {}
    for round in range(6):
        calls: dict[bytes, tuple[bytes, bool]] = {}
        for n in range(3):
            tx = b"%d.%d" % (round, n)
            world.client.begin(tx)
            sent[tx] = world.send(tx, [f"{round}.{n}.{m}" for m in range(draw.randrange(5))])
            if draw.random() < 0.1:
                world.client.drop(tx)  # its process dies
                told[tx] = "died"
                continue
            commit = draw.random() < 0.7
            (world.client.commit if commit else world.client.abort)(b"c" + tx, tx)
            calls[b"c" + tx] = tx, commit
        for call, (tx, commit) in calls.items():
            error = world.until(call).error
            told[tx] = error or ("committed" if commit else "aborted")
            world.client.drop(tx)
    end = world.now_ms + 20_000
    world.faults = 0
    while world.events and min(world.events)[0] < end:
        world.step()
    judge(sent, told, world.shown())
    counts: dict[str, int] = {}
    for name in told.values():
        counts[name] = counts.get(name, 0) + 1
    return counts


def judge(
    sent: dict[bytes, dict[int, list[str]]],
    told: dict[bytes, str],
    shown: dict[int, list[str]],
) -> None:
    for tx, words in sent.items():
        mine = f"{tx.decode()}."
        seen = {t: [word for word in words if word.startswith(mine)] for t, words in shown.items()}
        seen = {tablet: words for tablet, words in seen.items() if words}
        if told[tx] == "committed":
            assert seen == words, (tx, told[tx])
        elif told[tx] == UNDETERMINED:
            assert seen in ({}, words), (tx, told[tx])
        else:
            assert seen == {}, (tx, told[tx])


def test_without_faults_all_that_was_committed_is_shown() -> None:
    counts = play(1, 0.0)
    assert counts.keys() <= {"committed", "aborted", "died"} and counts["committed"] > 5


@pytest.mark.parametrize("ended_kept", [0, 100])
@pytest.mark.parametrize("faults", [0.1, 0.4])
def test_the_client_is_told_what_happened(ended_kept: int, faults: float) -> None:
    """Forgotten ended transactions make a commit whose answer was lost one that is not known (A5)."""
    counts: dict[str, int] = {}
    for seed in range(8):
        batching = seed % 2 == 0
        for name, count in play(
            seed, faults, deduplication=True, ended_kept=ended_kept, log_batching=batching
        ).items():
            counts[name] = counts.get(name, 0) + count
    assert counts["committed"] > 10 and counts["aborted"] > 5
    if faults > 0.1:
        assert "TransactionTimeout" in counts
        assert (UNDETERMINED in counts) is (ended_kept == 0)
