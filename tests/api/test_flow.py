"""Tests a program from its first line to its second start."""

import random
import threading
from functools import partial
from pathlib import Path

import pytest
from kit import background, in_threads

import planstep


def reshard(tx: planstep.Transaction) -> int:
    batch = tx.read("clicks", consumer="resharder", max_records=10_000)
    tx.write_batch("by-user", batch.values, keys=batch.keys)
    for user, n in batch.count_by_key().items():
        tx.add("totals", user, n)
    return len(batch)


def test_read_a_topic_update_a_table_write_a_topic(shop: planstep.Engine) -> None:
    with shop.transaction() as tx:
        for i in range(30):
            tx.write("clicks", b"click %d" % i, key=f"u{i % 3}")
    assert tx.commit.place is not None
    assert shop.run(reshard) == 30
    assert shop.run(reshard) == 0
    assert shop.table("totals").scan() == [(b"u0", 10), (b"u1", 10), (b"u2", 10)]
    batch = shop.topic("by-user").read()
    assert sorted(batch.values) == sorted(b"click %d" % i for i in range(30))
    assert batch.count_by_key() == {b"u0": 10, b"u1": 10, b"u2": 10}
    by_key: dict[bytes, list[int]] = {}
    for record in batch:
        by_key.setdefault(record.key, []).append(int(record.value.split()[1]))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert shop.topic("clicks").lag("resharder") == 0


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with planstep.open(path) as db:
        db.create_topic("clicks", partitions=2, format="json")
        db.create_table("totals", shards=3)
        with db.transaction() as tx:
            tx.write_batch("clicks", [{"n": i} for i in range(10)], keys=["k"] * 10)
            tx.put("totals", ("u", 1), {"name": "ann"})
        first = tx.id
        with db.transaction() as tx:
            assert len(tx.read("clicks", "c", max_records=4)) == 4
            tx.add("totals", "n", 4)
        place = tx.commit.place
    with planstep.open(path, create=False) as db:
        assert list(db.topics()) == ["clicks"] and list(db.tables()) == ["totals"]
        assert db.topic("clicks").format == "json" and db.topic("clicks").partitions == 2
        assert db.table("totals").get(("u", 1)) == {"name": "ann"}
        assert db.outcome(first).state == "committed"
        assert db.transactions(1)[0].place == place
        with db.transaction() as tx:
            batch = tx.read("clicks", "c")
            assert batch.values == [{"n": i} for i in range(4, 10)]
            assert tx.id.split("-")[0] != first.split("-")[0]
        assert tx.commit.place is not None and place is not None
        assert tx.commit.place > place


def test_rollback_and_errors_leave_nothing(shop: planstep.Engine) -> None:
    with pytest.raises(RuntimeError, match="stop"), shop.transaction() as tx:
        tx.write("clicks", b"x")
        tx.put("totals", "k", 1)
        raise RuntimeError("stop")
    assert tx.outcome().state == "aborted" and tx.commit.place is None
    tx = shop.transaction()
    tx.put("totals", "k", 1)
    tx.rollback()
    assert shop.topic("clicks").describe().records == 0
    assert shop.table("totals").get("k") is None


def test_places_grow_and_reading_only_takes_the_step(shop: planstep.Engine) -> None:
    one = shop.table("totals").put("a", 1)
    two = shop.table("totals").put("a", 2)
    assert one < two
    with shop.transaction() as tx:
        assert tx.get("totals", "a") == 2
    assert tx.commit.place is not None
    assert tx.commit.place[0] == two.step and tx.commit.place[1] is None
    assert tx.outcome().state == "committed"
    before = shop.stats()["store"]["syncs"]
    with shop.transaction() as tx:
        tx.scan("totals")
    assert shop.stats()["store"]["syncs"] == before


def test_threads_count_without_losing_any(shop: planstep.Engine) -> None:
    def read_modify_write(tx: planstep.Transaction) -> None:
        tx.put("totals", "n", tx.get("totals", "n", 0) + 1)
        tx.add("totals", "m", 1)

    def work() -> None:
        for _ in range(20):
            shop.run(read_modify_write, attempts=1000)

    in_threads([work] * 4)
    assert shop.table("totals").scan() == [("m", 80), ("n", 80)]


def test_a_topic_is_consumed_exactly_once_by_rivals(shop: planstep.Engine) -> None:
    shop.topic("clicks").write_batch(
        [b"%d" % i for i in range(200)], keys=[f"k{i}" for i in range(200)]
    )

    def move(tx: planstep.Transaction) -> int:
        batch = tx.read("clicks", "mover", max_records=7)
        tx.write_batch("by-user", batch.values, keys=batch.keys)
        return len(batch)

    def work() -> None:
        while shop.run(move, attempts=1000):
            pass

    in_threads([work] * 4)
    values = shop.topic("by-user").read(max_records=1000).values
    assert sorted(values) == sorted(b"%d" % i for i in range(200))


def test_submit_keeps_many_in_flight(shop: planstep.Engine) -> None:
    txs, futures = [], []
    for _ in range(50):
        tx = shop.transaction()
        tx.add("totals", "n", 1)
        txs.append(tx)
        futures.append(tx.submit())
    commits = [future.result(60) for future in futures]
    assert len({commit.place for commit in commits}) == 50
    assert [tx.commit.place for tx in txs] == [commit.place for commit in commits]
    assert shop.table("totals").get("n") == 50


def test_run_waits_for_what_fn_submitted(shop: planstep.Engine) -> None:
    def fn(tx: planstep.Transaction) -> str:
        tx.add("totals", "n", 1)
        tx.submit()
        return "done"

    assert shop.run(fn) == "done"
    assert shop.table("totals").get("n") == 1


def test_a_future_cannot_be_cancelled_and_its_callback_may_submit(shop: planstep.Engine) -> None:
    called = threading.Event()

    def count(_: object) -> None:
        again = shop.transaction()
        again.add("totals", "callbacks", 1)
        again.submit().add_done_callback(lambda _: called.set())

    tx = shop.transaction()
    tx.add("totals", "n", 1)
    future = tx.submit()
    future.add_done_callback(count)
    assert not future.cancel()
    assert future.result(60).place == tx.commit.place
    assert called.wait(60)
    assert dict(shop.table("totals").scan()) == {"n": 1, "callbacks": 1}


def test_money_moves_and_every_snapshot_sees_all_of_it(shop: planstep.Engine) -> None:
    accounts = 8
    with shop.transaction() as tx:
        for account in range(accounts):
            tx.put("totals", account, 100)

    def work(seed: int) -> None:
        draw = random.Random(seed)

        def move(tx: planstep.Transaction) -> None:
            source, target = draw.sample(range(accounts), 2)
            amount = min(draw.randint(1, 30), tx.get("totals", source))
            tx.put("totals", source, tx.get("totals", source) - amount)
            tx.add("totals", target, amount)
            tx.write("clicks", b"%d" % amount, key=str(source))

        for _ in range(15):
            shop.run(move, attempts=1000)

    sums = []
    with background(*(partial(work, seed) for seed in range(4))) as workers:
        running = True
        while running:  # looks once more after the last thread has ended
            running = any(not worker.done() for worker in workers)
            with shop.snapshot() as view:
                sums.append(sum(balance for _, balance in view.scan("totals")))
                assert view.step >= 0 and min(b for _, b in view.scan("totals")) >= 0
    assert set(sums) == {100 * accounts}
    assert shop.topic("clicks").describe().records == 60
