"""Tests the effects of a write job on the store, step by step, without a Spark."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sink_kit import Begin, staged, topic

import planstep
from planstep.api.open_engine import Mode
from planstep.errors import IoError, PlanstepError, StoreInUse

FENCES = "planstep.spark"


def test_records(path: str, write: Callable[..., None]) -> None:
    """Records of a task stay in order, and tasks come in the order of their partitions."""
    with planstep.open(path, hosts=2) as db:
        db.create_topic("t", partitions=2, format="utf8")
    first = pa.table({"key": ["a", None, "a"], "value": ["1", "2", "3"]})
    second = pa.table({"key": ["a"], "value": ["4"]})
    write(first, second, first.slice(0, 0), topic="t")
    with planstep.open(path) as db:
        records = db.topic("t").read()
        assert [r.value for r in records if r.key == "a"] == ["1", "3", "4"]
        assert [r.value for r in records if r.key is None] == ["2"]
        assert len(set(db.topic("t").read().timestamps)) == 1
    assert staged(path) == []


def test_partitions_and_headers(path: str, write: Callable[..., None]) -> None:
    topic(path, "t", partitions=3)
    headers = pa.array([[("h", b"x")], None, []], pa.map_(pa.string(), pa.binary()))
    columns = {"value": [b"1", b"2", b"3"], "partition": pa.array([2, 0, None], pa.int32())}
    write(pa.table({**columns, "key": [b"\xff", None, b"k"]}), topic="t")
    write(pa.table({**columns, "headers": headers}), topic="t")
    with planstep.open(path) as db:
        records = [(r.partition, r.value, r.key) for r in db.topic("t").read() if not r.headers]
        assert (2, b"1", b"\xff") in records and (0, b"2", None) in records
        (record,) = [r for r in db.topic("t").read() if r.headers]
        assert (record.partition, record.headers) == (2, {"h": b"x"})
    job = pa.table({"value": [b"x"], "partition": pa.array([3], pa.int32())})
    with pytest.raises(ValueError, match="partitions 0 to 2, not 3: mend the column partition"):
        write(job, topic="t")


def test_records_without_key_are_spread_by_tasks(path: str, write: Callable[..., None]) -> None:
    topic(path, "t", partitions=2)
    write(*(pa.table({"value": [b"x"] * 3}) for _ in range(4)), topic="t")
    with planstep.open(path) as db:
        assert [p.end for p in db.topic("t").describe().partitions] == [6, 6]


def test_jobs_without_key_take_turns(path: str, write: Callable[..., None]) -> None:
    """A stream whose batches have one task each does not fill one partition."""
    topic(path, "t", partitions=4)
    for number in range(8):
        write(pa.table({"value": [b"x"]}), topic="t", queryId="q", batchId=number)
    with planstep.open(path) as db:
        assert [p.end for p in db.topic("t").describe().partitions] == [2, 2, 2, 2]


def test_many_tasks_to_many_partitions(path: str, write: Callable[..., None]) -> None:
    """They share batches: a transaction has at most 10,000."""
    with planstep.open(path) as db:
        for name in ("keyed", "told"):
            db.create_topic(name, partitions=200)
    numbers = pa.array(range(200), pa.int32())
    tasks = [
        pa.table({"key": [b"%d" % n for n in range(200)], "value": [b"%d" % task] * 200})
        for task in range(51)
    ]
    write(*tasks, topic="keyed")
    write(*(task.append_column("partition", numbers) for task in tasks), topic="told")
    with planstep.open(path) as db:
        wanted = [b"%d" % task for task in range(51)]
        keyed = db.topic("keyed").read(max_records=99_999)
        assert [r.value for r in keyed if r.key == b"7"] == wanted
        assert db.topic("told").read(partition=7).values == wanted


def test_tasks_stay_in_order_whatever_their_columns_say(
    path: str, write: Callable[..., None]
) -> None:
    topic(path, "t", partitions=2)
    columns = ([None, None], [0, None], [None, 0], [0, 0], [0, 0])
    tables = [
        pa.table({"value": [b"%d" % n] * 2, "key": ["a"] * 2, "partition": pa.array(p, pa.int32())})
        for n, p in enumerate(columns)
    ]
    write(*tables, topic="t")
    with planstep.open(path) as db:
        for partition in (0, 1):
            values = db.topic("t").read(partition=partition).values
            assert values == sorted(values)


def test_a_target_that_is_another_one_by_now(path: str, begin: Begin) -> None:
    """Values encoded for one format are not written to a topic of another."""
    topic(path, "t", format="utf8")
    job = begin(pa.table({"value": ["no json"]}), topic="t")
    with planstep.open(path) as db:
        db.drop_topic("t")
        db.create_topic("t", format="json")
    with pytest.raises(PlanstepError, match=r"topic 't' is another one than when .* write again"):
        job.commit()
    with planstep.open(path) as db:
        assert db.topic("t").describe().records == 0


def test_staged_files_that_are_gone(path: str, begin: Begin) -> None:
    topic(path, "t", format="utf8")
    job = begin(pa.table({"value": ["x"]}), topic="t")
    job.call("abort", job.number)
    with pytest.raises(IoError, match="staged, is gone; write again"):
        job.commit()


def test_large_types(path: str, write: Callable[..., None]) -> None:
    """Spark sends these with spark.sql.execution.arrow.useLargeVarTypes."""
    with planstep.open(path) as db:
        db.create_topic("u", format="utf8")
        db.create_topic("b")
    text, raw = pa.array(["é"], pa.large_string()), pa.array([b"\xff"], pa.large_binary())
    write(pa.table({"key": text, "value": text}), topic="u")
    write(pa.table({"key": raw, "value": raw}), topic="b")
    with planstep.open(path) as db:
        assert [(r.key, r.value) for r in db.topic("u").read()] == [("é", "é")]
        assert [(r.key, r.value) for r in db.topic("b").read()] == [(b"\xff", b"\xff")]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_columns_become_one_object(path: str, write: Callable[..., None], form: Any) -> None:
    with planstep.open(path) as db:
        db.create_topic("t", format=form)
        db.create_table("rows", format=form)
    lists = pa.array([[{"x": 1}], None], pa.list_(pa.struct([("x", pa.int64())])))
    maps = pa.array(
        [[("k", [("n", 1)])], []], pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))
    )
    table = pa.table({"key": ["a", "b"], "n": [1, None], "l": lists, "m": maps})
    write(table, topic="t")
    write(table, table="rows")
    write(pa.table({"key": ["c"], "value": maps.slice(0, 1)}), table="rows")
    with planstep.open(path) as db:
        first, second = db.topic("t").read()
        assert first.value == {"n": 1, "l": [{"x": 1}], "m": {"k": {"n": 1}}}
        assert second.value == {"n": None, "l": None, "m": {}}
        assert db.table("rows").get("a") == first.value
        assert db.table("rows").get("c") == {"k": {"n": 1}}


def test_rows(path: str, write: Callable[..., None]) -> None:
    with planstep.open(path) as db:
        db.create_table("t").put(1, "old")
        db.create_table("b", format="bytes")
    write(pa.table({"key": [1, 2], "value": [1.5, 2.5]}), table="t")
    keys = pa.array([{"0": "a", "1": 7}])
    write(pa.table({"key": keys, "value": [b"\xff"]}), table="b")
    with planstep.open(path) as db:
        assert dict(db.table("t").scan()) == {1: 1.5, 2: 2.5}
        assert dict(db.table("b").scan()) == {("a", 7): b"\xff"}


MODES: tuple[Mode, ...] = ("deterministic", "kafka", "pulsar")


def fences(path: str) -> dict[tuple[str, ...], Any]:
    """Returns the newest batch of each query and target."""
    with planstep.open(path) as db:
        if db.context.runtime.hooks.has_tables:
            return dict(db.table(FENCES).scan())
        log = db.changelog(FENCES)
        return {tuple(json.loads(key)): value for key, value in log.items()}


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_counts_once(
    path: str, begin: Begin, write: Callable[..., None], mode: Mode
) -> None:
    """A second commit finds it done: from the same job, or from another one with the same ids."""
    table = pa.table({"value": ["x"]})
    with planstep.open(path, mode=mode) as db:
        for name in ("t", "u"):
            db.create_topic(name, format="utf8")
    late = begin(table, topic="t", queryId="q", batchId=1)
    write(table, topic="t", queryId="q", batchId=0)
    write(table, topic="t", queryId="q", batchId=1)
    write(table, topic="t", queryId="q", batchId=1)
    write(table, topic="t", queryId="q", batchId=0)
    write(table, topic="u", queryId="q", batchId=0)  # another target
    write(table, topic="t", queryId="p", batchId=0)  # another query
    assert staged(path) == []  # nor the data that the late one has staged
    late.commit()  # by a process that outlived its driver
    with planstep.open(path) as db:
        assert len(db.topic("t").read()) == 3
        assert len(db.topic("u").read()) == 1
    assert fences(path) == {
        ("p", "topic", "t"): 0,
        ("q", "topic", "t"): 1,
        ("q", "topic", "u"): 0,
    }
    assert staged(path) == []


@pytest.mark.parametrize("mode", MODES)
def test_without_ids_a_job_counts_once(path: str, begin: Begin, mode: Mode) -> None:
    with planstep.open(path, mode=mode) as db:
        db.create_topic("t", format="utf8")
    table = pa.table({"value": ["x"]})
    for _ in range(2):
        job = begin(table, topic="t")
        job.commit()
        job.commit()
    with planstep.open(path) as db:
        assert len(db.topic("t").read()) == 2
    assert len(fences(path)) == 1  # the last job of each target


def test_an_empty_batch_is_a_batch(path: str, write: Callable[..., None]) -> None:
    topic(path, "t", format="utf8")
    write(pa.table({"value": pa.array([], pa.string())}), topic="t", queryId="q", batchId=7)
    assert fences(path) == {("q", "topic", "t"): 7}


def test_a_task_that_ran_twice_counts_once(path: str, begin: Begin) -> None:
    topic(path, "t", format="utf8")
    table = pa.table({"value": ["x", "y"]})
    job = begin(table, topic="t")
    Path(path, "spark", staged(path)[0], "0-99.arrow").write_bytes(b"half of")
    job.commit()
    with planstep.open(path) as db:
        assert db.topic("t").read().values == ["x", "y"]
    assert staged(path) == []


def test_leftovers(path: str, begin: Begin, write: Callable[..., None]) -> None:
    """Leftovers do no harm, and go with the batch that replaces them, or after a day."""
    with planstep.open(path) as db:
        db.create_topic("t", format="utf8")
        db.create_table("rows")
    table = pa.table({"value": ["x"]})
    for options in ({"topic": "t", "queryId": "q", "batchId": 5}, {"topic": "t"}):
        begin(table, **options)
    later = begin(table, topic="t", queryId="q", batchId=6)
    assert len(staged(path)) == 3
    Path(path, "spark", "notes").touch()  # not one of our files
    with planstep.open(path) as db:  # opens, backs up, reads
        db.backup(path + ".backup")
    assert not Path(path + ".backup", "spark").exists()
    write(table, topic="t", queryId="q", batchId=5)
    assert len(staged(path)) == 3
    Path(path, "spark", "notes").unlink()
    for leftover in Path(path, "spark").iterdir():
        os.utime(leftover, (time.time() - 90_000,) * 2)
    later.call("abort", later.number)
    write(table, topic="t", queryId="r", batchId=0)
    assert staged(path) == []
    with pytest.raises(IoError, match="cannot stage"):
        later.task(0, table)


def test_what_a_killed_driver_staged_goes_with_the_next_commit(
    path: str, begin: Begin, write: Callable[..., None]
) -> None:
    topic(path, format="utf8")
    table = pa.table({"value": ["x"]})
    for _ in range(2):
        begin(table, topic="t")
    left, kept = staged(path)
    for folder in (Path(path, "spark"), Path(path, "spark", left)):
        assert folder.stat().st_mode & 0o777 == 0o700
    owner = Path(path, "spark", left, ".owner")
    host, boot, space, pid, start = json.loads(owner.read_text())
    owner.write_text(json.dumps([host, boot, space, pid, start + "1"]))
    write(table, topic="t")
    assert staged(path) == [kept]


def test_a_store_that_another_process_owns_alone(path: str, begin: Begin) -> None:
    table = pa.table({"value": ["x"]})
    with planstep.open(path, share=False) as db:
        db.create_topic("t", format="utf8")
        job = begin(table, topic="t", wait=0.05)
        with pytest.raises(
            StoreInUse, match=f"process {os.getpid()} owns .* close the store there"
        ):
            job.commit()
    job.commit()
    with planstep.open(path) as db:
        assert db.topic("t").read().values == ["x"]
