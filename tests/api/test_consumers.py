"""Tests both kinds of consumers: start positions and missed records; also trimming, retention, dropping."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

import planstep


@pytest.fixture(params=[1, 3])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    with planstep.open(tmp_path / "s", hosts=request.param) as engine:
        engine.create_topic("a", partitions=2)
        engine.create_table("t", shards=2)
        yield engine


def fill(db: planstep.Engine, records: int, partition: int = 0) -> None:
    for n in range(records):
        db.topic("a").write(b"%d" % n, partition=partition)


def take(db: planstep.Engine, consumer: str, **options: Any) -> list[bytes]:
    with db.transaction() as tx:
        return list(tx.read("a", consumer=consumer, **options).values)


# where a consumer begins ---------------------------------------------------------------------


def test_start_positions(db: planstep.Engine) -> None:
    fill(db, 5)
    topic = db.topic("a")
    between = datetime.now(UTC)
    late = between + timedelta(milliseconds=2)
    while datetime.now(UTC) < late:
        pass
    fill(db, 3)
    topic.create_consumer("new", start="latest")
    topic.create_consumer("old", start="earliest")
    topic.create_consumer("exact", start={0: 4, 1: 0})
    topic.create_consumer("timed", start=between + timedelta(milliseconds=1))
    assert take(db, "new") == []
    assert len(take(db, "old")) == 8
    assert take(db, "exact") == [b"4", b"0", b"1", b"2"]
    assert take(db, "timed") == [b"0", b"1", b"2"]
    with pytest.raises(planstep.OffsetOutOfRange, match=r"\[0, 8\)"):
        topic.create_consumer("beyond", start={0: 9})
    with pytest.raises(ValueError, match="one partition"):
        topic.create_consumer("which", start=3)
    with pytest.raises(ValueError, match="earliest"):
        topic.create_consumer("when", start="yesterday")
    with pytest.raises(ValueError, match="0 to 1"):
        topic.create_consumer("where", start={2: 0})


def test_seek_moves_back_and_forth(db: planstep.Engine) -> None:
    fill(db, 6)
    topic = db.topic("a")
    assert len(take(db, "c")) == 6
    assert topic.seek("c", 2, partition=0) == {0: 2}
    assert topic.lag("c") == 4
    assert take(db, "c", max_records=2) == [b"2", b"3"]
    topic.seek("c", "latest")
    assert take(db, "c") == []
    assert topic.seek("c", {}) == {} and topic.lag("c") == 0
    topic.seek("c", "earliest")
    assert len(take(db, "c")) == 6


@pytest.mark.parametrize("moved", ["sought", "trimmed"])
def test_who_read_before_its_consumer_was_moved_conflicts(db: planstep.Engine, moved: str) -> None:
    fill(db, 4)
    tx = db.transaction()
    tx.read("a", consumer="c", max_records=2)
    if moved == "sought":
        db.topic("a").seek("c", 3, partition=0)
    else:
        db.topic("a").trim(3, partition=0)
    with pytest.raises(planstep.Conflict) as caught:
        tx.commit()
    assert (caught.value.expected, caught.value.actual) == (0, 3)


def test_consumers_are_described_listed_and_dropped(db: planstep.Engine) -> None:
    fill(db, 5)
    topic = db.topic("a")
    take(db, "used", max_records=2)
    topic.create_consumer("made", kind="individual", start="latest")
    topic.create_consumer("made", kind="individual", exist_ok=True)
    assert list(topic.consumers()) == ["made", "used"]
    used = topic.consumer("used")
    assert (used.kind, used.lag, used.missed) == ("cumulative", 3, 0)
    assert used.partitions[0].position == 2
    assert topic.consumer("made").kind == "individual"
    with pytest.raises(planstep.AlreadyExists, match="exist_ok"):
        topic.create_consumer("made")
    with pytest.raises(planstep.AlreadyExists, match="is individual, not cumulative"):
        topic.create_consumer("made", exist_ok=True)
    with pytest.raises(planstep.AlreadyExists, match="exist_ok"):
        topic.create_consumer("used")
    topic.drop_consumer("used")
    topic.drop_consumer("made")
    assert topic.consumers() == {}
    assert len(take(db, "used")) == 5
    with pytest.raises(planstep.UnknownName, match="no consumer"):
        topic.drop_consumer("nobody")


def test_they_survive_reopening(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("a").create_consumer("i", kind="individual")
        fill(db, 5)
        with db.transaction() as tx:
            tx.consume("a", "i", 0, 2, 4)
    with planstep.open(tmp_path / "s") as db:
        assert take(db, "i") == [b"0", b"1", b"4"]
        assert db.topic("a").consumer("i").kind == "individual"


# individual consumers ------------------------------------------------------------------------


def test_an_individual_consumer_takes_any_records_once(db: planstep.Engine) -> None:
    fill(db, 10)
    topic = db.topic("a")
    topic.create_consumer("i", kind="individual")
    one, two = db.transaction(), db.transaction()
    one.consume("a", "i", 0, 7, 9)
    two.consume("a", "i", 0, 2, 5)
    one.commit()
    two.commit()  # no conflict: they share no records
    assert topic.position("i") == {0: 0, 1: 0} and topic.lag("i") == 5
    with db.transaction() as again, pytest.raises(planstep.Conflict) as caught:
        again.consume("a", "i", 0, 4, 6)
    assert (caught.value.expected, caught.value.actual) == (4, 5)
    assert take(db, "i", max_records=3) == [b"0", b"1", b"5"]
    assert take(db, "i") == [b"6", b"9"]
    assert topic.position("i")[0] == 10


@pytest.mark.parametrize("kind", ["individual", "cumulative"])
def test_what_was_consumed_before_is_refused_at_the_call(
    db: planstep.Engine, kind: Literal["individual", "cumulative"]
) -> None:
    """A retry meets the same refusal; records consumed after the transaction began are a conflict at the commit."""
    fill(db, 10)
    topic = db.topic("a")
    topic.create_consumer("x", kind=kind)
    late = db.transaction()
    late.consume("a", "x", 0, 0, 5)
    with db.transaction() as tx:
        tx.consume("a", "x", 0, 0, 3)
    runs = []

    def again(tx: planstep.Transaction) -> None:
        runs.append(tx)
        tx.add("n", "n", 1)
        tx.consume("a", "x", 0, 2, 5)

    db.create_table("n")
    with pytest.raises(planstep.Conflict, match=r"before .* began: .*seek") as caught:
        db.run(again)
    error = caught.value
    assert len(runs) == 1 and not error.retryable and error.consumer == "x"
    assert (error.kind, error.name, error.part) == ("topic", "a", 0)
    assert (error.expected, error.actual) == (2, 3)
    with pytest.raises(planstep.Conflict) as caught:
        late.commit()
    assert caught.value.retryable
    topic.seek("x", 0, partition=0)
    db.run(again) if kind == "individual" else None
    with db.transaction() as tx:
        tx.consume("a", "x", 0, 0, 2)


def test_own_ranges_do_not_meet(db: planstep.Engine) -> None:
    fill(db, 6)
    db.topic("a").create_consumer("i", kind="individual")
    with db.transaction() as tx:
        tx.consume("a", "i", 0, 2, 4)
        with pytest.raises(planstep.OffsetOutOfRange, match="already"):
            tx.consume("a", "i", 0, 3, 5)
        assert tx.read("a", consumer="i").values == [b"0", b"1", b"4", b"5"]


def test_the_kinds_do_not_mix(db: planstep.Engine) -> None:
    fill(db, 3)
    tx = db.transaction()
    tx.consume("a", "c", 0, 0, 1)
    db.topic("a").create_consumer("c", kind="individual")
    with pytest.raises(planstep.NotSupported, match="individual, not cumulative"):
        tx.commit()


def test_too_many_gaps(db: planstep.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.tablets.partition.RANGES_MAX", 3)
    fill(db, 12)
    db.topic("a").create_consumer("i", kind="individual")
    for begin in (1, 3, 5):
        with db.transaction() as tx:
            tx.consume("a", "i", 0, begin, begin + 1)
    tx = db.transaction()
    tx.consume("a", "i", 0, 7, 8)
    with pytest.raises(planstep.TooManyGaps, match="3 gaps"):
        tx.commit()
    with db.transaction() as tx:  # closes gaps
        tx.consume("a", "i", 0, 0, 1)
        tx.consume("a", "i", 0, 7, 8)
    assert db.topic("a").position("i")[0] == 2


# trimming ------------------------------------------------------------------------------------


def test_what_is_trimmed_while_it_is_read_is_read_from_the_new_start(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = db.create_topic("looked-at", partitions=1)
    for number in range(6):
        topic.write(b"%d" % number)
    before, starts = db._runtime.views.read_segments, [1, 3]

    def trims_first(*args: Any) -> Any:
        if starts:
            topic.trim(starts.pop(0))
        return before(*args)

    monkeypatch.setattr(db._runtime.views, "read_segments", trims_first)
    assert topic.read(0).values == [b"3", b"4", b"5"]
    starts.append(5)
    with pytest.raises(planstep.OffsetOutOfRange, match="offset 3 is outside"):
        topic.read(3)


def test_trimming_takes_whole_batches_and_counts_what_was_missed(db: planstep.Engine) -> None:
    fill(db, 6)
    db.topic("a").write_batch([b"x", b"y", b"z"], partition=0)
    topic = db.topic("a")
    take(db, "c", max_records=2)
    topic.create_consumer("i", kind="individual")
    with db.transaction() as tx:
        tx.consume("a", "i", 0, 3, 4)
    assert topic.trim(7, partition=0) == 7  # inside the last batch
    assert topic.describe().partitions[0] == (0, 7, 9)
    assert topic.read(partition=0).values == [b"y", b"z"]
    assert (topic.consumer("c").missed, topic.consumer("c").lag) == (5, 2)
    assert (topic.consumer("i").missed, topic.consumer("i").lag) == (6, 2)
    assert topic.consumer("new").missed == 0
    assert take(db, "c") == take(db, "i") == take(db, "new") == [b"y", b"z"]
    assert [topic.consumer(c).missed for c in ("c", "i", "new")] == [5, 6, 0]
    with pytest.raises(planstep.OffsetOutOfRange):
        topic.read(3, partition=0)
    with pytest.raises(planstep.OffsetOutOfRange):
        topic.trim(2, partition=0)
    topic.trim("latest")
    topic.write(b"next", partition=0)
    assert topic.read(partition=0).offsets == [(0, 9)]


def test_a_snapshot_from_before_says_so(db: planstep.Engine) -> None:
    fill(db, 4)
    with db.snapshot() as view:
        db.topic("a").trim(2, partition=0)
        assert view.bounds("a")[0] == (0, 4)
        with pytest.raises(planstep.SnapshotTooOld, match="trimmed"):
            view.read("a", 0, partition=0)
        assert view.read("a", 3, partition=0).values == [b"3"]


def test_trimming_in_steps(db: planstep.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.tablets.partition.TRIM_SLICES_MAX", 3)
    fill(db, 10)
    assert db.topic("a").trim(8, partition=0) == 8
    assert db.topic("a").describe().partitions[0] == (0, 8, 10)


# retention -----------------------------------------------------------------------------------


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def test_retention_by_age(db: planstep.Engine) -> None:
    topic = db.create_topic("r", retention=timedelta(hours=1))
    topic.write(b"old")
    maintenance = db._runtime.maintenance
    maintenance.run(now_ms() + 3_590_000)
    assert topic.describe().records == 1
    tx = db.transaction()
    assert tx.read("r", consumer="c").values == [b"old"]
    maintenance.run(now_ms() + 3_610_000)  # leaves records that a reader still needs
    assert topic.describe().records == 1
    tx.rollback()
    maintenance.run(now_ms() + 3_610_000)
    assert topic.describe().records == 0
    topic.alter(retention=None)
    topic.write(b"stays")
    maintenance.run(now_ms() + 10**10)
    assert topic.read().values == [b"stays"]


def test_retention_by_size(db: planstep.Engine) -> None:
    topic = db.create_topic("r", retention_bytes=10_000)
    for n in range(30):
        topic.write(bytes(1_000), key=str(n))
        if n % 7 == 0:
            db._runtime.maintenance.run()
    db._runtime.maintenance.run()
    held = topic.describe().records
    assert 9 <= held <= 10
    topic.alter(retention_bytes=5_000)
    db._runtime.maintenance.run()
    assert 4 <= topic.describe().records <= 5
    assert topic.describe().retention_bytes == 5_000


def test_retention_by_size_reads_an_entry_once(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = db.create_topic("r", retention_bytes=50_000)
    counted = trimmed = 0
    for node in db._runtime.nodes:

        def scan(*bounds: bytes, scan: Any = node.host.store.scan, **limit: int) -> Any:
            nonlocal counted
            rows = scan(*bounds, **limit)
            counted += len(rows) if bounds[0][4:5] == b"b" and not limit else 0
            return rows

        monkeypatch.setattr(node.host.store, "scan", scan)
    for n in range(200):
        topic.write(bytes(1_000))
        if n % 10 == 9:
            db._runtime.maintenance.run()
            assert topic.describe().records == min(n + 1 - trimmed, 49)
        if n == 150:
            topic.trim(trimmed := 130, partition=0)  # not what was due: all is read again
    assert 200 <= counted <= 300


@pytest.mark.parametrize("retention", [0, -1, True, "1h", float("nan")])
def test_what_is_no_retention(db: planstep.Engine, retention: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="retention"):
        db.create_topic("r", retention=retention)
    with pytest.raises((TypeError, ValueError), match="retention_bytes"):
        db.topic("a").alter(retention_bytes=retention)


# dropping ------------------------------------------------------------------------------------


def keys_left(db: planstep.Engine) -> int:
    """Returns the number of keys of partitions and shards."""
    return sum(
        len(node.host.store.scan(b"\x30\0\0\0", b"\x50\0\0\0")) for node in db._runtime.nodes
    )


def clean(db: planstep.Engine) -> None:
    deadline = time.monotonic() + 60
    while db._runtime.names.dropped:
        db._runtime.maintenance.run()
        time.sleep(0.001)
        assert time.monotonic() < deadline, "it never ended"


def test_a_dropped_name_is_free_at_once_and_its_space_comes_back(db: planstep.Engine) -> None:
    fill(db, 20)
    take(db, "c")
    db.table("t").put("k", 1)
    db.drop_topic("a")
    db.drop_table("t")
    with pytest.raises(planstep.UnknownName):
        db.topic("a")
    db.drop_topic("a", missing_ok=True)
    with pytest.raises(planstep.UnknownName):
        db.drop_table("t")
    db.create_topic("a", format="utf8").write("anew")
    assert db.tables() == {}
    clean(db)
    assert db.topic("a").read().values == ["anew"]
    db.drop_topic("a")
    clean(db)
    assert keys_left(db) == 0


def test_a_transaction_behind_the_drop_has_no_effect(db: planstep.Engine) -> None:
    fill(db, 3)
    tablets = {tablet.to_bytes(4, "big") for tablet in db._runtime.names.topics["a"].partitions}
    late = db.transaction()
    late.write("a", b"late", partition=0)
    late.write("a", b"late", partition=1)
    late.put("t", "k", "late")
    ahead = db.transaction()
    ahead.write("a", bytes(9 << 20), partition=0)
    reader = db.transaction()
    reader.read("a", consumer="c")
    db.drop_topic("a")
    for tx in (late, ahead, reader):
        with pytest.raises(planstep.Dropped, match="topic 'a' was dropped meanwhile"):
            tx.commit()
        assert tx.outcome().state in ("aborted", "refused")
    assert db.table("t").get("k") is None
    clean(db)
    assert not any(
        key[:4] in tablets
        for node in db._runtime.nodes
        for key, _ in node.host.store.scan(b"\x30\0\0\0", b"\x40\0\0\0")
    )


def test_a_snapshot_from_before_delays_the_cleaning(db: planstep.Engine) -> None:
    db.table("t").put("k", 1)
    with db.snapshot():
        db.drop_table("t")
        db._runtime.maintenance.run()
        assert keys_left(db) > 0
    clean(db)
    assert keys_left(db) == 0


def test_cleaning_goes_on_after_reopening(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("a")
        fill(db, 5)
        view = db.snapshot()
        db.drop_topic("a")
        view.close()
        db._runtime.names.dropped = {}  # no maintenance cleans here
    with planstep.open(tmp_path / "s") as db:
        clean(db)
        assert keys_left(db) == 0
        db.create_topic("a").write(b"x")


def test_dropped_twice_at_once(db: planstep.Engine) -> None:
    info = db._runtime.names.topics["a"]
    db.drop_topic("a")
    with pytest.raises(planstep.UnknownName):
        db._runtime.schema.drop(info)
    db.create_topic("a")
    with pytest.raises(planstep.UnknownName):
        db._runtime.schema.drop(info)  # of an older topic with that name
    db.topic("a").write(b"x")
