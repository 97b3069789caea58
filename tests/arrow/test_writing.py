"""Tests writing columns as records and rows: the result equals that of single writes."""

from collections.abc import Iterator
from typing import Any

import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planstep
from planstep.api.columns.frame_encoder import Records
from planstep.proto.batch import Batch
from planstep.runtime.catalog import TopicInfo


def written(topic: planstep.Topic) -> list[tuple[Any, ...]]:
    return [(r.partition, r.offset, r.key, r.value) for r in topic.read(max_records=100_000)]


COUNT = 3000
VALUES = [f"value {i}" * (i % 7) for i in range(COUNT)]
KEYS = [None if i % 13 == 0 else f"user-{i * 7 % 101}" for i in range(COUNT)]


@pytest.mark.parametrize("form", ["bytes", "utf8"])
@pytest.mark.parametrize("partition", [None, 1])
@pytest.mark.parametrize(
    "kind",
    [
        "record batch",
        "reader",
        "string",
        "large_string",
        "string_view",
        "dictionary",
        "chunks",
        "slice",
        "frame",
    ],
)
def test_columns_arrive_as_lists_do(
    db: planstep.Engine, form: str, partition: int | None, kind: str
) -> None:
    values: list[Any] = list(VALUES) if form == "utf8" else [v.encode() for v in VALUES]
    plain = pa.string() if form == "utf8" else pa.binary()
    table = pa.table({"user": pa.array(KEYS), "v": pa.array(values, plain), "else": range(COUNT)})
    data: Any = table
    if kind in ("large_string", "string_view"):
        text = form == "utf8"
        other = {
            "large_string": pa.large_string() if text else pa.large_binary(),
            "string_view": pa.string_view() if text else pa.binary_view(),
        }[kind]
        key = pa.large_string() if kind == "large_string" else pa.string_view()
        data = pa.table({"user": table["user"].cast(key), "v": table["v"].cast(other)})
    elif kind == "dictionary":
        data = table.set_column(0, "user", table["user"].dictionary_encode())
    elif kind == "chunks":
        data = pa.concat_tables([table.slice(0, 7), table.slice(7, 1000), table.slice(1007)])
    elif kind == "slice":
        data = pa.concat_tables([table.slice(5, 9), table]).combine_chunks().slice(9)
    elif kind == "record batch":
        data = table.to_batches()[0]
    elif kind == "reader":
        data = table.to_reader(max_chunksize=999)
    elif kind == "frame":
        data = table.to_pandas()
    db.create_topic("lists", partitions=3, format=form)
    db.create_topic("columns", partitions=3, format=form)
    for name in ("lists", "columns"):
        with db.transaction() as tx:
            tx.write(name, values[0], key="before")  # lists and columns in one transaction
            if name == "lists":
                tx.write_batch(name, values, keys=KEYS, partition=partition)
            else:
                tx.write_batch(name, data, key="user", value="v", partition=partition)
            tx.write(name, values[0], key="behind")
            assert len(tx.pending(name)) == COUNT + 2
    assert written(db.topic("columns")) == written(db.topic("lists"))


def test_pending_records_keep_their_order(db: planstep.Engine) -> None:
    db.create_topic("t", format="utf8")
    with db.transaction() as tx:
        tx.write("t", "a", headers={"h": b"1"})
        tx.write_batch("t", pa.table({"v": ["b", "c"]}), value="v")
        tx.write("t", "d", key="k")
        tx.write_batch("t", pa.table({"v": ["e"], "k": ["x"]}), value="v", key="k")
        pending = [(r.value, r.key, r.headers) for r in tx.pending("t")]
    records = [(r.value, r.key, r.headers) for r in db.topic("t").read()]
    assert records == pending
    assert [value for value, _, _ in records] == list("abcde") and records[0][2] == {"h": b"1"}


def test_large_columns_go_ahead_in_batches_of_a_mebibyte(db: planstep.Engine) -> None:
    topic = db.create_topic("t", partitions=2)
    values = [bytes([i % 251]) * 50_000 for i in range(400)]
    keys = [str(i % 17) for i in range(400)]
    with db.transaction() as tx:
        tx.write_batch("t", pa.table({"v": values, "k": keys}), key="k", value="v")
        assert tx.contents.ahead
    batch = topic.read(max_records=1000, max_bytes=1 << 30)
    assert sorted(zip(batch.values, map(bytes.decode, batch.keys), strict=True)) == sorted(
        zip(values, keys, strict=True)
    )
    assert all(len(s.batch.data) < (1 << 20) + 60_000 for s in batch.segments)
    assert len(batch.segments) < 30


def test_large_columns_are_taken_slice_by_slice(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.api.columns.frame_encoder._SLICE_BYTES", 1000)
    lists = db.create_topic("lists", partitions=3, format="utf8")
    lists.write_batch(VALUES, keys=KEYS)
    columns = db.create_topic("columns", partitions=3, format="utf8")
    columns.write_batch(pa.table({"v": VALUES, "k": KEYS}), key="k", value="v")
    assert written(columns) == written(lists)


def test_dicts_of_columns(db: planstep.Engine) -> None:
    frame = pandas.DataFrame({"user": ["a", "b"], "n": [1, 2], "x": [0.5, None]})
    for form in ("json", "msgpack"):
        topic = db.create_topic(form, format=form)
        topic.write_batch(frame, key="user")
        assert topic.read().values == [{"n": 1, "x": 0.5}, {"n": 2, "x": None}]
        topic.write_batch(frame.set_index("user"), key="user", value="n")
        last = topic.read(start=2)
        assert last.values == [1, 2] and last.keys == ["a", "b"]


def test_what_was_read_can_be_written(db: planstep.Engine) -> None:
    source = db.create_topic("a", partitions=2, format="utf8")
    source.write_batch([str(i) for i in range(1000)], keys=[str(i % 7) for i in range(1000)])
    target = db.create_topic("b", partitions=2, format="utf8")
    target.write_batch(source.to_arrow(), key="key", value="value")
    assert written(target) == written(source)


@pytest.mark.parametrize(
    ("form", "arguments", "error", "words"),
    [
        ("bytes", {"key": "user"}, ValueError, "name the column of values"),
        ("bytes", {"value": "text"}, TypeError, "its values are bytes"),
        ("utf8", {"value": "raw"}, TypeError, "its values are text"),
        ("utf8", {"value": "text", "key": "raw"}, TypeError, "column 'raw' is binary"),
        ("utf8", {"value": "text", "key": "n"}, TypeError, r"cast\(\"string\"\)"),
        ("utf8", {"value": "holes"}, TypeError, "record 1 has no value"),
        ("utf8", {"value": "nowhere"}, ValueError, "no column 'nowhere'"),
        ("utf8", {"value": "text", "keys": ["a", "b"]}, TypeError, "key="),
        ("json", {}, TypeError, "column 'when' is"),
    ],
)
def test_columns_that_do_not_fit_are_refused_without_effect(
    db: planstep.Engine, form: str, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    topic = db.create_topic("t", format=form)
    table = pa.table(
        {
            "user": ["a", "b"],
            "text": ["a", "b"],
            "raw": [b"a", b"b"],
            "n": [1, 2],
            "holes": ["a", None],
            "when": pa.array([1, 2], pa.timestamp("s")),
        }
    )
    with db.transaction() as tx:
        with pytest.raises(error, match=words):
            tx.write_batch("t", table, **arguments)
        assert tx.pending("t") == []
    assert topic.describe().records == 0


def test_columns_are_named_for_tables_only(db: planstep.Engine) -> None:
    topic = db.create_topic("t")
    with pytest.raises(TypeError, match="name columns"):
        topic.write_batch([b"a"], key="k")
    topic.write_batch(pandas.Series([b"a", b"b"]))  # a single column is an iterable of values
    assert len(topic.read()) == 2


def test_too_large_a_record_or_transaction(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = db.create_topic("t")
    table = pa.table({"v": [b"a", bytes((16 << 20) + 1)]})
    with pytest.raises(planstep.RecordTooLarge, match="record 1 has"):
        topic.write_batch(table, value="v")
    monkeypatch.setattr("planstep.api.transaction.participant_parts.TRANSACTION_BYTES_MAX", 10)
    with pytest.raises(planstep.TransactionTooLarge):
        topic.write_batch(pa.table({"v": [b"12345678901"]}), value="v")
    topic.write_batch(table.slice(0, 0), value="v")
    assert topic.describe().records == 0


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=5), st.binary(max_size=9)), max_size=40),
    st.integers(0, 5),
)
def test_batches_from_buffers_hold_what_the_columns_hold(
    records: list[tuple[bytes | None, bytes]], skipped: int
) -> None:
    info = TopicInfo(1, "t", (11, 12, 13), "bytes")
    keys = pa.array([k for k, _ in records], pa.binary())
    table = pa.table({"k": keys, "v": pa.array([v for _, v in records], pa.binary())})
    by_partition: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for _, pieces in Records(info, table.slice(skipped), "k", "v").pieces(2, None):
        for partition, piece in pieces:
            for data, count in piece.batches(7):
                batch = Batch.decode(data)
                assert batch.count == count and batch.timestamp_ms == 7
                pairs = zip(batch.keys, batch.values, strict=True)
                by_partition.setdefault(partition, []).extend(pairs)
    assert sum(map(len, by_partition.values())) == len(records[skipped:])
    for partition, pairs in by_partition.items():
        shares = {key for key, _ in pairs}
        assert pairs == [(k, v) for k, v in records[skipped:] if k in shares]
        assert partition == 2 or None not in shares


# tables ------------------------------------------------------------------------------------


def test_a_load_puts_rows_in_bounded_transactions(db: planstep.Engine) -> None:
    table = db.create_table("t")
    reports: list[int] = []
    rows = [(i, {"n": i}) for i in range(25)]
    before = db.stats()["step"]
    assert table.load(iter(rows), batch_rows=10, progress=reports.append) == 25
    assert reports == [10, 20, 25] and db.stats()["step"] - before >= 3
    assert table.load(dict(rows)) == 25  # again: nothing changes
    assert list(table.scan()) == rows
    reports.clear()
    large = [(i, bytes(3 << 20)) for i in range(7)]
    assert table.load(large, progress=reports.append) == 7 and reports == [3, 6, 7]


def test_a_load_of_columns_and_dicts(db: planstep.Engine) -> None:
    frame = pandas.DataFrame({"day": ["mo", "tu"], "hour": [1, 2], "n": [10, 20]})
    table = db.create_table("t")
    assert table.load(frame, key="day") == 2
    assert dict(table.scan()) == {"mo": {"hour": 1, "n": 10}, "tu": {"hour": 2, "n": 20}}
    assert table.load(pa.Table.from_pandas(frame), key=["day", "hour"], value="n") == 2
    assert dict(table.scan(prefix=("mo",))) == {("mo", 1): 10}
    assert table.load(frame.to_dict("records"), key="hour", value="day") == 2
    assert table.get(2) == "tu"
    table = db.create_table("in-pieces")
    arrow = pa.Table.from_pandas(frame)
    for pieces in (arrow.to_batches(max_chunksize=1), arrow.to_reader(max_chunksize=1), arrow):
        assert table.load(pieces, key="day", value="n", batch_rows=1) == 2
        assert dict(table.scan()) == {"mo": 10, "tu": 20}


def test_what_a_scan_gave_can_be_loaded(db: planstep.Engine) -> None:
    source, target = db.create_table("a"), db.create_table("b")
    source.load([(("u", i), {"n": i}) for i in range(10)])
    assert target.load(source.scan().to_arrow(), key="key", value="value") == 10
    assert target.load(source.scan_arrow(batch_rows=3), key="key", value="value") == 10
    assert target.scan() == source.scan()


def test_a_load_that_fails_says_how_far_it_came(db: planstep.Engine) -> None:
    table = db.create_table("t")

    def rows() -> Iterator[tuple[int, Any]]:
        for i in range(25):
            yield i, object() if i == 17 else i

    with pytest.raises(TypeError) as caught:
        table.load(rows(), batch_rows=10)
    assert "10 rows were loaded before" in caught.value.__notes__[0]
    assert table.count() == 10
    assert table.load(((i, i) for i in range(25)), batch_rows=10) == 25


@pytest.mark.parametrize(
    ("rows", "arguments", "error", "words"),
    [
        (pa.table({"a": [1]}), {}, ValueError, "name the column that is the key"),
        ([{"a": 1}], {}, ValueError, "name the field"),
        ([{"a": 1}], {"key": "b"}, ValueError, "row 0 has no 'b'"),
        (pa.table({"a": [1, None]}), {"key": "a"}, ValueError, "row 1 has no key"),
        (pa.table({"a": [1]}), {"key": "b"}, ValueError, "no column 'b'"),
        ([(1, 2)], {"key": "a"}, TypeError, "key= goes with"),
        ([1], {}, TypeError, "no pair"),
        ("text", {}, TypeError, "rows are pairs"),
        ([], {"batch_rows": 0}, ValueError, "batch_rows"),
        ([], {"key": []}, TypeError, "key= is the name"),
        ([{"a": 1}], {"key": 5}, TypeError, "key= is the name of a column, .* not 5"),
    ],
)
def test_rows_that_do_not_fit(
    db: planstep.Engine, rows: Any, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    table = db.create_table("t")
    with pytest.raises(error, match=words):
        table.load(rows, **arguments)
    assert table.count() == 0


def test_a_series_is_told_to_become_a_frame(db: planstep.Engine) -> None:
    import pandas as pd

    table = db.create_table("series")
    with pytest.raises(TypeError, match=r"make the series a frame, with \.to_frame\(\)"):
        table.load(pd.Series([1, 2], name="n"))
    table.load(pd.Series([1, 2], name="n").rename_axis("id").to_frame(), key="id", value="n")
    assert list(table.to_pandas()["value"]) == [1, 2] and 1 in table
