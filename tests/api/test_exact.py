"""Tests `read(exact=True)`: the end of the topic becomes a condition, so places also explain empty and short
reads."""

import random
from collections.abc import Callable
from typing import Any

import pytest

import planstep


def test_a_record_that_came_meanwhile_is_a_conflict(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    topic.write_batch([b"a", b"b"], partition=1)
    for partition in (None, 2):
        for exact in (False, True):
            tx = shop.transaction()
            tx.read("clicks", f"c{partition}{exact}", partition=partition, exact=exact)
            topic.write(b"late", partition=2)
            tx.add("totals", "n", 1)
            if exact:
                with pytest.raises(planstep.Conflict, match="the end") as caught:
                    tx.commit()
                assert caught.value.retryable and caught.value.part == 2
            else:
                tx.commit()
    assert shop.table("totals").get("n") == 2


def test_what_came_elsewhere_is_none(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    topic.write_batch([b"a", b"b"], partition=1)
    tx = shop.transaction()
    assert not tx.read("clicks", "c", partition=0, exact=True)
    full = shop.transaction()
    assert full.read("clicks", "d", max_records=1, partition=1, exact=True).more
    topic.write(b"c", partition=1)
    for one in (tx, full):
        one.write("by-user", b"x")
        one.commit()
    with shop.transaction() as own:  # its own writes come after its place
        assert len(own.read("clicks", "e", exact=True)) == 3
        own.write("clicks", b"d", partition=1)
    assert not shop.transaction().read("clicks", "e", partition=0, exact=True)


@pytest.mark.parametrize("kind", ["cumulative", "individual"])
def test_who_was_brought_back_has_more(shop: planstep.Engine, kind: Any) -> None:
    topic = shop.topic("clicks")
    topic.create_consumer("c", kind=kind)
    topic.write_batch([b"a", b"b"], partition=1)
    with shop.transaction() as tx:
        assert len(tx.read("clicks", "c", exact=True)) == 2
    tx = shop.transaction()
    assert not tx.read("clicks", "c", exact=True)
    tx.add("totals", "n", 1)
    topic.seek("c", "earliest")
    with pytest.raises(planstep.Conflict, match="moved"):
        tx.commit()


def test_a_wait_looks_anew(shop: planstep.Engine) -> None:
    tx = shop.transaction()
    assert not tx.read("clicks", "c", exact=True, timeout=0.05)
    tx.add("totals", "n", 1)
    tx.commit()


async def test_of_an_event_loop() -> None:
    async with planstep.open_async(":memory:") as db:
        topic = await db.create_topic("t")
        tx = db.transaction()
        assert not await tx.read("t", "c", exact=True)
        await tx.write("t", b"own")
        await topic.write(b"late")
        with pytest.raises(planstep.Conflict):
            await tx.commit()


async def test_mode_kafka_refuses_it() -> None:
    with planstep.open(":memory:", mode="kafka") as db:
        db.create_topic("t")
        with pytest.raises(planstep.NotSupported, match="exact"):
            db.transaction().read("t", "c", exact=True)
    async with planstep.open_async(":memory:", mode="kafka") as db:
        await db.create_topic("t")
        with pytest.raises(planstep.NotSupported, match="exact"):
            await db.transaction().read("t", "c", exact=True)


PARTITIONS = 3


def played(seed: int, hosts: int, exact: bool) -> tuple[int, list[str]]:
    """Runs transactions of several consumers that overlap in time, each writing what it read.

    Returns (number of commits, reads that contradict the serial execution by place).
    """
    draw = random.Random(seed)
    committed: list[tuple[planstep.Place, Callable[[dict[str, Any]], str]]] = []
    with planstep.open(":memory:", hosts=hosts) as db:
        db.create_topic("t", partitions=PARTITIONS, format="utf8")
        open_ones: list[Any] = []
        for number in range(60):
            if open_ones and draw.random() < 0.5:
                tx, consumer, partition, values, to, text = open_ones.pop(
                    draw.randrange(len(open_ones))
                )
                try:
                    done = tx.commit()
                except planstep.Conflict:
                    continue
                committed.append((done.place, replay(consumer, partition, values, to, text)))
                continue
            tx, consumer = db.transaction(), f"c{draw.randrange(3)}"
            partition = draw.choice([None, *range(PARTITIONS)])
            values = sorted(tx.read("t", consumer, partition=partition, exact=exact).values)
            to, text = draw.randrange(PARTITIONS), f"{number}"
            tx.write("t", text, partition=to)
            open_ones.append((tx, consumer, partition, values, to, text))
    model: dict[str, Any] = {"logs": [[] for _ in range(PARTITIONS)], "at": {}}
    return len(committed), [
        wrong for _, run in sorted(committed, key=lambda one: one[0]) if (wrong := run(model))
    ]


def replay(
    consumer: str, partition: int | None, values: list[str], to: int, text: str
) -> Callable[[dict[str, Any]], str]:
    def run(model: dict[str, Any]) -> str:
        expected: list[str] = []
        for p in range(PARTITIONS) if partition is None else [partition]:
            log = model["logs"][p]
            expected += log[model["at"].get((consumer, p), 0) :]
            model["at"][consumer, p] = len(log)
        model["logs"][to].append(text)
        return "" if sorted(expected) == values else f"{text}: {values}, and not {sorted(expected)}"

    return run


@pytest.mark.parametrize("hosts", [1, 2])
def test_places_explain_exact_reads(hosts: int) -> None:
    total = 0
    for seed in range(25):
        committed, wrong = played(seed, hosts, exact=True)
        assert wrong == [], seed
        total += committed
    assert total > 100


def test_without_it_they_do_not() -> None:
    """Without `exact` the exception from strict serializability exists: the negative control."""
    assert any(played(seed, 1, exact=False)[1] for seed in range(10))
