"""Tests the buffered writer: numbers, repeats, restarts."""

import threading
from pathlib import Path
from typing import Any

import pytest
from kit import until

import planstep
from planstep.proto.ids import tablet_prefix


def test_buffered_records_leave_together(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    with topic.writer(linger_records=10) as writer:
        for i in range(9):
            writer.write(b"%d" % i, key="k")
        assert writer.buffered == 9 and topic.describe().records == 0
        writer.write(b"9", key="k", headers={"last": b"yes"})
        assert writer.buffered == 0 and topic.describe().records == 10
        writer.write(b"10", key="k")
    batch = topic.read()
    assert batch.values == [b"%d" % i for i in range(11)]
    assert batch.headers[9] == {"last": b"yes"}
    with pytest.raises(planstep.TransactionClosed):
        writer.write(b"x")
    by_bytes = topic.writer(linger_bytes=100)
    by_bytes.write(b"x" * 100)
    assert by_bytes.buffered == 0 and by_bytes.flush() is None


def test_numbered_records_without_key_repeat_into_the_same_partition(
    shop: planstep.Engine,
) -> None:
    for linger in (1, 5, 100):
        with shop.topic("clicks").writer(producer="file", linger_records=linger) as writer:
            for number in range(10):
                writer.write(b"%d" % number, sequence=number)
    batch = shop.topic("clicks").read()
    assert sorted(batch.values) == [b"%d" % i for i in range(10)]
    assert all(int(r.value) % 4 == r.partition for r in batch)


def test_without_dedupe_a_repeat_is_a_conflict(shop: planstep.Engine) -> None:
    one = shop.topic("clicks").writer(producer="p", dedupe=False)
    two = shop.topic("clicks").writer(producer="p", dedupe=False)
    one.write(b"1", partition=0)
    two.write(b"2", partition=0)
    one.flush()
    with pytest.raises(planstep.Conflict) as caught:
        two.flush()
    assert caught.value.producer == b"p" and two.buffered == 1
    with pytest.raises(planstep.Conflict, match=r"published before.*dedupe=True") as caught:
        for _ in range(2):
            with shop.topic("clicks").writer(producer="numbered", dedupe=False) as writer:
                writer.write(b"1", partition=0, sequence=7)
    assert not caught.value.retryable and "again" not in str(caught.value)
    with pytest.raises(ValueError, match="open another"):
        two.write(b"3", partition=0, sequence=9)
    numbered = shop.topic("clicks").writer(producer="q")
    numbered.write(b"1", partition=0, sequence=1)
    with pytest.raises(ValueError, match="does not rise"):
        numbered.write(b"3", partition=0, sequence=0)
    with pytest.raises(ValueError, match="open another"):
        numbered.write(b"3", partition=0)


def test_settings_are_checked(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    for settings in ({"producer": ""}, {"producer": b"x" * 201}, {"linger_records": 0}):
        with pytest.raises(ValueError):
            topic.writer(**settings)
    writer = topic.writer()
    with pytest.raises(ValueError, match="sequence"):
        writer.write(b"x", sequence=-1)
    with pytest.raises(TypeError):
        writer.write("text")
    assert writer.buffered == 0


def test_a_repeat_does_not_pull_the_numbers_back(shop: planstep.Engine) -> None:
    """The next writer continues after the highest number, also after a repeat of older ones."""
    with shop.topic("clicks").writer("p") as writer:
        assert writer.write(b"a", partition=0, sequence=10) == 10
    with shop.topic("clicks").writer("p") as writer:
        writer.write(b"old", partition=0, sequence=5)  # a repeat is skipped
        writer.flush()
        with pytest.raises(ValueError, match="open another"):
            writer.write(b"b", partition=0)
    with shop.topic("clicks").writer("p") as writer:
        assert writer.write(b"b", partition=0) == 11
    assert shop.topic("clicks").read().values == [b"a", b"b"]


def test_numbers_come_to_an_end(shop: planstep.Engine) -> None:
    with shop.topic("clicks").writer("p") as writer:
        writer.write(b"a", partition=0, sequence=2**63 - 1)
        with pytest.raises(ValueError, match="at most"):
            writer.write(b"b", partition=0, sequence=2**63)
    with pytest.raises(ValueError, match="another name"):
        shop.topic("clicks").writer("p").write(b"b", partition=0)
    assert shop.topic("clicks").read().values == [b"a"]


@pytest.mark.parametrize("hosts", [1, 3])
def test_what_lingers_is_published_in_time(hosts: int) -> None:
    with planstep.open(":memory:", hosts=hosts) as db:
        topic = db.create_topic("t", partitions=2)
        writer = topic.writer(linger=0.01)
        for i in range(3):
            writer.write(b"%d" % i)
        until(lambda: topic.describe().records == 3 and not writer.buffered)
        writer.write(b"3")
        until(lambda: topic.describe().records == 4)
        long = topic.writer(linger=3600)
        long.write(b"at the end")
        assert topic.describe().records == 4
        at_once = topic.writer(linger=0)
        at_once.write(b"now")
        assert topic.describe().records == 5 and not at_once.buffered
        forgotten = topic.writer(linger=0.01)
        forgotten.write(b"lost")
        del forgotten
    assert not [t for t in threading.enumerate() if t.name == "planstep-linger"]


def test_what_lingers_is_published_when_the_engine_is_closed(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        writer = db.create_topic("t").writer(linger=3600)
        writer.write(b"x")
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("t").read().values == [b"x"]


def test_a_flush_that_fails_in_the_background_is_told_and_tried_again(
    shop: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.api.topics.writer._AGAIN_SECONDS", 0.01)
    runtime = shop._runtime
    commit = runtime.transactions.commit
    failures = [planstep.Overloaded("made to fail") for _ in range(2)]

    def fail(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return commit(*args)

    monkeypatch.setattr(runtime.transactions, "commit", fail)
    topic = shop.topic("clicks")
    writer = topic.writer(linger=0.001)
    writer.write(b"x")
    until(lambda: topic.describe().records == 1)
    assert writer.write(b"y", partition=0) is not None
    writer.close()
    failures.append(planstep.Overloaded("made to fail"))
    other = topic.writer(linger=0.001, producer="p")
    monkeypatch.setattr("planstep.api.topics.writer._AGAIN_SECONDS", 3600)
    other.write(b"z")
    until(lambda: not failures)
    with pytest.raises(planstep.Overloaded) as caught:
        until(lambda: other.write(b"w") < 0)
    assert "keeps the records" in caught.value.__notes__[0] and other.buffered >= 1
    other.close()


def test_a_partitioner_says_where(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    with topic.writer(partitioner=lambda key, count: int(key) % count) as writer:
        for i in range(8):
            writer.write(b"v", key=str(i))
    assert [(r.partition, int(r.key) % 4) for r in topic.read()] == [
        (p, p) for p in (0, 0, 1, 1, 2, 2, 3, 3)
    ]
    with topic.writer(partitioner=lambda key, count: count) as writer:
        with pytest.raises(ValueError, match="partitions 0 to 3"):
            writer.write(b"v")
    with pytest.raises(TypeError):
        topic.writer(partitioner=3)


def test_a_batch_may_name_each_records_partition(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    topic.write_batch([b"a", b"b", b"c"], partition=[3, 1, 3], headers=[{"h": b"1"}, None, None])
    topic.write_batch([b"d", b"e"], keys=["x", None], partition=(0, 1))
    records = [(r.partition, r.value, r.key) for r in topic.read()]
    assert records == [
        (0, b"d", b"x"),
        (1, b"b", None),
        (1, b"e", None),
        (3, b"a", None),
        (3, b"c", None),
    ]
    for wrong in ([0], [0, 9], [0, "1"], [True, 0]):
        with pytest.raises((ValueError, TypeError)):
            topic.write_batch([b"a", b"b"], partition=wrong)


def test_writers_without_a_name_leave_little_behind(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        topic = db.create_topic("t")
        for i in range(30):
            with topic.writer() as one:
                one.write(b"%d" % i)
            if i % 10 == 0:
                two, three = topic.writer(), topic.writer()
                assert two.producer != three.producer
                for writer in (two, three):
                    writer.close()
        with pytest.raises(KeyError), topic.writer() as failed:
            failed.write(b"lost")
            raise KeyError
        with topic.writer() as other:
            assert other.producer != failed.producer
        (tablet,) = db.context.topic("t").partitions
        at = tablet_prefix(tablet) + b"p"
        assert len(db._runtime.nodes[0].host.store.scan(at, at + b"\xff" * 20)) <= 3
        assert topic.read().values == [b"%d" % i for i in range(30)]


def test_a_number_that_comes_late_is_refused_not_dropped(shop: planstep.Engine) -> None:
    topic = shop.topic("clicks")
    writer = topic.writer("p")
    writer.write(b"5", partition=0, sequence=5)
    writer.flush()
    for late in (4, 5):
        with pytest.raises(planstep.SequenceError, match="open another writer"):
            writer.write(b"late", partition=0, sequence=late)
    writer.write(b"other", partition=1, sequence=4)
    writer.write(b"6", partition=0, sequence=6)
    writer.close()
    assert topic.read().values == [b"5", b"6", b"other"]
    with topic.writer("p") as writer:  # the input from its start
        for number in (4, 5, 6, 7):
            writer.write(b"%d" % number, partition=0, sequence=number)
    assert topic.read(partition=0).values == [b"5", b"6", b"7"]


def test_a_record_that_was_not_taken_keeps_its_number(
    shop: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = shop.topic("clicks").writer("p", linger_records=2)
    writer.write(b"1", partition=0, sequence=1)
    with monkeypatch.context() as patch:
        patch.setattr(shop._runtime.transactions, "commit", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.write(b"9", partition=0, sequence=9)
    writer.write(b"9", partition=0, sequence=9)
    assert shop.topic("clicks").read().values == [b"1", b"9"]
