"""Tests invalid numbers, times and texts: a typed error names the argument, before any effect."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from kit import nested

import planstep

NAN, INF = math.nan, math.inf
Tx = planstep.Transaction


@pytest.mark.parametrize("bad", [1.5, 1.0, True, NAN, INF, "1", None, [], 2**70, -1])
def test_numbers_of_things(shop: planstep.Engine, bad: Any) -> None:
    topic, table = shop.topic("clicks"), shop.table("totals")
    topic.write_batch([b"a", b"b"], partition=0)
    writer = topic.writer("p")
    calls: dict[str, Callable[[], Any]] = {
        "max_records": lambda: topic.read(max_records=bad),
        "max_records of": lambda: shop.transaction().read("clicks", "c", max_records=bad),
        "max_bytes": lambda: shop.transaction().read("clicks", "c", max_bytes=bad),
        "limit": lambda: table.scan(limit=1 if bad is None else bad),
        "attempts": lambda: shop.run(lambda tx: None, attempts=bad),
        "linger_records": lambda: topic.writer(linger_records=bad),
        "linger_bytes": lambda: topic.writer(linger_bytes=bad),
        "sequence": lambda: writer.write(b"x", sequence=bad),
        "begin": lambda: shop.transaction().consume("clicks", "c", 0, bad, 1),
        "end": lambda: shop.transaction().consume("clicks", "c", 0, 0, bad),
        "partition": lambda: topic.write(b"x", partition=bad),
    }
    if bad is None:
        for optional in ("max_records", "limit", "attempts", "sequence", "partition"):
            del calls[optional]
    for name, call in calls.items():
        with pytest.raises(
            (TypeError, ValueError), match=f"{name.split()[0]}|offset|log"
        ) as caught:
            call()
        assert isinstance(bad, int) or isinstance(caught.value, TypeError) or name == "partition"
    assert writer.buffered == 0 and topic.describe().records == 2


@pytest.mark.parametrize("bad", [NAN, -1, -INF, "1", [], True])
def test_times(shop: planstep.Engine, bad: Any) -> None:
    tx = shop.transaction()
    tx.put("totals", "k", 1)
    calls: dict[str, Callable[[], Any]] = {
        "timeout": lambda: shop.transaction().read("clicks", "c", timeout=bad),
        "timeout of commit": lambda: tx.commit(timeout=bad),
        "timeout of outcome": lambda: tx.outcome(timeout=bad),
        "deadline": lambda: shop.run(lambda tx: None, deadline=bad),
        "wait": lambda: planstep.open(":memory:", wait=bad),
        "switch_interval": lambda: planstep.open(":memory:", switch_interval=bad),
    }
    for name, call in calls.items():
        with pytest.raises((TypeError, ValueError), match=f"{name.split()[0]} is a number of sec"):
            call()
    tx.commit()  # the refused calls sent nothing


@pytest.mark.parametrize("long", [INF, 1e10, 2**70, 10**400])
def test_times_without_end(shop: planstep.Engine, long: Any) -> None:
    tx = shop.transaction()
    tx.put("totals", "k", 1)
    tx.commit(timeout=long)
    assert tx.outcome(timeout=long).state == "committed"
    assert shop.run(lambda tx: tx.get("totals", "k"), deadline=long) == 1


def test_a_consumer_is_not_moved_between_offsets(shop: planstep.Engine) -> None:
    shop.topic("clicks").write_batch([b"a", b"b", b"c"], partition=0)
    with pytest.raises(TypeError, match=r"end is an int, not 1\.5"):
        shop.run(lambda tx: tx.consume("clicks", "c", 0, 0, 1.5))
    with pytest.raises(TypeError, match="begin is an int, not True"):
        shop.run(lambda tx: tx.consume("clicks", "c", 0, True, 2))
    assert shop.run(lambda tx: tx.read("clicks", "c").values) == [b"a", b"b", b"c"]


def test_conflicts_without_number(shop: planstep.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses stop growing long before their doubling overflows a float."""
    monkeypatch.setattr("planstep.api.retry.time.sleep", lambda seconds: None)

    def never(tx: Tx) -> None:
        tx.put("totals", "k", tx.get("totals", "k", 0))
        error = planstep.Conflict(kind="table", name="totals", part=0, key="k")
        tx.life.failure = error
        raise error

    with pytest.raises(planstep.Conflict) as caught:
        shop.run(never, attempts=1100, deadline=1e9)
    assert "1100 attempts" in caught.value.__notes__[0]


def test_what_is_no_function_is_not_run(shop: planstep.Engine) -> None:
    with pytest.raises(TypeError, match="run takes a function"):
        shop.run(None)


@pytest.mark.parametrize("bad", [5, None, b"one", bytearray(b"one"), "one", 1.5])
def test_a_batch_is_many(shop: planstep.Engine, bad: Any) -> None:
    with pytest.raises(TypeError, match="'clicks': values is a list"):
        shop.topic("clicks").write_batch(bad)
    for name in ("keys", "headers"):
        if bad is not None:
            with pytest.raises(TypeError, match=f"'clicks': {name} is a list"):
                shop.topic("clicks").write_batch([b"x"], **{name: bad})
    assert shop.topic("clicks").describe().records == 0


def test_lone_surrogates(shop: planstep.Engine) -> None:
    for form in ("utf8", "json", "msgpack"):
        topic = shop.create_topic(form, format=form)
        with pytest.raises(TypeError, match=f"topic '{form}'"):
            topic.write("a\ud800")
        with pytest.raises(TypeError, match=f"topic '{form}'"):
            topic.write_batch(["fine", "a\ud800"])
    clicks = shop.topic("clicks")
    refused: list[Callable[[], Any]] = [
        lambda: clicks.write(b"x", key="\ud800"),
        lambda: clicks.write_batch([b"x"] * 2, keys=["\ud800", None]),
        lambda: clicks.write(b"x", headers={"\ud800": b""}),
        lambda: clicks.write(b"x", headers={"h": "\ud800"}),
    ]
    for call in refused:
        with pytest.raises(TypeError, match=r"topic 'clicks'.*surrogates"):
            call()
    with pytest.raises(TypeError, match=r"producer.*surrogates"):
        clicks.writer(producer="\ud800")
    with pytest.raises(ValueError, match="no path"):
        planstep.open("\ud800")
    assert clicks.describe().records == 0


@pytest.mark.parametrize(("form", "most"), [("json", 511), ("msgpack", 1024)])
def test_values_nest_no_deeper_than_everybody_can_read(
    shop: planstep.Engine, form: str, most: int
) -> None:
    table = shop.create_table("deep", format=form)
    with pytest.raises(TypeError, match="table 'deep'"):
        table.put("k", nested(most + 1))
    with pytest.raises(TypeError, match="table 'deep'"):
        table.put("k", nested(100_000))
    table.put("wide", [{"n": i} for i in range(2000)])
    table.put("deep", nested(most))

    def deeper(frames: int) -> Any:
        return table.get("deep") if not frames else deeper(frames - 1)

    assert deeper(300) is not None
    assert len(table.get("wide")) == 2000


def test_ids_of_the_future_are_not_refused_in_advance(shop: planstep.Engine) -> None:
    last = shop.transaction().id
    generation, counter = map(int, last.split("-"))
    for later in (
        f"{generation}-{counter + 1}",
        f"{generation + 1}-1",
        "4294967295-18446744073709551615",
    ):
        with pytest.raises(ValueError, match="not assigned yet"):
            shop.resolve(later)
    assert shop.resolve(last).state == "refused"
    with pytest.raises(ValueError, match="too long"):
        shop.outcome("9" * 5000 + "-1")


# slices of batches that were read -------------------------------------------------------------


def test_a_batch_is_cut_into_batches(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    for partition in (0, 1):
        for _ in range(2):
            values = [b"%d" % n for n in range(3)]
            topic.write_batch(
                values, keys=values, headers=[{"h": v} for v in values], partition=partition
            )
    batch = topic.read()
    records = list(batch)
    assert len(records) == 12
    for begin in (None, 0, 1, 4, 11, 12, 40, -1, -5):
        for end in (None, 0, 2, 3, 7, 12, 40, -1, -9):
            part = batch[begin:end]
            assert list(part) == records[begin:end] and len(part) == len(records[begin:end])
    assert batch[2:5][1:].offsets == batch.offsets[3:5]
    assert batch[1:2].ends == {0: 2, 1: 0, 2: 0, 3: 0}
    assert batch[-1] == records[-1]
    with pytest.raises(ValueError, match="no steps"):
        batch[::2]
    with pytest.raises(IndexError):
        batch[12]
    part = batch[4:9]
    with shop.transaction() as tx:
        tx.write_batch("by-user", part.values, keys=part.keys, headers=part.headers)
    assert shop.topic("by-user").describe().records == 5
