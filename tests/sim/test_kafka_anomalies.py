"""Tests the anomalies that mode "kafka" allows, each by a conversation that shows it, and one that does not.

A world without faults, in which one request is held back. Anomalies by the names of worlds/in_place/anomalies.py;
the table of them is in ARCHITECTURE.md.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_kafka_world import LATE, run, used, wrong

from planstep.bench.proof.simulator.client_world import NONE
from planstep.bench.proof.simulator.clients import Process, Steps
from planstep.bench.proof.simulator.kafka_world import QUICK, KafkaWorld
from planstep.bench.proof.worlds.in_place.anomalies import Tx, exactly_once, find
from planstep.bench.proof.worlds.in_place.quiesce import GROUP
from planstep.bench.proof.worlds.kafka.swarm import Settings
from planstep.bench.proof.worlds.kafka.workload import Workload
from planstep.proto.kafka.messages import EndTxn, Join, Produce

HELD_MS = 5.0 * QUICK.request_timeout_ms


class Script(Workload):
    """Runs steps one after the other, and waits for each."""

    def __init__(self, version: int = 1) -> None:
        settings = replace(QUICK, protocol_version=version)
        super().__init__(KafkaWorld(0, 1, False, settings, NONE), Settings())
        self.a, self.b = self.inputs

    def wait(self, steps: Steps, client: Any) -> Any:
        results: list[Any] = []

        def run_steps() -> Steps:
            results.append((yield from steps))

        Process(client, run_steps())
        while not results:
            self.world.step()
        return results[0]

    def hold(self, which: Callable[[Any], bool], times: int = 1) -> None:
        """Delays the next matching requests by HELD_MS."""
        remaining = [times]

        def held(message: Any) -> float:
            if remaining[0] and which(message):
                remaining[0] -= 1
                return HELD_MS
            return 0.0

        self.world.hold = held

    def producer(self, name: str) -> "Producer":
        return Producer(self, name)

    def read(self, tablet: int, committed: bool = True) -> list[bytes]:
        """Returns the values that a new reader sees."""
        records, _ = self.poll("", committed, tablet, 0, 1_000)
        self.world.pass_ms(1)
        return [value for _, value in records]

    def anomalies(self) -> list[str]:
        return sorted(find(self.history, self.logs))


class Producer:
    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name, self.client = script, name, script.world.client()

        def init() -> Steps:
            return (yield lambda core, call: core.init(call, name)).value

        self.handle: int = script.wait(init(), self.client)

    def begin(self) -> Tx:
        self.tx = self.script.tx(self.name)
        assert self.client.core.begin(self.handle, self.script.key(self.tx)) == ""
        return self.tx

    def send(self, tablet: int, *values: bytes) -> None:
        """Sends values, which are written when this returns."""
        self.script.send(self.client, self.handle, self.tx, tablet, list(values))
        self.script.world.pass_ms(20)

    def end(self, commit: bool, **offsets: Any) -> str:
        steps = self.script.end(self.client, self.handle, self.tx, commit, offsets)
        error: str = self.script.wait(steps, self.client)
        self.script.world.pass_ms(20)
        return error


# without any fault -------------------------------------------------------------------------------


def test_writes_of_transactions_interleave() -> None:
    """Shows G0, and in one partition a gap between a transaction's own records."""
    s = Script()
    one, other = s.producer("one"), s.producer("other")
    one.begin()
    other.begin()
    one.send(s.a, b"1")
    other.send(s.a, b"2")
    other.send(s.b, b"3")
    one.send(s.b, b"4")
    one.send(s.a, b"5")
    assert one.end(True) == other.end(True) == ""
    assert s.anomalies() == ["G0", "internal send skip"]
    assert s.read(s.a) == [b"1", b"2", b"5"] and s.read(s.b) == [b"3", b"4"]


def test_a_transaction_reads_what_was_written_behind_its_own_writes() -> None:
    """Shows G1c if the order of writes counts as an edge; reads alone make no cycle."""
    s = Script()
    one, other = s.producer("one"), s.producer("other")
    reading = one.begin()
    other.begin()
    one.send(s.a, b"1")
    other.send(s.a, b"2")
    other.send(s.b, b"3")
    assert other.end(True) == ""
    reading.reads += s.read(s.b)
    assert reading.reads == [b"3"]
    assert one.end(True) == ""
    assert s.anomalies() == ["G1c with ww"]


@pytest.mark.parametrize("fenced", [False, True])
def test_two_committers_use_an_input_twice_unless_they_are_fenced(fenced: bool) -> None:
    s = Script()
    feeder = s.producer("feed")
    feeder.begin()
    feeder.send(s.a, b"1")
    feeder.end(True)
    generations = []
    workers = [s.producer("one"), s.producer("other")]
    for worker in workers:
        join = s.ask(Join, worker.name)
        generations.append(s.wait(_value(join), worker.client)[0])
    ends = []
    for worker, generation in zip(workers, generations, strict=True):
        worker.begin().reads += s.read(s.a)
        worker.send(s.outputs[0], s.value(b"1"))
        who = (generation, worker.name) if fenced else (-1, "")
        ends.append(worker.end(True, **{GROUP: (*who, ((s.a, 1),))}))
    assert s.anomalies() == []
    twice = exactly_once(s.logs, [s.a], s.outputs)
    if fenced:
        assert ends == ["ILLEGAL_GENERATION", ""] and twice == {}
    else:
        assert ends == ["", ""] and list(twice) == ["input used twice"]


def _value(do: Any) -> Steps:
    return (yield do).value


# a request that arrives during its producer's next transaction ---------------------------------------


def is_end(message: Any) -> bool:
    return type(message) is EndTxn


def late_end(version: int, commit: bool) -> tuple[Script, Producer]:
    """Holds the first EndTxn back, so it is sent again; it arrives during the next transaction, which wrote "2"."""
    s = Script(version)
    p = s.producer("p")
    s.hold(is_end)
    p.begin()
    p.send(s.a, b"1")
    assert p.end(commit) == ""
    p.begin()
    p.send(s.a, b"2")
    assert s.read(s.a) == [b"1"] * commit
    s.world.pass_ms(HELD_MS)
    return s, p


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_commit_shows_a_transaction_that_is_aborted(version: int) -> None:
    s, p = late_end(version, commit=True)
    assert s.read(s.a) == ([b"1", b"2"] if version == 1 else [b"1"])
    assert p.end(False) == ("dead" if version == 1 else ""), (
        "its producer is told INVALID_TXN_STATE"
    )
    expected = ["aborted read", "aborted write counts", "precommitted read"]
    assert s.anomalies() == (expected if version == 1 else [])


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_commit_tears_a_transaction(version: int) -> None:
    s, p = late_end(version, commit=True)
    p.send(s.b, b"3")
    assert p.end(False) == ""
    assert s.read(s.a) == ([b"1", b"2"] if version == 1 else [b"1"]) and s.read(s.b) == []
    assert s.anomalies() == (
        ["aborted read", "aborted write counts", "torn transaction"] if version == 1 else []
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_abort_loses_writes_of_a_committed_transaction(version: int) -> None:
    s, p = late_end(version, commit=False)
    p.send(s.b, b"3")
    assert p.end(True) == "", "the producer is told that it has committed"
    assert s.read(s.a) == ([] if version == 1 else [b"2"]) and s.read(s.b) == [b"3"]
    assert s.anomalies() == (["lost write", "torn transaction"] if version == 1 else [])


def late_batch(version: int) -> tuple[Script, Producer]:
    """Holds a batch back until after the abort that gives it up."""
    s = Script(version)
    p = s.producer("p")
    s.world.hold = lambda message: 2 * HELD_MS if type(message) is Produce else 0.0
    p.begin()
    p.send(s.a, b"1")
    assert p.end(True) == "TRANSACTION_ABORTABLE", "nobody answered in delivery_timeout_ms"
    s.world.hold = lambda message: 0.0
    s.world.pass_ms(2 * HELD_MS)
    return s, p


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_batch_hangs_its_partition(version: int) -> None:
    """KAFKA-9144: it arrives after the abort that gave it up, and opens a transaction that never ends."""
    s, _ = late_batch(version)
    other = s.producer("other")
    other.begin()
    other.send(s.a, b"2")
    assert other.end(True) == ""
    s.world.pass_ms(5 * QUICK.transaction_timeout_ms)
    _, end, stable = s.meta(s.a)
    if version == 1:
        assert stable < end and s.read(s.a) == []
    else:
        assert stable == end and s.read(s.a) == [b"2"]


def test_a_late_batch_counts_with_the_next_transaction_of_its_producer() -> None:
    """It is the same in version 1, if that producer goes on."""
    s, p = late_batch(1)
    p.begin()
    p.send(s.a, b"2")
    assert p.end(True) == ""
    assert s.read(s.a) == [b"1", b"2"]
    assert s.anomalies() == ["aborted read", "aborted write counts"]


# from random worlds ------------------------------------------------------------------------------


def test_late_ends_of_version_1_in_random_worlds() -> None:
    """The scripts above are not the only ways to these anomalies."""
    names = "torn transaction", "lost write", "aborted read", "input used twice", "input lost"
    missing = dict.fromkeys(names)
    for seed in range(40):  # each occurs in about one of three seeds
        work = run(seed, version=1, faults=LATE, late="ends")
        for name in (*wrong(work), *used(work)):
            missing.pop(name, None)
        if not missing:
            break
    assert not missing


def test_unfenced_workers_use_inputs_twice_in_random_worlds() -> None:
    assert any("input used twice" in used(run(seed, fenced=False)) for seed in range(20))
