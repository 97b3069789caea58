"""Tests a consumer that was moved since it was read: the reader conflicts, even if the position is the same
again."""

from typing import Any

import pytest
from kit import lease

import planstep


def fill(shop: planstep.Engine, consumer: str, kind: Any) -> None:
    topic = shop.topic("clicks")
    if kind != "implicit":
        topic.create_consumer(consumer, kind=kind)
    topic.write_batch([b"%d" % i for i in range(10)], partition=0)
    with shop.transaction() as tx:
        tx.read("clicks", consumer, max_records=5)


@pytest.mark.parametrize("kind", ["implicit", "cumulative", "individual"])
def test_back_and_consumed_again_is_no_answer_to_who_read_before(
    shop: planstep.Engine, kind: str
) -> None:
    fill(shop, "c", kind)
    late = shop.transaction()
    assert len(late.read("clicks", "c", max_records=2)) == 2
    shop.topic("clicks").seek("c", 0, partition=0)
    with shop.transaction() as tx:
        tx.read("clicks", "c", max_records=5)
    assert shop.topic("clicks").lag("c") == 5
    late.add("totals", "n", 1)
    with pytest.raises(planstep.Conflict, match="was moved by seek") as caught:
        late.commit()
    assert caught.value.consumer == "c" and caught.value.retryable
    assert shop.table("totals").get("n") is None
    with shop.transaction() as tx:  # a new reader goes on
        assert len(tx.read("clicks", "c")) == 5
    assert shop.topic("clicks").lag("c") == 0


@pytest.mark.parametrize("kind", ["implicit", "cumulative", "individual"])
def test_to_where_it_stands_is_a_move(shop: planstep.Engine, kind: str) -> None:
    fill(shop, "c", kind)
    late, ranged = shop.transaction(), shop.transaction()
    late.read("clicks", "c")
    ranged.consume("clicks", "c", 0, 5, 7)
    shop.topic("clicks").seek("c", 5, partition=0)
    for tx in (late, ranged):
        with pytest.raises(planstep.Conflict, match="was moved"):
            tx.commit()


def test_a_reader_goes_on_behind_a_seek(shop: planstep.Engine) -> None:
    fill(shop, "c", "cumulative")
    with shop.reader("clicks", consumer="c", max_records=2) as reader:
        leased = lease(reader)
        shop.topic("clicks").seek("c", 0, partition=0)
        with shop.transaction() as tx:
            tx.read("clicks", "c", max_records=5)
        with pytest.raises(planstep.Conflict, match="was moved"):
            leased.tx.commit()
        again = lease(reader, 30)
        assert again.batch.offsets[0] == (0, 5)
        again.tx.commit()


def test_forgotten_and_made_again_is_a_move(shop: planstep.Engine) -> None:
    fill(shop, "c", "implicit")
    late = shop.transaction()
    late.read("clicks", "c")
    shop.topic("clicks").drop_consumer("c")
    with shop.transaction() as tx:
        tx.read("clicks", "c", max_records=5)
    with pytest.raises(planstep.Conflict, match="was moved"):
        late.commit()
    # Batches read before each other's end see no move if there was none.
    shop.topic("clicks").drop_consumer("c")
    with shop.reader("clicks", consumer="c", max_records=4, in_flight=3) as reader:
        batches = [reader.read() for _ in range(3)]
        for leased in batches:
            assert leased is not None
            leased.tx.submit().result(30)
    assert shop.topic("clicks").lag("c") == 0


def test_what_moved_is_known_behind_a_restart(tmp_path: object) -> None:
    path = f"{tmp_path}/s"
    kinds: Any = ("cumulative", "individual")
    with planstep.open(path) as db:
        topic = db.create_topic("t")
        topic.write_batch([b"%d" % i for i in range(6)])
        for kind in kinds:
            topic.create_consumer(kind, kind=kind)
            topic.seek(kind, 2)
    with planstep.open(path) as db:
        for kind in kinds:
            with db.transaction() as tx:
                assert len(tx.read("t", kind)) == 4
            assert db.topic("t").lag(kind) == 0
