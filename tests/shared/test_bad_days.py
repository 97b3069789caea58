"""Tests machines on a shared log whose store answers wrongly, late, twice or not at all."""

import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from kit import background, in_threads
from shared_kit import (
    ROOT,
    Backing,
    BadDay,
    FaultyObjects,
    InFolder,
    InMemory,
    Machine,
    at,
    begin_behind,
    filled,
    history,
    judge,
    nonce,
    play_bad_day,
    read_all,
    slot,
    take_over,
    turn_behind,
)

from planstep.errors import Fenced, IoError, LogUnreachable, NoSpace
from planstep.shared.entry import BEGIN, Entry, Owner
from planstep.shared.objects_log import Objects, ObjectsLog, open_root


def open_faulty(backing: Backing, day: BadDay, timeout: float = 0.0) -> ObjectsLog:
    return ObjectsLog(FaultyObjects(backing.objects(), day), "a faulty log", timeout, pause=0.0)


def play(backing: Backing, seed: int, steps: int) -> tuple[list[Entry], list[Machine], BadDay]:
    return play_bad_day(backing, partial(open_faulty, backing), seed, steps)


def test_machines_agree_whatever_goes_wrong() -> None:
    kinds: Counter[str] = Counter()
    turns = terms = refused = 0
    for seed in range(300):
        entries, machines, day = play(InMemory(), seed, 300)
        kinds.update(day.seen)
        turns += len(entries)
        terms += sum(entry.kind == BEGIN for entry in entries)
        refused += sum(len(machine.refused) for machine in machines)
    expected = "full,refused,late,late exists,exists,lost,twice,again later,cut"
    assert min(kinds[kind] for kind in expected.split(",")) > 100, kinds
    assert turns > 3_000 and terms > 1_000 and refused > 1_000, (turns, terms, refused)


@pytest.mark.usefixtures("short_runs")
def test_machines_agree_with_runs() -> None:
    runs = 0
    for seed in range(2_000, 2_100):
        backing = InMemory()
        play(backing, seed, 300)
        runs += len(backing.shared.names("run/"))
    assert runs > 100, runs


def test_machines_agree_in_a_folder_too(tmp_path: Path) -> None:
    for seed in range(30):
        folder = InFolder(tmp_path / f"log {seed}")
        play(folder, 1_000 + seed, 200)
        folder.close()


def test_machines_in_threads_agree() -> None:
    for seed in range(10):
        backing = InMemory()
        day = BadDay(seed, 0.3)
        machines = [Machine(open_faulty(backing, day, 60), name) for name in "abcd"]

        def work(machine: Machine) -> None:
            while len(machine.acknowledged) < 25:
                machine.step()

        in_threads(lambda machine=machine: work(machine) for machine in machines)
        day.end()
        judge(backing, machines)
        take_over(backing)


# one trouble at a time -------------------------------------------------------------------------


class OneTrouble(BadDay):
    """A day on which each put has the trouble that is next, and everything else goes well."""

    def __init__(self, *kinds: str) -> None:
        super().__init__(0, 0.0)
        self.kinds = list(kinds)

    def draw(self, *kinds: str) -> str:
        return self.kinds.pop(0) if len(kinds) > 2 and self.kinds else ""


@pytest.mark.parametrize("kind", ["lost", "twice", "again later", "exists", "refused", "late"])
def test_a_turn_gets_through_one_trouble(backing: Backing, kind: str) -> None:
    entries = history(2)
    backing.open().append(entries[0])
    log = open_faulty(backing, OneTrouble(kind, kind, kind), timeout=60)
    log.open(at(entries[0]))
    log.append(entries[1])
    assert read_all(backing.open()) == entries


def test_a_root_whose_answer_was_lost_is_there(backing: Backing) -> None:
    backing.remove("store")
    objects = FaultyObjects(backing.objects(), OneTrouble("lost"))
    assert open_root(objects, "a log", ROOT) == ROOT


@pytest.mark.parametrize("kind", ["refused", "exists", "full"])
def test_a_root_that_could_not_be_written_is_no_log(backing: Backing, kind: str) -> None:
    backing.remove("store")
    objects = FaultyObjects(backing.objects(), OneTrouble(kind))
    with pytest.raises(IoError) as refused:
        open_root(objects, "a log", ROOT)
    assert isinstance(refused.value, NoSpace) == (kind == "full")
    assert open_root(objects, "a log", ROOT) == ROOT


@pytest.mark.parametrize("kind", ["late", "late exists"])
def test_a_turn_that_arrives_after_another_one_is_fenced(backing: Backing, kind: str) -> None:
    entries = filled(backing, 1)
    day = OneTrouble(kind)
    log = open_faulty(backing, day)
    log.open(at(entries[0]))
    mine = turn_behind(entries[0], entries[0].owner, b"mine")
    with pytest.raises(LogUnreachable, match="a faulty log was not reached"):
        log.append(mine)
    theirs = turn_behind(entries[0], entries[0].owner, b"theirs")
    other = backing.open()
    other.open(at(entries[0]))
    other.append(theirs)
    day.end()
    with pytest.raises(Fenced):
        log.append(mine)
    assert read_all(backing.open()) == [*entries, theirs]


def test_a_turn_whose_answer_was_lost_is_ones_own_when_it_is_sent_again(backing: Backing) -> None:
    entries = filled(backing, 1)
    day = OneTrouble("late")
    log = open_faulty(backing, day)
    log.open(at(entries[0]))
    entry = turn_behind(entries[0], entries[0].owner)
    with pytest.raises(LogUnreachable):
        log.append(entry)
    day.end()  # now it lands
    log.append(entry)
    assert read_all(backing.open()) == [*entries, entry]


def test_a_full_disk_refuses_before_any_effect(backing: Backing) -> None:
    entries = filled(backing, 1)
    log = open_faulty(backing, OneTrouble("full"), timeout=60)
    log.open(at(entries[0]))
    with pytest.raises(NoSpace, match="a faulty log: the disk is full"):
        log.append(turn_behind(entries[0], entries[0].owner, b"too large"))
    assert backing.objects().get(slot(2)) is None
    smaller = turn_behind(entries[0], entries[0].owner, b"small")
    log.append(smaller)
    assert read_all(backing.open()) == [*entries, smaller]


def test_a_full_disk_after_a_doubt_is_no_proof(backing: Backing) -> None:
    entries = filled(backing, 1)
    day = OneTrouble("late", "full")
    log = open_faulty(backing, day)
    log.open(at(entries[0]))
    entry = turn_behind(entries[0], entries[0].owner)
    for _ in range(2):  # not NoSpace: the first put is on its way still
        with pytest.raises(LogUnreachable):
            log.append(entry)
    day.end()
    assert read_all(backing.open()) == [*entries, entry]


class Sleeping(FaultyObjects):
    """An object store whose puts sleep until they are woken."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects, OneTrouble())
        self.asleep, self.woken = threading.Event(), threading.Event()

    def create(self, name: str, data: bytes) -> bool:
        self.asleep.set()
        assert self.woken.wait(60)
        return super().create(name, data)


def test_an_owner_that_sleeps_within_its_put_is_fenced(backing: Backing) -> None:
    entries = filled(backing, 1)
    objects = Sleeping(backing.objects())
    log = ObjectsLog(objects, "a slow log")
    log.open(at(entries[0]))
    late = turn_behind(entries[0], entries[0].owner)
    taken = begin_behind(entries[0], Owner(2, nonce("taker")))
    with pytest.raises(Fenced, match="term 2"), background(lambda: log.append(late)):
        assert objects.asleep.wait(60)
        taker = backing.open()
        taker.open(at(entries[0]))
        taker.append(taken)
        objects.woken.set()
    assert read_all(backing.open()) == [*entries, taken]
