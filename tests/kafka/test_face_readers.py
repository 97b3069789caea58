"""Tests readers in mode "kafka": members of a group, with one transaction at a time each."""

import pytest
from face_kit import open_store, until
from kit import lease

import planstep


def test_who_has_open_readers_is_not_moved(db: planstep.Engine) -> None:
    topic = db.topic("in")
    topic.write_batch(["a", "b", "c"], partition=0)
    reader = db.reader("in", consumer="c", max_records=2)
    leased = lease(reader, 10)
    for name in ("in", "out"):  # a group is one for all topics
        with pytest.raises(planstep.KafkaError, match=r"open readers.*close them") as caught:
            db.topic(name).seek("c", "latest")
        assert caught.value.name == "UNKNOWN_MEMBER_ID" and not caught.value.retryable
    leased.tx.commit()
    until(lambda: topic.position("c")[0] == 2)
    with pytest.raises(planstep.KafkaError, match="close them first"):
        topic.drop_consumer("c")
    assert topic.position("c")[0] == 2
    with pytest.raises(planstep.KafkaError, match="close them first"):
        db.topic("out").create_consumer("c", start="latest")
    assert "c" not in db.topic("out").consumers()
    reader.close()
    assert until(lambda: _seek(topic)) == {0: 3, 1: 0}
    topic.drop_consumer("c")
    assert list(topic.consumers()) == []


def _seek(topic: planstep.Topic) -> dict[int, int]:
    """Seeks to the end, unless the group still has members: a closed reader does not wait for its leave."""
    try:
        return topic.seek("c", "latest")
    except planstep.KafkaError:
        return {}


def test_a_dropped_consumer_is_forgotten_whole_or_not_at_all(db: planstep.Engine) -> None:
    topic = db.topic("in")
    topic.write("a", partition=0)
    topic.create_consumer("c", start="latest")
    with db.reader("in", consumer="c"):
        with pytest.raises(planstep.KafkaError, match="close them first"):
            topic.drop_consumer("c")
        with pytest.raises(planstep.AlreadyExists):
            topic.create_consumer("c")
    assert topic.position("c") == {0: 1, 1: 0}


def test_a_reader_has_one_batch_at_a_time() -> None:
    with open_store() as db:
        db.create_topic("in").write_batch([b"1", b"2"])
        with pytest.raises(planstep.NotSupported, match=r"in_flight=3.*more readers"):
            db.reader("in", consumer="c", in_flight=3)
        with db.reader("in", consumer="c", max_records=1, in_flight=1) as reader:
            held = lease(reader, 10)
            reader.group._clock = lambda: reader.member.active_at + 31.0
            with pytest.raises(planstep.LeaseLost, match="goes to another"):
                held.tx.commit()
        done = db.process(lambda tx, batch: None, "in", "c", in_flight=4, until_idle=True)
        assert done.records == 2


async def test_nor_has_one_of_asyncio() -> None:
    async with planstep.open_async(":memory:", mode="kafka") as db:
        await db.create_topic("in")
        with pytest.raises(planstep.NotSupported, match="in_flight=3"):
            db.reader("in", consumer="c", in_flight=3)
        async with db.reader("in", consumer="c", in_flight=1):
            pass
