"""Tests workers, fences and time-outs of mode "kafka" through the face."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from face_kit import (
    begin_with,
    commits,
    hold_back,
    in_the_log,
    new_store,
    open_store,
    sees,
    until,
    values,
)
from kit import background, client_settings, in_threads, lease, python

import planstep
from planstep.proto.kafka.messages import EndTxn, Produce
from planstep.runtime.kafka import identities
from planstep.runtime.kafka.producer_sessions import Writing
from planstep.runtime.kafka.producers import Producer

# time-outs and identities ------------------------------------------------------------------------


def in_time(db: planstep.Engine, value: str) -> bool:
    """Writes a value in its own transaction; returns False if a slow machine made it time out too."""
    try:
        commits(db, value, worker="w")
    except planstep.KafkaError:
        return False
    return True


def test_a_transaction_that_is_open_too_long_is_aborted(db: planstep.Engine) -> None:
    db.close()
    version = db.context.settings.kafka.protocol_version
    with new_store(transaction_timeout_ms=30, protocol_version=version) as db:
        tx = begin_with(db, "late", worker="w")
        db.topic("out").write("behind")
        sees(db, "out", "behind")  # not held up any more
        with pytest.raises(planstep.KafkaError) as error:
            tx.commit()
        assert error.value.name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
        until(lambda: in_time(db, "again"))
        sees(db, "out", "behind", "again")


def test_a_producer_that_was_too_slow_goes_on_in_version_2() -> None:
    """Its partition reports that first, and its coordinator knows no other producer of that name."""
    with new_store(transaction_timeout_ms=30, protocol_version=2) as db:
        tx = begin_with(db, "late", worker="w")
        until(lambda: db.topic("out").describe().records == 2)  # its abort
        tx.write("out", "later")
        with pytest.raises(planstep.KafkaError) as error:
            tx.commit()
        assert error.value.name == "INVALID_PRODUCER_EPOCH" and error.value.retryable
        assert "topic 'out', partition 0 refused a batch" in str(error.value)
        until(lambda: in_time(db, "again"))
        sees(db, "out", "again")


def test_two_that_have_only_read_do_not_both_commit(db: planstep.Engine) -> None:
    """A transaction takes its identity before its first read, so the one begun later fences the other."""
    db.topic("in").write("x", partition=0)
    old = db.transaction(worker="w")
    assert old.read("in", "c").values == ["x"]
    new = db.transaction(worker="w")
    assert new.read("in", "c").values == ["x"]
    new.write("out", "new")
    new.commit()
    old.write("out", "old")
    with pytest.raises(planstep.ProducerFenced):
        old.commit()
    sees(db, "out", "new")


@pytest.mark.parametrize("goes_on", ["commit", "send", "add", "offsets"])
def test_a_worker_takes_its_identity_back_whatever_the_fenced_one_does_next(
    db: planstep.Engine, goes_on: str
) -> None:
    db.topic("in").write("x", partition=1)
    old = db.transaction(worker="w")
    if goes_on == "offsets":
        assert old.read("in", "c").values == ["x"]
    old.write("out", "old")
    in_the_log(db, old)
    commits(db, "new", worker="w")
    if goes_on == "send":
        old.write("out", "more")
    elif goes_on == "add":
        old.write("in", "more", partition=0)
    with pytest.raises(planstep.ProducerFenced) as error:
        old.commit()
    assert error.value.name == "PRODUCER_FENCED" and error.value.code == 90
    assert not error.value.retryable and old.outcome().state == "aborted"
    assert "at its end" in str(error.value) or goes_on != "commit"
    sees(db, "out", "new")
    assert values(db, "in") == ["x"]
    assert db.topic("in").lag("c") == 1


def test_the_same_producer_goes_on_after_a_batch_that_was_lost(db: planstep.Engine) -> None:
    """The batch arrives late. Version 2 refuses it. Version 1 takes it for the begin of a transaction, which the
    producer's next commit ends: this is expected, so the anomaly is asserted (KAFKA-14053)."""
    version = db.context.settings.kafka.protocol_version
    commits(db, "first", worker="w")
    with (
        client_settings(db, request_timeout_ms=20, delivery_timeout_ms=60),
        hold_back(db, Produce) as held,
    ):
        tx = db.transaction(worker="w")
        tx.write("out", "lost")
        with pytest.raises(planstep.KafkaError) as error:
            tx.commit()
    assert error.value.retryable and held.held
    held.let_go()
    commits(db, "next", worker="w")
    sees(db, "out", *(["first", "next"] if version == 2 else ["first", "lost", "next"]))


def test_a_commit_that_was_not_waited_for_has_its_outcome_later(db: planstep.Engine) -> None:
    with hold_back(db, EndTxn) as held:
        tx = db.transaction(worker="w")
        tx.write("out", "a")
        with pytest.raises(planstep.Undetermined, match="outcome"):
            tx.commit(timeout=0.05)
        assert tx.outcome(timeout=0.01).state == "open"
    until(lambda: held.held)
    held.let_go()
    assert tx.outcome(timeout=20).state == "committed"
    sees(db, "out", "a")


def test_an_identity_is_taken_over_from_who_waits_for_a_rollback_before_it(
    db: planstep.Engine,
) -> None:
    """The taker must not queue behind a transaction that is still open, whose owner may be waiting for the
    taker."""
    before = begin_with(db, "rolled back", worker="w")
    with hold_back(db, EndTxn) as held:
        before.rollback()
        until(lambda: held.held)
    first = db.transaction(worker="w")
    first.write("out", "a")  # after the rollback
    commits(db, "b", worker="w")
    held.let_go()
    with pytest.raises(planstep.ProducerFenced):
        first.commit()
    sees(db, "out", "b")


def test_a_transaction_without_effects_takes_nobodys_identity(db: planstep.Engine) -> None:
    empty = db.transaction(worker="w")
    running = db.transaction(worker="w")
    running.write("out", "a")
    assert empty.commit().place == (0, None)
    running.commit()
    with db.transaction(worker="v"):  # does nothing itself
        db.run(lambda tx: tx.write("out", "b"), worker="v")
    db.run(lambda tx: tx.write("out", "c"), worker="v")
    sees(db, "out", "a", "b", "c")


def test_who_began_before_the_one_that_took_the_identity_does_not_take_it_back(
    db: planstep.Engine,
) -> None:
    """It has sent nothing so far, so neither its reads nor its writes disturb others."""
    db.topic("in").write("x", partition=0)
    writes, reads, looks = (db.transaction(worker="w") for _ in range(3))
    running = db.transaction(worker="w")
    running.write("out", "a")
    writes.write("out", "late")
    assert reads.read("in", "c").values == ["x"]
    assert looks.read("in", "c", partition=1).values == []
    for late in (writes, reads):
        aborted = db.stats()["transactions"]["conflicts"]
        with pytest.raises(planstep.ProducerFenced):
            late.commit()
        assert late.outcome().state == "aborted"
        assert db.stats()["transactions"]["conflicts"] == aborted + 1
    looks.commit()
    running.commit()
    commits(db, "b", worker="w")
    sees(db, "out", "a", "b")
    assert db.topic("in").lag("c") == 1


@pytest.mark.parametrize("version", [1, 2])
def test_what_lingered_does_not_commit_behind_its_successor(version: int) -> None:
    with new_store(protocol_version=version, linger_ms=60_000) as db:
        old = db.transaction(worker="w")
        old.write("out", "old")
        commits(db, "new", worker="w")
        with pytest.raises(planstep.ProducerFenced):
            old.commit()
        commits(db, "next", worker="w")
        sees(db, "out", "new", "next")


@pytest.mark.parametrize("ends", ["commit", "rollback", "flush"])
def test_who_began_later_and_asked_for_nothing_fences_nobody(
    db: planstep.Engine, ends: str
) -> None:
    old = db.transaction(worker="w")
    new = db.transaction(worker="w")
    old.write("out", "a")
    getattr(new, ends)()
    old.commit()
    commits(db, "b", worker="w")
    sees(db, "out", "a", "b")


def test_who_is_put_off_while_it_asks_for_the_identity_does_not_take_it_back() -> None:
    """The coordinator still ends the transaction before, says so, and is asked again after the back-off."""
    with new_store(retry_backoff_ms=300) as db:
        _left = begin_with(db, "left", worker="w")
        old = db.transaction(worker="w")
        old.write("out", "old")
        until(lambda: db.transactional_ids()[0].state == "CompleteAbort")
        commits(db, "new", worker="w")
        with pytest.raises(planstep.ProducerFenced):
            old.commit()
        commits(db, "next", worker="w")
        sees(db, "out", "new", "next")


def test_a_reader_whose_name_another_one_had_takes_it_with_its_own_transaction(
    db: planstep.Engine,
) -> None:
    db.topic("in").write("x", partition=0)
    with db.reader("in", "c", name="w") as reader:
        idle = db.transaction(worker="w")
        commits(db, "a", worker="w")
        leased = lease(reader, 10)
        leased.tx.write("out", "b")
        leased.tx.commit()
        idle.rollback()
    sees(db, "out", "a", "b")


LEFT_OPEN = """
import os, sys, planstep
db = planstep.open(sys.argv[1])
for name in ("w-0", "w-1"):
    tx = db.transaction(worker=name)
    tx.write("out", "left open")
    tx.flush()
os._exit(0)
"""


def test_a_worker_without_records_ends_what_an_earlier_one_left_open(tmp_path: Path) -> None:
    with new_store(tmp_path / "s", 2) as db:
        db.topic("in").write_batch(["x"] * 300, partition=0)
    python(LEFT_OPEN, tmp_path / "s")
    with open_store(tmp_path / "s") as db:
        assert len(db.transactional_ids(only_open=True)) == 2
        done = db.process(
            lambda tx, batch: tx.write_batch("out", batch.values),
            "in",
            "c",
            worker="w",
            workers=2,
            until_idle=True,
        )
        assert done.records == 300
        # The workers' own markers follow their answers.
        until(lambda: db.transactional_ids(only_open=True) == [])
        sees(db, "out", *["x"] * 300)


def test_a_reader_that_was_fenced_says_so_at_its_next_read(db: planstep.Engine) -> None:
    db.topic("in").write_batch(["x"] * 30, partition=0)
    with db.reader("in", "c", name="w", max_records=10) as reader:
        leased = lease(reader, 10)
        commits(db, "a", worker="w")
        with pytest.raises(planstep.ProducerFenced):
            leased.tx.commit()
        for _ in range(2):
            with pytest.raises(planstep.ProducerFenced):
                reader.read()
    with db.reader("in", "c", name="w", until_idle=True) as reader:
        assert sum(len(batch) for _, batch in committed(reader)) == 30


def committed(reader: planstep.Reader) -> Iterator[Any]:
    for leased in reader:
        leased.tx.commit()
        yield leased


def test_names_of_the_engines_own_producers_are_not_a_workers(db: planstep.Engine) -> None:
    with pytest.raises(ValueError, match="pool-"):
        db.transaction(worker="pool-0")


def test_an_idle_identity_expires_and_the_worker_goes_on() -> None:
    with new_store(transactional_id_expiration_ms=1) as db:
        commits(db, "a", worker="w")
        sees(db, "out", "a")
        runtime: Any = db._runtime
        from planstep.coordinator.kafka.transactions import EXPIRE
        from planstep.proto.shell import Wake

        time.sleep(0.003)
        runtime.tell(runtime.hooks.coordinator_of("w"), Wake(EXPIRE))
        tx = db.transaction(worker="w")
        tx.write("out", "b")
        with pytest.raises(planstep.KafkaError, match="INVALID_PRODUCER_ID_MAPPING"):
            tx.commit()
        commits(db, "c", worker="w")
        sees(db, "out", "a", "c")


# many at once ------------------------------------------------------------------------------------


def test_readers_that_come_and_go_count_each_record_once(db: planstep.Engine) -> None:
    count = 150
    db.topic("in").write_batch(map(str, range(count)), keys=map(str, range(count)))
    done = threading.Event()

    def read(number: int) -> None:
        while not done.is_set():
            with db.reader("in", "c", max_records=7, name=f"r{number}") as reader:
                for turn in range(3 + number):
                    leased = reader.read(timeout=0.01)
                    if leased is None:
                        if reader.idle():
                            done.set()
                        continue
                    try:
                        leased.tx.write_batch("out", leased.batch.values)
                        if turn % 3 == 2:
                            leased.tx.rollback()
                        else:
                            leased.tx.commit()
                    except planstep.KafkaError as error:
                        assert error.name == "ILLEGAL_GENERATION"

    in_threads(partial(read, number) for number in range(4))
    until(lambda: len(values(db, "out")) >= count)
    assert sorted(values(db, "out"), key=int) == [str(n) for n in range(count)]


def test_workers_that_fence_one_another_count_each_record_once(db: planstep.Engine) -> None:
    count = 60
    db.topic("in").write_batch(map(str, range(count)), partition=0)

    def work(_: int) -> None:
        dry = 0
        while dry < 3:
            tx = db.transaction(worker="w")
            try:
                batch = tx.read("in", "c", max_records=5)
                tx.write_batch("out", batch.values)
                tx.commit()
                dry = 0 if batch else dry + 1
            except planstep.KafkaError as error:
                assert error.name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")

    in_threads(partial(work, number) for number in range(3))
    sees(db, "out", *map(str, range(count)))


def test_two_transactions_that_begin_at_once_under_one_name_do_not_both_commit(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread finds the worker's producer free before the other has taken it, if the other can get there."""
    db.topic("in").write("x", partition=0)
    commits(db, "first", worker="w")
    both, is_taken = threading.Barrier(2), Writing._is_taken

    def asked(writing: Writing, producer: Producer) -> bool:
        taken = is_taken(writing, producer)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(Writing, "_is_taken", asked)
        with background(*[lambda: db.transaction(worker="w")] * 2) as begun:
            pass
    fenced = 0
    transactions = [future.result() for future in begun]
    for tx in transactions:
        assert tx.read("in", "c").values == ["x"]
        tx.write("out", "x")
    for tx in transactions:
        try:
            tx.commit()
        except planstep.ProducerFenced:
            fenced += 1
    assert fenced == 1
    sees(db, "out", "first", "x")


def test_transactional_ids_tell_who_waits_for_whom(db: planstep.Engine) -> None:
    commits(db, "first", worker="done")
    tx = begin_with(db, "held", worker="holds")
    db.topic("out").write("behind")
    until(lambda: [one.name for one in db.transactional_ids(only_open=True)] == ["holds"])
    assert [one.name for one in db.transactional_ids()] == ["done", "holds"]
    (held,) = db.transactional_ids(only_open=True)
    assert (held.state, held.open) == ("Ongoing", True)
    (waiting,) = held.waiting
    assert waiting.records_behind == 2 and waiting.first_offset == waiting.last_stable
    tx.rollback()
    for call in (db.transactions, db.open_transactions, lambda: db.resolve(tx.id)):
        with pytest.raises(planstep.NotSupported, match="transactional_ids"):
            call()


def test_mode_deterministic_has_no_transactional_ids() -> None:
    with planstep.open(":memory:") as db, pytest.raises(planstep.NotSupported, match="kafka"):
        db.transactional_ids()


def test_a_worker_whose_name_is_no_text_is_refused_at_once(db: planstep.Engine) -> None:
    with pytest.raises(ValueError, match="Unicode"):
        db.transaction(worker="\ud800")
    assert not db._runtime.replies.waiting


def test_a_pending_position_that_ends_while_it_is_looked_for_is_passed_over() -> None:
    """Turns go on during the lookup: the producer's entry was listed, and its row is gone."""

    class Ended:
        def scan(self, begin: bytes, end: bytes) -> list[tuple[bytes, Any]]:
            return [(begin + b"c\0" + b"\0\0\0\1", None)]

        def get(self, key: bytes) -> None:
            return None

    names: Any = None
    assert list(identities._pending(cast(Any, Ended()), names, 1, 7)) == []
