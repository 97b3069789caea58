"""Tests the invariants of a producer under random answers, losses, repeats, late answers and timers."""

import random
from typing import Any

import pytest
from conversation import client, partition

from planstep.proto.ids import host_of
from planstep.proto.kafka.messages import EndTxn, InitProducer, Produce
from planstep.proto.kafka.settings import ERRORS
from planstep.proto.shell import Answer
from planstep.proxy.kafka.client import UNKNOWN_END

PARTITIONS = [partition(name) for name in ("p0", "p1", "p2", "q0", "q1")]
OFFSETS = {"g": (1, "m", ((PARTITIONS[0], 5),)), "h": (1, "m", ((PARTITIONS[1], 5),))}
RETRIABLE = [name for name, kind in ERRORS.items() if kind.retriable]
ABORTABLE = [name for name, kind in ERRORS.items() if kind.abortable]
FATAL = [name for name, kind in ERRORS.items() if not kind.retriable and not kind.abortable]
FATAL_TO_A_BATCH = ["PRODUCER_FENCED"]


class Chaos:
    """Watches every outgoing message, and answers at random."""

    def __init__(self, seed: int, version: int) -> None:
        draw = self.random = random.Random(seed)
        self.version = version
        self.in_flight_max = draw.choice((1, 2, 5))
        self.client = client(
            protocol_version=version,
            max_in_flight=self.in_flight_max,
        )
        self.faults = draw.choice((0.0, 0.1, 0.4))
        self.fatal = draw.choice((0.0, 0.0, 0.02))
        self.wire: list[tuple[int, Any]] = []
        self.late: list[tuple[Any, Answer]] = []
        self.timers: list[int] = []
        self.ended: dict[bytes, Any] = {}
        self.calls = self.epoch = 0
        self.kinds: dict[str, None] = {}
        # violations of the client
        self.dead = False
        self.sequences: dict[tuple[int, int], int] = {}
        self.ranges: dict[bytes, tuple[int, int]] = {}
        self.written: dict[bytes, None] = {}
        self.tablets: dict[bytes, int] = {}
        self.doubtful: dict[tuple[int, int], None] = {}
        self.asking: list[int] = []

    def call(self) -> bytes:
        self.calls += 1
        return b"%d" % self.calls

    def take(self) -> None:
        producers = [*self.client._producers.values(), self.client._plain]
        for sender in [producer._sender for producer in producers if producer is not None]:
            parts = sender._partitions.values()
            assert sender._to_send == sum(len(part.unsent) + part.again for part in parts)
        out, timers, ended = self.client.take()
        self.timers += [token for _, token in timers]
        for target, message, _ in out:
            self.watch(target, message)
            repeats = self.random.choice((1, 1, 1, 2)) if self.faults else 1
            self.wire += [(target, message)] * repeats
        for end in ended:
            assert end.call not in self.ended, "ended twice"
            self.ended[end.call] = end
            self.dead = self.dead or end.error in FATAL or end.detail == UNKNOWN_END

    def watch(self, target: int, message: Any) -> None:
        self.kinds[type(message).__name__] = None
        assert not self.dead, f"sent after the end: {message}"
        if isinstance(message, Produce):
            at = message.epoch, message.sequence
            if message.data not in self.ranges:
                assert at[1] == self.sequences.get((message.epoch, target), 0), "a gap"
                self.sequences[message.epoch, target] = at[1] + message.records
                self.ranges[message.data] = at
                self.tablets[message.data] = target
                assert (message.epoch, target) not in self.doubtful, "behind one that failed"
            assert self.ranges[message.data] == at, "two ranges for one batch"
            if not self.faults:
                requests = {
                    m.request
                    for t, m in self.wire
                    if isinstance(m, Produce) and host_of(t) == host_of(target)
                }
                assert len(requests | {message.request}) <= self.in_flight_max
            return
        self.asking = [*(n for n in self.asking if self.client.awaits(n)), message.request]
        assert len(self.asking) == 1, "one transactional request at a time"
        if isinstance(message, EndTxn) and message.commit:
            assert list(self.ranges) == [data for data in self.ranges if data in self.written]

    def step(self) -> None:
        draw = self.random.random()
        if draw < self.faults / 2 and self.timers:
            self.client.wake(self.timers.pop(self.random.randrange(len(self.timers))))
        elif draw < self.faults and self.late:
            self.hear(*self.late.pop(self.random.randrange(len(self.late))))
        elif self.wire:
            at = self.random.randrange(len(self.wire)) if self.faults else 0
            target, message = self.wire.pop(at)
            if self.random.random() < self.faults / 2:
                return  # lost
            answer = Answer(message.request, target, *self.outcome(target, message))
            if self.random.random() < self.faults:
                self.late.append((message, answer))
            self.hear(message, answer)
        elif self.timers:
            self.client.wake(self.timers.pop(0))
        self.take()

    def hear(self, message: Any, answer: Answer) -> None:
        if isinstance(message, Produce) and not answer.error:
            self.written[message.data] = None
        self.client.handle(answer)

    def outcome(self, target: int, message: Any) -> tuple[str, Any]:
        draw, batch = self.random.random(), isinstance(message, Produce)
        if draw < self.faults:
            return self.random.choice(RETRIABLE), None
        if draw < self.faults * 1.1:
            if isinstance(message, InitProducer):
                return "INVALID_PRODUCER_EPOCH", None  # any other error is the end under that name
            return self.random.choice(ABORTABLE), None
        if draw > 1 - self.fatal:
            return self.random.choice(FATAL_TO_A_BATCH if batch else FATAL), None
        if isinstance(message, InitProducer):
            self.epoch += 1
            return "", (7, self.epoch)
        if isinstance(message, EndTxn):
            self.epoch = max(self.epoch, message.epoch + (self.version == 2))
            return "", (7, self.epoch)
        return "", getattr(message, "sequence", None)

    def until(self, call: bytes) -> Any:
        self.take()
        for _ in range(5_000):
            if call in self.ended:
                return self.ended[call]
            self.step()
        raise AssertionError(f"{call!r} does not end")

    def transaction(self, handle: int, tx: bytes) -> None:
        self.begin(handle, tx)
        for _ in range(self.random.randrange(5)):
            self.send(handle, tx)
        commit = self.random.random() < 0.7
        offsets: Any = OFFSETS if self.random.random() < 0.4 else {}
        for _ in range(100):
            call = self.call()
            if commit:
                self.client.commit(call, handle, tx, offsets)
            else:
                self.client.abort(call, handle, tx)
            end = self.until(call)
            if end.error != "REQUEST_TIMED_OUT":
                break
        assert end.error != "REQUEST_TIMED_OUT"
        if commit and not end.error:
            assert all(data in self.written for data in self.ranges)

    def begin(self, handle: int, tx: bytes) -> None:
        for _ in range(5_000):
            error = self.client.begin(handle, tx)
            if error != "CONCURRENT_TRANSACTIONS":
                break
            self.step()  # of a former call, which has ended already
        assert not error or error in FATAL or self.dead
        self.dead = bool(error)
        for data, (epoch, _) in self.ranges.items():
            if data not in self.written:
                self.doubtful[epoch, self.tablets[data]] = None
        self.ranges.clear()
        self.written.clear()

    def send(self, handle: int, tx: bytes) -> None:
        """Sends a few batches, and runs a few other steps meanwhile."""
        batches: dict[int, list[tuple[bytes, int]]] = {}
        for tablet in self.random.sample(PARTITIONS, self.random.randrange(1, 4)):
            counts = [self.random.randrange(1, 4) for _ in range(self.random.randrange(1, 3))]
            batches[tablet] = [(self.call(), count) for count in counts]
        self.client.send(handle, tx, batches)
        self.take()
        for _ in range(self.random.randrange(4)):
            self.step()


def run(seed: int, version: int) -> Chaos:
    chaos = Chaos(seed, version)
    for _ in range(20):
        chaos.dead = False
        call = chaos.call()
        chaos.client.init(call, "n")
        end = chaos.until(call)
        if not end.error:
            break
    else:
        return chaos
    for number in range(6):
        chaos.transaction(end.value, b"tx%d" % number)
    chaos.client.drop(end.value)
    chaos.dead = True
    for _ in range(100):
        chaos.step()
    assert not [token for token in chaos.timers if chaos.client.awaits(token)]
    return chaos


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("part", range(8))
def test_whatever_is_answered(part: int, version: int) -> None:
    for seed in range(part, 200, 8):
        run(seed, version)


class Partitions(Chaos):
    """Plays the broker of a producer without transactions: keeps logs, and checks sequences as Kafka does."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 1)
        self.logs: dict[int, list[bytes]] = {}
        self.state: dict[int, tuple[int, int, int]] = {}
        self.done: dict[tuple[int, int, int, int], int] = {}

    def watch(self, target: int, message: Any) -> None:
        if isinstance(message, Produce):
            epochs = self.tablets.setdefault(message.data, message.epoch)
            self.kinds["anew" if epochs != message.epoch else "once"] = None

    def outcome(self, target: int, message: Any) -> tuple[str, Any]:
        if isinstance(message, InitProducer):
            self.epoch += 1
            return "", (self.epoch, 0)
        of, state = (message.producer, message.epoch), self.state.get(target, (0, 0, 0))
        key = (*of, target, message.sequence)
        if key in self.done:
            return "", self.done[key]
        if of < state[:2]:
            return "INVALID_PRODUCER_EPOCH", None
        if self.random.random() < self.faults / 2:
            return self.random.choice(RETRIABLE), None
        if message.data.endswith(b"7"):
            return "MESSAGE_TOO_LARGE", None
        sequence = state[2] if of == state[:2] else 0
        if message.sequence != sequence:
            return "OUT_OF_ORDER_SEQUENCE_NUMBER", None
        log = self.logs.setdefault(target, [])
        self.done[key] = len(log)
        log += [message.data] * message.records
        self.state[target] = *of, sequence + message.records
        return "", self.done[key]


@pytest.mark.parametrize("part", range(4))
def test_plain_writes_are_written_once_and_told_right(part: int) -> None:
    kinds: dict[str, None] = {}
    for seed in range(part, 200, 4):
        chaos = Partitions(seed)
        calls: dict[bytes, dict[int, list[tuple[bytes, int]]]] = {}
        for _ in range(30):
            call = chaos.call()
            tablets = chaos.random.sample(PARTITIONS, chaos.random.randrange(1, 4))
            calls[call] = {t: [(chaos.call(), chaos.random.randrange(1, 4))] for t in tablets}
            chaos.client.plain(call, calls[call])
            chaos.take()
            for _ in range(chaos.random.randrange(5)):
                chaos.step()
        for call, batches in calls.items():
            end = chaos.until(call)
            assert bool(end.error) == (end.value.keys() != batches.keys())
            for tablet, ((data, count),) in batches.items():
                log = chaos.logs.get(tablet, [])
                assert log.count(data) in (0, count), "written twice"
                if tablet in end.value:
                    first, last = end.value[tablet]
                    assert log[first:last] == [data] * count
        kinds.update(chaos.kinds)
        while any(chaos.client.awaits(token) for token in chaos.timers):
            chaos.step()
    assert len(kinds) == 2  # "anew": renumbered under the next epoch


def test_what_is_drawn_reaches_the_ends_that_matter() -> None:
    """Otherwise the tests above would pass without seeing anything."""
    runs = [run(seed, 1) for seed in range(40)]
    errors = {end.error for chaos in runs for end in chaos.ended.values()}
    assert {"", "REQUEST_TIMED_OUT"} < errors
    assert errors & set(FATAL) and errors & set(ABORTABLE)
    assert len(dict.fromkeys(name for chaos in runs for name in chaos.kinds)) == 6
