"""Tests runs, which have turns of a shared log once more, and readers that fetch them and slots ahead.

Whatever a run holds, or whether there is one, a reader gets the turns of the slots.
"""

import gc
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit import background
from shared_kit import (
    Backing,
    InFolder,
    InMemory,
    QuickFiles,
    at,
    begin_behind,
    filled,
    history,
    nonce,
    read_all,
    slot,
    turn_behind,
)

from planstep.errors import Corruption, IoError, LogUnreachable, NoSpace, Trimmed
from planstep.shared.entry import Entry, Owner
from planstep.shared.files_log import open_files_log
from planstep.shared.objects_log import ObjectsLog
from planstep.shared.runs import RunWriter, encode_run, read_run, run_name
from planstep.shared.shared_log import Position

ALL = 1 << 20
SECOND = Owner(2, nonce("second"))
pytestmark = pytest.mark.usefixtures("runs_of_five")


@pytest.fixture(params=["memory", "folder", "bucket"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runs_of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each five turns are a run, and a reader is far behind if it is ten turns behind."""
    monkeypatch.setattr("planstep.shared.runs.RUN_TURNS", 5)
    monkeypatch.setattr("planstep.shared.objects_log.FAR", 10)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is there before the next turn is."""
    monkeypatch.setattr(RunWriter, "_put_behind", RunWriter._put)


@pytest.fixture
def no_runs(runs_of_five: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.shared.runs.RUN_TURNS", 1_000)


@pytest.fixture
def damage(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Returns the runs that were said to be damaged."""
    return lambda: [getattr(record, "where", "") for record in caplog.records]


class Counting:
    """The objects of a log, which notes the names that are fetched."""

    def __init__(self, backing: Backing) -> None:
        self._objects = backing.objects()
        self.got: list[str] = []

    def get(self, name: str) -> bytes | None:
        self.got.append(name)
        return self._objects.get(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


def runs_of(backing: Backing) -> list[str]:
    return backing.objects().names("run/")


def name_of(entries: list[Entry]) -> str:
    return run_name(entries[0].turn, entries[-1].turn)


# writing ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
def test_an_owner_puts_its_turns_once_more(backing: Backing) -> None:
    entries = filled(backing, 13)
    runs = [entries[1:6], entries[6:11]]  # turn 1 is a BEGIN, and turns 12 and 13 wait for others
    assert runs_of(backing) == [name_of(run) for run in runs]
    for run in runs:
        data = backing.objects().get(name_of(run))
        assert data is not None and read_run(data, name_of(run), "here") == run


@pytest.mark.usefixtures("at_once")
def test_a_run_has_turns_of_one_owner_that_it_appended_itself(backing: Backing) -> None:
    entries = history(4)
    log = backing.open()
    for entry in entries:
        log.append(entry)
    other = backing.open()
    assert read_all(other) == entries
    theirs = [begin_behind(entries[-1], SECOND)]
    for _ in range(6):
        theirs.append(turn_behind(theirs[-1], SECOND))
    for entry in theirs:
        other.append(entry)
    assert runs_of(backing) == [name_of(theirs[1:6])]
    assert log.read(ALL, 0) == theirs
    assert read_all(backing.open()) == [*entries, *theirs]


@pytest.mark.usefixtures("at_once")
def test_large_turns_make_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.shared.runs._RUN_BYTES", 1 << 20)
    backing = InMemory()
    log = backing.open()
    (first,) = filled(backing, 1)
    log.open(at(first))
    entry = first
    for size in (300_000,) * 4 + (250_000,) * 5:
        entry = turn_behind(entry, first.owner, bytes(size))
        log.append(entry)
    assert runs_of(backing) == [run_name(6, 10)]  # the first four had their million bytes


class Blocked(Counting):
    """Objects whose runs wait to be put until they are let, and fail then if they shall."""

    def __init__(self, backing: Backing, error: Exception | None = None) -> None:
        super().__init__(backing)
        self.error = error
        self.waiting, self.let = threading.Event(), threading.Event()

    def create(self, name: str, data: bytes) -> bool:
        if name.startswith("run/"):
            self.waiting.set()
            assert self.let.wait(60)
            if self.error is not None:
                raise self.error
        return self._objects.create(name, data)


@pytest.mark.parametrize("error", [None, IoError("no answer"), NoSpace("full"), MemoryError()])
def test_no_append_waits_for_a_run_or_fails_with_it(error: Exception | None) -> None:
    backing = InMemory()
    objects = Blocked(backing, error)
    log = ObjectsLog(objects, "a log")
    entries = history(18)
    for entry in entries:
        log.append(entry)
    assert objects.waiting.wait(60)
    assert runs_of(backing) == []
    with background(log.close) as (closed,):
        objects.let.set()
        closed.result(60)
    # One run is on its way at a time, and those that come meanwhile are left out.
    assert runs_of(backing) == ([] if error else [run_name(2, 6)])
    assert read_all(backing.open()) == entries


# reading ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
def test_a_reader_that_is_far_behind_takes_runs(backing: Backing) -> None:
    entries = filled(backing, 23)
    objects = Counting(backing)
    log = ObjectsLog(objects, "a log")
    assert read_all(log) == entries
    runs = {run_name(2, 6), run_name(7, 11), run_name(12, 16), run_name(17, 21)}
    assert {*objects.got} == runs | {slot(turn) for turn in (1, 22, 23, 24, 25)}
    log.close()


@pytest.mark.usefixtures("at_once")
def test_a_reader_takes_the_rest_of_a_run(backing: Backing) -> None:
    entries = filled(backing, 23)
    objects = Counting(backing)
    log = ObjectsLog(objects, "a log")
    assert read_all(log, entries[8]) == entries[9:]
    assert run_name(7, 11) in objects.got and slot(10) not in objects.got
    log.close()


@pytest.mark.usefixtures("no_runs")
def test_a_reader_that_is_a_little_behind_takes_slots(backing: Backing) -> None:
    entries = filled(backing, 23)
    objects = Counting(backing)
    log = ObjectsLog(objects, "a log")
    assert read_all(log, entries[14]) == entries[15:]
    assert {*objects.got} == {slot(turn) for turn in range(16, 26)}
    log.close()


@pytest.mark.usefixtures("at_once")
def test_a_reader_stops_at_its_limit_within_a_run(backing: Backing) -> None:
    entries = filled(backing, 23)
    log = backing.open()
    log.open(Position())
    found = []
    while some := log.read(len(entries[1].data) + 1, 0):
        assert len(some) <= 2
        found += some
    assert found == entries


@pytest.mark.usefixtures("at_once")
def test_a_reader_that_reached_the_end_falls_behind_and_looks_ahead_again(
    backing: Backing,
) -> None:
    entries = history(60)
    log, objects = backing.open(), Counting(backing)
    reader = ObjectsLog(objects, "a log")
    for entry in entries[:3]:
        log.append(entry)
    assert read_all(reader) == entries[:3]
    for entry in entries[3:]:
        log.append(entry)
    objects.got.clear()
    found = []
    while some := reader.read(ALL, 0):
        found += some
    assert found == entries[3:]
    assert len(objects.got) < 40
    reader.close()


def damages(run: list[Entry]) -> Iterator[bytes]:
    data = encode_run(run)
    for n in range(len(data)):
        yield data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :]
    for n in range(0, len(data), 7):
        yield data[:n]
    yield data + b"\0"
    yield encode_run([])
    yield encode_run(run[:-1])
    yield encode_run([*run[:2], *run[3:]])
    yield encode_run([run[0], run[2], run[1], *run[3:]])


def test_a_damaged_run_is_corruption() -> None:
    run = history(6)[1:]
    name = name_of(run)
    assert read_run(encode_run(run), name, "here") == run
    for data in damages(run):
        with pytest.raises(Corruption, match="here"):
            read_run(data, name, "here")
    with pytest.raises(Corruption, match="other turns than its name"):
        read_run(encode_run(run), run_name(3, 7), "here")
    stranger = turn_behind(run[3], SECOND)
    with pytest.raises(Corruption, match="several owners"):
        read_run(encode_run([*run[:4], stranger]), name, "here")
    begin = begin_behind(run[3], run[0].owner)
    with pytest.raises(Corruption, match="several owners"):
        read_run(encode_run([*run[:4], begin]), name, "here")


def other_history(turns: int) -> list[Entry]:
    return history(turns, SECOND)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "data",
    [b"", b"?", encode_run(history(11)[6:11])[:-1], encode_run(other_history(11)[6:11])],
    ids=["empty", "short", "cut off", "of another history"],
)
def test_a_reader_takes_the_slots_of_a_run_that_is_not_right(
    backing: Backing, damage: Callable[[], list[str]], data: bytes
) -> None:
    entries = filled(backing, 23)
    backing.write(run_name(7, 11), data)
    assert read_all(backing.open()) == entries
    (where,) = damage()
    assert where.endswith(run_name(7, 11))


@pytest.mark.usefixtures("at_once")
def test_runs_that_are_gone_or_say_nothing_are_passed_by(
    backing: Backing, damage: Callable[[], list[str]]
) -> None:
    entries = filled(backing, 23)
    backing.remove(run_name(7, 11))
    for name in ("run/7", run_name(9, 3), run_name(30, 40), "run/README"):
        backing.write(name, b"?")
    assert read_all(backing.open()) == entries
    assert damage() == []


@pytest.mark.usefixtures("at_once")
def test_a_run_of_turns_whose_slots_are_gone_says_nothing(backing: Backing) -> None:
    entries = filled(backing, 21)
    for turn in range(16, 22):  # as a bucket that was put back, but for its runs
        backing.remove(slot(turn))
    assert read_all(backing.open()) == entries[:15]


@pytest.mark.usefixtures("no_runs")
def test_slots_are_fetched_many_at_once(backing: Backing) -> None:
    entries = filled(backing, 40)
    together = threading.Barrier(8)

    class Slow(Counting):
        def get(self, name: str) -> bytes | None:
            if slot(2) <= name <= slot(17):
                together.wait(60)
            return super().get(name)

    log = ObjectsLog(Slow(backing), "a log")
    assert read_all(log) == entries
    log.close()


@pytest.mark.usefixtures("no_runs")
@pytest.mark.parametrize("error", [IoError("no answer"), None])
def test_a_slot_that_was_not_fetched_is_asked_for_again(
    backing: Backing, error: Exception | None
) -> None:
    entries = filled(backing, 40)
    failing = {slot(turn) for turn in range(1, 40, 3)}

    class Failing(Counting):
        def get(self, name: str) -> bytes | None:
            if name in failing:
                failing.discard(name)
                if error is not None:
                    raise error
                return None
            return super().get(name)

    log = ObjectsLog(Failing(backing), "a log")
    assert read_all(log) == entries
    assert not failing
    log.close()


@pytest.mark.usefixtures("no_runs")
def test_what_is_fetched_ends_with_the_log(backing: Backing) -> None:
    filled(backing, 40)
    objects = Counting(backing)
    log = ObjectsLog(objects, "a log")
    log.open(Position())
    log.read(1, 0)
    log.close()
    assert len(objects.got) <= 18
    assert not [t for t in threading.enumerate() if t.name.startswith("planstep-ahead")]


# trimming --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
def test_trimming_removes_the_runs_below_the_floor(backing: Backing) -> None:
    entries = filled(backing, 23)
    backing.open().trim(11)
    assert runs_of(backing) == [run_name(7, 11), run_name(12, 16), run_name(17, 21)]
    assert read_all(backing.open(), entries[9]) == entries[10:]
    backing.open().trim(12)
    assert runs_of(backing) == [run_name(12, 16), run_name(17, 21)]
    with pytest.raises(Trimmed):
        read_all(backing.open(), entries[9])


@pytest.mark.usefixtures("at_once")
def test_a_run_that_comes_after_the_trimming_shows_true_turns_and_then_the_floor(
    backing: Backing,
) -> None:
    entries = filled(backing, 23)
    late = backing.objects().get(run_name(2, 6))
    assert late is not None
    backing.open().trim(14)
    backing.write(run_name(2, 6), late)
    log = backing.open()
    log.open(at(entries[0]))
    assert log.read(ALL, 0) == entries[1:6]
    with pytest.raises(Trimmed):
        log.read(ALL, 0)
    backing.open().trim(14)
    assert runs_of(backing) == [run_name(12, 16), run_name(17, 21)]


@pytest.mark.usefixtures("no_runs")
def test_many_turns_are_removed_at_once_and_begins_stay(backing: Backing) -> None:
    entries = filled(backing, 20)
    log = backing.open()
    assert read_all(log) == entries
    entries.append(begin_behind(entries[-1], SECOND))
    for _ in range(9):
        entries.append(turn_behind(entries[-1], SECOND))
    for entry in entries[20:]:
        log.append(entry)
    together = threading.Barrier(4)

    class Slow(Counting):
        def remove(self, name: str) -> None:
            if slot(2) <= name <= slot(9):
                together.wait(60)
            self._objects.remove(name)

    trimming = ObjectsLog(Slow(backing), "a log")
    trimming.trim(28)
    left = [slot(turn) for turn in (1, 21, 28, 29, 30)]
    assert backing.objects().names("log/") == left
    assert not [t for t in threading.enumerate() if t.name.startswith("planstep-trim")]


@pytest.mark.usefixtures("no_runs")
def test_trimming_many_turns_ends_with_the_first_error(backing: Backing) -> None:
    filled(backing, 40)
    objects = Counting(backing)

    class Failing(Counting):
        def remove(self, name: str) -> None:
            raise IoError("no answer")

    log = ObjectsLog(Failing(backing), "a log", timeout=0.0)
    with pytest.raises(LogUnreachable):
        log.trim(40)
    assert objects.names("log/") == [slot(turn) for turn in range(1, 41)]
    backing.open().trim(40)
    assert objects.names("log/") == [slot(1), slot(40)]


def test_40_what_a_log_holds_stays_flat(folder: InFolder) -> None:
    """Descriptors, threads and memory, while one machine appends, one follows, and others begin."""
    owner, follower = folder.open(), folder.open()
    follower.open(Position())
    (entry,) = history(1)

    def work(turns: int) -> tuple[int, int, int]:
        nonlocal entry
        for n in range(turns):
            owner.append(entry)
            entry = turn_behind(entry, entry.owner, b"%d" % n)
            if n % 7 == 0:
                while follower.read(ALL, 0):
                    pass
            if n % 100 == 0:
                late, _ = open_files_log(folder.path.as_uri(), None, 0.0, QuickFiles())
                late.open(Position())
                late.read(ALL, 0)
                late.close()
        owner._runs.close()
        gc.collect()
        ours = tracemalloc.Filter(True, "*/planstep/*")
        held = tracemalloc.take_snapshot().filter_traces([ours]).traces
        descriptors = len(os.listdir("/proc/self/fd"))
        return descriptors, threading.active_count(), sum(trace.size for trace in held)

    tracemalloc.start()
    try:
        before, after = work(300), work(900)
    finally:
        tracemalloc.stop()
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 20_000
