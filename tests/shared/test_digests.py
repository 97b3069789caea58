"""Tests that followers notice when their tables are not their owner's."""

import random
import threading
import time
from typing import Any

import pytest
import replica_kit
from kit import until
from replica_kit import Machines

import planstep
from planstep.proto.ids import SHARD, kind_of
from planstep.proto.keys import encode_key
from planstep.runtime import follower, replication
from planstep.shared.entry import Entry
from planstep.store.digests import Digests

machines = replica_kit.machines


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "DIGEST_SECONDS", 0.2)


def follow(machines: Machines, name: str) -> planstep.Follower:
    return planstep.follow(machines.folder(name), machines.url)


def change(db: planstep.Engine, seed: random.Random) -> None:
    """Does something with rows, topics and names."""
    with db.transaction() as tx:
        for _ in range(seed.randrange(1, 5)):
            if db.mode == "deterministic":
                key = seed.randrange(50)
                tx.delete("t", key) if seed.random() < 0.3 else tx.put("t", key, seed.random())
            tx.write("c", b"x" * seed.randrange(300), partition=seed.randrange(2))
    if seed.random() < 0.05:
        name = f"more-{seed.randrange(3)}"
        db.drop_topic(name, missing_ok=True)
        db.create_topic(name, exist_ok=True).write(b"y")


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_equal_whatever_checkpoints_were_made(machines: Machines, mode: Any) -> None:
    """One follower follows all the time, the other one is opened anew, and both checkpoint by themselves, too."""
    seed = random.Random(mode)
    with machines.open("a", mode=mode) as db, follow(machines, "f") as me:
        db.create_topic("c", partitions=2)
        if mode == "deterministic":
            db.create_table("t")
        compared = 0
        for number in range(4):
            with follow(machines, "g") as other:
                while not (other._tail.folder.compared and me._tail.folder.compared > number):
                    change(db, seed)
                    if seed.random() < 0.05:
                        seed.choice([db, me.db, other.db])._runtime.nodes[0].host.store.checkpoint()
                compared += other._tail.folder.compared
        assert compared >= 4
        if number == 3:
            db.close()
            with me.lead() as led, follow(machines, "g") as other:
                while not other._tail.folder.compared:
                    change(led, seed)


def test_a_row_that_differs_ends_the_follower(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, wrong = follower._Shown._commit, encode_key("k7")

    def commit(folder: Any, turn: Any) -> None:
        for key, value in turn.overlay.items():
            if kind_of(int.from_bytes(key[:4], "big")) == SHARD and key[4:] == b"r" + wrong:
                turn.overlay[key] = (*value[:2], b"wrong")
        really(folder, turn)

    with machines.open("a") as db:
        table = db.create_table("t", format="bytes")
        with follow(machines, "f") as me, follow(machines, "g") as other:
            for n in range(100):
                table.put(f"k{n}", b"x")
            until(lambda: me.db.turn == db.turn == other.db.turn)
            with monkeypatch.context() as planted:
                planted.setattr(follower._Shown, "_commit", commit)
                table.put("k7", b"y")
                until(lambda: me.db.turn == db.turn == other.db.turn)
            assert me.db.table("t").get("k7") == b"wrong"
            while not (me._tail.failed and other._tail.failed):
                table.put("k1", b"z")
                time.sleep(0.01)
            for one in (me, other):
                with pytest.raises(planstep.Diverged, match="shard") as diverged:
                    one.db.table("t").get("k1")
                assert "rows here" in str(diverged.value)
                with pytest.raises(planstep.Diverged):
                    one.lead()
        with follow(machines, "h") as healthy:
            while not healthy._tail.folder.compared:
                table.put("k1", b"z")
                time.sleep(0.01)
            assert healthy.db.table("t").get("k7") == b"y"


def test_digests_are_compared_by_tablet() -> None:
    one = Digests(7, ((b"\x40\0\0\1", 5, 2), (b"\x40\0\0\2", 0, 0)))
    one.compare(Digests(7, ((b"\x40\0\0\1", 5, 2),)))
    for other in (((b"\x40\0\0\1", 6, 2),), (), (*one.tablets, (b"\x40\0\0\3", 1, 1))):
        with pytest.raises(planstep.Diverged, match="turn 7"):
            one.compare(Digests(7, other))


def test_an_idle_store_is_not_woken(machines: Machines) -> None:
    with machines.open("a") as db:
        table = db.create_table("t")
        before: list[Entry] = []
        while not any(b"D" in entry.changes[:64] for entry in before):
            table.put("k", 1)
            before = machines.entries()
        turn = db.turn
        threading.Event().wait(1)
        assert db.turn == turn
