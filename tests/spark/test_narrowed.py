"""Compares loads that options narrow with filters over all records or rows."""

import json
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import planstep
import pyspark_planstep
from planstep.api.transaction import participant_parts
from planstep.runtime.kafka import hooks as kafka_hooks

Read = Callable[..., Any]
BASE_MS, BASE = 10**12, "2001-09-09T01:46:40"


class Clock:
    """Tells times that jump to and fro by some milliseconds."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def time_ns(self) -> int:
        return (BASE_MS + self._chance.randrange(1000, 1040)) * 1_000_000


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.node.name)


@pytest.fixture
def written(
    path: str, chance: random.Random, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[planstep.Engine]:
    """Yields a store with a topic of batches of all sizes; one of its partitions was trimmed."""
    for module in (participant_parts, kafka_hooks):
        monkeypatch.setattr(module, "time", SimpleNamespace(time_ns=Clock(chance).time_ns))
    with planstep.open(path, mode=mode) as db:
        topic = db.create_topic("t", format="utf8", partitions=3)
        for n in range(60):
            with db.transaction() as tx:
                values = [f"{n}"] * chance.choice((1, 2, 5, 300))
                tx.write_batch("t", values, partition=chance.randrange(3))
                if not n % 7:
                    tx.flush()
                    tx.rollback()
        if mode == "deterministic":
            topic.trim({0: topic.describe().partitions[0].start + 3})
        else:
            for tablet in db._runtime.names.topics["t"].partitions:
                db._runtime.hooks.wait_stable(tablet)
        yield db


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_topics_by_time_step_and_offset(
    written: planstep.Engine, read: Read, chance: random.Random, mode: str
) -> None:
    everything = read(topic="t").to_pylist()
    steps = sorted({row["place"]["step"] for row in everything if row["place"]}) or [0]
    found = set()
    for _ in range(25):
        options: dict[str, Any] = {}
        wanted = everything
        if chance.random() < 0.7:
            ms = chance.randrange(995, 1045)
            text = f"{BASE}.{ms:03}Z" if ms < 1000 else f"{BASE[:-2]}41.{ms - 1000:03}+00:00"
            ms += BASE_MS
            options["startingTimestamp"] = chance.choice((ms, text))
            wanted = [row for row in wanted if _ms(row) >= ms]
        if chance.random() < 0.5:
            ms = options["endingTimestamp"] = BASE_MS + chance.randrange(1000, 1045)
            wanted = [row for row in wanted if _ms(row) < ms]
        if chance.random() < 0.5 and mode == "deterministic":
            step = options["startingStep"] = chance.choice((0, *steps, steps[-1] + 1))
            wanted = [row for row in wanted if row["place"]["step"] >= step]
        if chance.random() < 0.5 and mode == "deterministic":
            step = options["asOfStep"] = chance.choice(steps[len(steps) // 2 :])
            wanted = [row for row in wanted if row["place"]["step"] <= step]
        if chance.random() < 0.3:
            some = chance.sample(range(3), 2)
            options["partitions"] = ",".join(map(str, some))
            wanted = [row for row in wanted if row["partition"] in some]
        got = read(topic="t", numPartitions=chance.randrange(1, 5), **options).to_pylist()
        assert got == wanted, options
        found.add(len(got))
    assert len(found) > 10  # not all of them empty, or everything


def _ms(row: dict[str, Any]) -> int:
    return round(row["timestamp"].timestamp() * 1000)


def test_what_the_options_refuse(db: planstep.Engine, read: Read) -> None:
    db.create_topic("t")
    db.create_table("rows")
    for options, text in (
        ({"startingTimestamp": "2026-11-25T08:00:00"}, "a time with its zone"),
        ({"endingTimestamp": "soon"}, "a time with its zone"),
        ({"startingTimestamp": 1764000000}, "milliseconds, not seconds"),
        ({"endingTimestamp": 10**11 - 1}, "milliseconds, not seconds"),
        ({"startingStep": -1}, "a whole number"),
        ({"keys": '["a"]'}, "does not apply to a topic"),
    ):
        with pytest.raises(ValueError, match=text):
            read(topic="t", **options)
    for options, text in (
        ({"keys": "a"}, "a list of keys"),
        ({"keys": '{"a": 1}'}, "a list of keys"),
        ({"keys": "[{}]"}, "a list of keys"),
        ({"keys": '["a"]', "keyPrefix": "a"}, "keys and keyPrefix"),
        ({"startingStep": 1}, "does not apply to a table"),
    ):
        with pytest.raises(ValueError, match=text):
            read(table="rows", **options)


@pytest.mark.parametrize("mode", ["kafka", "pulsar"])
def test_modes_without_steps(path: str, read: Read, mode: Any) -> None:
    with planstep.open(path, mode=mode) as db:
        db.create_topic("t")
        with pytest.raises(planstep.NotSupported, match="leave startingStep out"):
            read(topic="t", startingStep=1)


@pytest.mark.parametrize("kind", ["text", "number", "tuple"])
def test_rows_by_keys(db: planstep.Engine, read: Read, kind: str) -> None:
    chance = random.Random(kind)
    make: dict[str, Callable[[int], Any]] = {
        "text": lambda n: f"k{n}",
        "number": lambda n: n - 100,
        "tuple": lambda n: (f"k{n % 7}", n),
    }
    keys = list(map(make[kind], range(300)))
    rows = {key: n for n, key in enumerate(keys) if n % 3}
    db.create_table("rows", shards=3).load(rows)

    def got(**options: Any) -> list[tuple[Any, int]]:
        table = read(table="rows", **options).to_pylist()
        return [(_key(row["key"]), row["value"]) for row in table]

    with pyspark_planstep.snapshot(db, tables=["rows"]) as snap:
        for size in (0, 1, 2, 50, 250):
            some = chance.sample(keys, size)
            wanted = sorted((key, rows[key]) for key in some if key in rows)
            assert sorted(got(keys=json.dumps([*some, *some[:1]]))) == wanted
            assert sorted(got(keys=json.dumps(some), **snap.options)) == wanted


def _key(key: Any) -> Any:
    return tuple(key.values()) if isinstance(key, dict) else key
