"""Tests what streams do about records, topics and stores that are gone, without a Spark."""

import os
import shutil
import threading
from collections.abc import Callable
from typing import Any

import pytest
from stream_kit import MODES, fill, values

import planstep
from planstep.errors import OffsetOutOfRange, UnknownName

Stream = Callable[..., Any]


@pytest.mark.parametrize("mode", MODES)
def test_a_trim_that_overtakes_is_an_error_or_counted(path: str, stream: Stream, mode: Any) -> None:
    fill(path, mode, partitions=1, count=4)
    query = stream(topic="t", maxOffsetsPerTrigger=1)
    query.trigger()
    with planstep.open(path) as db:
        for n in range(10, 14):
            db.topic("t").write(str(n))
        before = query.end()["topics"]["t"]["ends"]["0"]
        db.topic("t").trim({0: before + 3})
        with pytest.raises(OffsetOutOfRange, match=r"offsets \d+ to \d+ were trimmed.* 3 are lost"):
            query.trigger()
        query.options["failOnDataLoss"] = "false"
        query.options["maxOffsetsPerTrigger"] = 100
        query.restart()
        left = db.topic("t").read().values
        assert values(query.trigger()) == sorted(left)
        assert query.end()["topics"]["t"]["lost"] == {"0": 3}
        db.topic("t").write("z")
        query.trigger()
        assert query.end()["topics"]["t"]["lost"] == {"0": 3}  # it stays in the checkpoint


def test_a_trim_between_plan_and_task(db: planstep.Engine, stream: Stream) -> None:
    topic = db.create_topic("t", format="utf8")
    topic.write_batch(["a", "b", "c"])
    query = stream(topic="t")
    assert query.plan()
    topic.trim({0: 2})
    with pytest.raises(OffsetOutOfRange, match="failOnDataLoss"):
        query.read()
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert values(query.trigger()) == ["c"]


def test_a_topic_that_was_dropped_or_created_again(db: planstep.Engine, stream: Stream) -> None:
    db.create_topic("t", format="utf8").write("a")
    query = stream(topic="t")
    query.trigger()
    db.drop_topic("t")
    with pytest.raises(UnknownName, match="'t'"):
        query.trigger()
    db.create_topic("t", format="utf8").write_batch(["b", "c"])
    with pytest.raises(OffsetOutOfRange, match="dropped and created again"):
        query.trigger()
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert values(query.trigger()) == ["b", "c"]


def test_another_store_is_refused(path: str, stream: Stream) -> None:
    fill(path)
    query = stream(topic="t")
    query.trigger()
    os.rename(path, path + ".old")
    fill(path)
    with pytest.raises(OffsetOutOfRange, match=r"another one than the checkpoint.*was replaced"):
        query.trigger()


def test_an_older_copy_of_the_store_is_refused(path: str, stream: Stream) -> None:
    fill(path)
    shutil.copytree(path, path + ".old")
    with planstep.open(path) as db:
        db.topic("t").write("more", partition=0)
    query = stream(topic="t")
    query.trigger()
    shutil.rmtree(path)
    os.rename(path + ".old", path)
    with pytest.raises(OffsetOutOfRange, match="an older copy"):
        query.trigger()
    query.done = 0  # the batch is repeated
    with pytest.raises(OffsetOutOfRange, match="an older copy"):
        query.read()


def test_a_store_that_is_away_for_a_moment(path: str, stream: Stream) -> None:
    fill(path)
    query = stream(topic="t", wait=30, maxOffsetsPerTrigger=10)
    query.trigger()
    os.rename(path, path + ".away")
    back = threading.Timer(0.3, os.rename, (path + ".away", path))
    back.start()
    assert query.trigger().num_rows == 10
    back.join()
    os.rename(path, path + ".away")
    query.options["wait"] = 0
    with pytest.raises(FileNotFoundError, match="no store at"):
        query.restart()
