"""Tests the messages of a transaction or writer when something else fails."""

import asyncio
import threading
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import kit
import pytest
from kit import background, in_threads, python, until

import planstep

db = kit.in_out_n


def test_a_record_that_write_refused_is_not_in_the_buffer(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = db.create_topic("one")
    commit = db._runtime.transactions.commit
    errors: list[Exception] = [planstep.NoSpace("full"), planstep.Undetermined("lost")]

    def fail(*args: Any) -> Any:
        if errors:
            if isinstance(errors[0], planstep.Undetermined):
                commit(*args)
            raise errors.pop(0)
        return commit(*args)

    monkeypatch.setattr(db._runtime.transactions, "commit", fail)
    writer = topic.writer(linger_records=1)
    with pytest.raises(planstep.NoSpace):
        writer.write(b"a")
    assert writer.buffered == 0
    assert writer.write(b"a") == 0  # published, but the outcome is unknown
    with pytest.raises(planstep.Undetermined) as caught:
        writer.write(b"b")
    assert "keeps the records" in caught.value.__notes__[0]
    writer.flush()
    assert writer.write(b"b") == 1
    writer.close()
    assert topic.read().values == [b"a", b"b"]


def test_what_lingers_and_cannot_be_published_is_told_when_closing(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s")
    writer = db.create_topic("t").writer(linger=3600)
    writer.write(b"x")
    db._runtime.transactions.commit = Mock(side_effect=planstep.NoSpace("full"))
    with pytest.raises(planstep.NoSpace) as caught:
        db.close()
    assert "was not published" in caught.value.__notes__[0]
    assert db.closed
    planstep.open(tmp_path / "s").close()


async def test_an_event_loop_goes_on_while_a_flush_has_the_writer() -> None:
    async with planstep.open_async(":memory:") as db:
        writer = (await db.create_topic("t")).writer()
        with writer.sync._lock:  # this thread's; the loop's is another one
            pass
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with writer.sync._lock:
                held.set()
                release.wait(20)

        with background(hold):
            held.wait(20)
            writing = asyncio.create_task(writer.write(b"x"))
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert not writing.done()
            release.set()
            assert await writing == 0
        await writer.close()


def test_what_goes_ahead_and_its_commit_have_answers_of_their_own(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait under one transaction's id, one after the other."""
    monkeypatch.setattr("planstep.api.transaction.transaction.AHEAD_BYTES", 200)
    wrong: list[str] = []

    def work() -> None:
        for _ in range(60):
            tx = db.transaction()
            tx.get("n", "k")
            for p in range(4):
                tx.write("in", bytes(300), partition=p)
            db.table("n").put("k", 1)
            try:
                tx.put("n", "k", 2)
                tx.commit()
                wrong.append(tx.id)
            except planstep.Conflict:
                pass

    in_threads([work] * 6)
    assert not wrong and not db._runtime.replies.waiting and not db._runtime.admission.bytes


def test_what_was_interrupted_going_ahead_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rollback arrives while the staging is under way."""
    with planstep.open(":memory:", hosts=3) as db:
        db.create_topic("t", partitions=3)
        runtime = db._runtime
        wait = runtime.threads.wait_for
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt), db.transaction() as tx:
                with monkeypatch.context() as patch:
                    patch.setattr(runtime.threads, "wait_for", Mock(side_effect=KeyboardInterrupt))
                    for p in range(3):
                        tx.write_batch("t", [bytes(1 << 20)] * 4, partition=p)
        assert runtime.threads.wait_for == wait
        until(lambda: not (runtime.replies.waiting or runtime.admission._held))
        assert runtime.admission.bytes == 0


@pytest.mark.filterwarnings("default:.* was dropped without:ResourceWarning")
def test_what_is_dropped_unsaid_is_warned_of(db: planstep.Engine) -> None:
    with pytest.warns(ResourceWarning, match="was dropped without commit or rollback"):
        tx = db.transaction()
        tx.put("n", "k", 1)
        del tx
    with pytest.warns(ResourceWarning, match="1 record buffered> was dropped without close"):
        writer = db.topic("out").writer()
        writer.write(b"x")
        del writer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tx = db.transaction()
        tx.get("n", "k")
        del tx


def test_a_commit_says_where_its_records_are(db: planstep.Engine) -> None:
    with db.transaction() as tx:
        tx.write_batch("in", [b"a", b"b", b"c"], partition=[1, 3, 1])
        tx.put("n", "k", 1)
        commit = tx.commit()
    assert commit.id == tx.id and commit.published == {("in", 1): (0, 2), ("in", 3): (0, 1)}
    assert repr(commit) == f"<Commit {tx.id} at ({commit.place.step}, {commit.place.n})>"


def test_what_lingers_is_published_when_the_interpreter_ends(tmp_path: Path) -> None:
    program = (
        "import sys, planstep; db = planstep.open(sys.argv[1]); "
        "writer = db.create_topic('t').writer(linger=3600); writer.write(b'x')"
    )
    python(program, tmp_path / "s")
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("t").read().values == [b"x"]
