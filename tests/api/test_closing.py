"""Tests closing: from callbacks, from several threads at once, in forked children, and of removed folders."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kit import background, open_put, take_lead

import planstep


@pytest.fixture(params=[1, 3])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[planstep.Engine]:
    with planstep.open(tmp_path / "s", hosts=request.param) as db:
        db.create_table("t")
        yield db


def run_while_closing(db: planstep.Engine, what: Callable[[], object]) -> list[object]:
    """Closes in this thread while `what` runs in a future's callback; returns its results."""
    begun, closing, results = threading.Event(), threading.Event(), []
    close = db._runtime.close

    def closes() -> None:
        closing.set()
        close()

    db._runtime.close = closes

    def callback(future: object) -> None:
        begun.set()
        assert closing.wait(60)
        try:
            results.append(what())
        except planstep.PlanstepError as error:
            results.append(error)

    tx = db.transaction()
    tx.add("t", "k", 1)
    with db._runtime.nodes[0].lock:  # a finished future would call back here
        tx.submit().add_done_callback(callback)
    assert begun.wait(60)
    db.close()
    return results


def test_a_callback_may_close_what_is_being_closed(engine: planstep.Engine) -> None:
    assert run_while_closing(engine, engine.close) == [None]
    assert engine.closed


def test_a_callback_cannot_open_what_is_being_closed(
    engine: planstep.Engine, tmp_path: Path
) -> None:
    (result,) = run_while_closing(engine, lambda: planstep.open(tmp_path / "s"))
    assert isinstance(result, planstep.EngineClosed) and "outside of callbacks" in str(result)
    with planstep.open(tmp_path / "s") as again:
        assert again.table("t").get("k") == 1


def test_whoever_closes_second_waits_for_the_first(engine: planstep.Engine, tmp_path: Path) -> None:
    closing, go = threading.Event(), threading.Event()
    close, flags = engine._runtime.close, []

    def slowly() -> None:
        closing.set()
        assert go.wait(60)
        close()

    def after(call: Callable[[], object]) -> None:
        call()
        flags.append(go.is_set())

    engine._runtime.close = slowly
    opened: list[planstep.Engine] = []
    with background(engine.close):
        assert closing.wait(60)
        calls = engine.close, lambda: opened.append(planstep.open(tmp_path / "s"))
        with background(*(partial(after, call) for call in calls)):
            go.set()
    assert flags == [True, True] and opened[0] is not engine
    opened[0].close()


def test_a_commit_that_no_turn_took_is_refused_when_closing(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        take_lead(db)
        tx = open_put(db)
        future = tx.submit()
        db.close()
        assert isinstance(future.exception(10), planstep.EngineClosed)
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") is None


def test_a_folder_that_was_replaced_is_not_the_one_that_is_open(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s")
    db.create_table("t").put("k", 1)
    shutil.rmtree(tmp_path / "s")
    with pytest.raises(planstep.StoreInUse, match="removed or replaced"):
        planstep.open(tmp_path / "s")
    db.close()
    with planstep.open(tmp_path / "s") as new:
        assert new is not db and not new.tables()


def in_a_child(store: Path, read_only: bool) -> Callable[[], str]:
    """Forks; the returned function lets the child open the store and read, and returns its answer."""
    (commands, command), (answers, answer) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(commands, 1)
        try:
            with planstep.open(store, read_only=read_only) as db:
                if not read_only:
                    db.table("t").add("k", 1)
                text = str(db.table("t").get("k"))
        except BaseException as error:
            text = type(error).__name__
        os.write(answer, text.encode())
        os._exit(0)

    def ask() -> str:
        os.write(command, b"x")
        text = os.read(answers, 100).decode()
        os.waitpid(child, 0)
        for fd in (commands, command, answers, answer):
            os.close(fd)
        return text

    return ask


def test_a_forked_child_attaches_to_its_parent_or_opens_what_that_has_closed(
    tmp_path: Path,
) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t").put("k", 1)
        view = db.snapshot()
        writes, reads = in_a_child(tmp_path / "s", False), in_a_child(tmp_path / "s", True)
        beside = in_a_child(tmp_path / "s", False)
        assert beside() == reads() == "2"
        assert view.get("t", "k") == 1
        view.close()
    assert writes() == "3"
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") == 3


def test_where_py_lmdb_cannot_open_twice_a_fork_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t").put("k", 1)
        monkeypatch.setattr(
            "planstep.store.tables.fork_safe_open._renamed", lambda *args: _keys(*args)
        )
        from planstep.store.tables.fork_safe_open import _keys

        ask = in_a_child(tmp_path / "s", False)
    assert ask() == "ForkedProcess"


def test_a_path_opens_again_though_the_end_of_closing_has_no_memory(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s")
    db.create_table("t").put("k", 1)

    def fail() -> None:
        raise MemoryError

    db.lifetime.at_end = fail
    with pytest.raises(MemoryError):
        db.close()
    with planstep.open(tmp_path / "s") as again:
        assert again.table("t").get("k") == 1
