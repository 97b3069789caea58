"""Tests simulated processes that share one store: seeds, their parts, and what the judges notice.

After every run the world heals and everything must end. `planstep check sim` runs more seeds, `planstep check
mutants` plants bugs in the code that these worlds run.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from planstep.bench.proof.simulator.attached_world import CLASSES, AttachedWorld
from planstep.bench.proof.simulator.process import Process, real_processes
from planstep.bench.proof.simulator.streams import Lines, Listener, Stream, connect
from planstep.bench.proof.simulator.timeline import Timeline
from planstep.bench.proof.worlds.attached.groups import Group, Lanes
from planstep.bench.proof.worlds.attached.seed import play
from planstep.proto.ids import SHARD, tablet_id
from planstep.proto.messages import PUT, ShardPart
from planstep.store.process_socket import NobodyListens

SEEDS = int(os.environ.get("PLANSTEP_SEEDS", "1"))
"""Multiplies the number of seeds."""
TABLE = tablet_id(SHARD, 0, 90)


@pytest.mark.parametrize("seed", range(10 * SEEDS))
def test_a_world_ends_as_its_committed_transactions_one_by_one(seed: int) -> None:
    (played,) = play(seed, 100)
    assert played.violations == []
    assert played.events > 100


def test_a_seed_is_the_same_again_and_another_is_not() -> None:
    assert play(4, 60) == play(4, 60)
    assert play(4, 60)[0].digest != play(5, 60)[0].digest


def test_all_that_may_befall_them_does() -> None:
    struck: Counter[str] = Counter()
    for seed in range(20, 60):
        struck += play(seed, 200)[0].faults
        if all(struck[name] for name in CLASSES):
            break
    assert [name for name in CLASSES if not struck[name]] == []


@pytest.mark.parametrize("seed", [100, 1069])
def test_seeds_that_have_found_a_bug(seed: int) -> None:
    """A commit was not found in a partition that was dropped. Another one waited for room in a socket for ever."""
    assert play(seed, 200)[0].violations == []


# the processes ------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[AttachedWorld]:
    """Three processes without faults; the first one owns the store."""
    world = AttachedWorld(1, 3, Lanes(0))
    with real_processes(world):
        world.settle()
        yield world
    assert world.violations == []


def write(world: AttachedWorld, process: Process, value: bytes) -> None:
    part = ShardPart(writes=((b"k", PUT, value),))
    process.spawn(world.commit, {TABLE: part})


def reads(world: AttachedWorld) -> list[Any]:
    """Returns the value as each process sees it now."""
    values: list[Any] = []

    def read() -> None:
        row = world.read(TABLE, b"rk")
        values.append(None if row is None else row[-1])

    for process in world.alive():
        process.spawn(read)
    world.pass_ms(0.0)
    return values


def test_what_one_was_answered_all_see(world: AttachedWorld) -> None:
    for number, process in enumerate(world.alive()):
        write(world, process, b"%d" % number)
        while len(world.results) <= number:
            world.step()
        assert reads(world) == [b"%d" % number] * 3


def test_a_turn_that_is_durable_and_not_released_is_nobodys_until_the_next_owner(
    world: AttachedWorld,
) -> None:
    owner, *others = world.alive()
    log, mark = world.folder.log, world.folder.mark
    turns = len(log)
    write(world, others[0], b"1")
    while len(log) == turns:
        world.step()
    assert world.folder.mark == mark and not world.results
    assert reads(world) == [None] * 3
    owner.kill()
    world.settle()
    assert reads(world) == [b"1"] * 3
    assert [result.reason for result in world.results.values()] == [None]
    assert len([one for one in log if any(key[4:] == b"rk" for key in one)]) == 1


def test_a_commit_that_no_owner_has_is_done_by_the_next(world: AttachedWorld) -> None:
    owner, *others = world.alive()
    write(world, others[0], b"1")
    while not world.asked_at:
        world.step()
    owner.kill()
    world.settle()
    assert reads(world) == [b"1"] * 3 and len(world.results) == 1


def test_commits_go_on_over_many_owners(world: AttachedWorld) -> None:
    for number in range(8):
        owner = world.owner()
        assert owner is not None
        for process in world.alive():
            write(world, process, b"%d" % number)
        world.pass_ms(world.fate.uniform(0, 2))
        if number % 2:
            owner.kill()
        else:
            owner.spawn(owner.close)
        world.pass_ms(1.0)
        world.settle()
        assert world.owner() is not owner
    assert world.unanswered() == []


def test_a_lane_of_two_is_noticed(world: AttachedWorld) -> None:
    class Reader:
        told = True
        holds = (0,)

    group: Any = Group(world, Lanes(1), None)
    first, second, _ = world.alive()
    group.readers = {first.number: Reader()}
    group.check()
    assert world.violations == []
    group.readers[second.number] = Reader()
    group.check()
    (text,) = world.violations
    assert text.startswith("B41: lane 0 is of processes")
    world.violations.clear()


# streams ------------------------------------------------------------------------------------------


class Network(Timeline):
    """Nothing but connections."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(1)
        self.lines = lines
        self.net = random.Random(1)
        self.listener = Listener(self, 1)

    def connected(self) -> tuple[Stream, Stream]:
        stream = connect(self, self.listener, 2, 10)
        accepted = self.listener.accept()
        assert accepted is not None
        return stream, accepted[0]

    def run_out(self) -> None:
        while self._queue:
            self.step()


def received(stream: Stream) -> bytes:
    buffer = memoryview(bytearray(7))
    data = b""
    while stream.can_read() and (size := stream.recv_into(buffer)):
        data += buffer[:size]
    return data


def test_bytes_arrive_in_their_order_however_they_are_cut() -> None:
    network = Network(Lines(0.3, 0.3, 0.7))
    here, there = network.connected()
    sent = b""
    for number in range(200):
        data = b"%d," % number
        try:
            sent += data[: here.sendmsg([data])]
        except BlockingIOError:
            network.step()
    here.close()
    network.run_out()
    assert received(there) == sent
    assert there.can_read() and received(there) == b""  # its end


@pytest.mark.parametrize("end", [Stream.cut, lambda stream: stream.die(True)])
def test_what_is_on_its_way_is_lost_where_the_link_ends(end: Callable[[Stream], None]) -> None:
    network = Network(Lines(0.0, 0.5, 1.0))
    here, there = network.connected()
    sent = bytes(range(256))
    here.sendmsg([sent])
    for _ in range(2):
        network.step()
    end(here)
    network.run_out()
    data = received(there)
    assert data == sent[: len(data)] and len(data) < len(sent)
    assert there.can_read()  # its end


def test_nobody_listens_once_the_owner_has_closed() -> None:
    network = Network(Lines())
    waiting = connect(network, network.listener, 2, 10)
    network.listener.close()
    with pytest.raises(NobodyListens):
        connect(network, network.listener, 3, 12)
    network.run_out()
    assert waiting.can_read() and received(waiting) == b""
