"""Tests reads over a log with holes: markers and aborted records have offsets, but are not shown."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from face_kit import begin_with, commits, until

import planstep
from planstep.proto.ids import tablet_prefix


@pytest.fixture
def db() -> Iterator[planstep.Engine]:
    with planstep.open(":memory:", mode="kafka") as db:
        yield db


@pytest.fixture
def topic(db: planstep.Engine) -> planstep.Topic:
    """Makes a topic whose offsets 0 to 2 are a, its marker and b; aborted ones follow; then c and d, with their
    markers."""
    topic = db.create_topic("t", format="utf8")
    for value in "ab":
        commits(db, value, "t", worker="w")
    begin_with(db, "no", "t", worker="w").rollback()
    for value in "cd":
        commits(db, value, "t", worker="w")
    with db.transaction(worker="w") as tx:  # once it has begun, all earlier ones have their markers
        tx.read("t", consumer="c", max_records=1)
    return topic


def test_columns_step_over_holes(topic: planstep.Topic) -> None:
    pytest.importorskip("pyarrow")
    values = list("abcd")
    assert topic.to_arrow()["value"].to_pylist() == values
    pieces = [piece["value"].to_pylist() for piece in topic.iter_arrow(batch_rows=1)]
    assert pieces == [[value] for value in values]
    offsets = topic.to_arrow()["offset"].to_pylist()
    assert offsets == [record.offset for record in topic.read()]
    part = topic.to_arrow(start=0, end=offsets[2], partition=0)
    assert part["value"].to_pylist() == ["a", "b"]  # never beyond the end, whatever is between


def test_a_time_is_found_in_a_log_with_holes(topic: planstep.Topic) -> None:
    low, high = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2020, 2999))
    assert topic.seek("c", low) == {0: 0}
    (offset,) = topic.seek("c", high).values()
    assert not len(topic.read(offset))


def test_each_time_has_its_offset(db: planstep.Engine, topic: planstep.Topic) -> None:
    """A time between two batches means the later one, across any markers between them."""
    views, (tablet,) = db._runtime.views, topic._info().partitions
    times = [record.timestamp_ms for record in topic.read()]
    for ms in times:
        wanted = [record.value for record in topic.read() if record.timestamp_ms >= ms]
        assert topic.read(views.offset_at(tablet, ms)).values == wanted


def test_a_damaged_batch_is_damage(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", mode="kafka") as db:
        topic = db.create_topic("t", format="utf8")
        topic.write("a" * 1000)
        topic.write("b")
        store = db._runtime.nodes[0].host.store
        (tablet,) = topic._info().partitions
        address, *_ = store.get(tablet_prefix(tablet) + b"b" + bytes(8))
        assert address is not None
        read = store.read_payload

        def damaged(at: int, length: int) -> bytes:
            data = bytearray(read(at, length))
            if at == address:
                data[-1] ^= 1
            return bytes(data)

        store.read_payload = damaged
        with pytest.raises(planstep.Corruption, match="offset 0"):
            topic.read()


# what goes with time and size ---------------------------------------------------------------


def test_retention_looks_at_records_not_at_markers(
    db: planstep.Engine, topic: planstep.Topic
) -> None:
    """A marker has no time of its own: it is removed with the records before it."""
    topic.alter(retention=3600)
    info = topic._info()
    times = [record.timestamp_ms for record in topic.read()]
    maintenance, (tablet,) = db._runtime.maintenance, info.partitions
    assert (
        maintenance._due(info, tablet, db._runtime.views.log_bounds(tablet), times[0] + 3_600_000)
        == 0
    )
    topic.trim(1)  # address 0, where a marker's payload would be, is gone
    assert not len(
        topic.read(
            maintenance._due(
                info, tablet, db._runtime.views.log_bounds(tablet), times[-1] + 3_600_001
            )
        )
    )


def test_an_open_transaction_keeps_its_data_from_retention(db: planstep.Engine) -> None:
    """Trimming stops at the last stable offset, and does not ask again and again."""
    topic = db.create_topic("t", format="utf8", retention=3600)
    topic.write("a")
    info, (tablet,) = topic._info(), topic._info().partitions
    with db.transaction(worker="w") as tx:
        tx.write("t", "b")
        until(lambda: db._runtime.views.whole_log(tablet)[1] == 2)
        topic.write("c")
        assert (
            db._runtime.maintenance._due(
                info, tablet, db._runtime.views.log_bounds(tablet), 1 << 50
            )
            == 1
        )
        with pytest.raises(planstep.OffsetOutOfRange):
            db._runtime.maintenance.trim(tablet, 3)
