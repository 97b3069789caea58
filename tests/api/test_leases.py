"""Tests readers of one consumer under other faults: silence, drops, gaps, closing."""

import threading
from unittest.mock import Mock

import kit
import pytest
from kit import background, fill, lease, until

import planstep
from planstep import testing
from planstep.proto.ids import host_of, tablet_prefix
from planstep.runtime.group_commit import Waiter
from planstep.runtime.thread_pool import ThreadPool

db = kit.in_out_n


def nothing(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    """Consumes nothing."""


def test_a_reader_that_does_not_read_has_no_share(db: planstep.Engine) -> None:
    fill(db)
    silent = db.reader("in", consumer="c")
    done = db.process(nothing, topic="in", consumer="c", until_idle=True)
    assert done.records == 4 and silent.partitions == []
    fill(db)
    lease(silent).tx.commit()
    silent.close()


def test_a_reader_that_fell_silent_has_no_share_any_more(db: planstep.Engine) -> None:
    fill(db, 2)
    one, two = (db.reader("in", consumer="c", max_records=1) for _ in range(2))
    group = one.group
    now = 0.0
    group._clock = lambda: now
    for reader in (one, two, one, two):
        leased = lease(reader)
        leased.tx.commit()
    assert len(one.partitions) == 2 and two.partitions
    now = 31.0
    read = 0
    while leased := one.read():
        leased.tx.commit()
        read += 1
    assert read == 4 and two.partitions == [] and one.idle()
    one.close()
    two.close()


def test_a_thousand_batches_behind_one_that_is_rolled_back(db: planstep.Engine) -> None:
    db.create_topic("many").write_batch([b"x"] * 1100)
    reader = db.reader("many", consumer="c", max_records=1, in_flight=2000)
    first = lease(reader)
    futures = [leased.tx.submit() for _ in range(1099) if (leased := reader.read())]
    assert len(futures) == 1099
    first.tx.rollback()
    for future in futures:
        with pytest.raises(planstep.Conflict):
            future.result(30)
    assert reader.in_flight == 0
    reader.close()


def test_what_went_ahead_of_a_refused_batch_is_taken_back(db: planstep.Engine) -> None:
    fill(db, 2)
    with db.reader("in", consumer="c", max_records=1, in_flight=8) as reader:
        leased = [item for _ in range(8) if (item := reader.read())]
        one, two = (item for item in leased if item.batch.offsets[0][0] == 0)
        two.tx.write_batch("out", [bytes(1 << 20)] * 9, partition=0)
        tablet = db.context.topic("out").partitions[0]
        store = db._runtime.nodes[host_of(tablet)].host.store
        staged = tablet_prefix(tablet) + b"s" + two.tx.life.tx
        assert store.get(staged)
        future = two.tx.submit()
        one.tx.rollback()
        with pytest.raises(planstep.Conflict):
            future.result(30)
        until(lambda: store.get(staged) is None)


def test_a_new_reader_knows_what_the_last_one_left_in_flight(db: planstep.Engine) -> None:
    fill(db, 100)
    futures = []
    while True:
        with db.reader("in", consumer="c", max_records=5, in_flight=3) as reader:
            leased = [item for _ in range(3) if (item := reader.read(timeout=0.2))]
            futures += [item.tx.submit() for item in leased]
        if not leased:
            break
    assert all(future.result(30).place for future in futures) and len(futures) == 80


def test_closing_a_reader_ends_its_loop(db: planstep.Engine) -> None:
    fill(db)
    reader = db.reader("in", consumer="c")
    count = 0
    for tx, _ in reader:
        tx.commit()
        count += 1
        if count == 4:
            threading.Timer(0.01, reader.close).start()
    assert count == 4


def test_a_topic_that_was_dropped_and_made_anew_is_another(db: planstep.Engine) -> None:
    with db.reader("in", consumer="c") as reader:
        db.drop_topic("in")
        db.create_topic("in")
        with pytest.raises(planstep.Dropped, match="open another reader"):
            reader.read()


def test_trimming_where_a_reader_reads_is_no_error(db: planstep.Engine) -> None:
    stop = threading.Event()

    def meddle() -> None:
        while not stop.is_set():
            fill(db, 5)
            db.topic("in").trim("latest")

    with background(meddle):
        try:
            with db.reader("in", consumer="c") as reader:
                for _ in range(300):
                    leased = reader.read()
                    if leased is not None:
                        leased.tx.rollback()
        finally:
            stop.set()


def test_a_batch_whose_commit_was_interrupted_ends(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread would have ended it: another one does."""
    fill(db)
    wait_for = ThreadPool.wait_for

    def interrupt(threads: ThreadPool, waiter: Waiter, timeout: float | None) -> None:
        wait_for(threads, waiter, timeout)
        raise KeyboardInterrupt

    with db.reader("in", consumer="c") as reader:
        leased = lease(reader)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(ThreadPool, "wait_for", interrupt)
            leased.tx.commit()
        until(lambda: not reader.in_flight)
        assert leased.tx.outcome(10).state == "committed"


def test_an_idle_reader_sleeps(db: planstep.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with db.reader("in", consumer="c") as reader:
        looks = Mock(wraps=reader.search._search)
        monkeypatch.setattr(reader.search, "_search", looks)
        assert reader.read(timeout=0.3) is None
        assert looks.call_count < 6


def test_groups_that_nobody_is_in_are_forgotten(db: planstep.Engine) -> None:
    for i in range(20):
        db.reader("in", consumer=f"c{i}").close()
    db.context.groups.tidy()
    assert not db.context.groups


@pytest.mark.parametrize("hosts", [1, 3])
def test_readers_under_lost_answers_and_a_crash_with_a_lingering_writer(hosts: int) -> None:
    with testing.engine(lost_answers=0.3, seed=1, hosts=hosts) as db:
        topic = db.create_topic("t", partitions=2)
        written = 0
        while topic.describe().records < 100:
            try:
                topic.write(b"x", partition=written % 2)
            except planstep.Undetermined:
                written += 1
        with db.reader("t", "c", max_records=1, in_flight=8) as reader:
            while not reader.idle():
                leased = reader.read(timeout=0.5)
                if leased is not None:
                    leased.tx.submit()
        topic.writer(linger=60).write(b"gone")
        again = testing.crash(db)
        assert again.topic("t").lag("c") == 0
