"""Tests readers of one consumer: leases, several batches in flight; rolled-back batches are read again."""

import gc
import random
import threading
from collections import Counter
from functools import partial

import kit
import pytest
from kit import background, in_threads, lease

import planstep
from planstep.api.topics.consumer_group import Group

db = kit.in_out_n


def fill(db: planstep.Engine, records: int, partitions: int = 4) -> None:
    with db.transaction() as tx:
        for p in range(partitions):
            mine = [b"%d" % i for i in range(records) if i % partitions == p]
            if mine:
                tx.write_batch("in", mine, partition=p)


def test_a_reader_gives_batches_with_their_transactions(db: planstep.Engine) -> None:
    fill(db, 100)
    with db.reader("in", consumer="c", max_records=10) as reader:
        count = 0
        while leased := reader.read():
            tx, batch = leased
            assert len({partition for partition, _ in batch.offsets}) == 1 and len(batch) <= 10
            tx.add("n", "records", len(batch))
            tx.commit()
            count += len(batch)
        assert count == 100 and reader.idle() and reader.in_flight == 0
    assert db.table("n").get("records") == 100 and db.topic("in").lag("c") == 0


def test_several_batches_are_in_flight(db: planstep.Engine) -> None:
    fill(db, 1000)
    with db.reader("in", consumer="c", max_records=10, in_flight=8) as reader:
        futures = []
        while leased := reader.read(timeout=0.2 if reader.in_flight else 0):
            assert reader.in_flight <= 8
            futures.append(leased.tx.submit())
        assert len(futures) == 100
        assert all(future.result(30).place for future in futures)
    assert db.topic("in").lag("c") == 0


def test_no_more_than_in_flight(db: planstep.Engine) -> None:
    fill(db, 100)
    reader = db.reader("in", consumer="c", max_records=5, in_flight=2)
    one, two = reader.read(), reader.read()
    assert one and two and reader.in_flight == 2
    one.tx.commit()
    three = lease(reader, 10)
    for leased in (two, three):
        leased.tx.rollback()
    reader.close()


def test_only_what_was_rolled_back_is_read_again(db: planstep.Engine) -> None:
    fill(db, 40)
    with db.reader("in", consumer="c", max_records=5, in_flight=8) as reader:
        leased = [reader.read() for _ in range(8)]
        ranges = {item.batch.offsets[0]: item for item in leased if item}
        assert len(ranges) == 8  # two of each partition
        ranges[0, 0].tx.rollback()
        for place in [(1, 0), (2, 0), (3, 0), (1, 5), (2, 5), (3, 5)]:
            ranges[place].tx.commit()
        again = lease(reader)
        assert again.batch.offsets == [(0, i) for i in range(5)]
        late = ranges[0, 5].tx.submit()  # waits for its turn
        assert not late.done()
        again.tx.commit()
        assert late.result(30).place
    assert db.topic("in").lag("c") == 0


def test_what_comes_behind_a_gap_that_nobody_reads_is_a_conflict(db: planstep.Engine) -> None:
    fill(db, 10, partitions=1)
    with db.reader("in", consumer="c", max_records=5) as reader:
        one, two = reader.read(), reader.read()
        assert one and two
        one.tx.rollback()
        with pytest.raises(planstep.Conflict):
            two.tx.commit()
        for _ in range(2):
            lease(reader).tx.commit()
        assert reader.idle()


def test_commits_are_handed_over_in_the_order_of_reading(db: planstep.Engine) -> None:
    fill(db, 40, partitions=1)
    with db.reader("in", consumer="c", max_records=5, in_flight=8) as reader:
        leased = [item for _ in range(8) if (item := reader.read())]
        futures = [item.tx.submit() for item in reversed(leased)]
        places = [future.result(30).place for future in reversed(futures)]
        assert places == sorted(places)
    assert db.topic("in").lag("c") == 0


def test_a_conflict_elsewhere_is_read_again(db: planstep.Engine) -> None:
    fill(db, 10, partitions=1)
    with db.reader("in", consumer="c", max_records=5, in_flight=2) as reader:
        one, two = reader.read(), reader.read()
        assert one and two
        one.tx.get("n", "k")
        one.tx.put("n", "k", 1)
        db.table("n").put("k", 2)
        first, second = one.tx.submit(), two.tx.submit()
        for future in (first, second):
            with pytest.raises(planstep.Conflict):
                future.result(30)
        values = []
        while leased := reader.read():
            leased.tx.commit()
            values += leased.batch.values
        assert values == [b"%d" % i for i in range(10)]


def test_partitions_are_shared_out_and_move(db: planstep.Engine) -> None:
    fill(db, 40)

    def turn(reader: planstep.Reader) -> None:
        for _ in range(8):
            leased = reader.read()
            if leased:
                leased.tx.commit()
        fill(db, 40)

    one = db.reader("in", consumer="c", max_records=5, name="one")
    turn(one)
    assert one.partitions == [0, 1, 2, 3] and repr(one) == "<Reader 'one' of 'c' on topic 'in'>"
    two = db.reader("in", consumer="c", max_records=5)
    turn(two)
    turn(one)
    assert len(one.partitions) == len(two.partitions) == 2
    held = two.read()
    three = db.reader("in", consumer="c", max_records=5)
    four = db.reader("in", consumer="c", max_records=5)
    for reader in (one, three, four):
        turn(reader)
    assert held is not None and held.batch.offsets[0][0] in two.partitions
    held.tx.commit()
    for reader in (one, two, three, four):
        turn(reader)
    assert sorted(p for one in (one, two, three, four) for p in one.partitions) == list(range(4))
    assert all(len(reader.partitions) == 1 for reader in (one, two, three, four))
    for reader in (two, three, four):
        reader.close()
    for _ in range(3):
        turn(one)
    assert one.partitions == [0, 1, 2, 3]
    one.close()


def test_a_reader_that_is_dropped_leaves_its_batches_to_others(db: planstep.Engine) -> None:
    fill(db, 20)
    one = db.reader("in", consumer="c")
    held = lease(one)
    two = db.reader("in", consumer="c")
    other = lease(two)
    del one, held
    gc.collect()
    count = len(other.batch)
    other.tx.commit()
    while leased := two.read():
        count += len(leased.batch)
        leased.tx.commit()
    assert count == 20 and two.idle()
    two.close()


def test_a_transaction_that_is_dropped_is_told_of(
    db: planstep.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    fill(db, 4, partitions=1)
    with db.reader("in", consumer="c") as reader:
        reader.read()
        gc.collect()
        leased = lease(reader)
        assert len(leased.batch) == 4
        leased.tx.commit()
    (warning,) = caplog.records
    assert "[0, 4) in partition 0 was dropped without commit" in warning.getMessage()


def test_a_silent_reader_loses_its_lease(db: planstep.Engine) -> None:
    fill(db, 8, partitions=1)
    one = db.reader("in", consumer="c", max_records=4, lease_seconds=30)
    group: Group = one.group
    now = 0.0
    group._clock = lambda: now
    held = lease(one)
    two = db.reader("in", consumer="c", max_records=4)
    now = 20.0
    one.keep_alive()
    now = 45.0
    assert two.read() is None  # 25 s of 30
    now = 51.0
    second = lease(two)
    assert second.batch.offsets == held.batch.offsets
    with pytest.raises(planstep.LeaseLost, match="keep_alive"):
        held.tx.commit()
    assert held.tx.outcome().state == "aborted"
    second.tx.commit()
    assert db.topic("in").position("c")[0] == 4
    now = 100.0
    assert one.read() is not None  # the other one was silent
    one.close()
    two.close()


def test_a_seek_is_followed(db: planstep.Engine) -> None:
    fill(db, 8, partitions=1)
    with db.reader("in", consumer="c") as reader:
        lease(reader).tx.commit()
        assert reader.read() is None
        db.topic("in").seek("c", 2, partition=0)
        leased = lease(reader)
        assert leased.batch.offsets[0] == (0, 2)
        db.topic("in").seek("c", 4, partition=0)
        with pytest.raises(planstep.Conflict):
            leased.tx.commit()
        leased = lease(reader)
        assert leased.batch.offsets[0] == (0, 4)
        leased.tx.rollback()


def test_individual_consumers_share_a_partition(db: planstep.Engine) -> None:
    fill(db, 100, partitions=1)
    db.topic("in").create_consumer("c", kind="individual")
    one = db.reader("in", consumer="c", max_records=10, in_flight=8)
    two = db.reader("in", consumer="c", max_records=10, in_flight=8)
    leased = [item for _ in range(5) for reader in (one, two) if (item := reader.read())]
    assert sorted(p for item in leased for p in item.batch.offsets) == [(0, i) for i in range(100)]
    leased[3].tx.rollback()
    for item in reversed(leased[:3] + leased[4:]):
        item.tx.commit()
    again = lease(two)
    assert again.batch.offsets == leased[3].batch.offsets
    again.tx.commit()
    assert one.idle() and db.topic("in").position("c")[0] == 100
    one.close()
    two.close()


def test_reading_waits_for_records_and_for_leases(db: planstep.Engine) -> None:
    fill(db, 4, partitions=1)
    one = db.reader("in", consumer="c")
    _held = lease(one)
    two = db.reader("in", consumer="c")
    with background(lambda: two.read(timeout=30)) as (reading,):
        one.close()
    leased = reading.result()
    assert leased is not None and len(leased.batch) == 4
    leased.tx.commit()
    with background(lambda: two.read(timeout=30)) as (reading,):
        db.write("in", b"more")
    leased = reading.result()
    assert leased is not None and leased.batch.values == [b"more"]
    leased.tx.rollback()
    two.close()


def read_for_a_while(db: planstep.Engine, draw: random.Random, stop: threading.Event) -> None:
    """Reads for a while; sets `stop` once it has seen the end of the topic."""
    reader = db.reader("in", consumer="c", max_records=draw.randrange(1, 60))
    for _ in range(20):
        leased = reader.read(timeout=0.05)
        if leased is not None:
            pass_on(leased, draw)
        elif reader.idle():
            stop.set()
    if draw.random() < 0.7:
        reader.close()


def pass_on(leased: planstep.Leased, draw: random.Random) -> None:
    """Passes a batch on, and rolls back, commits, submits, or leaves the transaction open."""
    tx, batch = leased
    tx.write_batch("out", batch.values)
    choice = draw.random()
    if choice < 0.2:
        tx.rollback()
    elif choice < 0.9:
        try:
            if draw.random() < 0.5:
                tx.submit()
            else:
                tx.commit()
        except planstep.Aborted:
            pass


def test_readers_in_many_threads_count_each_record_once(db: planstep.Engine) -> None:
    """Some readers roll back, some conflict, some stop without closing."""
    fill(db, 2000)
    stop = threading.Event()

    def work(seed: int) -> None:
        draw = random.Random(seed)
        while not stop.is_set():
            read_for_a_while(db, draw, stop)

    in_threads(partial(work, seed) for seed in range(6))
    assert Counter(db.topic("out").read(max_records=5000).values) == Counter(
        b"%d" % i for i in range(2000)
    )


def test_misuse_says_what_to_do(db: planstep.Engine) -> None:
    for settings in ({"in_flight": 0}, {"lease_seconds": 0}, {"max_records": 0}):
        with pytest.raises(ValueError):
            db.reader("in", consumer="c", **settings)
    with pytest.raises(planstep.UnknownName):
        db.reader("inn", consumer="c")
    reader = db.reader("in", consumer="c")
    reader.close()
    reader.close()
    with pytest.raises(planstep.TransactionClosed, match=r"db\.reader"):
        reader.read()
    stale = db.reader("out", consumer="c")
    db.drop_topic("out")
    with pytest.raises(planstep.UnknownName):
        stale.read()
