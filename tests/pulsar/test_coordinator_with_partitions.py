"""Tests a coordinator and partitions of one host together: messages may be lost or repeated, the host may restart.

Scenarios 10-12 and 22 with both sides real. After each delivery `Topic.check` compares a partition with a scan.
"""

import random
from typing import Any

import pytest
from buffer_kit import Topic
from coordinator_kit import FakeShell

from planstep.coordinator.pulsar.invariants import live_rows, violations
from planstep.coordinator.pulsar.transactions import Transactions
from planstep.proto.batch import encode_batch
from planstep.proto.ids import PARTITION, PROXY, tablet_id
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.proto.pulsar.messages import (
    AddPartitionToTxn,
    DropPartition,
    EndTxn,
    NewTxn,
    Send,
)
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.proto.shell import Answer
from planstep.tablets.pulsar.partition import Partition
from planstep.tablets.pulsar.snapshots import WAYS

T = coordinator_tablet(0, 1)
P = [tablet_id(PARTITION, 0, n) for n in range(2)]
CLIENT = tablet_id(PROXY, 0, 0)


class Host:
    """A coordinator and two partitions; `lossy` draws how often each message arrives."""

    def __init__(self, lossy: random.Random | None = None, **settings: Any) -> None:
        self.settings = PulsarSettings(**settings)
        self.lossy = lossy
        self.topics = {tablet: Topic(**settings) for tablet in P}
        self.rows = Topic().space
        self.epoch, self.now_ms, self.requests = 0, 1_000_000, 0
        self.start()

    def start(self) -> None:
        """Starts the host, or restarts it: messages under way, and waits, are lost."""
        self.epoch += 1
        self.shells: dict[int, Any] = {}
        self.tablets: dict[int, Any] = {}
        for tablet in (T, *P):
            shell: Any = FakeShell(self.settings, self.epoch, self.now_ms)  # type: ignore[arg-type]
            if tablet == T:
                self.tablets[T] = Transactions(T, self.rows, shell)
            else:
                topic = self.topics[tablet]
                topic.copy = None
                topic.tablet = self.tablets[tablet] = Partition(tablet, topic.space, shell)
            self.shells[tablet] = shell
            shell.tablet = self.tablets[tablet]
        self.answers: dict[int, Answer] = {}
        self.tablets[T].begin()

    def deliver(self, dead: int = -1) -> None:
        """Delivers until nothing is under way; what is sent to tablet `dead` is lost."""
        while sent := [item for shell in self.shells.values() for item in shell.sent]:
            for shell in self.shells.values():
                shell.sent = []
            if self.lossy:
                self.lossy.shuffle(sent)
            for item in sent:
                if item.target == CLIENT:
                    self.answers[item.message.request] = item.message
                    continue
                copies = self.lossy.choice((0, 1, 1, 1, 2)) if self.lossy else 1
                for _ in range(copies if item.target != dead else 0):
                    self.tablets[item.target].handle(item.message)
                    assert violations(self.rows) == []
                    for topic in self.topics.values():
                        topic.check()

    def wait(self, ms: int, dead: int = -1) -> None:
        until = self.now_ms + ms
        while True:
            self.deliver(dead)
            due = [(at, t) for t, s in self.shells.items() for at, _ in s.timers if at <= until]
            if not due:
                break
            at, tablet = min(due)
            timer = min(self.shells[tablet].timers, key=lambda timer: timer[0])
            self.shells[tablet].timers.remove(timer)
            self.set_time(max(self.now_ms, int(at)))
            self.tablets[tablet].handle(timer[1])
        self.set_time(until)

    def set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for shell in self.shells.values():
            shell.now_ms = now_ms

    def ask(self, kind: Any, *fields: Any, to: int = T, dead: int = -1) -> Answer | None:
        self.requests += 1
        self.tablets[to].handle(kind(CLIENT, self.requests, *fields))
        self.deliver(dead)
        return self.answers.get(self.requests)

    def open(self, timeout_ms: int = 60_000) -> tuple[int, int]:
        answer = self.ask(NewTxn, timeout_ms)
        assert answer is not None
        assert answer.error == ""
        most, least = answer.value
        answer = self.ask(AddPartitionToTxn, most, least, tuple(P))
        assert answer is not None
        assert answer.error == ""
        return most, least

    def send(self, txn: tuple[int, int], word: str, to: int) -> str:
        data = encode_batch([word.encode()], timestamp_ms=0)
        answer = self.ask(Send, *txn, "", -1, data, 1, to=to)
        assert answer is not None
        return answer.error

    def read(self) -> list[list[str]]:
        return [topic.read() for topic in self.topics.values()]


def test_a_commit_is_answered_once_all_partitions_have_it() -> None:
    """Scenario 10: one partition is down meanwhile; the other one shows it already (A4)."""
    host = Host()
    txn = host.open()
    for tablet in P:
        assert host.send(txn, "a", tablet) == ""
    request = host.requests + 1
    assert host.ask(EndTxn, *txn, True, dead=P[1]) is None
    assert host.read() == [["a"], []]
    host.wait(10_000, dead=P[1])
    assert request not in host.answers
    host.wait(10_000)
    assert host.answers[request].error == ""
    assert host.read() == [["a"], ["a"]]
    assert live_rows(host.rows) == {}


def test_a_dropped_topic_counts_as_ended() -> None:
    """Scenario 11."""
    host = Host()
    txn = host.open()
    host.send(txn, "a", P[0])
    host.tablets[P[1]].handle(DropPartition())
    answer = host.ask(EndTxn, *txn, True)
    assert answer is not None
    assert answer.error == ""
    assert host.read()[0] == ["a"]


def test_a_decision_is_driven_on_by_the_next_start() -> None:
    """Scenario 12: the end was logged and reached nobody."""
    host = Host()
    txn = host.open()
    for tablet in P:
        host.send(txn, "a", tablet)
    host.tablets[T].handle(EndTxn(CLIENT, 99, *txn, True))
    for _ in range(2):
        host.start()
        host.wait(10_000)
        assert host.read() == [["a"], ["a"]]
        assert all(topic.bounds.end == 2 for topic in host.topics.values())


def test_a_time_out_frees_the_readers_and_a_late_send_is_refused() -> None:
    host = Host()
    txn = host.open(timeout_ms=1_000)
    host.send(txn, "a", P[0])
    host.send((-1, -1), "p", P[0])
    assert host.read() == [[], []]
    host.wait(1_500)
    assert host.read() == [["p"], []]
    assert host.send(txn, "late", P[1]) == "NotAllowedError"


@pytest.mark.parametrize("seed", range(12))
def test_every_transaction_is_everywhere_or_nowhere(seed: int) -> None:
    """Scenarios 18 and 22 under loss, repeats, any order and restarts; ends are what their client was told."""
    draw = random.Random(seed)
    way = WAYS[seed % 3]
    host = Host(
        draw,
        snapshots=way,
        snapshot_segment_bytes=64,
        snapshot_transactions=3,
        log_batching=seed % 2 == 0,
    )
    sent: dict[tuple[int, int], int] = {}
    asked: dict[int, tuple[tuple[int, int], bool]] = {}
    told: dict[tuple[int, int], bool] = {}
    for number in range(40):
        if draw.random() < 0.1:
            host.start()
        before = host.requests + 1
        host.tablets[T].handle(NewTxn(CLIENT, before, draw.choice((500, 5_000))))
        host.requests = before + 1
        host.wait(5)  # a batch of the log leaves
        answer = host.answers.get(before)
        if answer is None or answer.error:
            continue
        txn = answer.value
        host.tablets[T].handle(AddPartitionToTxn(CLIENT, host.requests, *txn, tuple(P)))
        host.wait(5)
        if host.answers.get(host.requests) is None:
            continue
        sent[txn] = 0
        data = encode_batch([str(number).encode()], timestamp_ms=0)
        for tablet in P:
            answer = host.ask(Send, *txn, "", -1, data, 1, to=tablet)
            sent[txn] += answer is not None and not answer.error
        if draw.random() < 0.8:
            host.requests += 1
            commit = draw.random() < 0.7 and sent[txn] == len(P)
            asked[host.requests] = txn, commit
            host.tablets[T].handle(EndTxn(CLIENT, host.requests, *txn, commit))
        host.wait(draw.choice((0, 100, 2_000)))
        for request, (ended, commit) in asked.items():
            if request in host.answers and not host.answers[request].error:
                told[ended] = commit
    host.lossy = None
    host.start()
    host.wait(60_000)
    assert live_rows(host.rows) == {}
    first, second = (sorted(words) for words in host.read())
    assert first == second, "everywhere or nowhere"
    assert len({*first}) == len(first)
    assert len(first) >= sum(told.values()) > 0
    for topic in host.topics.values():
        assert topic.bounds.max_read == topic.bounds.end
