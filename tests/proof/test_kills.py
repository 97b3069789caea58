"""Tests rows "kill9" and "killpoints": their negative controls, and their parts."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import planstep
from planstep.bench.proof.disks import engines, forked
from planstep.bench.proof.disks.forked import SMALL_BYTES, Child, Say, Silent, small_steps
from planstep.bench.proof.disks.modes import MODES
from planstep.bench.proof.disks.scripts import story
from planstep.bench.proof.disks.steps import CreateTopic, Player, Transact, states
from planstep.bench.proof.disks.streams import STREAMS, Stream, Torn, count, make, value, view
from planstep.bench.proof.rows import kill9, killpoints, soak
from planstep.bench.proof.rows.kill9 import LANES, KilledStore, Killer
from planstep.bench.proof.rows.killpoints import Work, kill_at_points
from planstep.bench.proof.rows.registry import RowOptions
from planstep.coordinator.pulsar import transactions
from planstep.store import checkpointing, disk_store
from planstep.tablets.pulsar import snapshots


@pytest.fixture
def memory() -> Iterator[Path]:
    """Returns a folder in memory if the system has one: these tests do not need a disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


def options(folder: Path, runs: int) -> RowOptions:
    return RowOptions(folder, folder, seed=3, runs=runs, workers=1)


# children --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_small, size", [(small_steps, SMALL_BYTES), (soak._make_small, 1 << 20)]
)
def test_segments_are_as_small_as_the_row_means(
    memory: Path, monkeypatch: pytest.MonkeyPatch, make_small: Callable[[], None], size: int
) -> None:
    """With normal sizes nothing would be rewritten or removed during the runs."""
    monkeypatch.setattr(disk_store, "SEGMENT_BYTES", disk_store.SEGMENT_BYTES)
    for name in ("CHECKPOINT_BYTES", "CHECKPOINT_KEYS"):
        monkeypatch.setattr(checkpointing, name, getattr(checkpointing, name))
    make_small()
    with planstep.open(memory / "s") as db:
        topic = db.create_topic("t")
        for _ in range(4):
            topic.write(bytes(size // 2))
        (host,) = (memory / "s").glob("host-*")
        assert len(list(host.glob("log-*"))) > 2


def speak(say: Say, listen: int) -> None:
    say("one")
    say("two")


def fail(say: Say, listen: int) -> None:
    raise ValueError("made to fail")


def wait(say: Say, listen: int) -> None:
    say("there")
    os.read(listen, 1)
    say("told")
    os.read(listen, 1)


def has_ended(child: Child) -> bool:
    try:
        os.kill(child.pid, 0)
    except ProcessLookupError:
        return True
    return False


def stand_still(say: Say, listen: int) -> None:
    os.read(listen, 1)


def test_a_child_that_ends_by_itself() -> None:
    child = Child(speak)
    assert child.wait() == ["one", "two"] and child.code == 0 and has_ended(child)


def test_a_child_that_raises_says_so() -> None:
    child = Child(fail)
    (line,) = child.wait()
    assert line.startswith("x ") and "made to fail" in line and child.code == 1


def test_a_child_is_told_and_killed() -> None:
    child = Child(wait)
    assert child.line() == "there"
    assert list(child.lines(time.monotonic())) == []
    child.tell()
    assert child.line() == "told"
    assert child.kill() == [] and child.code == -9 and has_ended(child)


def test_a_child_that_says_nothing_is_killed_and_told_where_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forked, "SILENT_SECONDS", 0.2)
    child = Child(stand_still)
    with pytest.raises(Silent, match=r"said nothing(?s:.*) in stand_still"):
        child.line()
    assert child.code == -9 and has_ended(child)


# kill9 -----------------------------------------------------------------------------------------


def test_writes_that_are_late_are_noticed(memory: Path) -> None:
    result = kill9.control(options(memory, 1))
    assert result.violations and result.runs <= 2


def test_what_was_acknowledged_must_be_there_and_one_more_at_most(memory: Path) -> None:
    killer = Killer(kill9.Work(LANES[0], memory, 1, 1))
    for line in ("o 0.1 0 0 0", "a 0 1", "a 0 2", "a 1 1"):
        killer.take_line(line)
    assert not killer.result.violations and killer.acknowledged == [2, 1, 0]
    killer.take_line("o 0.1 2 2 1")
    assert not killer.result.violations
    for line in ("o 0.1 1 2 1", "o 0.1 1 4 1", "a 0 7", "x something"):
        before = len(killer.result.violations)
        killer.take_line(line)
        assert len(killer.result.violations) == before + 1


def test_a_reader_shows_what_was_acknowledged_never_less_than_before(memory: Path) -> None:
    killer = Killer(kill9.Work(LANES[0], memory, 1, 1))
    killer.read = [0] * STREAMS
    for line, right in (
        ("r 2 1 0", True),
        ("r 2 1 1", True),
        ("r 2 0 1", False),
        ("r", False),
        ("x a view changed: log", False),
    ):
        before = len(killer.result.violations)
        assert killer._take_read(line) is right
        assert len(killer.result.violations) == before + (not right)
    assert killer.read == [2, 1, 1]


def test_what_a_reader_holds_stays_and_what_it_opens_follows(memory: Path) -> None:
    with planstep.open(memory / "s") as db:
        make(db)
        streams = [Stream(db, k, 0, []) for k in range(STREAMS)]
        child = Child(partial(kill9._view, LANES[0], memory / "s"))
        assert child.line() == "r 0 0 0"
        for stream in streams:
            stream.step()
        child.tell()
        assert child.line() == "r 1 1 1"
        child.kill()


def test_what_no_number_of_transactions_makes_is_torn(memory: Path) -> None:
    values = [value(1, n) for n in range(50)]
    assert max(map(len, values)) > 4096 and len(set(values)) == 50
    with planstep.open(memory / "s") as db:
        make(db)
        streams = [Stream(db, k, 0, []) for k in range(STREAMS)]
        for stream in [*streams, *streams, streams[0]]:
            stream.step()
        assert count(db) == ([3, 2, 2], [[2], [1], [1]]) and view(db) == [3, 2, 2]
        db.table("rows").put((0, 2), 3)
        with pytest.raises(Torn, match="rows: "):
            count(db)
        db.table("rows").put((0, 2), 2)
        for topic, partition in (("copy", 1), ("log", 0)):
            db.write(topic, value(0, 4), partition=partition)
            with pytest.raises(Torn):
                count(db)


@pytest.mark.parametrize("lane", [lane for lane in LANES if MODES[lane.mode].times_out], ids=str)
def test_what_a_killed_writer_left_open_ends_by_its_time_out_too(
    memory: Path, monkeypatch: pytest.MonkeyPatch, lane: KilledStore
) -> None:
    monkeypatch.setattr(kill9, "_WAITING", 1.0)
    result = kill9.kill_again(kill9.Work(lane, memory / "k", 2, 5))
    assert not result.violations and result.runs == 2
    assert result.faults["opening that waits for time-outs"] == 2


# killpoints ------------------------------------------------------------------------------------


def test_what_a_player_did_not_do_is_noticed(memory: Path) -> None:
    player = Player(memory / "s", lambda: planstep.open(memory / "s"))
    for step in (CreateTopic("t", 1), Transact((("t", 0, "one"),))):
        player.carry_out(step)
    player.check()
    player.db.write("t", "nobody asked for this", partition=0)
    with pytest.raises(AssertionError, match=r"nobody asked for this.* in place of .*'one'"):
        player.check()
    player.db.close()


def test_a_story_is_its_seeds_and_steps_change_no_state_but_the_next() -> None:
    first, again = [list(story(4, "deterministic")) for _ in range(2)]
    assert first == again != list(story(5, "deterministic"))
    known = states(first)
    assert known[0] == {} and known[1] == {"in": [[0, []], [0, []]], "positions of in": [0, 0]}
    assert len(known) == len(first) + 1 and len({repr(state) for state in known}) > 20


@pytest.mark.parametrize(
    "play, share", [("restored", 3), ("restored", 7), ("pulsar, segments", 2), ("pulsar, parts", 5)]
)
def test_some_points(play: str, share: int, memory: Path) -> None:
    result = kill_at_points(Work(play, memory / "w", share, 8))
    assert not result.violations and result.runs >= 10


def _tracks_only(coordinator: Any) -> None:
    coordinator._track()


@pytest.mark.parametrize(
    "where, name, planted, words",
    [
        (transactions.Transactions, "begin", _tracks_only, "a transaction has no end"),
        (snapshots, "read_markers", lambda *args: args[3], "gives other aborted ids than its log"),
    ],
)
def test_ends_that_are_not_driven_on_and_ids_that_are_lost_are_noticed(
    memory: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, planted: Any, words: str
) -> None:
    monkeypatch.setattr(where, name, planted)
    monkeypatch.setattr(engines, "_STABLE_SECONDS", 0.2)
    result = kill_at_points(Work("pulsar, three hosts", memory / "w", 1, 4))
    assert any(words in text for text in result.violations), result.violations


def test_writes_that_wait_for_the_next_one_are_noticed(memory: Path) -> None:
    """The owner's mark reveals it, since it claims that they are on the disk. A restore that renames twice is
    noticed too."""
    result = killpoints.control(options(memory, 1))
    assert any("says the file `released`" in text for text in result.violations), result
    assert any("restored, " in text for text in result.violations), result


def test_calls_of_lmdb_where_strace_may_trace(memory: Path) -> None:
    work = Work("consume, produce, table", memory / "w", 1, 9, traced=True)
    result = kill_at_points(work)
    assert not result.violations
    kills = result.faults["kill before a call of LMDB"]
    assert "lmdb_calls" in result.figures or kills == result.runs > 0
