"""Tests a lack of memory at single steps of opening, committing and closing: the engine stops, reopening has all
data."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.api import lifetime, open_engine
from planstep.api.engine import Engine
from planstep.coordinator.plan import Coordinator
from planstep.host.versions import History
from planstep.proxy.deterministic import Proxy
from planstep.runtime import open_runtime, turn_loop
from planstep.runtime.admission import Admission
from planstep.runtime.group_commit import Node, Waiter
from planstep.runtime.kafka import hooks as kafka_hooks
from planstep.runtime.mode_hooks import ModeHooks
from planstep.runtime.thread_pool import ThreadPool
from planstep.runtime.turn_loop import TurnLoop
from planstep.store import disk_store, owner_lock, resuming
from planstep.store.checkpointing import Checkpointer
from planstep.store.disk_store import DiskStore
from planstep.store.log import log_writer
from planstep.store.log.segments import Folder
from planstep.store.memory_store import MemoryStore
from planstep.store.readers.released_mark import ReleasedMark
from planstep.store.tables import fork_safe_open
from planstep.store.tables.table import Table
from planstep.store.unsaved import Unsaved
from planstep.store.verify import verify


def failing(
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    error: Callable[[], BaseException] = MemoryError,
    at: int = 0,
    *,
    late: bool = False,
) -> None:
    """Makes call number `at` from now on raise in place of running, or `late` after it; all others work."""
    whole, calls = getattr(where, name), 0

    def once(*args: Any, **settings: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != at + 1:
            return whole(*args, **settings)
        if late:
            whole(*args, **settings)
        raise error()

    monkeypatch.setattr(where, name, once)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t")
        yield db


def engine_threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("planstep-"))


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (owner_lock.json, "dumps"),
        (fork_safe_open, "file_key"),
        (Table, "_note_newest"),
        (resuming, "read_back"),
        (disk_store, "resume"),
        (ReleasedMark, "show"),
        (ModeHooks, "views"),
        (ThreadPool, "begin"),
        (threading.Thread, "start"),
        (Engine, "__init__"),
        (open_engine, "store_opened"),
    ],
)
def test_an_open_that_fails_lets_go_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    planstep.open(tmp_path / "s", hosts=2).close()
    failing(monkeypatch, where, name)
    with pytest.raises(MemoryError) as raised:  # and with it the frames: nothing ends by itself
        planstep.open(tmp_path / "s")
    assert engine_threads() == []
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t").write(b"v")
        assert db.topic("t").read().values == [b"v"]
    assert raised.tb is not None


@pytest.mark.parametrize("after_stores", [False, True])
def test_what_an_open_that_fails_cannot_close_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_stores: bool
) -> None:
    planstep.open(tmp_path / "s", hosts=2).close()
    if after_stores:
        failing(monkeypatch, open_runtime, "open_stores", late=True)
    else:
        failing(monkeypatch, ModeHooks, "views")
        failing(monkeypatch, DiskStore, "crash")
    with pytest.raises(MemoryError) as raised:
        planstep.open(tmp_path / "s")
    with planstep.open(tmp_path / "s") as db:
        assert db.stats()["hosts"] == 2
    assert raised.tb is not None


@pytest.mark.parametrize("at", range(6))
def test_threads_that_do_not_start_are_an_error_with_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    def error() -> RuntimeError:
        return RuntimeError("can't start new thread")

    failing(monkeypatch, threading.Thread, "start", error, at)
    with pytest.raises(planstep.IoError, match="can't start new thread"):
        planstep.open(tmp_path / "s", hosts=2)
    assert engine_threads() == []
    planstep.open(tmp_path / "s").close()


def test_an_open_of_mode_kafka_that_fails_leaves_no_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, kafka_hooks, "Client")
    with pytest.raises(MemoryError):
        planstep.open(tmp_path / "s", mode="kafka")
    assert engine_threads() == []
    planstep.open(tmp_path / "s", mode="kafka").close()


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Checkpointer, "write_all"),
        (DiskStore, "close"),
        (log_writer.LogEnd, "write_close"),
        (Folder, "close"),
        (ReleasedMark, "close"),
        (TurnLoop, "stop_everything"),
        (lifetime, "store_closed"),
    ],
)
def test_a_close_that_fails_lets_go_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    db = planstep.open(tmp_path / "s")
    db.create_topic("t").write(b"v")
    failing(monkeypatch, where, name)
    with pytest.raises(MemoryError):
        db.close()
    assert db.closed and engine_threads() == []
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("t").read().values == [b"v"]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Proxy, "commit"),
        (Coordinator, "close"),
        (disk_store, "encode_changes"),
        (log_writer, "encode_record"),
    ],
)
def test_a_turn_without_memory_stops_the_engine_and_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    with planstep.open(tmp_path / "s") as db:
        topic = db.create_topic("t")
        topic.write(b"before")
        failing(monkeypatch, where, name)
        with pytest.raises((planstep.HostStopped, planstep.Undetermined)):
            topic.write(b"lost")
        with pytest.raises(planstep.EngineClosed, match="MemoryError"):
            topic.write(b"refused")
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("t").read().values == [b"before"]


def test_a_turn_that_is_durable_and_not_in_memory_is_in_doubt_until_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "s") as db:
        topic = db.create_topic("t")
        failing(monkeypatch, History, "release")
        with pytest.raises(planstep.Undetermined, match="reopen"):
            topic.write(b"v")
        with pytest.raises(planstep.EngineClosed):
            topic.write(b"w")
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("t").read().values == [b"v"]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Admission, "let_go"),
        (Waiter, "wake"),
        (Waiter, "wait"),
        (Node, "try_lead"),
        (Node, "hand_over"),
    ],
)
@pytest.mark.parametrize("hosts", [1, 2])
def test_who_was_sent_is_answered_and_rightly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, hosts: int
) -> None:
    with planstep.open(tmp_path / "s", hosts=hosts) as db:
        db.create_topic("t")
        failing(monkeypatch, where, name)
        ids, futures = [], []
        for submitted in (True, False):
            tx = db.transaction()
            tx.write("t", tx.id.encode())
            ids.append(tx.id)
            try:
                if submitted:
                    futures.append(tx.submit())
                else:
                    tx.commit()
            except (planstep.Undetermined, planstep.EngineClosed):
                ids.pop()
        for future in futures:
            if future.exception(timeout=20) is not None:
                ids = ids[1:]
        assert not db._runtime.replies.waiting and not db._runtime.admission.bytes
    with planstep.open(tmp_path / "s") as db:
        assert {tx.encode() for tx in ids} <= set(db.topic("t").read().values)


def test_a_thread_of_the_engine_without_memory_stops_it(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, DiskStore, "checkpoint_due")
    deadline = time.monotonic() + 20
    while db._runtime.turns.stopped is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(planstep.EngineClosed, match="MemoryError"):
        db.topic("t").write(b"v")


def test_those_whose_turn_was_not_told_of_hear_that_it_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t")
        failing(monkeypatch, TurnLoop, "_release")
        tx = db.transaction()
        tx.write("t", b"v")
        future = tx.submit()
        with pytest.raises(planstep.Undetermined):
            future.result(timeout=20)
    with planstep.open(tmp_path / "s") as db:
        assert db.outcome(tx.id).state == "committed"


def test_a_commit_that_was_not_sent_leaves_nothing(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = db.topic("t")
    failing(monkeypatch, turn_loop, "Waiter")
    with pytest.raises(MemoryError):
        topic.write(b"v")
    assert not db._runtime.replies.waiting and not db._runtime.admission.bytes
    topic.write(b"w")
    assert topic.read().values == [b"w"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(("behind", "name"), [(Table, "checkpoint"), (Unsaved, "forget_frozen")])
def test_a_checkpoint_that_was_broken_off_behind_its_commit_counts_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    behind: Any,
    name: str,
    error: type[BaseException],
) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t")
        db.write("t", b"v" * 100)
        (store,) = (node.host.store for node in db._runtime.nodes)
        with monkeypatch.context() as patch:
            failing(patch, behind, name, error, late=behind is Table)
            with pytest.raises(error):
                store.checkpoint()
        store.checkpoint()  # unless its own thread has done so
        db.write("t", b"w")
    assert verify(tmp_path / "s" / "host-0") == []


def test_a_change_that_was_never_made_is_taken_back() -> None:
    """A change is noted for rollback before it is made, so undoing one that was never made is no error."""

    class Full(dict[bytes, Any]):
        def __setitem__(self, key: bytes, value: Any) -> None:
            raise KeyboardInterrupt

    turn = MemoryStore().begin()
    turn.put(b"a", 1)
    before = turn.savepoint()
    turn.overlay = Full(turn.overlay)
    with pytest.raises(KeyboardInterrupt):
        turn.put(b"b", 2)
    turn.rollback(before)
    assert dict(turn.overlay) == {b"a": 1}
