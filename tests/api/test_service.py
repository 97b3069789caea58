"""Tests that the service thread survives any error of a checkpoint, logs it, and tries again."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.errors import IoError
from planstep.host.inputs import Tick


@pytest.mark.parametrize(
    ("hosts", "failing"), [(1, "checkpoint_due"), (1, "checkpoint"), (2, "checkpoint")]
)
@pytest.mark.parametrize("error", [OSError(24, "no descriptors"), IoError("x")])
def test_the_service_thread_survives(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    hosts: int,
    failing: str,
    error: Exception,
) -> None:
    monkeypatch.setattr("planstep.store.checkpointing.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("planstep.runtime.thread_pool._RETRY_SECONDS", 0.0)
    caplog.set_level(logging.WARNING, "planstep")
    with planstep.open(tmp_path / "s", hosts=hosts) as db:
        table = db.create_table("t")
        store: Any = db._runtime.nodes[0].host.store
        method = getattr(store, failing)
        failed, again = threading.Event(), threading.Event()
        failures = 2

        def fail(*args: Any) -> Any:
            nonlocal failures
            if failures:
                failures -= 1
                failed.set()
                raise error
            result = method(*args)
            if store.counters.checkpoints > before:
                again.set()
            return result

        before = store.counters.checkpoints
        monkeypatch.setattr(store, failing, fail)
        table.put("k", 1)
        assert failed.wait(30)
        table.put("k", 2)
        assert again.wait(30)
        assert failures == 0
    warnings = [r for r in caplog.records if r.name == "planstep"]
    assert len(warnings) == 2 and all("host 0" in r.getMessage() for r in warnings)
    assert all((r.exc_info is not None) == (not isinstance(error, IoError)) for r in warnings)
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") == 2


def test_the_service_thread_survives_a_network_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("planstep.runtime.thread_pool._RETRY_SECONDS", 0.0)
    caplog.set_level(logging.WARNING, "planstep")
    with planstep.open(tmp_path / "s", hosts=2) as db:
        ticked = threading.Event()
        failures = 2

        def tick() -> None:
            nonlocal failures
            if not failures:
                ticked.set()
                return
            failures -= 1
            raise OSError("made to fail")

        monkeypatch.setattr(db._runtime.turns.network, "tick", tick)
        assert ticked.wait(30)
        db.create_table("t").put("k", 1)
    assert [r.name for r in caplog.records].count("planstep") == 2


def test_a_message_to_a_tablet_does_not_wait_until_nobody_asks_for_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other inputs come as fast as turns take them: once its own input is taken, other threads lead again."""
    with planstep.open(":memory:") as db:
        db.create_topic("t")
        runtime: Any = db._runtime
        node = runtime.nodes[0]
        turn, turns, own = runtime.turns.turn, 0, 0
        here = threading.get_ident()

        def and_another_input(led: Any) -> None:
            nonlocal turns, own
            turns += 1
            # The engine's thread leads the others, however many it gets to.
            own += threading.get_ident() == here
            turn(led)
            if turns < 50:
                node.inbox.append(Tick())

        monkeypatch.setattr(runtime.turns, "turn", and_another_input)
        node.inbox.append(Tick())
        db.resolve(db.transaction().id)
        assert own < 5


@pytest.mark.parametrize("hosts", [1, 2])
def test_what_was_submitted_does_not_wait_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    monkeypatch.setattr("planstep.store.checkpointing.CHECKPOINT_KEYS", 1)
    begun, go_on = threading.Event(), threading.Event()
    with planstep.open(tmp_path / "s", hosts=hosts) as db:
        table = db.create_table("t")
        store: Any = db._runtime.nodes[0].host.store
        inner = store.checkpoint

        def slow(*rest: Any) -> Any:
            begun.set()
            assert go_on.wait(60)
            return inner(*rest)

        monkeypatch.setattr(store, "checkpoint", slow)
        table.put("k", 1)
        assert begun.wait(60)
        try:
            for n in range(3):
                tx = db.transaction()
                tx.put("t", "k", n)
                tx.submit().result(30)
        finally:
            go_on.set()
