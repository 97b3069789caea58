"""Tests tables as DataFrames, without a Spark; and several as of one step."""

import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import planstep
from planstep.errors import NoCommonType, NotSupported, SnapshotTooOld, UnknownName
from planstep.proto.ids import Place
from planstep.spark import tables
from planstep.spark.snapshots import snapshot
from planstep.spark.source import as_of_step, release

Read = Load = Callable[..., Any]


def files(local: Path) -> set[int]:
    """Returns the files with copies; each has a name for each load that uses it."""
    return {file.stat().st_ino for file in local.glob("planstep-tables/*.arrow")}


def pairs(table: Any) -> dict[Any, Any]:
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_rows_and_their_places(db: planstep.Engine, read: Read) -> None:
    totals = db.create_table("totals")
    first = totals.put("a", 1)
    second = totals.put("b", 2.5)
    table = read(table="totals")
    assert table.column_names == ["key", "value", "place"]
    assert pairs(table) == {"a": 1.0, "b": 2.5}
    places = dict(zip(table["key"].to_pylist(), table["place"].to_pylist(), strict=True))
    assert places["a"] == {"step": first.step, "n": first.n}
    assert places["b"] == {"step": second.step, "n": second.n}


def test_many_rows(db: planstep.Engine, read: Read) -> None:
    totals = db.create_table("totals", shards=3)
    totals.load({f"k{n}": {"n": n, "text": "x" * (n % 50)} for n in range(9000)})
    totals.load(
        (f"k{n}", {"n": -n}) for n in range(100)
    )  # still in the log, over older rows in the tables
    totals.delete("k100")
    for options in ({}, {"numPartitions": 7, "rowsPerBatch": 1000}):
        rows = pairs(read(table="totals", **options))
        assert len(rows) == 8999
        assert rows["k5"] == {"n": -5, "text": None}
        assert rows["k8999"]["n"] == 8999


def test_large_rows(db: planstep.Engine, load: Load, local: Path) -> None:
    """A few of them are a batch: with 2,000, Spark would be sent gigabytes at once."""
    table = db.create_table("t", shards=1, format="bytes")
    table.load({(n, "large" if n > 100 else "small"): b"x" * ((n > 100) << 20) for n in range(125)})
    loaded = load(table="t", columns="value")
    file, *_ = local.glob("planstep-tables/*.arrow")
    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    assert max(batch.nbytes for batch in batches) < 9 << 20
    assert sum(map(len, loaded.read()["value"].to_pylist())) == 24 << 20


def test_rows_are_found_by_ranges_of_keys(tmp_path: Path) -> None:
    """Each batch is in the order of its keys, as those of a shard are; the batches are in none."""
    rng = random.Random(7)
    keys = [b"%03d" % n for n in range(0, 900, 3)]
    rng.shuffle(keys)
    batches = [sorted(keys[at : at + 40]) for at in range(0, len(keys), 40)]
    file = str(tmp_path / "rows.arrow")
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, tables._SCHEMA) as writer:
        for batch in batches:
            rows = [(key, Place(1, 2), b"v") for key in batch]
            writer.write_batch(tables._batch(rows))
    for _ in range(300):
        ends = [b"%03d" % rng.randrange(900) for _ in range(rng.choice([0, 2, 2, 8]))]
        ranges = tables.WHOLE.ranges if rng.random() < 0.1 else list(pairwise(ends))
        found = tables.find(file, ranges)
        got = [key for at, start, end in found for key in batches[at][start:end]]
        wanted = {key for key in keys if any(a <= key < b for a, b in ranges)}
        assert len(got) == len(set(got)) and set(got) == wanted


@pytest.mark.parametrize("form", ["bytes", "utf8", "json", "msgpack"])
def test_an_empty_table(db: planstep.Engine, read: Read, form: Any) -> None:
    db.create_table("t", format=form)
    assert read(table="t").num_rows == 0


def test_formats(db: planstep.Engine, read: Read) -> None:
    db.create_table("b", format="bytes").put(1, b"\xff")
    db.create_table("u", format="utf8").put(b"k", "é")
    db.create_table("j", format="json").put(("a", 7), {"x": [1]})
    assert pairs(read(table="b")) == {1: b"\xff"}
    assert pairs(read(table="u")) == {b"k": "é"}
    assert read(table="j")["key"].to_pylist() == [{"0": "a", "1": 7}]
    assert read(table="j", format="utf8")["value"].to_pylist() == ['{"x":[1]}']
    schema = StructType([StructField("value", StructType([StructField("x", StringType())]))])
    with pytest.raises(NoCommonType, match=r"table 'j' as of step .*, row \('a', 7\) does not fit"):
        read(schema, table="j")
    assert read(schema, table="j", mode="PERMISSIVE")["value"].to_pylist() == [None]


def test_keys_of_several_kinds(db: planstep.Engine, read: Read) -> None:
    table = db.create_table("t")
    for key in (1, "a", "ab", ("a", 1)):
        table.put(key, 1)
    with pytest.raises(NoCommonType, match=r"keys of table 't' have no common.*keyPrefix"):
        read(table="t")
    assert pairs(read(table="t", keyPrefix="a")) == {"a": 1, "ab": 1}
    assert read(table="t", keyPrefix='["a"]')["key"].to_pylist() == [{"0": "a", "1": 1}]
    key = StructType([StructField("key", LongType())])
    with pytest.raises(NoCommonType, match=r"the key of table 't'.* does not fit int64"):
        read(key, table="t")
    assert read(table="t", columns="value").num_rows == 4


def test_a_dataframe_is_of_the_step_of_its_load(
    db: planstep.Engine, load: Load, local: Path
) -> None:
    totals = db.create_table("totals")
    totals.put("a", 1)
    loaded = load(table="totals")
    step = loaded.schema["key"].metadata["planstep"]["asOfStep"]
    same = load(table="totals")
    totals.put("a", 2)
    totals.put("b", 3)
    later = load(table="totals")
    assert pairs(loaded.read()) == pairs(same.read()) == {"a": 1}
    assert pairs(later.read()) == {"a": 2, "b": 3}
    assert len(files(local)) == 2, "each step's is written once"
    assert pairs(load(table="totals", asOfStep=step).read()) == {"a": 1}  # the file is there
    db.create_table("other").put("a", 1)
    with pytest.raises(SnapshotTooOld, match=r"as of step .* is gone.*snapshot\(path, tables="):
        load(table="other", step=step)
    for file in local.glob("planstep-tables/*.arrow"):
        file.unlink()
    with pytest.raises(
        SnapshotTooOld, match=r"rows are gone from .*; load the DataFrame anew.*folder="
    ):
        loaded.read()


def test_loads_of_a_step_share_a_copy_that_goes_with_the_last(
    db: planstep.Engine, load: Load, local: Path
) -> None:
    totals = db.create_table("totals", shards=2)
    totals.load({f"{n % 9}-{n}": n for n in range(300)})
    some = load(table="totals", keyPrefix="3-")
    (part,) = files(local)
    loads = [load(table="totals"), load(table="totals"), load(table="totals", keyPrefix="4-")]
    assert len(files(local)) == 2, "a load of some rows uses the copy of all"
    keyed = load(table="totals", keys='["5-5", "absent", "0-0"]')
    assert sorted(pairs(keyed.read())) == ["0-0", "5-5"] and len(files(local)) == 2
    assert len(pairs(some.read())) == 33
    release(some)
    assert part not in files(local) and len(files(local)) == 1
    for loaded in (loads[0], keyed, loads[2]):
        release(loaded)
        release(loaded)
        with pytest.raises(SnapshotTooOld, match="they were released"):
            loaded.read()
    assert len(pairs(loads[1].read())) == 300
    release(loads[1])
    assert not files(local)
    assert len(pairs(load(table="totals").read())) == 300
    db.create_topic("t", format="utf8").write("x")
    release(load(topic="t"))
    with pytest.raises(ValueError, match="as it was loaded"):
        release(load(StructType([StructField("key", StringType())]), table="totals"))
    for function in (release, as_of_step):
        with pytest.raises(
            TypeError, match=f"{function.__name__} takes a DataFrame of Spark, not N"
        ):
            function(None)


def test_a_load_that_fails_leaves_no_copy(db: planstep.Engine, load: Load, local: Path) -> None:
    table = db.create_table("t")
    table.put(1, 1)
    table.put("a", 1)
    with pytest.raises(NoCommonType):
        load(table="t")
    assert not files(local)


def test_a_snapshot(db: planstep.Engine, load: Load, tmp_path: Path) -> None:
    totals, users = db.create_table("totals"), db.create_table("users")
    clicks = db.create_topic("clicks", partitions=2, format="utf8")
    totals.put("a", 1)
    users.load({"a1": 1, "a2": 2, "b1": 3})
    clicks.write("x", partition=1)
    with snapshot(db, ["totals", "users"], folder=str(tmp_path)) as snap:
        totals.put("a", 2)
        users.delete("a1")
        clicks.write("y", partition=1)
        created = db.create_topic("later")
        assert pairs(load(table="totals", **snap.options).read()) == {"a": 1}
        assert pairs(load(table="users", keyPrefix="a", **snap.options).read()) == {
            "a1": 1,
            "a2": 2,
        }
        topic = load(topic="clicks", **snap.options)
        assert topic.read()["value"].to_pylist() == ["x"]
        assert topic.schema["key"].metadata["planstep"]["asOfStep"] == snap.step
        with pytest.raises(SnapshotTooOld, match=r"no topic 'later' as of step .* anew for what"):
            load(topic=created.name, **snap.options)
        with pytest.raises(ValueError, match="pass all options of a snapshot"):
            load(table="totals", **{**snap.options, "step": snap.step + 1})
        files = os.listdir(tmp_path)
    assert len(files) - len(os.listdir(tmp_path)) == 1
    with pytest.raises(SnapshotTooOld, match="the snapshot is closed"):
        load(table="totals", **snap.options)
    with pytest.raises(UnknownName, match="did you mean 'totals'"):
        snapshot(db, ["total"], folder=str(tmp_path))
    with pytest.raises(NotSupported, match=r"Spark Connect .*\*\*snap\.options"):
        snapshot(db, ["totals"], folder=str(tmp_path), spark=object())  # it has no sparkContext
    assert not list(tmp_path.glob("planstep-snapshot*"))
    with snapshot(db, "totals") as snap, pytest.raises(SnapshotTooOld, match="name it, as in"):
        load(table="users", **snap.options)
    db.close()
    with snapshot(db.path, ["totals"]) as snap:
        assert pairs(load(table="totals", **snap.options).read()) == {"a": 2}


def test_a_task_on_another_host_is_told_what_to_do(
    db: planstep.Engine, load: Load, local: Path, path: str
) -> None:
    """It sees neither the copy nor, without a shared file system, the store."""
    db.create_table("totals").put("a", 1)
    loaded = load(table="totals")
    local.rename(local.with_name("elsewhere"))
    with pytest.raises(
        SnapshotTooOld, match=r"not the driver's host.*tables=\['totals'\], folder="
    ):
        loaded.read()
    db.close()
    os.rename(path, path + ".elsewhere")
    with pytest.raises(FileNotFoundError, match=r"no store at|--table NAME"):
        loaded.read()
