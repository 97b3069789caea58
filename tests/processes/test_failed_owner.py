"""A process fails while it becomes the owner, at each step: nothing is lost, and another one owns the store."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process_kit import Other

import planstep
from planstep.runtime import change_of_owner, shutdown
from planstep.runtime.following import Following
from planstep.runtime.hosting import Hosting
from planstep.runtime.maintenance import Maintenance
from planstep.runtime.mode_hooks import ModeHooks
from planstep.runtime.snapshot_reads import Views
from planstep.runtime.turn_loop import TurnLoop
from planstep.store import disk_store, owned_folder

BEFORE = [
    (Following, "stay"),
    (owned_folder, "load_meta"),
    (disk_store, "make_leases"),
    (disk_store, "_own"),
    (disk_store, "Checkpointer"),
    (disk_store, "resume"),
    (disk_store, "oldest_lease"),
]
"""Steps with which nothing but the lock has changed."""
BEHIND = [
    (Hosting, "_over"),
    (Hosting, "replace"),
    (change_of_owner, "Names"),
    (ModeHooks, "schema"),
    (Views, "begin"),
    (Hosting, "take_up"),
    (Following, "give_over"),
    (change_of_owner, "Watches"),
    (TurnLoop, "poke"),
    (Maintenance, "begin"),
    (ModeHooks, "own"),
]
"""Steps with which some of the engine is the next owner's."""


def fails_once(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, error: Exception
) -> threading.Event:
    """Has the first call of a step fail, once `armed` is set; returns that."""
    armed = threading.Event()
    real: Callable[..., Any] = getattr(where, name)

    def step(*args: Any, **words: Any) -> Any:
        if armed.is_set():
            armed.clear()
            raise error
        return real(*args, **words)

    monkeypatch.setattr(where, name, step)
    return armed


def begin(tmp_path: Path) -> Other:
    owner = Other(tmp_path / "s")
    owner.run("db.create_table('n'); db.table('n').put('before', 1)")
    return owner


@pytest.mark.parametrize("step", BEFORE, ids=lambda step: step[1])
def test_it_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
    owner = begin(tmp_path)
    armed = fails_once(monkeypatch, *step, planstep.NoSpace("the disk is full"))
    with planstep.open(tmp_path / "s") as db:
        db.table("n").put("k", 1)
        armed.set()
        owner.kill()
        db.table("n").put("k", 2)
        assert db.owner == os.getpid() and not armed.is_set()
        assert dict(db.table("n").scan()) == {"before": 1, "k": 2}


@pytest.mark.parametrize("step", BEHIND, ids=lambda step: step[1])
def test_another_one_owns_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Any
) -> None:
    monkeypatch.setattr(shutdown, "_ANSWERED_SECONDS", 0.1)
    owner = begin(tmp_path)
    armed = fails_once(monkeypatch, *step, planstep.IoError("no room"))
    with planstep.open(tmp_path / "s") as db:
        db.table("n").put("k", 1)
        tx = db.transaction()
        tx.put("n", "k", 2)
        armed.set()
        owner.kill()
        with pytest.raises((planstep.StoreClosed, planstep.Undetermined), match="no room"):
            tx.commit(60)
        assert not armed.is_set()
        with pytest.raises(planstep.PlanstepError, match="no room"):
            db.table("n").put("k", 3)
        with Other(tmp_path / "s") as other:  # while this one is still open
            assert other("db.owner") == other.pid
            rows = other("dict(db.table('n').scan())")
            committed = other(f"db.outcome({tx.id!r}).state") == "committed"
            assert rows == {"before": 1, "k": 2 if committed else 1}
            other.run("db.table('n').put('more', 1)")
    with planstep.open(tmp_path / "s") as again:
        assert again.table("n").get("more") == 1


@pytest.mark.parametrize("kind", [planstep.IoError, planstep.LogUnreachable])
def test_a_term_that_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    url = f"file://{tmp_path}/log"
    owner = Other(tmp_path / "s", replicate=url)
    owner.run("db.create_table('n')")
    armed = fails_once(monkeypatch, change_of_owner, "begin_term", kind("no room"))
    with planstep.open(tmp_path / "s", replicate=url) as db:
        db.table("n").put("k", 1)
        armed.set()
        owner.kill()
        with pytest.raises((planstep.StoreClosed, planstep.Undetermined), match="no room"):
            db.table("n").put("k", 2)
        with Other(tmp_path / "s", replicate=url) as other:
            assert other("db.owner") == other.pid
            assert other("db.table('n').get('k')") in (1, 2)
            other.run("db.table('n').put('more', 1)")
