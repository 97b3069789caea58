"""Tests every public call with odd values: it raises a typed error with a message, or it works."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import nested

import planstep
from planstep.api.columns.codecs import decode_value, decode_values

ODD: list[Any] = [
    None, True, 0, -1, 1.5, -0.0, float("nan"), float("inf"), 2**63, -(2**63) - 1, 2**200, 1 + 2j,
    "", "x" * 600, "\ud800", "a/b", "..", "\0", "a" * 201, "ä",
    b"", b"x" * 600, bytearray(b"x"), memoryview(b"x"),
    (), (1,), ((1,), 2), (None,), [1], {"a": 1}, {1: "a"}, {1, 2}, range(3),
    object(), lambda: 1, type, ..., nested(100_000),
]  # fmt: skip
REFUSALS = (planstep.PlanstepError, TypeError, ValueError)

In = planstep.Transaction
IN_TRANSACTION: dict[str, Callable[[In, Any], Any]] = {
    "get table": lambda tx, odd: tx.get(odd, "k"),
    "get key": lambda tx, odd: tx.get("t", odd),
    "put key": lambda tx, odd: tx.put("t", odd, 1),
    "put value": lambda tx, odd: tx.put("t", "k", odd),
    "put into a topic": lambda tx, odd: tx.put("a", "k", odd),
    "delete": lambda tx, odd: tx.delete("t", odd),
    "add key": lambda tx, odd: tx.add("t", odd, 1),
    "add": lambda tx, odd: tx.add("t", "n", odd),
    "max": lambda tx, odd: tx.max("t", "n", odd),
    "min": lambda tx, odd: tx.min("t", "n", odd),
    "scan table": lambda tx, odd: list(tx.scan(odd)),
    "scan prefix": lambda tx, odd: list(tx.scan("t", prefix=odd)),
    "scan begin": lambda tx, odd: list(tx.scan("t", begin=odd)),
    "scan end": lambda tx, odd: list(tx.scan("t", end=odd)),
    "scan limit": lambda tx, odd: list(tx.scan("t", limit=odd)),
    "scan reverse": lambda tx, odd: list(tx.scan("t", reverse=odd)),
    "read topic": lambda tx, odd: tx.read(odd, consumer="c"),
    "read consumer": lambda tx, odd: tx.read("a", consumer=odd),
    "read partition": lambda tx, odd: tx.read("a", consumer="c", partition=odd),
    "read records": lambda tx, odd: tx.read("a", consumer="c", max_records=odd),
    "read bytes": lambda tx, odd: tx.read("a", consumer="c", max_bytes=odd),
    "write topic": lambda tx, odd: tx.write(odd, b"x"),
    "write bytes": lambda tx, odd: tx.write("a", odd),
    "write utf8": lambda tx, odd: tx.write("u", odd),
    "write json": lambda tx, odd: tx.write("j", odd),
    "write msgpack": lambda tx, odd: tx.write("m", odd),
    "write key": lambda tx, odd: tx.write("a", b"x", key=odd),
    "write partition": lambda tx, odd: tx.write("a", b"x", partition=odd),
    "write headers": lambda tx, odd: tx.write("a", b"x", headers=odd),
    "write header": lambda tx, odd: tx.write("a", b"x", headers={"h": odd}),
    "batch": lambda tx, odd: tx.write_batch("a", odd),
    "batch value": lambda tx, odd: tx.write_batch("a", [b"x", odd]),
    "batch keys": lambda tx, odd: tx.write_batch("a", [b"x", b"y"], keys=odd),
    "batch key": lambda tx, odd: tx.write_batch("a", [b"x", b"y"], keys=["k", odd]),
    "consume partition": lambda tx, odd: tx.consume("a", "c", odd, 0, 0),
    "consume begin": lambda tx, odd: tx.consume("a", "c", 0, odd, 1),
    "consume end": lambda tx, odd: tx.consume("a", "c", 0, 0, odd),
    "pending": lambda tx, odd: tx.pending(odd),
    "commit timeout": lambda tx, odd: tx.commit(timeout=odd),
    "outcome timeout": lambda tx, odd: tx.outcome(timeout=odd),
    "header name": lambda tx, odd: tx.write("a", b"x", headers={odd: "h"}),
    "batch headers": lambda tx, odd: tx.write_batch("a", [b"x", b"y"], headers=odd),
}  # fmt: skip
Db = planstep.Engine
ELSEWHERE: dict[str, Callable[[Db, Any], Any]] = {
    "topic": lambda db, odd: db.topic(odd),
    "table": lambda db, odd: db.table(odd),
    "create topic": lambda db, odd: db.create_topic(odd),
    "create topic partitions": lambda db, odd: db.create_topic("n", partitions=odd),
    "create topic format": lambda db, odd: db.create_topic("n", format=odd),
    "create table": lambda db, odd: db.create_table(odd),
    "create table shards": lambda db, odd: db.create_table("n", shards=odd),
    "create table format": lambda db, odd: db.create_table("n", format=odd),
    "outcome": lambda db, odd: db.outcome(odd),
    "resolve": lambda db, odd: db.resolve(odd),
    "run": lambda db, odd: db.run(odd),
    "topic.read": lambda db, odd: db.topic("a").read(odd),
    "topic.read of one": lambda db, odd: db.topic("a").read(odd, partition=0),
    "topic.read records": lambda db, odd: db.topic("a").read(max_records=odd),
    "topic.read bytes": lambda db, odd: db.topic("a").read(max_bytes=odd),
    "transactions": lambda db, odd: db.transactions(odd),
    "recorded": lambda db, odd: db.recorded(odd),
    "attempts": lambda db, odd: db.run(lambda tx: None, attempts=odd),
    "deadline": lambda db, odd: db.run(lambda tx: None, deadline=odd),
    "writer records": lambda db, odd: db.topic("a").writer("p", linger_records=odd),
    "writer bytes": lambda db, odd: db.topic("a").writer("p", linger_bytes=odd),
    "writer sequence": lambda db, odd: written(db, sequence=odd),
    "writer key": lambda db, odd: written(db, key=odd),
    "writer partition": lambda db, odd: written(db, partition=odd),
    "drop topic": lambda db, odd: db.drop_topic(odd),
    "drop table": lambda db, odd: db.drop_table(odd),
    "seek": lambda db, odd: db.topic("a").seek("d", odd, 0),
    "seek to": lambda db, odd: db.topic("a").seek("d", {0: odd}),
    "trim": lambda db, odd: db.topic("e").trim(odd),
    "create consumer": lambda db, odd: db.topic("a").create_consumer(odd),
    "consumer start": lambda db, odd: db.topic("a").create_consumer("n", start=odd, exist_ok=True),
    "topic.read partition": lambda db, odd: db.topic("a").read(partition=odd),
    "topic.write": lambda db, odd: db.topic("a").write(odd),
    "topic.writer": lambda db, odd: db.topic("a").writer(odd),
    "table.get": lambda db, odd: db.table("t").get(odd),
    "table.put": lambda db, odd: db.table("t").put(odd, odd),
    "table.load": lambda db, odd: db.table("t").load([odd]),
    "create topic retention": lambda db, odd: db.create_topic("n", retention=odd),
    "snapshot.count": lambda db, odd: db.snapshot().count(odd),
    "to_arrow": lambda db, odd: db.topic("a").to_arrow(partition=odd),
    "write partition": lambda db, odd: db.write("a", b"x", partition=odd),
    "write headers": lambda db, odd: db.write("a", b"x", headers=odd),
    "consumer kind": lambda db, odd: db.topic("a").create_consumer("n", kind=odd, exist_ok=True),
    "reader ack": lambda db, odd: db.reader("a", "c", ack=odd).close(),
    "process on error": lambda db, odd: db.process(
        print, "a", "c", on_error=7 if odd is None or callable(odd) else odd
    ),
    "process": lambda db, odd: db.process(lambda batch, tx: None, topic=odd, consumer="c"),
}


def written(db: Db, **settings: Any) -> None:
    with db.topic("a").writer() as writer:
        writer.write(b"x", **settings)


def refused_or_done(call: Callable[[], Any]) -> bool:
    try:
        call()
        return False
    except REFUSALS as error:
        assert str(error), f"{type(error).__name__} without a word"
        return True


@pytest.fixture(scope="module", params=[1, 2])
def db(request: pytest.FixtureRequest) -> Any:
    with planstep.open(":memory:", hosts=request.param) as engine:
        engine.create_topic("a", partitions=2)
        engine.create_topic("e")
        for name, form in (("u", "utf8"), ("j", "json"), ("m", "msgpack")):
            engine.create_topic(name, format=form)
        engine.create_table("t", shards=2)
        yield engine
        engine.table("t").put("after", "all")  # the engine goes on


@pytest.mark.parametrize("name", IN_TRANSACTION)
def test_in_a_transaction(db: planstep.Engine, name: str) -> None:
    refusals = 0
    for odd in ODD:
        tx = db.transaction()
        refusals += refused_or_done(partial(IN_TRANSACTION[name], tx, odd))
        refused_or_done(tx.commit)
    assert refusals or name == "scan reverse"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_elsewhere(db: planstep.Engine, name: str) -> None:
    assert sum(refused_or_done(partial(ELSEWHERE[name], db, odd)) for odd in ODD)


def open_and_close(path: Any, **settings: Any) -> None:
    planstep.open(path, **settings).close()


@pytest.mark.parametrize(
    "setting",
    [
        "hosts",
        "mode",
        "durability",
        "placement",
        "wait",
        "trace",
        "switch_interval",
        "gc",
        "kafka",
        "pulsar",
    ],
)
def test_settings(tmp_path: Path, setting: str) -> None:
    for number, odd in enumerate(ODD):
        refused_or_done(partial(open_and_close, tmp_path / f"{number}", **{setting: odd}))


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for odd in ODD:
        if odd != "..":
            refused_or_done(partial(open_and_close, odd))
    (tmp_path / "file").touch()
    for path in ("file", "file/s", "x" * 300):
        with pytest.raises(planstep.PlanstepError):
            planstep.open(path)


def test_a_stored_value_that_nests_without_end() -> None:
    for decode in (decode_value, lambda form, data: decode_values(form, [data])):
        with pytest.raises(planstep.Corruption, match="no json"):
            decode("json", b"[" * 100_000 + b"]" * 100_000)


def test_what_nests_too_deep_to_be_shown_is_refused_in_words(db: planstep.Engine) -> None:
    with pytest.raises(ValueError, match="a list that cannot be shown is no transaction id"):
        db.outcome(nested(5_000))


def test_a_name_that_nests_too_deep_to_be_shown_is_no_name(db: planstep.Engine) -> None:
    name: Any = ()
    for _ in range(5_000):
        name = (name,)
    with pytest.raises(planstep.InvalidName):
        db.topic("a").drop_consumer(name)
