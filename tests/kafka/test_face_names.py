"""Tests consumers, positions, drops and unsupported calls of mode "kafka" through the face."""

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from face_kit import begin_with, commits, in_the_log, new_store, open_store, sees, until, values

import planstep
from planstep import KafkaSettings, NotSupported
from planstep.proto.ids import host_of, tablet_prefix

# names, positions, drops -------------------------------------------------------------------------


def test_consumers_are_created_moved_and_dropped(db: planstep.Engine) -> None:
    topic = db.topic("in")
    topic.write_batch(["a", "b", "c"], partition=0)
    topic.create_consumer("late", start="latest")
    assert topic.position("late") == {0: 3, 1: 0} and topic.lag("late") == 0
    with db.transaction(worker="w") as tx:
        assert tx.read("in", "c", max_records=2).values == ["a", "b"]
    until(lambda: topic.position("c")[0] == 2)
    assert topic.lag("c") == 1
    assert list(topic.consumers()) == ["c", "late"]
    topic.seek("c", {0: 1})
    with db.transaction(worker="w") as tx:  # its consumer had another position in memory
        assert tx.read("in", "c").values == ["b", "c"]
    until(lambda: topic.lag("c") == 0)
    topic.drop_consumer("c")
    assert list(topic.consumers()) == ["late"]
    assert topic.lag("c") == 3
    with pytest.raises(NotSupported, match="individual"):
        topic.create_consumer("i", kind="individual")


def test_a_consumer_begins_at_a_time(db: planstep.Engine) -> None:
    topic = db.topic("in")
    topic.write("a", partition=0)
    commits(db, "b", "in")
    sees(db, "in", "a", "b")
    begin_with(db, "never", "in").rollback()
    time.sleep(0.002)
    then = datetime.now()
    topic.write("c", partition=0)
    until(lambda: values(db, "in") == ["a", "b", "c"])
    at = topic.seek("c", then)
    assert topic.read(at, partition=None).values == ["c"]
    assert topic.seek("c", datetime.fromtimestamp(0)) == {0: 0, 1: 0}
    topic.seek("c", datetime.now() + timedelta(seconds=1))
    assert topic.lag("c") == 0


def test_what_is_trimmed_is_gone_and_consumers_go_on_behind(db: planstep.Engine) -> None:
    topic = db.topic("in")
    topic.write_batch(["a", "b", "c"], partition=0)
    assert topic.trim({0: 2}) == 2
    assert values(db, "in") == ["c"]
    with db.transaction() as tx:
        assert tx.read("in", "c").values == ["c"]


def test_an_open_transaction_keeps_its_records_from_trimming(db: planstep.Engine) -> None:
    topic = db.topic("in")
    topic.write("a", partition=0)
    tx = begin_with(db, "b", "in")
    topic.write("c", partition=0)
    assert topic.trim("latest", partition=0) == 1
    tx.commit()
    sees(db, "in", "b", "c")


def test_retention_goes_up_to_the_first_open_transaction(db: planstep.Engine) -> None:
    topic = db.topic("in")
    for value in "ab":
        topic.write(value, partition=0)
    tx = begin_with(db, "c", "in")
    topic.write("d", partition=0)
    maintenance = db._runtime.maintenance
    run, maintenance.run = maintenance.run, lambda now_ms=None: None  # only the test
    topic.alter(retention_bytes=1)
    run()
    assert topic.describe().partitions[0].start == 1
    tx.commit()


def test_retention_by_time_goes_past_markers(db: planstep.Engine) -> None:
    commits(db, "a", "in")
    sees(db, "in", "a")
    db.topic("in").trim({0: 1})
    time.sleep(0.003)
    db.topic("in").alter(retention=0.001)
    db._runtime.maintenance.run()
    assert values(db, "in") == []


def test_idle_producers_are_forgotten_also_by_a_clock_that_was_set_back(
    db: planstep.Engine,
) -> None:
    runtime = db._runtime
    runtime.maintenance.run = lambda now_ms=None: None
    tablet = runtime.names.topics["in"].partitions[0]
    store, prefix = runtime.nodes[host_of(tablet)].host.store, tablet_prefix(tablet)

    def known() -> int:
        return len(store.scan(prefix + b"p", prefix + b"q"))

    now_ms, day_ms = time.time_ns() // 1_000_000, 24 * 3600 * 1000
    for days in (3650, 2):
        db.topic("in").write("a", partition=0)
        assert known() == 1
        runtime.hooks.tidy(now_ms + days * day_ms)
        assert known() == 0, days


def test_altered_and_dropped_topics(db: planstep.Engine) -> None:
    """A transaction that has written to a dropped topic commits without those records, as in Kafka."""
    db.topic("in").alter(retention=3600)
    assert db.topic("in").describe().retention == 3600
    tx = begin_with(db, "a", "in")
    tx.write("out", "a")
    in_the_log(db, tx)
    db.drop_topic("out")
    tx.commit()
    sees(db, "in", "a")
    with pytest.raises(planstep.UnknownName):
        db.topic("out").read()
    db.create_topic("out", format="utf8")
    db.topic("out").write("b")
    assert values(db, "out") == ["b"]


def test_a_drop_that_a_crash_cut_short_is_brought_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_store(tmp_path / "s") as db:
        db.topic("out").write_batch(["a"] * 10)
        db._runtime.maintenance.run = lambda now_ms=None: None
        with monkeypatch.context() as patch:
            patch.setattr(db._runtime.schema, "tell_dropped", lambda tablet: None)
            db.drop_topic("out")
    with open_store(tmp_path / "s") as db:
        db._runtime.maintenance.wake()
        until(lambda: not db._runtime.names.dropped)
        store = db._runtime.nodes[0].host.store
        assert not [key for key, _ in store.scan(b"", b"\xff" * 5) if key[4:5] in (b"b", b"m")]
        assert values(db, "in") == []


# unsupported calls -------------------------------------------------------------------------------


def test_what_is_not_there_says_so(db: planstep.Engine) -> None:
    for refused in (
        lambda: db.create_table("t"),
        lambda: db.table("t").get("k"),
        lambda: db.table("t").put("k", 1),
        lambda: db.transaction().get("t", "k"),
        lambda: db.transaction().put("t", "k", 1),
        lambda: db.transaction().scan("t"),
    ):
        with pytest.raises(NotSupported, match=r'mode "kafka" has no tables.*db\.changelog'):
            refused()
    with pytest.raises(NotSupported, match=r'mode "kafka" has no snapshots'):
        db.snapshot()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("protocol_version", 3),
        ("protocol_version", "1"),
        ("isolation", "serializable"),
        ("transaction_timeout_ms", 0),
        ("transaction_timeout_ms", 1.5),
        ("transaction_timeout_ms", True),
        ("transaction_timeout_ms", "60000"),
        ("linger_ms", -1),
        ("max_in_flight", 0),
        ("batch_bytes", None),
        ("log_batching", 1),
        ("log_batch_records", 1),
        ("log_batch_delay_ms", 0),
        ("log_batch_delay_ms", float("nan")),
        ("max_block_ms", 1 << 53),
        ("linger_ms", 3_155_760_000_001),
    ],
)
def test_settings_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        planstep.open(":memory:", mode="kafka", kafka=KafkaSettings(**{name: value}))


def test_a_time_out_beyond_the_coordinators_most_is_refused_at_once() -> None:
    with new_store(transaction_timeout_ms=2_000, transaction_max_timeout_ms=1_000) as db:
        tx = db.transaction()
        tx.write("out", "a")
        with pytest.raises(planstep.KafkaError, match="INVALID_TRANSACTION_TIMEOUT"):
            tx.commit()


# markers and damage ------------------------------------------------------------------------------


def test_columns_of_a_topic_with_markers(db: planstep.Engine) -> None:
    pytest.importorskip("pyarrow")
    for value in "abc":
        commits(db, value)
    sees(db, "out", "a", "b", "c")
    assert db.topic("out").to_arrow()["value"].to_pylist() == ["a", "b", "c"]


def test_a_damaged_record_is_corruption(tmp_path: Path) -> None:
    with new_store(tmp_path / "s", 1) as db:
        db.topic("out").write("x" * 2000)
    for file in (tmp_path / "s" / "host-0").rglob("*"):
        at = file.read_bytes().find(b"x" * 2000) if file.is_file() else -1
        if at >= 0:
            with file.open("r+b") as out:
                out.seek(at + 1000)
                out.write(b"z")
    with open_store(tmp_path / "s") as db, pytest.raises(planstep.Corruption):
        db.topic("out").read()


# names of workers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [1, b"x", "\ud800", "x" * 201, "pool-1"])
def test_what_is_no_name_of_a_worker_is_refused_before_anything_is_done(name: Any) -> None:
    with new_store() as db:
        calls = [
            lambda: db.transaction(worker=name),
            lambda: db.run(lambda tx: tx.write("out", "a"), worker=name),
            lambda: db.process(lambda tx, batch: None, "in", "c", until_idle=True, worker=name),
            lambda: db.reader("in", "c", name=name),
        ]
        for call in calls * 2:
            with pytest.raises((TypeError, ValueError), match="name"):
                if isinstance(result := call(), planstep.Transaction):
                    result.write("out", "a")
        assert not db.context.groups and not db._runtime.hooks.writing.open
