"""Tests the invariants of a client under random refusals, losses, repeats, late answers and timers."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from client_kit import COORDINATORS, client, partition

from planstep.proto.pulsar.messages import (
    NO_TXN,
    Ack,
    AddPartitionToTxn,
    AddSubscriptionToTxn,
    EndTxn,
    NewTxn,
    Send,
    TxnID,
)
from planstep.proto.pulsar.settings import ERRORS
from planstep.proto.shell import Answer
from planstep.proxy.pulsar.client import UNDETERMINED

PARTITIONS = [partition(name) for name in ("p0", "p1", "q0")]
FOR_NOW = [name for name, kind in ERRORS.items() if kind.asked_again]
FINAL = ["TransactionConflict", "NotAllowedError", "TopicNotFound", "NoSpace"]
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass
class Told:
    """An application's view of one transaction."""

    operations: list[Any] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    id: TxnID = NO_TXN


class World:
    """Plays coordinators and partitions, and watches every message.

    Partitions drop repeats by number. Coordinators forget ended transactions or keep them (`kept`), and time out
    open ones now and then.
    """

    def __init__(self, seed: int) -> None:
        draw = self.random = random.Random(seed)
        self.limit = draw.choice((1, 2, 1_000))
        self.client = client(draw.choice((1, 2)), max_requests=self.limit)
        self.faults = draw.choice((0.0, 0.1, 0.4))
        self.kept = draw.random() < 0.5
        self.wire: list[tuple[int, Any]] = []
        self.late: list[Answer] = []
        self.timers: list[int] = []
        self.ended: dict[bytes, Any] = {}
        self.calls = 0
        self.states: dict[TxnID, str] = {}
        self.hidden: dict[TxnID, str] = {}
        """How forgotten transactions ended."""
        self.registered: dict[tuple[TxnID, int, str | None], None] = {}
        self.had: dict[tuple[str, int], int] = {}
        self.written: dict[bytes, None] = {}
        self.acked: dict[Any, None] = {}
        self.numbers: dict[bytes, int] = {}
        self.next: dict[tuple[str, int], int] = {}
        self.heard: dict[bytes, None] = {}
        self.in_line: dict[tuple[str, int], bytes] = {}
        self.of_request: dict[int, bytes] = {}
        self.commits: dict[TxnID, None] = {}
        self.aborts: dict[TxnID, None] = {}

    def call(self) -> bytes:
        self.calls += 1
        return b"%d" % self.calls

    # what leaves the client --------------------------------------------------------------------

    def take(self) -> None:
        out, timers, ended = self.client.take()
        self.timers += [token for _, token in timers]
        for target, message, _ in out:
            self.watch(target, message)
            self.wire += [(target, message)] * (self.random.choice((1, 1, 2)) if self.faults else 1)
        for end in ended:
            assert end.call not in self.ended, "ended twice"
            self.ended[end.call] = end
        busy = self.client._coordinators._on_the_way
        assert all(0 <= count <= self.limit for count in busy)

    def watch(self, target: int, message: Any) -> None:
        if isinstance(message, NewTxn):
            return
        id = TxnID(message.most, message.least)
        if isinstance(message, (Send, Ack)):
            assert id == NO_TXN or self.registered_for(id, target, message), "not registered"
        if isinstance(message, EndTxn):
            (self.commits if message.commit else self.aborts)[id] = None
            assert not (id in self.commits and id in self.aborts), "both ends"
        elif isinstance(message, Send):
            key = message.producer, target
            self.of_request[message.request] = message.data
            if message.data not in self.numbers:
                assert message.sequence == self.next.get(key, 0) + message.records - 1, "a gap"
                self.next[key] = message.sequence + 1
                self.numbers[message.data] = message.sequence
                assert self.in_line.get(key, b"") in (b"", *self.heard), "two on the way"
                self.in_line[key] = message.data
                assert id not in self.commits and id not in self.aborts, "behind the end"
            assert self.numbers[message.data] == message.sequence, "two numbers for one batch"

    def registered_for(self, id: TxnID, target: int, message: Send | Ack) -> bool:
        name = message.subscription if isinstance(message, Ack) else None
        return (id, target, name) in self.registered

    # hosts -------------------------------------------------------------------------------------

    def step(self) -> None:
        draw = self.random.random()
        if draw < self.faults / 4 and self.timers:
            self.client.wake(self.timers.pop(self.random.randrange(len(self.timers))))
        elif draw < self.faults / 2 and self.late:
            self.hear(self.late.pop(self.random.randrange(len(self.late))))
        elif self.wire:
            at = self.random.randrange(len(self.wire)) if self.faults else 0
            target, message = self.wire.pop(at)
            if self.random.random() < self.faults / 3:
                return  # lost
            answer = Answer(message.request, target, *self.outcome(target, message))
            if self.random.random() < self.faults:
                self.late.append(answer)
            if self.random.random() < 1 - self.faults / 3:
                self.hear(answer)
        elif self.timers:
            self.client.wake(self.timers.pop(0))
        self.time_out()
        self.take()

    def hear(self, answer: Answer) -> None:
        if answer.request in self.of_request:
            self.heard[self.of_request[answer.request]] = None
        self.client.handle(answer)

    def time_out(self) -> None:
        running = [id for id, state in self.states.items() if state == OPEN]
        if running and self.random.random() < self.faults / 100:
            self.end(self.random.choice(running), ABORTED)

    def end(self, id: TxnID, state: str) -> None:
        self.states[id] = state
        if not self.kept:
            self.hidden[id] = self.states.pop(id)

    def outcome(self, target: int, message: Any) -> tuple[str, Any]:
        if self.random.random() < self.faults / 2:
            return self.random.choice(FOR_NOW), None
        if isinstance(message, (Send, Ack)):
            return self.at_partition(target, message)
        if isinstance(message, NewTxn):
            most = COORDINATORS.index(target)
            number = sum(id.most == most for id in (*self.states, *self.hidden))
            self.states[TxnID(most, number)] = OPEN
            return "", (most, number)
        id = TxnID(message.most, message.least)
        state = self.states.get(id)
        if state is None:
            return "TransactionNotFound", None
        if isinstance(message, EndTxn):
            return self.at_end(id, state, message.commit)
        if state != OPEN or self.random.random() < self.faults / 50:
            return "InvalidTxnStatus", None
        if isinstance(message, AddPartitionToTxn):
            self.registered.update(((id, tablet, None), None) for tablet in message.partitions)
        elif isinstance(message, AddSubscriptionToTxn):
            self.registered.update(((id, *pair), None) for pair in message.subscriptions)
        return "", None

    def at_end(self, id: TxnID, state: str, commit: bool) -> tuple[str, Any]:
        wanted = COMMITTED if commit else ABORTED
        if state == OPEN:
            self.end(id, wanted)
        elif state != wanted:
            return ("AlreadyAborted" if commit else "AlreadyCommitted"), None
        return "", None

    def at_partition(self, target: int, message: Send | Ack) -> tuple[str, Any]:
        id = TxnID(message.most, message.least)
        if id != NO_TXN and self.states.get(id) != OPEN:
            return "NotAllowedError", None
        if isinstance(message, Ack):
            what = target, message.ranges
            if what not in self.acked and self.random.random() < self.faults / 10:
                return self.random.choice(FINAL), None
            self.acked[what] = None
            return "", None
        key = message.producer, target
        if message.sequence <= self.had.get(key, -1):
            return "", -1
        if self.random.random() < self.faults / 10:
            return self.random.choice(FINAL), None
        self.had[key] = message.sequence
        self.written[message.data] = None
        return "", len(self.written)

    # the application ---------------------------------------------------------------------------

    def operate(self, tx: bytes, told: Told) -> None:
        for _ in range(self.random.randrange(4)):
            tablet = self.random.choice(PARTITIONS)
            if self.random.random() < 0.6:
                batches = [(self.call(), self.random.randrange(1, 4)) for _ in range(2)]
                error = self.client.send(tx, self.random.choice("vw"), {tablet: batches})
                mine: list[Any] = [data for data, _ in batches]
            else:
                ranges = ((self.calls, self.calls + 1),)
                self.calls += 1
                error = self.client.acknowledge(tx, tablet, "s", ranges)
                mine = [(tablet, ranges)]
            if not error:
                told.operations += mine
            self.take()
            for _ in range(self.random.randrange(4)):
                self.step()

    def until(self, call: bytes) -> Any:
        self.take()
        for _ in range(20_000):
            if call in self.ended:
                return self.ended[call]
            self.step()
        raise AssertionError(f"{call!r} does not end")

    def transaction(self, tx: bytes) -> Told:
        told = Told()
        self.client.begin(tx)
        self.operate(tx, told)
        if self.random.random() < 0.3:
            call = self.call()
            self.client.flush(call, tx)
            error = self.until(call).error
            assert error or self.done(told)
            self.operate(tx, told)
        if self.random.random() < 0.1:
            return told  # its process dies
        ends = self.client.commit if self.random.random() < 0.7 else self.client.abort
        for _ in range(self.random.randrange(1, 4)):
            call = self.call()
            ends(call, tx)
            error = self.until(call).error
            told.ends.append((ends.__name__, error))
            if error not in (UNDETERMINED, "Timeout"):
                break
        told.id = self.client.id(tx)
        return told

    def done(self, told: Told) -> bool:
        return all(one in self.written or one in self.acked for one in told.operations)

    def judge(self, told: Told) -> None:
        state = self.states.get(told.id) or self.hidden.get(told.id)
        for what, error in told.ends:
            if what == "commit" and not error:
                assert state == COMMITTED and self.done(told)
            elif error != UNDETERMINED and ("commit", UNDETERMINED) not in told.ends:
                assert state != COMMITTED, (what, error)


@pytest.mark.parametrize("part", range(8))
def test_whatever_is_answered(part: int) -> None:
    ends: dict[tuple[str, str], None] = {}
    for seed in range(part, 400, 8):
        world = World(seed)
        all_told = []
        for number in range(6):
            tx = b"tx%d" % number
            all_told.append(world.transaction(tx))
            if world.random.random() < 0.5:
                world.client.drop(tx)
        for number in range(6):
            world.client.drop(b"tx%d" % number)
        world.take()
        for _ in range(2_000):
            world.step()
        for told in all_told:
            world.judge(told)
            ends.update(dict.fromkeys(told.ends))
        assert not [token for token in world.timers if world.client.awaits(token)]
        assert not any(world.client._coordinators._on_the_way)
        assert not world.client._producers._lines
    assert {("commit", ""), ("abort", ""), ("commit", UNDETERMINED)} <= ends.keys()
    assert ("commit", "TransactionHasOperationFailed") in ends
