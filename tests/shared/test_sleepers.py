"""Tests owners and takers that sleep while others go on, over a trim, and an owner that loses its power.

The numbers are those of the scenarios that replication is accepted by.
"""

import os
import random
import shutil
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import replica_kit
from kit import Child
from replica_kit import ZOMBIE, Hooks, Machines, rows

import planstep
from planstep.bench.proof.disks.engines import (
    abandon,
    content_of,
    open_engine,
    problems,
    stores_of,
)
from planstep.bench.proof.disks.failing import FastFiles
from planstep.bench.proof.disks.images import Disk
from planstep.bench.proof.disks.recorder import Recorder, watch_mark, watch_tables
from planstep.bench.proof.disks.snapshots import snapshot
from planstep.shared.entry import BEGIN, Entry, read_entry
from planstep.shared.objects_log import ObjectsLog
from planstep.shared.registry import open_shared_log

machines = replica_kit.machines
hooks = replica_kit.hooks
_SECONDS = 120


def trim(db: planstep.Engine, machines: Machines) -> int:
    """Makes snapshots, with turns between them, until the log is trimmed; returns its floor."""
    for number in range(3):
        db.table("t").put(("trim", number), 1)
        db.table("t").put(("trim", number), 2)
        snapshot(db, machines.url)
    return floor(machines)


def floor(machines: Machines) -> int:
    log, _ = open_shared_log(machines.url, None)
    try:
        return log.floor()
    finally:
        log.close()


def slots(machines: Machines) -> set[int]:
    return {int(path.name) for path in (machines.home / "log" / "log").iterdir()}


def terms(machines: Machines) -> list[int]:
    """Returns the terms of all BEGINs that are there."""
    entries = [
        read_entry(path.read_bytes(), path.name)
        for path in sorted((machines.home / "log" / "log").iterdir())
    ]
    return [entry.owner.term for entry in entries if entry.kind == BEGIN]


def test_3_a_frozen_owner_over_10_000_turns_and_a_trim(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Child(ZOMBIE, machines.folder("a"), machines.url) as zombie:
        done = {int(zombie.line()) for _ in range(20)}
        zombie.process.send_signal(signal.SIGSTOP)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, lambda fd: None)  # it would take minutes on a disk
        with machines.take_over("b") as db:
            for number in range(10_000):
                db.table("t").put("new", number)
            assert trim(db, machines) > 10_000
            held = rows(db)
            zombie.process.send_signal(signal.SIGCONT)
            lines = zombie.process.stdout.read().splitlines()
            # Its turn may have come to its slot, and be gone below the floor: nobody can tell any more.
            assert lines[-1] == "Undetermined Fenced Fenced"
            done |= {int(line) for line in lines[:-1]}
            assert rows(db) == held and done <= held.keys()
        assert zombie.process.wait(_SECONDS) == 0
    with machines.open("a") as db:  # its place is gone, so it begins from a snapshot
        assert rows(db) == held


class Sleeper:
    """A machine that takes the store over, and sleeps before or after its first BEGIN."""

    def __init__(self, hooks: Hooks, when: str) -> None:
        self.asleep, self.wake = threading.Event(), threading.Event()
        self.begun: Entry | None = None
        setattr(hooks, when, self.hook)

    def hook(self, entry: Entry) -> None:
        here = threading.current_thread().name.startswith("sleeper")
        if here and entry.kind == BEGIN and not self.asleep.is_set():
            self.begun = entry
            self.asleep.set()
            assert self.wake.wait(_SECONDS)


def test_5_a_taker_that_sleeps_between_the_tail_and_its_begin_over_a_trim(
    machines: Machines, hooks: Hooks
) -> None:
    sleeper = Sleeper(hooks, "before")
    with ThreadPoolExecutor(1, "sleeper") as pool, machines.open("a") as owner:
        owner.create_table("t").put("k", 1)
        taking = pool.submit(machines.take_over, "b")
        assert sleeper.asleep.wait(_SECONDS)
        assert sleeper.begun is not None
        slot = sleeper.begun.turn
        owner.table("t").put("k", 2)
        assert trim(owner, machines) > slot and slot not in slots(machines)
        before = rows(owner)
        sleeper.wake.set()
        with taking.result(_SECONDS) as db:
            assert rows(db) == before and before["k"] == 2
            db.table("t").put("k", 3)
            with pytest.raises(planstep.Fenced):
                owner.table("t").put("k", 4)
            assert slot in slots(machines), "a void BEGIN stays where it is"
            held = rows(db)
    with machines.open("c") as db:
        assert rows(db) == held and held["k"] == 3


def test_6_a_taker_that_sleeps_between_its_begin_and_the_look_at_the_floor(
    machines: Machines, hooks: Hooks
) -> None:
    with machines.open("a") as owner:
        owner.create_table("t").put("k", 1)
        sleeper = Sleeper(hooks, "after")
        with ThreadPoolExecutor(1, "sleeper") as pool:
            taking = pool.submit(machines.take_over, "b")
            assert sleeper.asleep.wait(_SECONDS)
            assert sleeper.begun is not None
            with pytest.raises(planstep.Fenced):
                owner.table("t").put("k", 2)
            with machines.take_over("c") as other:
                other.table("t").put("k", 3)
                assert trim(other, machines) > sleeper.begun.turn
                held = rows(other)
                sleeper.wake.set()
                with taking.result(_SECONDS) as db:  # it starts over, in a new term
                    assert rows(db) == held and held["k"] == 3
                    with pytest.raises(planstep.Fenced):
                        other.table("t").put("k", 4)
                    db.table("t").put("k", 5)
    assert terms(machines) == [1, 2, 3, 4], "a BEGIN is never removed"
    with machines.open("d") as db:
        assert rows(db) == held | {"k": 5}


def test_24_a_follower_that_is_overtaken_by_a_trim(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, really = threading.Event(), ObjectsLog.read
    reading.set()

    def read(log: ObjectsLog, limit_bytes: int, wait: float) -> list[Entry]:
        assert reading.wait(_SECONDS)
        return really(log, limit_bytes, wait)

    monkeypatch.setattr(ObjectsLog, "read", read)
    with machines.open("a") as owner:
        owner.create_table("t").put("k", 1)
        with planstep.follow(machines.folder("f"), machines.url) as me:
            with me.snapshot(at_least=owner.turn) as view:
                assert view.get("t", "k") == 1
            reading.clear()  # the read that is under way may still take what is there
            owner.table("t").put("k", 2)
            assert trim(owner, machines) > 5
            reading.set()
            with suppress(planstep.Trimmed), me.snapshot(at_least=owner.turn) as view:
                assert view.get("t", "k") == 2
        with planstep.follow(machines.folder("f"), machines.url) as me:
            with me.snapshot(at_least=owner.turn) as view:
                assert view.get("t", "k") == 2 and view.get("t", ("trim", 2)) == 2


def test_14_power_loss_of_the_owner(machines: Machines) -> None:
    draw, files = random.Random(14), Recorder(machines.home / "run")
    replicate = machines.replicate()
    db = open_engine(machines.home / "run" / "s", files, replicate=replicate)
    for store in stores_of(db):
        watch_tables(store, files)
        watch_mark(store, files)
    db.create_table("t")
    db.create_topic("log", format="utf8")
    for number in range(120):
        with db.transaction() as tx:
            tx.put("t", number % 40, number)
            tx.write("log", f"{number} " * (1 + number), partition=0)
            tx.commit()
        for store in stores_of(db):
            if number % 30 == 29:
                store.checkpoint()
    whole = content_of(db)
    abandon(db)
    disk, losses = Disk(), Counter[str]()
    chosen = {*draw.sample(range(len(files.trace)), 40)}
    for at, event in enumerate(files.trace):
        disk.step(event)
        if at in chosen:
            image = machines.home / f"image-{at}"
            disk.image(image, draw, losses)
            db = open_engine(image / "s", FastFiles(), replicate=replicate)
            assert content_of(db) == whole, f"event {at}"
            db.close()
            assert problems(image / "s") == []
    assert losses.total() > 100, "the disk has lost something"


def test_a_folder_with_turns_that_a_log_lost_is_not_replaced_by_a_snapshot(
    machines: Machines,
) -> None:
    """Also once the log, which was put back and went on, is trimmed beyond it: they are nowhere else."""
    with machines.open("a") as db:
        db.create_table("t").put("k", 1)
    shutil.copytree(machines.home / "log", machines.home / "yesterday")
    with machines.take_over("b") as db:
        for number in range(5):
            db.table("t").put("lost", number)
    shutil.rmtree(machines.home / "log")
    (machines.home / "yesterday").rename(machines.home / "log")
    with machines.open("a") as db:
        for number in range(20):
            db.table("t").put("new", number)
        assert trim(db, machines) > 20
        held = rows(db)
    for _ in range(2):
        with pytest.raises(planstep.Diverged, match="not that of the shared log"):
            machines.open("b")
        with pytest.raises(planstep.Diverged, match="keep the folder"):
            planstep.follow(machines.folder("b"), machines.url)
    with planstep.open(machines.folder("b"), read_only=True) as db:
        assert rows(db) == {"k": 1, "lost": 4}
    shutil.rmtree(machines.folder("b"))
    with machines.open("b") as db:
        assert rows(db) == held
