"""The owner of a store is stopped: what waits for it ends, and says which process that is."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.runtime import change_of_owner
from planstep.runtime.processes import attached
from planstep.runtime.processes import link as link_module
from planstep.store.owner_lock import OwnerLock


@pytest.fixture
def db(tmp_path: Path, owner: Other, monkeypatch: pytest.MonkeyPatch) -> Iterator[planstep.Engine]:
    """Attached to an owner that is stopped, and about to be taken for silent."""
    with planstep.open(tmp_path / "s") as db:
        monkeypatch.setattr(link_module, "SILENT_SECONDS", 0.5)
        yield db
        monkeypatch.undo()
        owner.signal(signal.SIGCONT)


def stopped(owner: Other) -> str:
    owner.signal(signal.SIGSTOP)
    return f"process {owner.pid}, which owns the store, is stopped"


def put(db: planstep.Engine, key: str) -> planstep.Transaction:
    tx = db.transaction()
    tx.put("n", key, 1)
    return tx


def test_a_commit_without_a_time_out_ends(owner: Other, db: planstep.Engine) -> None:
    tx, words = put(db, "k"), stopped(owner)
    with pytest.raises(planstep.Undetermined, match=words):
        tx.commit()
    owner.signal(signal.SIGCONT)
    assert tx.outcome(60).state == "committed"
    assert db.table("n").get("k") == 1
    until(lambda: not db.context.runtime.admission.bytes)


def test_a_commit_with_a_time_out_waits_for_it(owner: Other, db: planstep.Engine) -> None:
    tx, _ = put(db, "k"), stopped(owner)
    threading.Timer(1.5, owner.signal, (signal.SIGCONT,)).start()
    tx.commit(60)
    assert db.table("n").get("k") == 1


def test_a_future_ends(owner: Other, db: planstep.Engine) -> None:
    tx, words = put(db, "k"), stopped(owner)
    future = tx.submit()
    with pytest.raises(planstep.Undetermined, match=words):
        future.result(60)
    assert db.context.runtime.admission.bytes
    owner.signal(signal.SIGCONT)
    assert tx.outcome(60).state == "committed"
    until(lambda: not db.context.runtime.admission.bytes)


def test_a_commit_of_a_reader_ends(owner: Other, db: planstep.Engine) -> None:
    db.topic("t").write(b"v")
    with db.reader("t", "c") as reader:
        leased = reader.read(60)
        assert leased is not None
        words = stopped(owner)
        with pytest.raises(planstep.Undetermined, match=words):
            leased.tx.commit()
        owner.signal(signal.SIGCONT)
        assert leased.tx.outcome(60).state == "committed"


def test_waiting_for_an_outcome_ends(owner: Other, db: planstep.Engine) -> None:
    tx, words = put(db, "k"), stopped(owner)
    with pytest.raises(planstep.Undetermined):
        tx.commit(0.1)
    with pytest.raises(planstep.IoError, match=words):
        tx.outcome()
    assert tx.outcome(0.1).state == "open"


def test_what_is_sent_ahead_ends(owner: Other, db: planstep.Engine) -> None:
    tx = db.transaction()
    tx.write("t", bytes(1000))
    words = stopped(owner)
    with pytest.raises(planstep.Aborted, match=words):
        tx.flush()
    owner.signal(signal.SIGCONT)
    db.topic("t").write(b"x")
    assert db.topic("t").read().values == [b"x"]


def test_an_owner_that_says_something_is_not_silent(owner: Other, db: planstep.Engine) -> None:
    link: Any = db.context.runtime.link
    before = link.patience(0.0)
    put(db, "k").commit()
    assert link.patience(0.0) > before
    later = time.monotonic() + 1_000
    assert link.patience(later) == later + 0.5


@pytest.fixture
def closes(tmp_path: Path) -> Iterator[Any]:
    """Closes an engine, within what the slowest machine takes."""

    def close(db: planstep.Engine) -> None:
        closing = threading.Thread(target=db.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()

    yield close


def test_closing_does_not_wait_for_an_owner_that_is_stopped(
    tmp_path: Path, owner: Other, closes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about to attach to it anew."""
    monkeypatch.setattr(attached, "_SECONDS", 3600.0)
    db = planstep.open(tmp_path / "s")
    link: Any = db.context.runtime.link
    stopped(owner)
    looking = threading.Event()
    answer = attached._answer

    def answered(*args: Any) -> Any:
        looking.set()
        return answer(*args)

    monkeypatch.setattr(attached, "_answer", answered)
    link._socket.shutdown(2)
    assert looking.wait(60)
    closes(db)


def test_closing_does_not_wait_for_locks(
    tmp_path: Path, closes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_of_owner, "_LOCK_SECONDS", 3600.0)
    owner = Other(tmp_path / "s", hosts=3)
    db = planstep.open(tmp_path / "s")
    waits = threading.Event()
    locked = change_of_owner._locked

    def slowly(*args: Any) -> OwnerLock:
        waits.set()
        return locked(*args)

    monkeypatch.setattr(change_of_owner, "_locked", slowly)
    owner.signal(signal.SIGSTOP)
    fd = os.open(tmp_path / "s" / "host-2" / "lock", os.O_RDWR)
    owner.kill()
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_EX)
    assert waits.wait(60)
    closes(db)
    os.close(fd)
    with planstep.open(tmp_path / "s") as again:
        assert again.owner == os.getpid()
