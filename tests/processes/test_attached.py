"""A second process opens a store that is in use: it attaches, and has the whole face."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.runtime import open_runtime


def test_the_second_process_attaches_and_both_write(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t", partitions=2)
        db.create_table("n")
        with Other(tmp_path / "s") as other:
            other.run(
                "with db.transaction() as tx:\n"
                "    tx.write('t', b'theirs', partition=0)\n"
                "    tx.put('n', 'who', 'they')\n"
            )
            assert db.topic("t").read().values == [b"theirs"]
            assert db.table("n").get("who") == "they"
            db.table("n").put("who", "we")
            assert other("db.table('n').get('who')") == "we"
            assert other("db.mode, db.context.runtime.hosts") == ("deterministic", 1)
        assert db.table("n").get("who") == "we"


def test_a_conflict_is_decided_at_the_owner(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_table("n")
        db.table("n").put("k", 1)
        other.run("tx = db.transaction(); seen = tx.get('n', 'k')")
        db.table("n").put("k", 2)
        other.run("tx.put('n', 'k', seen + 10)")
        with pytest.raises(planstep.Conflict) as lost:
            other("tx.commit()")
        assert (lost.value.name, lost.value.key, lost.value.retryable) == ("n", "k", True)
        assert other("db.outcome(tx.id).state") == "aborted"
        assert other("db.run(lambda tx: tx.put('n', 'k', tx.get('n', 'k') + 10))") is None
        assert db.table("n").get("k") == 12


def test_names_cross(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        other.run("db.create_topic('theirs', partitions=3)")
        db.topic("theirs").write(b"x", partition=2)
        db.create_table("ours")
        other.run("db.table('ours').put(1, 'one')")
        with pytest.raises(planstep.AlreadyExists):
            other("db.create_table('ours')")
        with pytest.raises(planstep.UnknownName, match="did you mean 'theirs'"):
            other("db.topic('their')")
        other.run("db.drop_topic('theirs')")
        assert list(db.topics()) == []
        with pytest.raises(planstep.UnknownName):
            db.topic("theirs")


def test_what_a_commit_has_returned_the_next_snapshot_of_any_process_shows(tmp_path: Path) -> None:
    """Each side adds one in turn, and must see the other's."""
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_table("n")
        for round in range(200):
            seen = db.table("n").get("k") or 0
            assert seen == 2 * round
            db.table("n").put("k", seen + 1)
            assert other("db.table('n').get('k')") == seen + 1
            other.run(f"db.table('n').put('k', {seen + 2})")


def test_a_reader_that_waits_is_woken_by_another_process(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        waiting = other.begin("db.topic('t').read(timeout=60).values")
        db.topic("t").write(b"a")
        assert waiting() == [b"a"]
        at = {0: 1}
        threading.Timer(0.05, other.run, ("db.topic('t').write(b'b')",)).start()
        assert db.topic("t").read(at, timeout=60).values == [b"b"]


def test_futures_of_an_attached_process_end(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        other.run(
            "futures = []\n"
            "for n in range(300):\n"
            "    tx = db.transaction()\n"
            "    tx.write('t', b'%d' % n)\n"
            "    futures.append(tx.submit())\n"
            "ends = [future.result(60).published['t', 0] for future in futures]\n"
        )
        assert sorted(other("ends")) == [(n, n + 1) for n in range(300)]
        assert len(db.topic("t").read().values) == 300


def test_large_payloads_are_sent_ahead_and_taken_back(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        other.run(
            "tx = db.transaction()\nfor n in range(20):\n    tx.write('t', os.urandom(1 << 20))\n"
        )
        assert [one.state for one in db.open_transactions()] == ["staged"]
        other.run("tx.rollback()")
        until(lambda: not db.open_transactions())
        other.run(
            "tx = db.transaction()\n"
            "for n in range(20):\n"
            "    tx.write('t', bytes([n]) * (1 << 20))\n"
            "tx.commit()"
        )
        values = db.topic("t").read(max_bytes=64 << 20).values
        assert [value[0] for value in values] == list(range(20))


def test_a_process_that_dies_leaves_nothing(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        other.run(
            "tx = db.transaction()\nfor n in range(20):\n    tx.write('t', os.urandom(1 << 20))"
        )
        assert len(db.open_transactions()) == 1
        other.kill()
        until(lambda: not db.open_transactions())
        assert db.stats()["processes"]["attached"] == 0
        db.topic("t").write(b"x")
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("t").read().values == [b"x"]


def test_settings_must_agree(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", trace="off"):
        with pytest.raises(planstep.WrongMode, match="trace='off', not 'messages'"):
            Other(tmp_path / "s", trace="messages")
        with pytest.raises(planstep.WrongMode, match="mode"):
            Other(tmp_path / "s", mode="kafka")
        with Other(tmp_path / "s", trace="off") as other:
            assert other("db.context.settings.trace") == "off"


def test_exclusive_owners_and_openers(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", share=False):
        with pytest.raises(planstep.StoreInUse, match=f"process {os.getpid()}"):
            Other(tmp_path / "s")
    with planstep.open(tmp_path / "s"):
        with pytest.raises(planstep.StoreInUse):
            Other(tmp_path / "s", attach=False)
        with pytest.raises(planstep.StoreInUse):
            Other(tmp_path / "s", share=False)


def test_reading_needs_no_owner(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner:
        owner.run("db.create_topic('t'); db.topic('t').write(b'a')")
        with planstep.open(tmp_path / "s") as db:
            owner.signal(signal.SIGSTOP)
            try:
                assert db.topic("t").read().values == [b"a"]
                with pytest.raises(planstep.Undetermined, match=r"is stopped \(SIGSTOP\)"):
                    tx = db.transaction()
                    tx.write("t", b"b")
                    tx.commit(timeout=0.2)
            finally:
                owner.signal(signal.SIGCONT)
            db.topic("t").write(b"c")
            assert db.topic("t").read().values == [b"a", b"b", b"c"]


def test_who_does_not_wait_for_a_refusal_can_ask_for_it(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner, planstep.open(tmp_path / "s") as db:
        owner.run("db.create_table('n')")
        tx = db.transaction()
        assert tx.get("n", "k") is None
        tx.put("n", "k", 1)
        owner.run("db.table('n').put('k', 2)")
        owner.signal(signal.SIGSTOP)
        with pytest.raises(planstep.Undetermined):
            tx.commit(timeout=0)
        owner.signal(signal.SIGCONT)
        until(lambda: tx.outcome().state == "aborted")
        db.table("n").put("k", 3)
        assert owner("db.table('n').get('k')") == 3


def test_an_engine_that_rests_is_closed(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner:
        owner.run("db.create_topic('t')")
        db = planstep.open(tmp_path / "s")
        followed: Any = db.context.runtime.followed
        until(lambda: followed._resting is not None)
        closing = threading.Thread(target=db.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()


async def test_an_event_loop_does_not_wait_for_ids_of_an_owner_that_is_stopped(
    tmp_path: Path,
) -> None:
    with Other(tmp_path / "s") as owner:
        owner.run("db.create_table('n')")
        async with planstep.open_async(tmp_path / "s") as db:
            await db.table("n").put("k", 1)
            owner.signal(signal.SIGSTOP)
            try:
                with pytest.raises(planstep.Overloaded, match=r"is stopped \(SIGSTOP\)"):
                    begun = [db.transaction() for _ in range(300)]
                    assert not begun
            finally:
                owner.signal(signal.SIGCONT)
            async with db.transaction() as tx:
                await tx.put("n", "k", 2)
            assert await db.table("n").get("k") == 2


def test_an_attached_process_knows_outcomes_of_a_replicated_store(tmp_path: Path) -> None:
    """Its owner has all turns of the shared log, and is asked."""
    url = (tmp_path / "log").as_uri()
    owner = Other(tmp_path / "s", replicate=url)
    owner.run("db.create_table('n'); tx = db.transaction(); tx.put('n', 'k', 1); tx.commit()")
    done, never = owner("tx.id"), owner("db.transaction().id")
    with planstep.open(tmp_path / "s", replicate=url) as db:
        assert [db.outcome(tx).state for tx in (done, never)] == ["committed", "unknown"]
        owner.kill()
        assert [db.outcome(tx).state for tx in (done, never)] == ["committed", "unknown"]


def test_an_owner_whose_socket_was_removed_is_named(
    tmp_path: Path, owner: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_runtime, "_STARTING_SECONDS", 0.2)
    (tmp_path / "s" / "host-0" / "lock.socket").unlink()
    with pytest.raises(
        planstep.StoreInUse, match=f"process {owner.pid} owns the store.*socket was removed"
    ):
        planstep.open(tmp_path / "s")


def test_of_settings_with_fields_the_one_that_differs_is_named(tmp_path: Path) -> None:
    theirs, mine = (planstep.PulsarSettings(end_retry_ms=ms) for ms in (500, 700))
    with (
        planstep.open(tmp_path / "s", mode="pulsar", pulsar=theirs),
        Other(tmp_path / "s") as other,
    ):
        other.run("db.close()")
        for opens in (
            planstep.open,
            lambda path, pulsar: other(f"planstep.open({str(path)!r}, pulsar=planstep.{pulsar})"),
        ):
            with pytest.raises(
                planstep.WrongMode, match=r"with pulsar\.end_retry_ms=500, not 700[;:]"
            ):
                opens(tmp_path / "s", pulsar=mine)
        other.run(f"db = planstep.open({other.path!r})")
