"""Tests admission in mode "kafka": unsent batches hold no bytes, and make no caller wait."""

from typing import Any
from unittest.mock import Mock

import pytest
from face_kit import begin_with, new_store, sees, until, values

import planstep


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yields an engine with space for one more batch, and its admission."""
    monkeypatch.setattr("planstep.runtime.admission.WAIT_SECONDS", 0.02)
    monkeypatch.setattr("planstep.api.topics.leased_transaction._ADMISSION_SECONDS", 0.02)
    with new_store() as db:
        room = db._runtime.admission
        room.bytes_max = 10_000
        room.admit(b"others", 9_500, 0)
        yield db, room
        room.let_go(b"others")


def nothing_is_held(db: planstep.Engine, *others: bytes) -> None:
    runtime: Any = db._runtime
    until(lambda: list(runtime.admission._held) == list(others))
    until(lambda: not runtime.hooks.client._held and not runtime.hooks.writing.open)


BOTH: Any = ["a", "b" * 1000], None, None, [0, 1]
"""Values, keys, headers, partitions: only the first of two batches finds space."""


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("how", ["commit", "submit", "plain"])
def test_what_finds_room_in_part_gives_it_back(full: Any, how: str, at_once: bool) -> None:
    db, room = full
    db._runtime.hooks.may_send = lambda *_: at_once
    with pytest.raises(planstep.Overloaded):
        if how == "plain":
            db.topic("in").write_batch(*BOTH)
        else:
            tx = db.transaction(worker="w")
            tx.write_batch("in", *BOTH)
            tx.commit() if how == "commit" else tx.submit()
    nothing_is_held(db, b"others")
    assert room.bytes == 9_500


def test_a_wait_for_room_that_is_interrupted_ends_the_transaction(
    full: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit was not sent, so nothing else would end it."""
    db, room = full
    tx = begin_with(db, "sent at once", worker="w")
    tx._runtime.hooks.may_send = lambda *_: False
    tx.write_batch("in", *BOTH)
    with monkeypatch.context() as patch:
        patch.setattr(room._room, "wait", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
    assert tx.outcome(10).state == "aborted"
    nothing_is_held(db, b"others")
    db.write("out", "b")
    sees(db, "out", "b")


def test_a_reader_that_found_no_room_goes_on_when_there_is(full: Any) -> None:
    db, room = full
    db.write("in", "a", partition=0)
    runtime = db._runtime
    runtime.hooks.may_send = lambda *_: False
    with db.reader("in", "c", name="r") as reader:
        tx, _ = reader.read(timeout=10)
        tx.write("out", "b" * 1000)
        with pytest.raises(planstep.Overloaded):
            tx.commit()
        nothing_is_held(db, b"others")
        room.bytes_max = 100_000
        tx, batch = reader.read(timeout=10)
        assert batch.values == ["a"]
        tx.write("out", "b")
        assert tx.submit().result(60).id == tx.id
    until(lambda: values(db, "out") == ["b"])
