"""Tests changelogs of mode "kafka" through the face."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from face_kit import hold_back, new_store, open_store, until, values

import planstep
from planstep.proto.kafka.messages import Produce


def test_a_changelog_is_restored_and_forgets_what_was_aborted(tmp_path: Path) -> None:
    with new_store(tmp_path / "s", 4) as db:
        db.create_topic("state", partitions=2, format="json")
        log = db.changelog("state", 1, worker="w")
        with db.transaction(worker="w") as tx:
            log.add(tx, "a", 2)
            log.put(tx, "b", 7)
        tx = db.transaction(worker="w")
        log.add(tx, "a", 100)
        assert log.get(tx, "a") == 102
        tx.rollback()
        with db.transaction(worker="w") as tx:
            assert log.get(tx, "a") == 2
            log.add(tx, "a", 1)
            log.put(tx, "b", None)
        assert dict(log.items()) == {"a": 3}
    with open_store(tmp_path / "s") as db:
        log = db.changelog("state", 1, worker="w")
        assert dict(log.items()) == {"a": 3}


def test_a_changelog_restores_what_the_worker_before_has_committed(db: planstep.Engine) -> None:
    """Markers may still be missing: naming the worker waits for them."""
    db.create_topic("state", format="json")
    for n in range(20):
        log = db.changelog("state", worker="w")
        with db.transaction(worker="w") as tx:
            log.add(tx, "n", 1)
        db._runtime.hooks.writing.producers.clear()
        assert dict(db.changelog("state", worker="w").items()) == {"n": n + 1}


@pytest.mark.parametrize("how", ["put", "write", "sent", "restored"])
@pytest.mark.parametrize("linger_ms", [0, 60_000])
@pytest.mark.parametrize("version", [1, 2])
def test_a_changelog_ends_what_the_same_engine_has_open_under_the_name(
    version: int, linger_ms: int, how: str
) -> None:
    """Otherwise that transaction would commit after the view was read, and later commits would undo it."""
    with open_store(protocol_version=version, linger_ms=linger_ms) as db:
        db.create_topic("state", format="msgpack")
        log = db.changelog("state", worker="w")
        if how == "restored":  # a producer that has committed before
            with db.transaction(worker="w") as tx:
                log.put(tx, "m", 1)
        former = db.transaction(worker="w")
        if how in ("put", "restored"):
            log.add(former, "n", 1)
        else:
            former.write("state", 1, key="n")
        if how == "sent":
            former.flush()
        successor = db.changelog("state", worker="w")
        assert "n" not in dict(successor.items())
        with pytest.raises(planstep.ProducerFenced):
            former.commit()
        with db.transaction(worker="w") as tx:
            successor.add(tx, "n", 1)
        assert dict(db.changelog("state", worker="w").items())["n"] == 1
        until(lambda: values(db, "state")[-1] == 1)
        assert sum(record.key == "n" for record in db.topic("state").read()) == 1


def test_a_changelog_waits_for_what_is_being_committed_under_the_name(db: planstep.Engine) -> None:
    db.create_topic("state", format="json")
    log = db.changelog("state", worker="w")
    tx = db.transaction(worker="w")
    log.add(tx, "n", 1)
    with hold_back(db, Produce) as held:
        sent = tx.submit()
        until(lambda: held.held)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(db.changelog, "state", worker="w")
        time.sleep(0.01)
        held.let_go()
        assert dict(following.result(30).items()) == {"n": 1}
    assert sent.result(30)


def test_a_changelog_that_is_restored_again_leaves_its_workers_transaction_alone(
    db: planstep.Engine,
) -> None:
    """A restore by hand, or after an unknown outcome, leaves the worker's own open transaction alone."""
    db.create_topic("state", format="json")
    log = db.changelog("state", worker="w")
    with db.transaction(worker="w") as tx:
        log.add(tx, "n", 1)
        log.restore()
        log.add(tx, "n", 2)
    until(lambda: values(db, "state"))
    assert dict(log.items()) == {"n": 2}
