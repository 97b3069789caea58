"""Tests types of subscriptions in mode "pulsar": exclusive consumers, several batches of a reader in flight."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_kit import opened
from kit import nested

import planstep


@pytest.fixture
def db() -> Iterator[planstep.Engine]:
    with opened(hosts=3, placement="separate") as engine:
        topic = engine.create_topic("in", partitions=2, format="utf8")
        engine.create_topic("out", partitions=1, format="utf8")
        for n in range(20):
            topic.write(f"{n}", partition=n % 2)
        yield engine


def busy(error: pytest.ExceptionInfo[planstep.PulsarError]) -> bool:
    return (error.value.name, error.value.code, error.value.retryable) == ("ConsumerBusy", 5, False)


def test_an_exclusive_consumer_has_one_reader(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for again in (False, True):  # also after a restart
        with opened(path) as db:
            if not again:
                topic = db.create_topic("in", partitions=2, format="utf8")
                topic.create_consumer("c", exclusive=True)
            topic = db.topic("in")
            topic.write_batch(["a", "b"], partition=0)
            topic.create_consumer("c", exclusive=True, exist_ok=True)
            assert topic.consumer("c").exclusive
            with pytest.raises(planstep.AlreadyExists, match="cumulative and exclusive, not"):
                topic.create_consumer("c", exist_ok=True)
            with db.reader("in", "c", max_records=1) as reader:
                for read in (
                    lambda: db.reader("in", "c"),
                    lambda: db.process(print, "in", "c", workers=2),
                    lambda: db.transaction().read("in", "c"),
                ):
                    with pytest.raises(planstep.PulsarError, match="'in', consumer 'c'") as error:
                        read()
                    assert busy(error)
                tx, batch = reader.read() or pytest.fail("nothing to read")
                tx.commit()
                assert batch.values == ["a"]
            done = db.process(lambda tx, batch: None, "in", "c", workers=3, until_idle=True)
            assert (done.records, done.lag) == (1, 0)
            forgotten = db.reader("in", "c")
            del forgotten
            gc.collect()
            db.reader("in", "c").close()


def test_of_many_who_come_at_once_one_has_the_exclusive_consumer(db: planstep.Engine) -> None:
    db.topic("in").create_consumer("c", kind="individual", exclusive=True)
    barrier, ends = threading.Barrier(8), []

    def come() -> None:
        barrier.wait()
        try:
            ends.append(db.reader("in", "c"))
        except planstep.PulsarError as error:
            ends.append(error.name)

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends.count("ConsumerBusy") == 7


@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
def test_what_a_mode_does_not_have_is_named(mode: Any) -> None:
    with planstep.open(":memory:", mode=mode) as db:
        topic = db.create_topic("t")
        with pytest.raises(planstep.NotSupported, match=r'Key_Shared.*kind="individual"'):
            topic.create_consumer("c", kind="key_shared")  # type: ignore[arg-type]
        shown = r"kind=(a list that cannot be shown|\[+…): choose"  # by the limit of recursion
        with pytest.raises(ValueError, match=shown):
            topic.create_consumer("c", kind=nested(5_000))  # type: ignore[arg-type]
        if mode != "pulsar":
            with pytest.raises(planstep.NotSupported, match='mode "pulsar" has them'):
                topic.create_consumer("c", exclusive=True)
        assert topic.consumers() == {}


@pytest.mark.parametrize("kind, most", [("cumulative", 1), ("individual", 3)])
def test_a_reader_has_as_many_batches_in_flight_as_its_kind_allows(
    db: planstep.Engine, kind: Any, most: int
) -> None:
    db.topic("in").create_consumer("c", kind=kind)
    if most == 1:
        with pytest.raises(planstep.NotSupported, match="one transaction at a time"):
            db.reader("in", "c", in_flight=3)
        assert db.reader("in", "c").member.in_flight == 1
        return
    with db.reader("in", "c", max_records=1, in_flight=most) as reader:
        held = [reader.read() or pytest.fail("nothing to read") for _ in range(most)]
        places = {batch.offsets[0] for _, batch in held}
        assert len(places) == most and reader.in_flight == most
        for tx, batch in reversed(held):  # in any order: nobody waits for the one before
            tx.write("out", batch.values[0])
            tx.commit()
        for tx, batch in iter(reader.read, None):
            tx.write("out", batch.values[0])
            tx.submit()
    assert sorted(db.topic("out").read().values, key=int) == [f"{n}" for n in range(20)]


@pytest.mark.parametrize("workers, in_flight", [(1, 8), (3, 4)])
def test_workers_with_several_batches_in_flight_hand_nothing_out_twice(
    db: planstep.Engine, workers: int, in_flight: int
) -> None:
    """A batch that another reader of the group had acknowledged would conflict."""
    topic = db.topic("in")
    topic.create_consumer("c", kind="individual")
    topic.write_batch([f"{n}" for n in range(20, 320)], partition=0)

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.write_batch("out", batch.values)

    done = db.process(
        copy, "in", "c", workers=workers, in_flight=in_flight, max_records=2, until_idle=True
    )
    assert (done.records, done.conflicts, done.lag) == (320, 0, 0)
    assert sorted(db.topic("out").read().values, key=int) == [f"{n}" for n in range(320)]
