"""Tests topics: columns, partitions, formats, reading on, waiting, reading without moving a position."""

import zlib
from typing import Any

import pytest
from kit import background

import planstep


def test_columns_and_records(shop: planstep.Engine) -> None:
    with shop.transaction() as tx:
        tx.write_batch(
            "clicks",
            [b"a", b"b", b"c"],
            keys=["k1", b"k2", None],
            headers=[{"h": b"1", "t": "text"}, None, {}],
            partition=1,
        )
        assert [r.value for r in tx.pending("clicks")] == [b"a", b"b", b"c"]
        assert tx.pending("by-user") == []
    batch = shop.topic("clicks").read()
    assert len(batch) == 3
    assert batch.values == [b"a", b"b", b"c"]
    assert batch.keys == [b"k1", b"k2", None]
    assert batch.headers == [{"h": b"1", "t": "text"}, {}, {}]
    assert batch.offsets == [(1, 0), (1, 1), (1, 2)]
    assert batch.ends == {0: 0, 1: 3, 2: 0, 3: 0} and batch.partition == 1
    assert len(set(batch.timestamps)) == 1 and batch.timestamps[0] > 1_600_000_000_000
    assert batch.count_by_key() == {b"k1": 1, b"k2": 1}
    assert batch[2] == list(batch)[2]
    assert batch[0]._asdict() == {
        "value": b"a",
        "key": b"k1",
        "headers": {"h": b"1", "t": "text"},
        "partition": 1,
        "offset": 0,
        "timestamp_ms": batch.timestamps[0],
    }
    assert repr(batch) == "<ReadBatch 'clicks' 3 records 1:[0, 3)>"
    assert "<td>b&#x27;k1&#x27;</td>" in batch._repr_html_()


def test_a_key_decides_the_partition_for_ever(shop: planstep.Engine) -> None:
    keys: list[Any] = [f"u{i}" for i in range(50)]
    shop.topic("clicks").write_batch([b""] * 50, keys=keys)
    shop.topic("clicks").write_batch([b""] * 50, keys=[key.encode() for key in keys])
    for key in keys:
        written = shop.write("clicks", b"", key=key)
        assert written.partition == zlib.crc32(key.encode()) % 4
    for record in shop.topic("clicks").read():
        assert record.partition == zlib.crc32(record.key) % 4


def test_records_without_key_take_the_partitions_in_turn(shop: planstep.Engine) -> None:
    for i in range(8):
        with shop.transaction() as tx:
            tx.write("clicks", b"%d" % i)
            tx.write_batch("clicks", [b"x", b"k"], keys=[None, "key"])
    partitions = [p.end - p.start for p in shop.topic("clicks").describe().partitions]
    keyed = zlib.crc32(b"key") % 4
    assert partitions == [4 + 8 * (p == keyed) for p in range(4)]


@pytest.mark.parametrize(
    ("form", "value", "key"),
    [("bytes", b"\0", b"k"), ("utf8", "ä", "k"), ("json", {"a": [1]}, "ä"), ("msgpack", 7, "k")],
)
def test_formats(db: planstep.Engine, form: str, value: Any, key: Any) -> None:
    topic = db.create_topic("t", format=form)
    written = topic.write(value, key=key)
    assert written[:2] == (0, 0) and topic.write(value)[:2] == (0, 1)
    batch = topic.read()
    assert batch.values == [value, value] and batch.keys == [key, None]
    with db.transaction() as tx:
        tx.write("t", value, key=key)
        (record,) = tx.pending("t")
        assert (record.value, record.key, record.offset) == (value, key, -1)


def test_values_that_do_not_fit_name_the_format_that_would(db: planstep.Engine) -> None:
    for form in ("bytes", "utf8", "json", "msgpack"):
        db.create_topic(form, format=form)
    refused: list[tuple[str, Any, dict[str, Any], str]] = [
        ("bytes", {"a": 1}, {}, r'topic \'bytes\' has format="bytes".*format="json"'),
        ("bytes", "text", {}, 'format="utf8"'),
        ("utf8", b"raw", {}, 'format="bytes"'),
        ("json", {1, 2}, {}, "json"),
        ("json", float("nan"), {}, "json"),
        ("msgpack", 2**64, {}, "msgpack"),
        ("json", {}, {"key": b"raw"}, "keys of its records are str or None"),
        ("bytes", b"", {"key": 1}, "bytes, str or None"),
        ("bytes", b"", {"headers": {"a": 1}}, "headers"),
    ]
    for form, value, more, message in refused:
        with pytest.raises(TypeError, match=message):
            db.write(form, value, **more)
    assert all(topic.describe().records == 0 for topic in db.topics().values())


def test_an_error_in_a_batch_leaves_none_of_it(shop: planstep.Engine) -> None:
    with shop.transaction() as tx:
        tx.write("clicks", b"before")
        for bad in ([b"a", 1], [b"a", "b"], [b"a", None]):
            with pytest.raises(TypeError):
                tx.write_batch("clicks", bad)
        with pytest.raises(TypeError, match="list of them"):
            tx.write_batch("clicks", b"abc")
        with pytest.raises(ValueError, match="2 values but 1 keys"):
            tx.write_batch("clicks", [b"a", b"b"], keys=["k"])
        with pytest.raises(ValueError, match="2 values but 3 headers"):
            tx.write_batch("clicks", [b"a", b"b"], headers=[None] * 3)
        with pytest.raises(ValueError, match="partitions 0 to 3"):
            tx.write_batch("clicks", [b"a"], partition=4)
        tx.write_batch("clicks", [])
        tx.write_batch("clicks", (b"%d" % i for i in range(2)), keys=iter(["k", "k"]))
    assert sorted(shop.topic("clicks").read().values) == [b"0", b"1", b"before"]


def test_a_second_read_goes_on_behind_the_first(shop: planstep.Engine) -> None:
    for p in range(4):
        shop.topic("clicks").write_batch([b"%d%d" % (p, i) for i in range(5)], partition=p)
    with shop.transaction() as tx:
        one = tx.read("clicks", "c", max_records=3)
        two = tx.read("clicks", "c", max_records=3)
        rest = tx.read("clicks", "c")
        assert len(one) == len(two) == 3 and len(rest) == 14
        assert tx.read("clicks", "c").values == []
        offsets = one.offsets + two.offsets + rest.offsets
        assert sorted(offsets) == [(p, i) for p in range(4) for i in range(5)]
    assert shop.topic("clicks").position("c") == dict.fromkeys(range(4), 5)


def test_a_full_partition_starves_no_other(shop: planstep.Engine) -> None:
    for p in range(4):
        shop.topic("clicks").write_batch([b""] * 10, partition=p)
    partitions = []
    for _ in range(4):
        with shop.transaction() as tx:
            partitions.append(tx.read("clicks", "c", max_records=2).offsets[0][0])
    assert sorted(partitions) == [0, 1, 2, 3]


def test_rolled_back_reads_move_nothing(shop: planstep.Engine) -> None:
    shop.topic("clicks").write(b"x")
    for _ in range(2):
        tx = shop.transaction()
        assert tx.read("clicks", "c").values == [b"x"]
        tx.rollback()
    assert shop.topic("clicks").lag("c") == 1


def test_one_partition_and_bytes_limit(shop: planstep.Engine) -> None:
    for _ in range(3):
        shop.topic("clicks").write(b"x" * 1000, partition=0)
    shop.topic("clicks").write(b"y", partition=1)
    with shop.transaction() as tx:
        assert len(tx.read("clicks", "c", max_bytes=1)) == 1
        assert tx.read("clicks", "c", partition=1).values == [b"y"]
        assert tx.read("clicks", "c", partition=1).values == []
    with pytest.raises(ValueError, match="at least 1"):
        shop.transaction().read("clicks", "c", max_records=0)


def test_batches_are_cut_and_read_in_parts(shop: planstep.Engine) -> None:
    values = [bytes([i]) * 100_000 for i in range(45)]
    shop.topic("clicks").write_batch(values, partition=3)
    assert shop.topic("clicks").read(max_bytes=1 << 30).values == values
    got = []
    while True:
        with shop.transaction() as tx:
            batch = tx.read("clicks", "c", max_records=7)
        if not batch:
            break
        assert len(batch) <= 7
        got += batch.values
    assert got == values


def test_a_first_read_waits_for_records(shop: planstep.Engine) -> None:
    def wait() -> list[bytes]:
        with shop.transaction() as tx:
            values: list[bytes] = tx.read("clicks", "c", timeout=10.0).values
            return values

    with background(wait) as (waiting,):
        shop.topic("clicks").write(b"x")
    assert waiting.result() == [b"x"]
    with shop.transaction() as tx:
        assert tx.read("clicks", "c", timeout=0.01).values == []
    with shop.transaction() as tx:
        tx.get("totals", "a")
        assert tx.read("clicks", "c", timeout=1000.0).values == []  # its snapshot is fixed


def test_looking_moves_nothing(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    for p in range(4):
        topic.write_batch([b"%d%d" % (p, i) for i in range(3)], partition=p)
    assert len(topic.read()) == 12 and len(topic.read(max_records=5)) == 5
    assert topic.read(1, partition=2).values == [b"21", b"22"]
    assert topic.read(3, partition=2).values == []
    first = topic.read(max_records=4)
    assert first.ends == {0: 3, 1: 1, 2: 0, 3: 0}
    assert topic.read(first.ends, max_records=2).values == [b"11", b"12"]
    assert topic.lag("c") == 12
    description = topic.describe()
    assert description.records == 12 and description.partitions[1] == (1, 0, 3)
    for start, partition in ((4, 2), (-1, 2)):
        with pytest.raises(planstep.OffsetOutOfRange, match=r"partition 2.*\[0, 3\)"):
            topic.read(start, partition=partition)
    with pytest.raises(ValueError, match="one partition"):
        topic.read(1)
    with pytest.raises(ValueError, match="partitions 0 to 3"):
        topic.read(partition=4)
    with shop.transaction() as tx:
        for begin, end in ((0, 4), (2, 1), (-1, 1)):
            with pytest.raises(planstep.OffsetOutOfRange):
                tx.consume("clicks", "c", 0, begin, end)
        tx.consume("clicks", "c", 0, 0, 1)
        with pytest.raises(planstep.OffsetOutOfRange, match="consumed up to 1"):
            tx.consume("clicks", "c", 0, 2, 3)


def test_notebooks_show_tables(shop: planstep.Engine) -> None:
    shop.table("totals").put("<b>", "x" * 200)
    shop.topic("clicks").write(b"x")
    page = shop.table("totals")._repr_html_()
    assert "&lt;b&gt;" in page and "…" in page
    assert "1 record<" in shop.topic("clicks")._repr_html_()
    whole = shop._repr_html_()
    assert "<td>topic</td><td>clicks</td>" in whole and "1 record<" in whole
