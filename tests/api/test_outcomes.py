"""Tests that no caller learns of an outcome that others cannot see yet, and that all who ask learn the same one.

durable ─▶ shown: to other processes, in the store, in new snapshots, in outcomes ─▶ answers
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kit import open_put, python, until

import planstep
from planstep.coordinator import plan
from planstep.store.disk_store import DiskStore
from planstep.store.log.log_writer import LogEnd
from planstep.store.readers.released_mark import ReleasedMark
from planstep.tablets.participant import Participant

PATIENCE = 20.0


class Held:
    """Stops one thread's turn at some point until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self.armed = False
        call = getattr(owner, name)

        def held(*args: Any, **kwargs: Any) -> Any:
            if when == "after":
                answer = call(*args, **kwargs)
            if self.armed and not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(PATIENCE)
            return answer if when == "after" else call(*args, **kwargs)

        monkeypatch.setattr(owner, name, held)

    def run(self, body: Callable[[], object]) -> None:
        self.armed = True
        self.thread = threading.Thread(target=body)
        self.thread.start()
        assert self.reached.wait(PATIENCE)

    def end(self) -> None:
        self.go.set()
        assert self.thread is not None
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


POINTS = [
    (LogEnd, "append", "after"),
    (ReleasedMark, "show", "before"),
    (ReleasedMark, "show", "after"),
    (DiskStore, "commit", "after"),
]


_LOOK = """
import sys, planstep
with planstep.open(sys.argv[1], read_only=True) as db, db.snapshot() as view:
    print(view.step)
"""


def others_see(path: Path) -> int:
    """Returns the step of a snapshot taken by another process."""
    return int(python(_LOOK, path).stdout)


@pytest.mark.parametrize("point", POINTS, ids=[f"{when} {name}" for _, name, when in POINTS])
def test_who_was_told_or_has_seen_is_not_followed_by_one_who_sees_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: tuple[Any, str, str]
) -> None:
    """Stops a turn at each point, and compares an outcome, another process's view, and the owner's next
    transaction."""
    path = tmp_path / "s"
    with planstep.open(path) as db:
        table = db.create_table("t", shards=1)
        table.put("k", "old")
        tx = db.transaction()
        tx.put("t", "k", "new")
        held = Held(monkeypatch, *point)
        results: list[Any] = []

        def later() -> None:
            with db.transaction() as after:
                results.append(after.get("t", "k"))
            assert after.commit.place is not None
            results.append(after.commit.place.step)

        reader = threading.Thread(target=later)
        held.run(tx.commit)
        try:
            states = [db.outcome(tx.id).state, *(one.state for one in db.transactions(1))]
            states = states[: 1 + (db.transactions(1)[0].tx == tx.id)]
            step = others_see(path)
            reader.start()
            reader.join(0.3)  # may have to wait for the release
        finally:
            held.end()
        reader.join(PATIENCE)
        value, at = results
        assert at >= step, "another process was ahead of the owner"
        assert value == "new" or "committed" not in states, "an outcome was ahead of the reads"
        assert db.outcome(tx.id).state == "committed" and table.get("k") == "new"


# outcomes that are too old ------------------------------------------------------------------------


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Callable[[planstep.Engine], None]:
    """Makes an engine forget all outcomes that it may forget."""
    monkeypatch.setattr(plan, "OUTCOMES_KEPT", 1)
    monkeypatch.setattr(plan, "_PRUNE_EVERY", 1)

    def forget(db: planstep.Engine) -> None:
        monkeypatch.setattr(plan, "OUTCOME_MS_KEPT", -PATIENCE * 1000)
        for n in range(3):
            db.table("t").put("later", n)
        monkeypatch.undo()

    return forget


def test_who_resolves_what_was_forgotten_is_told_so_and_changes_nothing(
    tmp_path: Path, forgetful: Callable[[planstep.Engine], None]
) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t")
        with db.transaction() as tx:
            tx.put("t", "k", 1)
        assert db.outcome(tx.id).state == "committed"
        forgetful(db)
        for ask in (db.outcome, db.resolve, db.outcome):
            with pytest.raises(planstep.OutcomeExpired):
                ask(tx.id)
    with planstep.open(tmp_path / "s") as db, pytest.raises(planstep.OutcomeExpired):
        db.outcome(tx.id)


def test_what_is_resolved_that_late_is_never_planned(
    tmp_path: Path, forgetful: Callable[[planstep.Engine], None]
) -> None:
    """An outcome that may have been forgotten is reported as forgotten, and the transaction can never commit
    later."""
    with planstep.open(tmp_path / "s") as db:
        tx = open_put(db)
        db.table("t").put("other", 1)
        forgetful(db)
        with pytest.raises(planstep.OutcomeExpired):
            db.resolve(tx.id)
        with pytest.raises(planstep.Aborted, match="refused"):
            tx.commit()
        assert db.table("t").get("k") is None


# commits without an answer ------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [2, 3])
def test_an_early_refusal_that_nobody_waited_for_is_told_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    """The answer comes at once, and later from the durable state."""
    path = tmp_path / "s"
    with planstep.open(path, hosts=hosts) as db:
        table = db.create_table("t", shards=2 * hosts)
        for n in range(20):
            table.put(n, 0)
        held = Held(monkeypatch, Participant, "_propose", "before")
        tx = db.transaction()
        for n in range(20):
            tx.put("t", n, tx.get("t", n) + 1)
        for n in range(20):
            table.put(n, 7)

        def ask() -> None:
            with pytest.raises(planstep.Undetermined):
                tx.commit(timeout=0)

        held.run(ask)
        assert held.thread is not None
        held.thread.join(PATIENCE)
        assert db.outcome(tx.id).state == "open"
        held.end()
        assert tx.outcome(PATIENCE).state == "refused"
        assert db.outcome(tx.id).state == "refused"
        assert [table.get(n) for n in range(20)] == [7] * 20
        until(lambda: any(one.tx == tx.id for one in db.transactions()))
    with planstep.open(path) as db:
        assert db.outcome(tx.id).state == "refused"


def test_what_a_full_disk_refused_is_told_to_who_had_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "s") as db:
        tx = open_put(db)
        with monkeypatch.context() as patch:
            patch.setattr(LogEnd, "append", Mock(side_effect=planstep.NoSpace("made to be full")))
            future = tx.submit()
            with pytest.raises(planstep.NoSpace):
                future.result(PATIENCE)
            assert tx.outcome(PATIENCE).state == db.outcome(tx.id).state == "refused"
        db.table("t").put("k", 2)
        assert db.outcome(tx.id).state == "refused"


def test_nobody_is_told_that_nothing_is_known_of_what_may_be_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine fails between durable and visible: it says so, and the next engine knows the outcome."""
    path = tmp_path / "s"
    with planstep.open(path) as db:
        tx = open_put(db)
        with monkeypatch.context() as patch:
            patch.setattr(ReleasedMark, "show", Mock(side_effect=RuntimeError("made to break")))
            with pytest.raises(planstep.PlanstepError):
                tx.commit()
        for ask in (tx.outcome, lambda: db.outcome(tx.id)):
            with pytest.raises(planstep.StoreClosed, match="reopen"):
                ask()
    with planstep.open(path) as db:
        assert db.outcome(tx.id).state == "committed" and db.table("t").get("k") == 1
