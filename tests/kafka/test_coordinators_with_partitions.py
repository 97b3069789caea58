"""Tests coordinators and partitions of one host together: messages may be lost or repeated, the host may
restart."""

from collections.abc import Callable
from typing import Any

import pytest
from coordinator_kit import CLIENT, FakeShell, G, P, T
from partition_kit import StoredSpace, value_of

from planstep.coordinator.kafka.groups import Groups, pending_of, position_of
from planstep.coordinator.kafka.states import COMPLETE_ABORT, COMPLETE_COMMIT
from planstep.coordinator.kafka.transactions import Transactions
from planstep.proto.batch import encode_batch
from planstep.proto.kafka.messages import (
    AddOffsets,
    AddPartitions,
    EndTxn,
    InitProducer,
    Marked,
    Marker,
    Produce,
    TxnOffsetCommit,
)
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proto.shell import Answer
from planstep.tablets.kafka.partition import Partition

Copies = Callable[[Any], int]
"""The number of times that a message arrives."""


class Host:
    def __init__(self, version: int, batching: bool, copies: Copies = lambda message: 1) -> None:
        self.version = version
        self.settings = KafkaSettings(protocol_version=version, log_batching=batching)
        self.copies = copies
        self.spaces = {tablet: StoredSpace() for tablet in (T, G, *P[:2])}
        self.epoch, self.now_ms, self.requests = 0, 1_000_000, 0
        self.start()

    def start(self) -> None:
        """Starts the host, or restarts it: messages under way, and waits, are lost."""
        self.epoch += 1
        kinds: dict[int, Any] = {T: Transactions, G: Groups, P[0]: Partition, P[1]: Partition}
        self.shells = {t: FakeShell(self.settings, self.epoch, self.now_ms) for t in kinds}
        self.tablets = {t: kind(t, self.spaces[t], self.shells[t]) for t, kind in kinds.items()}
        for t, shell in self.shells.items():
            shell.tablet = self.tablets[t]
        self.answers: dict[int, Answer] = {}
        self.tablets[T].begin()

    def deliver(self, stop: type | None = None) -> None:
        """Delivers until nothing is under way; messages of kind `stop` are not delivered."""
        while True:
            sent = [message for shell in self.shells.values() for message in shell.sent]
            for shell in self.shells.values():
                shell.sent = []
            if not sent:
                return
            for item in sent:
                if item.target == CLIENT:
                    self.answers[item.message.request] = item.message
                elif type(item.message) is not stop:
                    for _ in range(self.copies(item.message)):
                        self.tablets[item.target].handle(item.message)

    def wait(self, ms: int, stop: type | None = None) -> None:
        until = self.now_ms + ms
        while True:
            self.deliver(stop)
            due = [(at, t) for t, s in self.shells.items() for at, _ in s.timers if at <= until]
            if not due:
                break
            at, tablet = min(due)
            self.now_ms = max(self.now_ms, int(at))
            timer = min(self.shells[tablet].timers, key=lambda timer: timer[0])
            self.shells[tablet].timers.remove(timer)
            for shell in self.shells.values():
                shell.now_ms = self.now_ms
            self.tablets[tablet].handle(timer[1])
        self.now_ms = until

    def ask(self, target: int, make: Callable[[int], Any], stop: type | None = None) -> Any:
        """Returns the answer's value; asks again until there is a final one."""
        for _ in range(40):
            self.requests += 1
            self.tablets[target].handle(make(self.requests))
            self.wait(2, stop)
            answer = self.answers.get(self.requests)
            if answer is not None and not answer.error:
                return answer.value
            self.wait(50, stop)
        raise AssertionError(f"no answer: {answer}")

    # a producer ------------------------------------------------------------------------------

    def init(self) -> Any:
        return self.ask(T, lambda n: InitProducer(CLIENT, n, "tx", 60_000))

    def write(self, who: tuple[int, int], tablet: int, sequence: int = 0) -> int:
        if self.version == 1:
            self.ask(T, lambda n: AddPartitions(CLIENT, n, "tx", *who, (tablet,)))
        data = encode_batch([value_of(*who, sequence).encode()], timestamp_ms=1)
        batch = "tx", *who, sequence, data, 1, self.version
        offset: int = self.ask(tablet, lambda n: Produce(CLIENT, n, *batch))
        return offset

    def read_to(self, who: tuple[int, int], position: int) -> None:
        if self.version == 1:
            self.ask(T, lambda n: AddOffsets(CLIENT, n, "tx", *who, G))
        offsets = ((P[0], position),)
        at = "g", -1, "", offsets, self.version
        self.ask(G, lambda n: TxnOffsetCommit(CLIENT, n, "tx", *who, *at))

    def end(self, who: tuple[int, int], commit: bool = True, stop: type | None = None) -> Any:
        return self.ask(T, lambda n: EndTxn(CLIENT, n, "tx", *who, commit, self.version), stop)

    # reading ---------------------------------------------------------------------------------

    def bounds(self, tablet: int) -> tuple[int, int]:
        _, end, stable = self.spaces[tablet].get(b"m")
        return end, stable

    def aborted(self, tablet: int) -> int:
        return len(self.spaces[tablet].scan(b"a", b"b"))

    def position(self) -> Any:
        rows = self.spaces[G], "g", P[0]
        return "pending" if pending_of(*rows) else position_of(*rows)

    def state(self) -> Any:
        return self.tablets[T].rows.get("tx").state


def repeats_and_losses() -> Copies:
    """Loses every third message between tablets, and repeats every fifth."""
    count = 0

    def copies(message: Any) -> int:
        nonlocal count
        count += 1
        return 0 if count % 3 == 0 else 2 if count % 5 == 0 else 1

    return copies


@pytest.fixture(params=["version 1", "version 2", "version 1, batching", "version 2, batching"])
def h(request: pytest.FixtureRequest) -> Host:
    return Host(2 if "2" in request.param else 1, "batching" in request.param)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bad", [False, True])
def test_records_and_positions_end_together(h: Host, commit: bool, bad: bool) -> None:
    if bad:
        h.copies = repeats_and_losses()
    who = h.init()
    for n in range(4):
        h.write(who, P[0])
        h.write(who, P[1])
        h.read_to(who, n + 1)
        assert h.position() == "pending"
        assert h.bounds(P[0])[1] < h.bounds(P[0])[0]
        if h.version == 1:
            h.end(who, commit)
            who = h.ask(T, lambda n: InitProducer(CLIENT, n, "tx", 60_000))  # sequences from 0
        else:
            who = h.end(who, commit)
        h.wait(3_000)
        assert h.state() in (COMPLETE_COMMIT, COMPLETE_ABORT) or h.version == 1
        for tablet in P[:2]:
            end, stable = h.bounds(tablet)
            assert end == stable and h.aborted(tablet) == (0 if commit else n + 1)
        assert h.position() == (n + 1 if commit else None)


def test_a_host_that_ends_between_the_decision_and_the_markers(h: Host) -> None:
    who = h.init()
    h.write(who, P[0])
    h.read_to(who, 7)
    h.end(who, stop=Marker)
    assert h.position() == "pending"
    h.start()
    h.wait(1_000)
    assert h.state() == COMPLETE_COMMIT and h.position() == 7
    assert h.bounds(P[0]) == (2, 2)


def test_a_host_that_ends_between_the_markers_and_the_acknowledgements(h: Host) -> None:
    who = h.init()
    h.write(who, P[0])
    h.read_to(who, 7)
    h.end(who, stop=Marked)
    assert h.position() == 7
    h.start()
    h.wait(1_000)
    assert h.state() == COMPLETE_COMMIT, "markers that come again are no reason to wait for ever"
    h.write(h.init(), P[0])


def test_a_producer_that_falls_silent_is_aborted_everywhere(h: Host) -> None:
    who = h.init()
    h.write(who, P[0])
    h.read_to(who, 7)
    h.wait(71_000)
    assert h.state() == COMPLETE_ABORT
    assert h.position() is None and h.aborted(P[0]) == 1 and h.bounds(P[0]) == (2, 2)
