"""Tests the runtime around the cores: hosts that stop, answers that come from another thread's turn."""

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kit import background, in_threads, until
from world import records, world

import planstep
from planstep.errors import HostStopped, Undetermined
from planstep.proto.ids import COORDINATOR_ID, host_of
from planstep.proto.messages import PUT, PartitionPart, Resolve, ShardPart


def test_a_host_that_stopped_is_named_at_once() -> None:
    with world(3) as w:
        runtime = w.runtime
        broken: Any = runtime.nodes[1].host
        broken._drain = Mock(side_effect=AssertionError("made to fail"))
        on = {host_of(tablet): shard for shard, tablet in enumerate(w.rows)}
        with pytest.raises(Undetermined, match="made to fail"):
            w.put(on[1], b"k", b"v")
        for host in range(3):
            with pytest.raises(HostStopped, match="made to fail"):
                w.put(on[host], b"k", b"v")
        assert not runtime.replies.waiting and not runtime.admission._held


def test_those_that_wait_hear_of_it_when_the_first_host_is_stopped(tmp_path: Path) -> None:
    with world(3, tmp_path / "s") as w:
        runtime = w.runtime
        on = {host_of(tablet): tablet for tablet in w.a}
        runtime.stop_host(2)
        tx = runtime.new_tx()
        parts = {on[host]: PartitionPart(slices=records(b"r")) for host in (1, 2)}
        future = runtime.transactions.submit(tx, parts)
        runtime.stop_host(0)
        with pytest.raises(Undetermined):
            future.result(30)
        runtime.start_host(0)
        runtime.start_host(2)
        w.rows = runtime.schema.create_table("more", 3, "msgpack").shards
        w.put(0, b"k", b"v")
        w.write(on[1], b"x")
        assert runtime.outcomes.of(tx).state in ("unknown", "refused")


@pytest.mark.parametrize("hosts", [1, 3])
def test_leaders_give_way_while_there_is_background_work(
    hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader gives way behind its turn, and the engine has background work of its own now and then."""
    gave: list[bool] = []
    with world(hosts) as w:
        threads: Any = w.runtime.threads
        monkeypatch.setattr(threads, "_give_way", lambda: gave.append(True))

        def gives_way() -> bool:
            gave.clear()
            w.put(0, b"k", b"v")
            return bool(gave)

        until(lambda: not gives_way())
        threads.in_background("made up", lambda: until(gives_way))
        with pytest.raises(ZeroDivisionError):
            threads.in_background("made up", lambda: 1 / 0)
        assert "made up" not in threads._background


def test_commits_beside_messages_in_turns_of_their_own_are_all_answered() -> None:
    """`resolve` runs a turn without the lead, and may include a commit that another thread waits for."""
    with world(1) as w:
        stop = threading.Event()

        def tell() -> None:
            while not stop.is_set():
                w.runtime.tell(COORDINATOR_ID, Resolve(b"\xff" * 12))

        def commit(shard: int) -> None:
            for i in range(200):
                parts = {w.rows[shard]: ShardPart(writes=((b"%d" % i, PUT, b"v"),))}
                w.runtime.transactions.commit(w.runtime.new_tx(), parts)

        with background(tell):
            try:
                in_threads(partial(commit, shard) for shard in range(4))
            finally:
                stop.set()


_CRASH = """
import os, sys, threading
from planstep.runtime.network import Network
from planstep.proto.batch import encode_batch
from planstep.proto.ids import COORDINATOR_ID, host_of
from planstep.proto.messages import PartitionPart
from planstep.proto.records_pb2 import LinkFrame
from planstep.runtime.open_runtime import open_runtime
from planstep.runtime.open_stores import OpenOptions

class Gate(Network):
    lost = threading.Event()
    shut = False
    def send(self, source, target, data):
        frame = LinkFrame.FromString(data)
        if self.shut and frame.messages and source == 0:
            self.lost.set()
        else:
            super().send(source, target, data)

network = Gate()
runtime = open_runtime(sys.argv[1], OpenOptions(hosts=3, network=network))
tablets = runtime.schema.create_topic("t", 3, "bytes").partitions
(tablet,) = [tablet for tablet in tablets if host_of(tablet) == 1]

def write(first, last):
    data = encode_batch([b"old"] * (last - first + 1))
    part = PartitionPart((), ((data, last - first + 1),), (b"P", first, last), True, session=b"s")
    return runtime.transactions.submit(runtime.new_tx(), {tablet: part})

write(0, 9).result(30)
network.shut = True
write(10, 19)
network.lost.wait(30)  # the plan, and it is durable at its sender
os._exit(len([t for t in tablets[:tablets.index(tablet)]]) + 10)
"""


def test_a_producers_numbers_go_on_behind_what_a_crash_left_planned(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _CRASH, str(tmp_path / "s")], check=False)
    partition = ended.returncode - 10
    assert partition in (0, 1, 2)
    with planstep.open(tmp_path / "s") as db:
        topic = db.topic("t")
        with topic.writer(producer="P") as writer:
            assert writer.write(b"new", partition=partition) == 20
        assert topic.read().values == [b"old"] * 20 + [b"new"]
