"""Tests topics as DataFrames, without a Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import planstep
from planstep.errors import Corruption, NoCommonType, OffsetOutOfRange, SnapshotTooOld, UnknownName
from planstep.spark.reading import cut, tasks_for
from planstep.spark.segments import Span
from planstep.spark.session import PARALLELISM

Read = Load = Callable[..., Any]


def columns(*fields: tuple[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


def test_all_columns(db: planstep.Engine, read: Read) -> None:
    clicks = db.create_topic("clicks", partitions=2)
    at = clicks.write(b"\xff1", key=b"\xfek", headers={"h": b"x", "s": "text"}, partition=1).place
    clicks.write(b"2", partition=0)
    table = read(topic="clicks")
    assert table.column_names == "partition offset timestamp key value headers place".split()
    second, first = table.to_pylist()
    assert (first["partition"], first["offset"], first["key"]) == (1, 0, b"\xfek")
    assert first["value"] == b"\xff1"
    assert dict(first["headers"]) == {"h": b"x", "s": b"text"}
    assert first["place"] == {"step": at.step, "n": at.n}
    assert (second["partition"], second["key"], second["headers"]) == (0, None, None)
    timestamps = clicks.read().timestamps
    assert [1000 * ms for ms in timestamps] == table["timestamp"].cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("size", [1, 700, 3000])
def test_batches_of_all_sizes(db: planstep.Engine, read: Read, size: int) -> None:
    """Single records, runs of small batches, and large ones that are read in place."""
    topic = db.create_topic("t", partitions=3, format="utf8")
    wanted = []
    for n in range(0, 3000, size):
        keys = [f"k{i}" if i % 5 else None for i in range(n, min(n + size, 3000))]
        values = [f"v{i}" for i in range(n, min(n + size, 3000))]
        topic.write_batch(values, keys=keys)
        wanted += list(zip(keys, values, strict=True))
        if size == 1 and n == 300:
            break
    table = read(topic="t", rowsPerBatch=100, numPartitions=5)
    assert sorted(
        map(str, zip(*(table[c].to_pylist() for c in ("key", "value")), strict=True))
    ) == (sorted(map(str, wanted)))
    for p, (start, end) in enumerate(topic.describe().partitions[i][1:] for i in range(3)):
        got = table.filter(pa.compute.equal(table["partition"], p))["offset"].to_pylist()
        assert got == list(range(start, end))
    assert max(len(batch) for batch in table.to_batches()) <= 100


def test_columns_of_the_index_read_no_payload(path: str, read: Read) -> None:
    with planstep.open(path) as db:
        topic = db.create_topic("t", format="utf8", partitions=2)
        for n in range(30):
            topic.write_batch([f"payload {n}"] * (1 + 40 * (n % 3)), partition=n % 2)
    columns = ["partition", "offset", "timestamp", "place"]
    before = read(topic="t", numPartitions=3).select(columns)
    _spoil(Path(path), b"payload")
    assert read(topic="t", columns=",".join(columns), numPartitions=3).equals(before)
    with pytest.raises(Corruption, match="checksum"):
        read(topic="t", columns="offset,value")


def _spoil(store: Path, text: bytes) -> None:
    """Changes bytes of payloads on disk, in a store that is closed."""
    for file in store.rglob("log-*"):
        data = file.read_bytes()
        if text in data:
            file.write_bytes(data.replace(text, text.upper()))


def test_an_empty_topic(db: planstep.Engine, read: Read) -> None:
    for form in ("bytes", "utf8", "json", "msgpack"):
        db.create_topic(form, format=form, partitions=3)
        assert read(topic=form).num_rows == 0


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_types_are_inferred(db: planstep.Engine, load: Load, form: Any) -> None:
    topic = db.create_topic("t", format=form, partitions=2)
    topic.write_batch(
        [{"a": 1, "b": [1, 2.5], "c": None}, {"a": 2, "d": {"e": "x"}}], keys=["a", "b"]
    )
    loaded = load(topic="t", columns="value")
    assert loaded.schema["value"].dataType.simpleString() == (
        "struct<a:bigint,b:array<double>,c:string,d:struct<e:string>>"
    )
    values = loaded.read()["value"].to_pylist()
    assert {"a": 1, "b": [1.0, 2.5], "c": None, "d": None} in values
    assert {"a": 2, "b": None, "c": None, "d": {"e": "x"}} in values


def test_a_value_beyond_the_inferred_type_is_named(db: planstep.Engine, read: Read) -> None:
    topic = db.create_topic("t", format="json")
    topic.write_batch([{"a": 1}, {"a": 2}, {"a": "three"}, {"a": 4, "b": 5}])
    message = "topic 't', partition 0, offset 2 does not fit"
    with pytest.raises(NoCommonType, match=message):
        read(topic="t", inferRecords=2)
    table = read(topic="t", inferRecords=2, mode="PERMISSIVE")
    assert table["value"].to_pylist() == [{"a": 1}, {"a": 2}, None, None]  # no field is dropped
    with pytest.raises(NoCommonType, match=r'option."mode", "PERMISSIVE"'):
        read(topic="t")
    assert read(topic="t", format="utf8")["value"][2].as_py() == '{"a":"three"}'
    assert read(topic="t", format="bytes")["value"][0].as_py() == b'{"a":1}'


def test_declared_types(db: planstep.Engine, read: Read) -> None:
    topic = db.create_topic("t", format="json")
    topic.write_batch([{"a": 1, "b": 2, "m": {"x": 1}}, {"a": None}])
    value = columns(("a", LongType()), ("m", MapType(StringType(), LongType())))
    table = read(columns(("value", value), ("offset", LongType())), topic="t")
    assert table["value"].to_pylist() == [{"a": 1, "m": [("x", 1)]}, {"a": None, "m": None}]
    with pytest.raises(NoCommonType, match="offset 0 does not fit"):
        read(columns(("value", StringType())), topic="t")
    assert read(columns(("offset", LongType())), topic="t")["offset"].to_pylist() == [0, 1]


@pytest.mark.parametrize(
    "schema, message",
    [
        (columns(("a", LongType())), "a topic has no column 'a'.*value struct"),
        (columns(("offset", StringType())), "column offset is bigint"),
        (columns(("key", LongType())), "key of a topic is string or binary"),
        (columns(("value", LongType())), "values of format bytes are binary"),
    ],
)
def test_declared_schemas_that_no_topic_has(
    db: planstep.Engine, read: Read, schema: StructType, message: str
) -> None:
    db.create_topic("t")
    with pytest.raises((ValueError, TypeError), match=message):
        read(schema, topic="t")


def test_text_that_nests_too_deep(db: planstep.Engine, read: Read) -> None:
    """One such record does not prevent reading the others."""
    topic = db.create_topic("t")
    topic.write_batch([b"1", b"[" * 100_000, b"2"])
    with pytest.raises(NoCommonType, match="declare one"):
        read(topic="t", format="json")
    schema = columns(("value", LongType()))
    with pytest.raises(NoCommonType, match="partition 0, offset 1 does not fit"):
        read(schema, topic="t", format="json")
    table = read(schema, topic="t", format="json", mode="PERMISSIVE")
    assert table["value"].to_pylist() == [1, None, 2]


@pytest.mark.parametrize(
    "kind",
    [
        TimestampType(),
        ArrayType(DateType()),
        MapType(StringType(), TimestampType()),
        columns(("at", TimestampType())),
    ],
)
def test_no_value_is_a_time(db: planstep.Engine, read: Read, kind: Any) -> None:
    """1700000000000 would be a day in 1970."""
    db.create_topic("t", format="json").write({"at": 1700000000000})
    with pytest.raises(TypeError, match=r"have no (timestamp|date32).*timestamp_millis"):
        read(columns(("value", kind)), topic="t")


def test_formats_say_how_bytes_are_read(db: planstep.Engine, read: Read) -> None:
    topic = db.create_topic("t")
    topic.write_batch([b'{"a":1}', b"\xff"], keys=[b"\xff", b"k"])
    assert read(topic="t", format="json", endingOffset=1)["value"].to_pylist() == [{"a": 1}]
    with pytest.raises(NoCommonType, match="no json"):
        read(topic="t", format="json")
    with pytest.raises(NoCommonType, match="partition 0, offset 1 does not fit string"):
        read(topic="t", format="utf8")
    assert read(topic="t", format="utf8", mode="PERMISSIVE")["value"].to_pylist() == [
        '{"a":1}',
        None,
    ]
    schema = columns(("key", StringType()))
    with pytest.raises(NoCommonType, match="are no text"):
        read(schema, topic="t")
    assert read(schema, topic="t", startingOffset=1)["key"].to_pylist() == ["k"]
    db.create_topic("text", format="utf8").write("x", key="k")
    assert read(columns(("key", BinaryType())), topic="text")["key"].to_pylist() == [b"k"]


def test_offsets_and_partitions(db: planstep.Engine, read: Read) -> None:
    topic = db.create_topic("t", partitions=3, format="utf8")
    for p in range(3):
        topic.write_batch([f"{p}:{i}" for i in range(10)], partition=p)

    def values(**options: Any) -> list[str]:
        result: list[str] = read(topic="t", **options)["value"].to_pylist()
        return result

    assert len(values()) == 30
    assert values(partitions="1", startingOffset=8) == ["1:8", "1:9"]
    assert values(startingOffset=9) == ["0:9", "1:9", "2:9"]
    assert values(partitions="0,2", endingOffset='{"0": 1, "2": 0}') == ["0:0"]
    for wrong, error, message in (
        ({"startingOffset": 11}, OffsetOutOfRange, r"\[11, 10\), is outside the log \[0, 10\)"),
        ({"startingOffset": 5, "endingOffset": 4}, OffsetOutOfRange, "partition 0"),
        ({"partitions": "3"}, ValueError, "has partitions 0 to 2, not 3"),
        ({"startingOffset": '{"7": 1}'}, ValueError, "not 7"),
        ({"partitions": "0", "endingOffset": '{"1": 1}'}, ValueError, "partition 1 is not one of"),
        ({"columns": "value,size"}, ValueError, "no column 'size': choose of partition, offset"),
    ):
        with pytest.raises(error, match=message):
            values(**wrong)


def test_names_that_are_not_there(db: planstep.Engine, read: Read, path: str) -> None:
    db.create_topic("clicks")
    with pytest.raises(UnknownName, match="did you mean 'clicks'"):
        read(topic="click")
    with pytest.raises(FileNotFoundError, match=r"did you mean '.*shop.planstep'"):
        read(path=path + "s", topic="clicks")


def test_a_dataframe_is_of_the_step_of_its_load(db: planstep.Engine, load: Load) -> None:
    topic = db.create_topic("t", partitions=2, format="utf8")
    topic.write_batch(["a", "b"], partition=1)
    loaded = load(topic="t")
    metadata = loaded.schema["value"].metadata["planstep"]
    assert metadata == {"topic": "t", "path": db.path, "asOfStep": db.snapshot().step}
    topic.write_batch(["c", "d"], partition=1)
    assert loaded.read().num_rows == loaded.read().num_rows == 2
    declared = load(columns(("value", StringType())), topic="t")
    topic.write("e", partition=0)
    assert declared.read().num_rows == 4


def test_as_of_every_earlier_step(db: planstep.Engine, read: Read) -> None:
    topic = db.create_topic("t", partitions=2, format="utf8")
    sizes = {}
    for n in range(20):
        if n % 3:
            topic.write_batch([str(n)] * n, partition=n % 2)
        else:
            topic.write(str(n), key=str(n))
        with db.snapshot() as view:
            sizes[view.step] = topic.describe().records
    for step, size in sizes.items():
        assert read(topic="t", asOfStep=step).num_rows == size
    assert read(topic="t", step=0).num_rows == 0
    with pytest.raises(ValueError, match=f"has not come yet: the newest step .* is {max(sizes)}"):
        read(topic="t", step=max(sizes) + 1)


def test_a_trimmed_log(db: planstep.Engine, load: Load, read: Read) -> None:
    topic = db.create_topic("t", format="utf8")
    for n in range(10):
        topic.write(str(n))
        if n == 2:
            early = db.snapshot().step
    loaded = load(topic="t")
    topic.trim(6)
    assert read(topic="t")["value"].to_pylist() == ["6", "7", "8", "9"]
    with pytest.raises(
        SnapshotTooOld, match=r"topic 't' as of step .*, partition 0: .* was trimmed"
    ):
        loaded.read()
    with pytest.raises(SnapshotTooOld, match="the log begins at offset 6; take a later step"):
        read(topic="t", step=early)


def test_another_topic_of_that_name(db: planstep.Engine, load: Load) -> None:
    db.create_topic("t").write(b"x")
    loaded = load(topic="t")
    db.drop_topic("t")
    db.create_topic("t").write(b"y")
    with pytest.raises(SnapshotTooOld, match="dropped"):
        loaded.read()


def test_a_task_that_does_not_see_the_store(
    db: planstep.Engine, load: Load, tmp_path: Path
) -> None:
    db.create_topic("t").write(b"x")
    loaded = load(topic="t")
    db.close()
    (tmp_path / "shop.planstep").rename(tmp_path / "elsewhere")
    with pytest.raises(
        FileNotFoundError, match=r"host .* cannot see .*planstep export .* --to FILE"
    ):
        loaded.read()


@pytest.mark.parametrize("mode", ["kafka", "pulsar"])
def test_modes_with_aborted_records_in_the_log(
    path: str, load: Load, read: Read, mode: Any
) -> None:
    with planstep.open(path, mode=mode) as db:
        topic = db.create_topic("t", partitions=2, format="utf8")
        topic.write_batch(["a", "b"], partition=0)
        aborted = db.transaction()
        aborted.write_batch("t", ["x"] * 5, partition=0)
        aborted.flush()
        aborted.rollback()
        topic.write_batch(["c"], partition=0)
        topic.write_batch(["d"], partition=1)
        opened = db.transaction()
        opened.write("t", "y", partition=1)
        opened.flush()
        db._runtime.hooks.wait_stable(db._runtime.names.topics["t"].partitions[0])
        table = read(topic="t", numPartitions=4)
        assert table["value"].to_pylist() == ["a", "b", "c", "d"]
        assert table["place"].null_count == 4
        index = ["partition", "offset", "timestamp"]  # read without payloads
        assert read(topic="t", columns=",".join(index)).equals(table.select(index))
        opened.rollback()
        with pytest.raises(planstep.NotSupported, match="leave the option step out"):
            read(topic="t", asOfStep=1)
        with pytest.raises(planstep.NotSupported, match="tables"):
            read(table="t")
        assert "asOfStep" not in load(topic="t").schema[0].metadata["planstep"]


def test_tasks_are_as_many_as_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(3), raising=False)
    for named, most in (("16", 16), ("", 3), ("0", 3), ("x", 3)):
        monkeypatch.setenv(PARALLELISM, named)
        assert [tasks_for(n) for n in (0, 1, 50_001, 1 << 40)] == [1, 1, 2, most]


def test_parts_are_even_and_none_is_empty() -> None:
    spans = tuple(Span(p, p, 10, 10 + size) for p, size in enumerate((0, 1, 100, 3, 0, 50)))
    for tasks in range(1, 200):
        parts = cut(spans, tasks)
        sizes = [sum(s.end - s.start for s in part) for part in parts]
        assert sum(sizes) == 154 and min(sizes) >= 1 and len(parts) <= tasks
        assert max(sizes) <= -(-154 // tasks)
        flat = [(s.partition, o) for part in parts for s in part for o in range(s.start, s.end)]
        assert flat == [(s.partition, o) for s in spans for o in range(s.start, s.end)]
    assert cut((), 4) == []
