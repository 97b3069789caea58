"""Tests reading topics and tables as Arrow and pandas: the result equals that of iteration, without a copy."""

from functools import partial
from typing import Any

import pandas
import pyarrow as pa
import pytest

import planstep
from planstep.api.columns.arrow import SMALL

MANY = 2 * SMALL


def rows_of(batch: planstep.ReadBatch) -> list[tuple[Any, ...]]:
    return [(r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in batch]


def rows_in(table: Any) -> list[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in ("partition", "offset", "key", "value")]
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    partitions, offsets, keys, values = columns
    return list(zip(partitions, offsets, times, keys, values, strict=True))


@pytest.mark.parametrize("form", ["bytes", "utf8", "json", "msgpack"])
@pytest.mark.parametrize("each", [1, 7, MANY])
def test_a_topic_as_a_table_is_what_reading_gives(
    db: planstep.Engine, form: str, each: int
) -> None:
    topic = db.create_topic("t", partitions=3, format=form)
    make: dict[str, Any] = {
        "bytes": lambda i: b"v%d" % i,
        "utf8": lambda i: f"é{i}",
        "json": lambda i: {"n": i, "s": [str(i)]},
        "msgpack": lambda i: {"n": i, "b": b"%d" % i},
    }
    for round in range(3):
        values = [make[form](round * each + i) for i in range(each)]
        keys = [None if i % 5 == 4 else f"k{i % 11}" for i in range(each)]
        topic.write_batch(values, keys=keys)
    table = topic.to_arrow()
    assert table.column_names == ["partition", "offset", "timestamp", "key", "value"]
    assert table.schema.field("key").type == (pa.binary() if form == "bytes" else pa.string())
    table.validate(full=True)
    everything = topic.read(max_records=10_000)
    assert rows_in(table) == rows_of(everything) and len(table) == 3 * each
    assert rows_in(everything.to_arrow()) == rows_of(everything)
    again = [b for b in topic.iter_arrow(batch_rows=5)]
    assert [b.num_rows <= 5 for b in again] == [True] * len(again)
    assert rows_in(pa.Table.from_batches(again).drop_columns(["headers"])) == rows_of(everything)
    frame = topic.to_pandas()
    assert list(frame.columns) == table.column_names
    assert frame["value"].tolist() == everything.values
    assert frame["offset"].tolist() == [offset for _, offset in everything.offsets]
    with db.snapshot() as view:
        assert view.to_arrow("t").equals(table)
        assert view.to_pandas("t").equals(frame)


def addresses(column: Any) -> list[int]:
    return [
        buffer.address
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None
    ]


def test_keys_and_values_are_shown_where_they_were_read(db: planstep.Engine) -> None:
    topic = db.create_topic("t")
    for _ in range(2):
        keys = [None if i == 3 else b"k%d" % i for i in range(MANY)]
        topic.write_batch([b"v%d" % i for i in range(MANY)], keys=keys)
    batch = topic.read(start=5, max_records=2 * MANY)
    table = batch.to_arrow()
    assert [table[name].num_chunks for name in ("key", "value")] == [2, 2]
    stored = [pa.py_buffer(segment.batch.data) for segment in batch.segments]
    for name, count in (("key", 6), ("value", 4)):  # bitmap, offsets, data; no value is missing
        places = addresses(table[name])
        assert len(places) == count
        assert all(any(s.address <= a < s.address + s.size for s in stored) for a in places)
    data = table["value"].chunk(1).buffers()[2]
    _, _, expected = batch.segments[1].batch.buffers(1) or pytest.fail("no values")
    assert data.address == pa.py_buffer(expected).address


def test_arrays_outlive_the_batch_and_the_engine() -> None:
    with planstep.open(":memory:") as db:
        topic = db.create_topic("t")
        topic.write_batch([b"v%d" % i for i in range(MANY)])
        column = topic.read(max_records=MANY).to_arrow()["value"]
    assert column.to_pylist() == [b"v%d" % i for i in range(MANY)]


def test_runs_of_small_batches_are_one_chunk(db: planstep.Engine) -> None:
    topic = db.create_topic("t")
    for i in range(20):
        topic.write(b"%d" % i)
    topic.write_batch([b"x"] * MANY)
    table = topic.to_arrow()
    assert table["value"].num_chunks == 2
    assert table["offset"].to_pylist() == list(range(20 + MANY))


def test_headers_are_a_column_where_there_are_some(db: planstep.Engine) -> None:
    topic = db.create_topic("t")
    topic.write(b"a", headers={"trace": "1", "raw": b"\xff"})
    topic.write(b"b")
    table = topic.to_arrow()
    assert table["headers"].to_pylist() == [[("trace", b"1"), ("raw", b"\xff")], None]
    assert "headers" not in topic.to_arrow(start=1).column_names
    assert "headers" in next(topic.iter_arrow(start=1)).schema.names


def test_parts_of_a_topic(db: planstep.Engine) -> None:
    topic = db.create_topic("t", partitions=2)
    for p in range(2):
        topic.write_batch([b"%d" % i for i in range(10)], partition=p)
    assert topic.to_arrow(start=2, end=4, partition=1)["offset"].to_pylist() == [2, 3]
    assert topic.to_arrow({0: 8, 1: 9})["offset"].to_pylist() == [8, 9, 9]
    assert topic.to_arrow(end={1: 1})["offset"].to_pylist() == [*range(10), 0]
    assert len(topic.to_arrow(max_records=13)) == 13
    assert len(topic.to_arrow(start=10, partition=0)) == 0
    with pytest.raises(planstep.OffsetOutOfRange, match=r"\[3, 11\) is outside"):
        topic.to_arrow(start=3, end=11, partition=0)
    with pytest.raises(ValueError, match="pass partition="):
        topic.to_arrow(end=3)
    with pytest.raises(ValueError, match="batch_rows"):
        topic.iter_arrow(batch_rows=0)
    with pytest.raises(TypeError, match="an offset is an int"):
        topic.to_arrow(end="3", partition=0)
    with db.snapshot() as view:
        for wrong in ("x", 1.5, True):
            for read in (topic.to_arrow, topic.to_pandas, partial(view.to_arrow, "t")):
                with pytest.raises(TypeError, match=f"max_records is an int, not {wrong!r}"):
                    read(max_records=wrong)
        with pytest.raises(ValueError, match="max_records is at least 1, not 0"):
            view.to_pandas("t", max_records=0)


def test_a_stream_shows_the_step_at_which_it_began(db: planstep.Engine) -> None:
    topic = db.create_topic("t")
    topic.write_batch([b"%d" % i for i in range(10)])
    with db.snapshot() as view:
        stream = view.iter_arrow("t", batch_rows=4)
    first = next(stream)
    topic.write_batch([b"late"] * 10)
    sizes = [first.num_rows, *(batch.num_rows for batch in stream)]
    assert sizes == [4, 4, 2]


def test_trimming_below_a_stream_is_an_error_not_a_gap(db: planstep.Engine) -> None:
    topic = db.create_topic("t")
    for i in range(10):
        topic.write(b"%d" % i)
    stream = topic.iter_arrow(batch_rows=2)
    next(stream)
    topic.trim(8)
    with pytest.raises(planstep.SnapshotTooOld):
        list(stream)


def test_dropping_below_a_stream_is_an_error_not_an_end(db: planstep.Engine) -> None:
    topic = db.create_topic("t")
    topic.write_batch([b"a"] * 10)
    stream = topic.iter_arrow(batch_rows=2)
    next(stream)
    db.drop_topic("t")
    try:  # the rest of it goes in the background
        rows = 2 + sum(batch.num_rows for batch in stream)
    except planstep.PlanstepError:
        rows = 10
    assert rows == 10


def test_values_without_a_common_type(db: planstep.Engine) -> None:
    topic = db.create_topic("t", format="json")
    topic.write_batch([{"a": 1}, {"b": "x"}])
    value = topic.to_arrow()["value"]
    assert value.type == pa.struct([("a", pa.int64()), ("b", pa.string())])
    topic.write_batch([[1], "text"])
    with pytest.raises(planstep.NoCommonType, match="decode=False gives values as stored"):
        topic.to_arrow()
    raw = topic.to_arrow(decode=False)["value"]
    assert raw.type == pa.string() and raw.to_pylist()[2:] == ["[1]", '"text"']
    assert topic.to_pandas()["value"].tolist() == [{"a": 1}, {"b": "x"}, [1], "text"]


@pytest.mark.parametrize(
    "values", [[1, True], ["a", b"a"], [1, "a"], [1 << 63], [{"a": [1]}, {"a": 2}]]
)
def test_nothing_is_bent_to_fit(db: planstep.Engine, values: list[Any]) -> None:
    topic = db.create_topic("t", format="msgpack")
    topic.write_batch(values)
    with pytest.raises(planstep.NoCommonType):
        topic.to_arrow()


def test_a_stream_keeps_its_schema_or_says_so(db: planstep.Engine) -> None:
    topic = db.create_topic("t", format="msgpack")
    topic.write_batch([{"a": 1, "b": 2.5}, {"a": 2}, {"a": None, "b": 1}, {"a": 3, "c": "new"}])
    stream = topic.iter_arrow(batch_rows=1)
    rows = [next(stream), next(stream), next(stream)]
    assert pa.Table.from_batches(rows)["value"].to_pylist()[1:] == [
        {"a": 2, "b": None},
        {"a": None, "b": 1.0},
    ]
    with pytest.raises(planstep.NoCommonType, match="value_type="):
        next(stream)
    kind = pa.struct([("a", pa.int64()), ("c", pa.string())])
    values = [v for b in topic.iter_arrow(1, value_type=kind) for v in b["value"].to_pylist()]
    assert values[0] == {"a": 1, "c": None} and values[3] == {"a": 3, "c": "new"}


def test_rows_of_a_table(db: planstep.Engine) -> None:
    table = db.create_table("totals")
    table.load({("u", i): {"n": i, "name": str(i)} for i in range(10)})
    rows = table.scan(prefix=("u",))
    arrow = rows.to_arrow()
    assert arrow["key"].type == pa.struct([("0", pa.string()), ("1", pa.int64())])
    assert arrow["value"].to_pylist() == [v for _, v in rows]
    assert arrow.flatten().column_names == ["key.0", "key.1", "value.n", "value.name"]
    frame = rows.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame["key"].tolist() == [k for k, _ in rows]
    pages = list(table.scan_arrow(batch_rows=3))
    assert [page.num_rows for page in pages] == [3, 3, 3, 1]
    assert pa.Table.from_batches(pages).equals(arrow.combine_chunks())
    with db.snapshot() as view:
        assert view.scan("totals").to_arrow().equals(arrow)
        assert sum(page.num_rows for page in view.scan_arrow("totals", 4, begin=("u", 5))) == 5
    (raw,) = table.scan_arrow(decode=False)
    assert raw.schema.field("value").type == pa.binary()
    with db.transaction() as tx:
        tx.delete("totals", ("u", 0))
        assert len(tx.scan("totals").to_arrow()) == 9


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([1, 1.0], "float and int"),
        ([("u", 1), ("u", True)], r"\(str, bool\) and \(str, int\)"),
        ([("u",), ("u", None)], r"\(str\) and \(str, None\)"),
    ],
)
def test_no_two_keys_become_one(db: planstep.Engine, keys: list[Any], words: str) -> None:
    table = db.create_table("t")
    table.load([(key, i) for i, key in enumerate(keys)])
    with pytest.raises(planstep.NoCommonType, match=words):
        table.scan_arrow().__next__()
    with pytest.raises(planstep.NoCommonType):
        list(table.scan_arrow(batch_rows=1))


def test_keys_of_several_kinds_have_no_column(db: planstep.Engine) -> None:
    table = db.create_table("t")
    table.load([(1, "a"), ("x", "b")])
    with pytest.raises(planstep.NoCommonType, match="int and str"):
        table.scan().to_arrow()
    assert len(table.scan().to_pandas()) == 2
    assert len(table.scan(begin="").to_arrow()) == 1


def test_nothing_there(db: planstep.Engine) -> None:
    for form in ("bytes", "utf8", "json", "msgpack"):
        topic = db.create_topic(form, format=form)
        assert len(topic.to_arrow()) == 0 == len(topic.to_pandas())
        assert list(topic.iter_arrow()) == []
    table = db.create_table("t")
    assert len(table.scan().to_arrow()) == 0 == len(table.scan().to_pandas())
    assert list(table.scan_arrow()) == []


def test_a_consumer_reads_in_columns(db: planstep.Engine) -> None:
    topic = db.create_topic("t", format="utf8")
    topic.write_batch(["a", "b", "a"], keys=["x", "y", "x"])
    with db.transaction() as tx:
        table = tx.read("t", "c").to_arrow()
        assert table.group_by("key").aggregate([("value", "count")]).num_rows == 2
    assert topic.lag("c") == 0
