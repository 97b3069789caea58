"""Tests turns whose way to the shared log is cut: each waiter is told what is true, and no turn runs twice.

The numbers are those of the scenarios that replication is accepted by.
"""

import math
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import replica_kit
from kit import background, until
from replica_kit import Hooks, Line, Machines, nothing, rows

import planstep
from planstep.errors import IoError
from planstep.host.host import Host
from planstep.shared.entry import Entry
from planstep.shared.files_log import LinkedFiles
from planstep.shared.shared_log import EntryTooLarge
from planstep.store import disk_store
from planstep.store.files import Files, io_error

machines = replica_kit.machines
hooks = replica_kit.hooks
line = replica_kit.line


def begun(machines: Machines, name: str = "a") -> planstep.Engine:
    db = machines.open_local(name)
    db.create_table("t")
    return db


def adding(db: planstep.Engine, key: str = "k") -> planstep.Transaction:
    tx = db.transaction()
    tx.add("t", key, 1)
    return tx


def first_and_second(
    db: planstep.Engine, hooks: Hooks, strike: Callable[[], object], when: str = "before"
) -> list[BaseException | None]:
    """Commits twice, and strikes at the first one's append while the second waits; returns how they ended."""
    node = db._runtime.nodes[0]
    reached = threading.Event()

    def struck(_: Entry) -> None:
        hooks.before = hooks.after = nothing
        reached.set()
        until(lambda: node.inbox)
        strike()

    setattr(hooks, when, struck)
    with ThreadPoolExecutor(2) as pool:
        sent = adding(db, "first")
        first = pool.submit(sent.commit)
        assert reached.wait(60)
        second = pool.submit(adding(db, "second").commit)
        ended = [first.exception(60), second.exception(60)]
    assert all(item.tx != sent.life.tx for item in node.inbox), "it would run again"
    return ended


def raiser(error: BaseException) -> Callable[[], object]:
    def strike() -> None:
        raise error

    return strike


# fenced -----------------------------------------------------------------------------------------


def test_4_a_zombie_that_sleeps_inside_its_put(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = begun(machines)
    zombie.table("t").put("k", 1)
    asleep, wake = threading.Event(), threading.Event()
    really = LinkedFiles.link

    def link(files: LinkedFiles, source: Path, target: Path) -> bool:
        if not asleep.is_set():
            asleep.set()
            assert wake.wait(60)
        return really(files, source, target)

    monkeypatch.setattr(LinkedFiles, "link", link)
    node = zombie._runtime.nodes[0]
    with ThreadPoolExecutor(2) as pool:
        sent = adding(zombie)
        first = pool.submit(sent.commit)
        assert asleep.wait(60)
        second = pool.submit(adding(zombie, "l").commit)
        until(lambda: node.inbox)
        with machines.take_over("b") as db:
            db.table("t").put("new", 1)
            wake.set()
            errors = [first.exception(60), second.exception(60)]
            assert [type(error) for error in errors] == [planstep.Fenced] * 2
            assert all(error.term == 2 for error in errors)
            assert rows(db) == {"k": 1, "new": 1}
            assert db.outcome(sent.id).state == "unknown"
    with pytest.raises(planstep.Fenced):
        zombie.table("t").put("k", 2)
    assert zombie.table("t").get("k") == 1, "what it shows is what it had"
    assert not node.inbox and not zombie._runtime.replies.waiting
    zombie.close()
    with machines.open("a") as db:  # its folder is a true prefix
        assert rows(db) == {"k": 1, "new": 1}


def test_a_fenced_turn_is_not_in_the_folder(machines: Machines) -> None:
    zombie = begun(machines)
    with machines.take_over("b"):
        store = zombie._runtime.nodes[0].host.store
        turn = store.last_turn
        with pytest.raises(planstep.Fenced):
            adding(zombie).commit()
        assert store.last_turn == turn and not store.in_doubt
        assert not store.is_open
    zombie.close()


def test_an_idle_zombie_learns_of_it_when_it_is_closed(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    zombie = begun(machines)
    with machines.take_over("b") as db:
        caplog.clear()
        zombie.close()
        assert [r.event for r in caplog.records if r.levelname == "WARNING"] == ["left_open"]
        db.table("t").put("k", 1)
    with machines.open("a") as db:
        assert rows(db) == {"k": 1}


# in doubt ---------------------------------------------------------------------------------------


def in_doubt(error: planstep.StoreClosed) -> planstep.StoreClosed:
    """Says that the turn may count: it was trimmed by the time that its owner looked."""
    error.in_doubt = True
    return error


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("error", "queued", "later"),
    [
        (planstep.LogUnreachable("cut"), planstep.LogUnreachable, planstep.LogUnreachable),
        (in_doubt(planstep.Fenced(7)), planstep.Fenced, planstep.Fenced),
        (planstep.Corruption("flipped"), planstep.Undetermined, planstep.StoreClosed),
        (MemoryError(), planstep.Undetermined, planstep.StoreClosed),
        (KeyboardInterrupt(), planstep.Undetermined, planstep.StoreClosed),
        (SystemExit(), planstep.Undetermined, planstep.StoreClosed),
        (ValueError("a bug"), planstep.Undetermined, planstep.StoreClosed),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_error_amid_an_append(
    machines: Machines,
    hooks: Hooks,
    error: BaseException,
    when: str,
    queued: type[Exception],
    later: type[Exception],
) -> None:
    db = begun(machines)
    first, second = first_and_second(db, hooks, raiser(error), when)
    assert type(first) is planstep.Undetermined
    assert type(second) is queued
    for _ in range(2):
        with pytest.raises(later) as stopped:
            adding(db, "later").commit()
        assert type(stopped.value) is later and not stopped.value.in_doubt
    assert not db._runtime.nodes[0].host.store.is_open
    db.close()
    with machines.open("a") as db:
        assert rows(db) == ({} if when == "before" else {"first": 1})
        adding(db, "first").commit()
        assert db.table("t").get("first") == (1 if when == "before" else 2)


def test_an_interrupt_behind_an_append_that_failed(
    machines: Machines, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's exception strikes while the turn is undone: it must not be put back and run again."""
    db = begun(machines)
    really = Host._undo

    def undo(host: Host, mark: Any) -> None:
        really(host, mark)
        monkeypatch.setattr(Host, "_undo", really)
        raise KeyboardInterrupt

    def strike() -> None:
        monkeypatch.setattr(Host, "_undo", undo)
        raise planstep.LogUnreachable("cut")

    first, second = first_and_second(db, hooks, strike, "after")
    assert isinstance(first, (KeyboardInterrupt, planstep.Undetermined))
    assert isinstance(second, planstep.PlanstepError)
    with pytest.raises(planstep.EngineClosed):
        adding(db, "later").commit()
    db.close()
    with machines.open("a") as db:
        assert rows(db) == {"first": 1}


def test_a_local_write_that_fails_behind_the_append(
    machines: Machines, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Files):
        failures = 0

        def write(self, fd: int, buffers: Any, offset: int, sync: bool) -> None:
            if Failing.failures:
                Failing.failures -= 1
                raise IoError("made to fail")
            super().write(fd, buffers, offset, sync)

    monkeypatch.setattr("planstep.runtime.open_stores.Files", Failing)
    db = begun(machines)

    def strike() -> None:
        Failing.failures = 1  # one: going on in another segment would succeed

    first, second = first_and_second(db, hooks, strike, "after")
    assert type(first) is planstep.Undetermined and type(second) is planstep.Undetermined
    assert not Failing.failures
    with pytest.raises(planstep.StoreClosed, match="made to fail"):
        adding(db).commit()
    db.close()
    with machines.open("a") as db:
        assert rows(db) == {"first": 1}
        generation = db._runtime.nodes[0].host.store._log.generation
    assert generation == 2, "history did not end before the turn that the shared log has"


def test_31_ctrl_c_during_a_put(machines: Machines, hooks: Hooks) -> None:
    with begun(machines) as db:
        tx = adding(db)

        def strike(_: Entry) -> None:
            hooks.before = nothing
            signal.raise_signal(signal.SIGINT)

        hooks.before = strike
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
        assert tx.outcome().state == "committed"
        adding(db).commit()
        assert rows(db) == {"k": 2}
    with machines.open("b") as db:
        assert rows(db) == {"k": 2}


def test_ctrl_c_while_the_log_is_told_of_the_close(machines: Machines, hooks: Hooks) -> None:
    db = begun(machines)
    adding(db).commit()

    def strike(_: Entry) -> None:
        hooks.before = nothing
        signal.raise_signal(signal.SIGINT)

    hooks.before = strike
    with pytest.raises(KeyboardInterrupt):
        db.close()
    assert db.closed
    with machines.open("a") as db:
        assert rows(db) == {"k": 1}


# the line ---------------------------------------------------------------------------------------


def test_8_an_answer_is_lost(machines: Machines, line: Line) -> None:
    with begun(machines) as db:
        before = len(machines.entries())
        line.failing, line.arrives = 1, True
        tx = adding(db)
        tx.commit()
        assert not line.failing and tx.outcome().state == "committed"
        assert len(machines.entries()) == before + 1
        assert rows(db) == {"k": 1}
    with machines.open("b") as db:
        assert rows(db) == {"k": 1}


def test_9_a_log_that_is_away_for_a_while(machines: Machines, line: Line) -> None:
    with begun(machines) as db:
        before = len(machines.entries())
        line.failing = 8
        adding(db).commit()
        assert not line.failing
        assert len(machines.entries()) == before + 1
        assert rows(db) == {"k": 1}


@pytest.mark.parametrize("arrives", [False, True])
def test_10_a_log_that_does_not_come_back(
    machines: Machines, hooks: Hooks, line: Line, arrives: bool
) -> None:
    hooks.timeout = 0.2
    db = begun(machines)
    tx = adding(db)
    line.failing, line.arrives = math.inf, arrives
    with pytest.raises(planstep.Undetermined, match="ask its outcome") as told:
        tx.commit()
    assert str(told.value).count("reopen") == 1
    for _ in range(2):
        with pytest.raises(planstep.LogUnreachable, match="reopen"):
            adding(db).commit()
    with pytest.raises(planstep.LogUnreachable):
        tx.outcome()
    db.close()
    line.failing = 0
    with machines.open("a") as db:
        assert db.outcome(tx.id).state == ("committed" if arrives else "unknown")
        assert rows(db) == ({"k": 1} if arrives else {})
        adding(db).commit()
    with machines.open("b") as db:
        assert rows(db) == {"k": 2 if arrives else 1}


# full disks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "seen"),
    [(planstep.NoSpace, planstep.NoSpace), (EntryTooLarge, planstep.TransactionTooLarge)],
)
def test_a_full_shared_disk_refuses_a_turn_and_no_more(
    machines: Machines, hooks: Hooks, kind: type[Exception], seen: type[Exception]
) -> None:
    with begun(machines) as db:
        before = len(machines.entries())

        def full(_: Entry) -> None:
            raise kind("the shared disk is full")

        hooks.before = full
        for _ in range(2):
            tx = adding(db)
            with pytest.raises(seen, match="shared disk"):
                tx.commit()
            assert tx.outcome().state == "aborted"
        hooks.before = nothing
        adding(db).commit()
        assert rows(db) == {"k": 1}
        assert len(machines.entries()) == before + 1


def test_30_a_full_local_disk_refuses_a_turn_before_it_is_sent(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Files):
        full = False

        def allocate(self, path: Path, size: int) -> None:
            if Full.full:
                raise io_error(OSError(28, "No space left on device"), path)
            super().allocate(path, size)

    monkeypatch.setattr("planstep.runtime.open_stores.Files", Full)
    monkeypatch.setattr(disk_store, "SEGMENT_BYTES", 256 << 10)
    with begun(machines) as db:
        Full.full = True
        before = len(machines.entries())
        big = b"x" * (4 << 20)
        with pytest.raises(planstep.NoSpace):
            while True:
                before = len(machines.entries())
                db.table("t").put("big", big)
        assert len(machines.entries()) == before
        Full.full = False
        db.table("t").put("k", 1)
    with machines.open("b") as db:
        assert db.table("t").get("k") == 1


# others beside it -------------------------------------------------------------------------------


def test_reads_go_on_while_a_put_is_under_way(machines: Machines, hooks: Hooks) -> None:
    with begun(machines) as db:
        db.table("t").put("k", 1)
        asleep, wake = threading.Event(), threading.Event()

        def sleep(_: Entry) -> None:
            hooks.before = nothing
            asleep.set()
            assert wake.wait(60)

        hooks.before = sleep
        with background(adding(db).commit):
            assert asleep.wait(60)
            assert db.table("t").get("k") == 1
            wake.set()
        assert db.table("t").get("k") == 2
