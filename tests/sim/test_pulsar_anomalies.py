"""Tests the anomalies that mode "pulsar" allows, each by a conversation that shows it, under its number.

A world without faults. Anomalies by the names of worlds/in_place/anomalies.py where those have one.
"""

from dataclasses import replace
from typing import Any

import pytest

from planstep.bench.proof.simulator.client_world import NONE
from planstep.bench.proof.simulator.clients import Process, Steps
from planstep.bench.proof.simulator.pulsar_world import QUICK, PulsarWorld
from planstep.bench.proof.worlds.in_place.anomalies import Tx, exactly_once, find, place
from planstep.bench.proof.worlds.in_place.quiesce import GROUP
from planstep.bench.proof.worlds.in_place.reads import records
from planstep.bench.proof.worlds.pulsar.swarm import Settings
from planstep.bench.proof.worlds.pulsar.workload import Workload
from planstep.proto.batch import encode_batch
from planstep.proto.shell import Answer
from planstep.proxy.pulsar.client import UNDETERMINED
from planstep.proxy.pulsar.client import Client as Core


class Script(Workload):
    """Runs steps one after the other, and waits for each."""

    def __init__(self, kind: str = "individual", hosts: int = 1, **settings: Any) -> None:
        pulsar = replace(QUICK, transaction_timeout_ms=5_000, **settings)
        super().__init__(PulsarWorld(0, hosts, False, pulsar, NONE), Settings(kind=kind))
        self.a, self.b = self.inputs
        self._subscribe()

    def wait(self, steps: Steps, client: Any) -> Any:
        results: list[Any] = []

        def run_steps() -> Steps:
            results.append((yield from steps))

        Process(client, run_steps())
        while not results:
            self.world.step()
        return results[0]

    def read(self, tablet: int) -> list[bytes]:
        """Returns the values that a new reader sees."""
        records, _ = self.poll("", True, tablet, 0, 1_000)
        self.world.pass_ms(1)
        return [value for _, value in records]

    def feed(self, *values: bytes) -> None:
        one = Producer(self, "feed")
        one.begin()
        one.send(self.a, *values)
        assert one.end() == ""

    def free(self) -> list[bytes]:
        """Returns the values that a reader of the group would be handed: neither acknowledged nor pending."""
        views = self.views[True]
        begin, _, ranges, _ = views.consumer(None, self.a, GROUP)
        taken = [*ranges, *views.pending_ranges(self.a, GROUP)]
        found = records(views, self.a, begin, 9)
        return [value for at, value in found if not any(low <= at < end for low, end in taken)]

    def anomalies(self) -> list[str]:
        return sorted(find(self.history, self.logs))

    def wrongly_used(self) -> list[str]:
        return list(exactly_once(self.logs, [self.a], self.outputs, by_place=True))


class Producer:
    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name, self.client = script, name, script.world.client()

    def begin(self) -> Tx:
        self.tx = self.script.tx(self.name)
        self.client.begin(self.name, self.script.key(self.tx))
        return self.tx

    def send(self, tablet: int, *values: bytes) -> None:
        """Sends values, which are written when this returns."""
        self.script.send(self.client, self.name, self.tx, tablet, list(values))
        self.script.world.pass_ms(20)

    def use(self, offset: int) -> None:
        """Sends an output for an input."""
        self.send(self.script.outputs[0], self.script.value(place(self.script.a, offset)))

    def ack(self, ranges: tuple[tuple[int, int], ...] = (), position: int | None = None) -> None:
        self.client.core.acknowledge(
            self.script.key(self.tx), self.script.a, GROUP, ranges, position
        )
        self.client.pump()
        self.script.world.pass_ms(20)

    def end(self, commit: bool = True) -> str:
        steps = self.script.end(self.client, self.name, self.tx, commit)
        error: str = self.script.wait(steps, self.client)
        self.script.world.pass_ms(20)
        return error

    def plain_ack(self, offset: int) -> str:
        def steps() -> Steps:
            ranges = ((offset, offset + 1),)
            return (
                yield lambda core, call: Core.plain_acknowledge(
                    core, call, self.script.a, GROUP, ranges
                )
            ).error

        error: str = self.script.wait(steps(), self.client)
        return error


def two(s: Script) -> tuple[Producer, Producer]:
    return Producer(s, "one"), Producer(s, "other")


def test_a1_writes_of_transactions_interleave() -> None:
    s = Script()
    one, other = two(s)
    one.begin()
    other.begin()
    one.send(s.a, b"1")
    other.send(s.a, b"2")
    other.send(s.b, b"3")
    one.send(s.b, b"4")
    one.send(s.a, b"5")
    assert one.end() == other.end() == ""
    assert s.anomalies() == ["G0", "internal send skip"]


def test_a2_a_transaction_reads_what_was_written_behind_its_own_writes() -> None:
    s = Script()
    one, other = two(s)
    reading = one.begin()
    other.begin()
    one.send(s.a, b"1")
    other.send(s.a, b"2")
    other.send(s.b, b"3")
    assert other.end() == ""
    reading.reads += s.read(s.b)
    assert one.end() == ""
    assert reading.reads == [b"3"] and s.anomalies() == ["G1c with ww"]


def test_a3_readers_wait_for_an_open_transaction_also_for_plain_messages() -> None:
    s = Script()
    one, _ = two(s)
    one.begin()
    one.send(s.a, b"1")
    batch = encode_batch([b"2"], timestamp_ms=1)
    plain = s.tx("plain", transactional=False)
    plain.sends.append((s.a, (b"2",)))

    def write() -> Steps:
        return (yield one.client.plain({s.a: [(batch, 1)]})).error

    assert s.wait(write(), one.client) == ""
    assert s.read(s.a) == []
    one.client.crash()
    s.world.pass_ms(6_000)
    assert s.read(s.a) == [b"2"], "its time-out has aborted it"


def test_a4_a_commit_is_half_seen() -> None:
    """Its marker is in one partition, and not yet in the other, which is on another host."""
    s = Script(hosts=2)
    one, _ = two(s)
    one.begin()
    one.send(s.a, b"1")
    one.send(s.b, b"2")
    seen: set[tuple[bool, ...]] = set()
    checks = s.world.after_turn

    def look(host: int) -> None:
        checks(host)
        seen.add(tuple(bool(records(s.views[True], tablet, 0, 9)) for tablet in (s.a, s.b)))

    s.world.after_turn = look
    assert one.end() == ""
    assert (True, True) in seen and seen & {(True, False), (False, True)}


def test_a5_committed_and_its_client_is_not_told() -> None:
    """The answer is lost; asked again, nobody knows the transaction any more, unless ended ones are kept."""
    for kept in (0, 10):
        s = Script(ended_kept=kept)
        one, _ = two(s)
        one.begin()
        one.send(s.a, b"1")
        lost: list[Any] = []
        handle = one.client.core.handle

        def lose(answer: Answer, handle: Any = handle, lost: list[Any] = lost) -> None:
            if not lost:
                lost.append(answer)
            else:
                handle(answer)

        one.client.core.handle = lose
        assert one.end() == ("" if kept else UNDETERMINED)
        assert s.read(s.a) == [b"1"] and lost


@pytest.mark.parametrize("kind", ["shared", "individual"])
def test_a6_two_cumulative_readers_use_an_input_twice(kind: str) -> None:
    s = Script(kind)
    s.feed(b"1", b"2")
    one, other = two(s)
    for reader, end in ((one, 1), (other, 2)):
        reader.begin()
        for offset in range(end):
            reader.use(offset)
        if kind == "shared":
            reader.ack(position=end)
        else:
            reader.ack(((0, end),))
        if reader is one:
            assert reader.end() == ""
    if kind == "shared":
        assert other.end() == "" and s.wrongly_used() == ["input used twice"]
    else:
        assert other.end() == "TransactionHasOperationFailed" and s.wrongly_used() == [
            "input lost"
        ], "the second one is not used yet"


def test_a7_a_reader_that_goes_on_behind_its_aborted_acknowledgement_loses_inputs() -> None:
    s = Script("shared")
    s.feed(b"1", b"2")
    one, _ = two(s)
    one.begin()
    one.use(0)
    one.ack(position=1)
    assert one.end(commit=False) == ""
    one.begin()
    one.use(1)
    one.ack(position=2)
    assert one.end() == ""
    assert s.position(s.a) >= 2 and s.wrongly_used() == ["input lost"]


def test_a8_a_message_sent_again_under_its_number_after_an_abort_is_lost() -> None:
    s = Script(deduplication=True)
    one, _ = two(s)
    for commit in (False, True):
        tx = one.begin()
        tx.sends.append((s.a, (b"1",)))
        batch = encode_batch([b"1"], timestamp_ms=1)
        one.client.core.send(s.key(tx), one.name, {s.a: [(batch, 1)]}, {s.a: [0]})
        one.client.pump()
        s.world.pass_ms(20)
        assert one.end(commit) == ""
    assert s.read(s.a) == [] and s.anomalies() == ["lost write"]


def test_a10_a_plain_acknowledgement_beside_a_pending_one() -> None:
    s = Script()
    s.feed(b"1")
    one, other = two(s)
    one.begin()
    one.use(0)
    one.ack(((0, 1),))
    other.begin()
    other.use(0)
    assert other.end() == "" and other.plain_ack(0) == ""
    assert one.end() == "", "it is not told"
    assert s.wrongly_used() == ["input used twice"]


@pytest.mark.parametrize("commit", [True, False])
def test_a13_an_input_is_in_two_hands_and_counts_once(commit: bool) -> None:
    """Readers are handed what is free, also what others have in hand; a second acknowledgement conflicts."""
    s = Script()
    s.feed(b"1")
    one, other = two(s)
    for reader in (one, other):
        reader.begin()
        assert s.free() == [b"1"]
        reader.use(0)
    one.ack(((0, 1),))
    assert s.free() == [], "what is pending is handed to nobody"
    other.ack(((0, 1),))
    assert other.end() == "TransactionHasOperationFailed"
    assert one.end(commit) == ""
    assert s.free() == ([] if commit else [b"1"]), "what is free again is handed out again"
    assert s.wrongly_used() == ([] if commit else ["input lost"])


def test_a14_a_batch_sent_again_is_written_again_without_deduplication() -> None:
    for deduplication in (True, False):
        s = Script(deduplication=deduplication)
        one, _ = two(s)
        one.begin()
        one.send(s.b, b"0")
        s.world.lines.repeat = 1.0
        one.send(s.a, b"1")
        s.world.lines.repeat = 0.0
        assert one.end() == ""
        assert s.read(s.a) == ([b"1"] if deduplication else [b"1", b"1"])
