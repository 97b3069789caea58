"""Tests transactions, readers and process of mode "kafka" through the public API."""

from functools import partial
from typing import Any

import pytest
from face_kit import new_store, sees, until, values
from kit import background, in_threads, lease

import planstep

# reading, writing, ending ----------------------------------------------------------------------


def test_a_commit_is_seen_and_a_rollback_is_not(db: planstep.Engine) -> None:
    with db.transaction() as tx:
        tx.write("in", "a", partition=0)
        tx.write("out", "b")
    tx = db.transaction()
    tx.write("in", "never", partition=0)
    tx.write("out", "never")
    tx.rollback()
    with db.transaction() as tx:
        tx.write("in", "c", partition=0)
        tx.write("out", "d")
    sees(db, "in", "a", "c")
    sees(db, "out", "b", "d")


def test_a_consumer_that_looks_while_a_transaction_is_open_never_reads_what_it_aborts(
    db: planstep.Engine,
) -> None:
    def consumed() -> list[str]:
        with db.transaction() as tx:
            return list(tx.read("in", "c", partition=0).values)

    for n in range(20):
        writes = db.transaction()
        writes.write("in", "never", partition=0)
        writes.flush()
        assert not consumed()  # its position is where that one begins
        writes.rollback()
        db.topic("in").write(str(n), partition=0)
        assert until(consumed) == [str(n)]


def test_written_tells_partition_and_offset(db: planstep.Engine) -> None:
    assert db.topic("in").write("a", partition=1)[:2] == (1, 0)
    tx = db.transaction()
    tx.write("in", "b", partition=1)
    done = tx.commit()
    tablet = db._runtime.names.topics["in"].partitions[1]
    assert done.details[tablet] == (1, 2)
    assert db.topic("in").write("c", partition=1).offset == 3  # 2 is the marker


def test_consume_transform_produce_counts_each_record_once(db: planstep.Engine) -> None:
    db.topic("in").write_batch([str(n) for n in range(40)], keys=[str(n) for n in range(40)])
    turns = 0
    while True:
        tx = db.transaction(worker="w")
        batch = tx.read("in", "c", max_records=7)
        if not batch:
            tx.rollback()
            break
        tx.write_batch("out", batch.values)
        turns += 1
        if turns % 3:
            tx.commit()
        else:
            tx.rollback()
    until(lambda: len(values(db, "out")) == 40)
    assert sorted(values(db, "out"), key=int) == [str(n) for n in range(40)]


@pytest.mark.parametrize("who", ["reader", "transaction"])
def test_who_waits_hears_of_a_commit(db: planstep.Engine, who: str) -> None:
    def wait() -> list[str]:
        if who == "reader":
            leased = lease(reader, 20)
            leased.tx.commit()
            return list(leased.batch.values)
        with db.transaction() as tx:
            return list(tx.read("in", "c", timeout=20).values)

    with db.reader("in", "c") as reader:
        with background(wait) as (waiting,), db.transaction() as tx:
            tx.write("in", "a", partition=0)
        assert waiting.result() == ["a"]


def test_readers_share_a_group_and_no_record_is_lost(db: planstep.Engine) -> None:
    db.topic("in").write_batch([str(n) for n in range(30)], keys=[str(n) for n in range(30)])
    got: list[str] = []

    def work(reader: planstep.Reader) -> None:
        while not reader.idle():
            leased = reader.read(timeout=0.05)
            if leased is None:
                continue
            try:
                leased.tx.write_batch("out", leased.batch.values)
                leased.tx.commit()
            except planstep.KafkaError as error:
                assert error.retryable, error
            else:
                got.extend(leased.batch.values)

    with db.reader("in", "c", max_records=3) as one, db.reader("in", "c", max_records=3) as two:
        in_threads(partial(work, reader) for reader in (one, two))
    assert sorted(got, key=int) == [str(n) for n in range(30)]
    until(lambda: len(values(db, "out")) == 30)


def test_one_consumer_name_on_two_topics_is_one_group(db: planstep.Engine) -> None:
    """The group's generation rises with the members of either topic; members of the other one learn it."""
    db.topic("in").write_batch(["a", "b"], partition=0)
    db.topic("out").write("c")
    with db.reader("in", "c", max_records=1) as ins:
        lease(ins, 10).tx.commit()
        with db.reader("out", "c") as outs:
            lease(outs, 10).tx.commit()
            leased = lease(ins, 10)
            with pytest.raises(planstep.KafkaError, match="ILLEGAL_GENERATION"):
                leased.tx.commit()
            lease(ins, 10).tx.commit()


def test_a_large_write_by_itself_is_there_once_it_returns(db: planstep.Engine) -> None:
    """Beyond 8 MiB it is staged before its commit, so it is a transaction that must end as one."""
    db.create_topic("large", partitions=2)
    topic = db.topic("large")
    for partition in (0, 1):
        topic.write_batch([b"%05d" % n * 200 for n in range(9000)], partition=partition)
    topic.write(b"behind", partition=0)
    for partition, count in ((0, 9001), (1, 9000)):
        records: list[bytes] = []
        at = 0
        while batch := topic.read({partition: at}, max_records=20_000, timeout=1.0):
            records += batch.values
            at = batch.ends[partition]
        assert len(records) == count
    assert records[-1] == b"08999" * 200


def test_a_transactions_own_writes_are_not_read_by_it(db: planstep.Engine) -> None:
    with db.transaction() as tx:
        tx.write("in", "a", partition=0)
        assert not tx.read("in", "c")
        tx.write("out", "b")
    sees(db, "in", "a")


def test_run_tries_again_what_was_refused(db: planstep.Engine) -> None:
    assert db.run(lambda tx: tx.write("out", "a") or "done") == "done"
    sees(db, "out", "a")


def test_submitted_transactions_of_one_worker_run_one_after_the_other(db: planstep.Engine) -> None:
    sent = []
    for n in range(5):
        tx = db.transaction(worker="w")
        tx.write("out", str(n))
        sent.append(tx.submit())
    for future in sent:
        future.result(30)
    sees(db, "out", *map(str, range(5)))


def test_a_worker_reads_on_where_its_submitted_transaction_ends(db: planstep.Engine) -> None:
    """A second read before that end would count the same records twice, and no check would refuse it."""
    for n in range(6):
        db.topic("out").write(str(n))
    got = []
    sent = []
    for _ in range(3):
        tx = db.transaction(worker="w")
        got += tx.read("out", "c", max_records=2).values
        sent.append(tx.submit())
    for future in sent:
        future.result(30)
    assert got == ["0", "1", "2", "3", "4", "5"]


def test_outcomes_are_remembered(db: planstep.Engine) -> None:
    committed, aborted, running = db.transaction(), db.transaction(), db.transaction()
    for tx in (committed, aborted, running):
        tx.write("out", "x")
    committed.commit()
    aborted.rollback()
    assert committed.outcome().state == db.outcome(committed.id).state == "committed"
    assert until(lambda: db.outcome(aborted.id).state == "aborted")
    assert db.outcome(running.id).state == "open"
    running.rollback()
    assert db.outcome("1-999999").state == "unknown"


def test_what_a_transaction_costs(db: planstep.Engine) -> None:
    tx = db.transaction()
    tx.write("in", "a", partition=0)
    tx.write("out", "b")
    tx.commit()
    sees(db, "in", "a")
    sees(db, "out", "b")
    cost = until(lambda: (costs := db.costs(tx.id)).hops_visible and costs)
    assert cost.requests >= 3 and cost.appends >= 5 and cost.hops_visible > cost.hops > 0


def test_reads_of_uncommitted_data_stop_nowhere() -> None:
    with new_store(isolation="read_uncommitted") as db:
        tx = db.transaction()
        tx.write("out", "a")
        sees(db, "out", "a")
        tx.rollback()
        db.topic("out").write("b")
        assert values(db, "out") == ["a", "b"]


def test_readers_that_closed_leave_no_producer_behind(db: planstep.Engine) -> None:
    db.topic("in").write_batch([str(i) for i in range(20)], partition=0)
    records = []
    for _ in range(20):
        with db.reader("in", "c", max_records=1) as reader:
            leased = lease(reader, 20)
            records += leased.batch.values
            leased.tx.commit()
    assert records == [str(i) for i in range(20)]
    runtime: Any = db._runtime
    until(lambda: len(runtime.hooks.client.core._producers) <= 1)
    assert len(runtime.hooks.writing.producers) <= 1
