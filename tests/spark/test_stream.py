"""Tests streams of topics, without a Spark."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from stream_kit import MODES, fill, values

import planstep
from planstep.errors import NotSupported, OffsetOutOfRange, UnknownName

Stream = Callable[..., Any]


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_reads_each_record_once(path: str, stream: Stream, mode: Any) -> None:
    with planstep.open(path, mode=mode) as db:
        topic = db.create_topic("t", partitions=2, format="utf8")
        topic.write_batch(["a", "b", "c"], keys=["1", "2", "3"])
        query = stream(topic="t")
        assert values(query.trigger()) == ["a", "b", "c"]
        assert query.trigger() is None
        topic.write("d", key="1")
        assert values(query.trigger()) == ["d"]
        query.restart()
        assert query.trigger() is None
        topic.write("e")
        assert values(query.trigger()) == ["e"]


def test_an_idle_stream_opens_nothing(db: planstep.Engine, stream: Stream, path: str) -> None:
    db.create_topic("t", format="utf8").write("a")
    query = stream(topic="t")
    query.trigger()
    folder = Path(path, "host-0", "leases")
    before = folder.stat().st_mtime_ns
    assert not os.listdir(folder)  # no lease keeps the owner from trimming
    assert query.trigger() is None
    assert folder.stat().st_mtime_ns == before
    db.topic("t").write("b")
    assert values(query.trigger()) == ["b"]
    assert folder.stat().st_mtime_ns > before


@pytest.mark.parametrize("mode", MODES)
def test_limits_of_a_batch(path: str, stream: Stream, mode: Any) -> None:
    fill(path, mode)
    query = stream(topic="t", maxOffsetsPerTrigger=6)
    batches = query.available_now()
    assert [values(b) for b in batches if b.num_rows] == [
        [f"{n:02}" for n in range(a, min(20, a + 6))] for a in range(0, 20, 6)
    ] or mode != "deterministic"
    assert max(b.num_rows for b in batches) <= 6  # in modes with markers these count, too
    assert sorted(v for b in batches for v in values(b)) == [f"{n:02}" for n in range(20)]
    if mode != "deterministic":  # each partition gives its share
        assert set(batches[0]["partition"].to_pylist()) == {0, 1}


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_in_bytes(path: str, stream: Stream, mode: Any) -> None:
    fill(path, mode)
    whole = stream(topic="t").available_now()
    assert [b.num_rows for b in whole] == [20]
    small = stream(topic="t", maxBytesPerTrigger=1).available_now()
    assert len(small) >= 10  # at least one step or one record
    assert sum(b.num_rows for b in small) == 20
    both = stream(topic="t", maxBytesPerTrigger=1, maxOffsetsPerTrigger=100).available_now()
    assert [b.num_rows for b in both] == [b.num_rows for b in small]


def test_a_large_transaction_stays_whole(db: planstep.Engine, stream: Stream) -> None:
    db.create_topic("t", partitions=3, format="utf8")
    for number in range(3):
        with db.transaction() as tx:
            for partition in range(3):
                tx.write_batch("t", [str(number)] * 5, partition=partition)
    batches = stream(topic="t", maxOffsetsPerTrigger=16).available_now()
    assert [values(b) for b in batches] == [["0"] * 15, ["1"] * 15, ["2"] * 15]


def test_a_trigger_once_takes_all(db: planstep.Engine, stream: Stream) -> None:
    """Spark then asks for all that there is, whatever the options say."""
    db.create_topic("t", format="utf8").write_batch(["a", "b", "c"])
    query = stream(topic="t", maxOffsetsPerTrigger=1)
    end = query.ask("latestOffset", query.start(), '{"_type": "ReadAllAvailable"}')
    query.offsets.append(end)
    assert values(query.trigger()) == ["a", "b", "c"]


def test_the_progress_has_the_ends_of_the_logs(db: planstep.Engine, stream: Stream) -> None:
    topic = db.create_topic("t", format="utf8")
    topic.write_batch(["a", "b", "c"])
    query = stream(topic="t", maxOffsetsPerTrigger=1)
    assert query.ask("reportLatestOffset") == "null"
    query.plan()
    assert json.loads(query.ask("reportLatestOffset"))["topics"]["t"]["ends"] == {"0": 3}


def test_available_now_ends_at_its_beginning(db: planstep.Engine, stream: Stream) -> None:
    topic = db.create_topic("t", format="utf8")
    topic.write_batch(["a", "b", "c"])
    query = stream(topic="t", maxOffsetsPerTrigger=2)
    query.ask("prepareForTriggerAvailableNow")
    topic.write("later")
    got = []
    while (table := query.trigger()) is not None:
        got += values(table)
    assert got == ["a", "b", "c"]
    query.restart()
    assert [values(b) for b in query.available_now()] == [["later"]]


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, ["0", "1", "2", "3", "4"]),
        ({"startingOffset": "earliest"}, ["0", "1", "2", "3", "4"]),
        ({"startingOffset": "latest"}, []),
        ({"startingOffset": 3}, ["3", "4"]),
        ({"startingOffset": '{"0": 4}'}, ["4"]),
        ({"startingStep": "here"}, ["2", "3", "4"]),
        ({"startingTimestamp": "2001-01-01T00:00:00+00:00"}, ["0", "1", "2", "3", "4"]),
        ({"startingTimestamp": "9000000000000"}, []),
    ],
)
def test_where_a_stream_begins(
    db: planstep.Engine, stream: Stream, options: dict[str, Any], wanted: list[str]
) -> None:
    topic = db.create_topic("t", format="utf8")
    steps = [topic.write(str(n)).place.step for n in range(5)]
    if "startingStep" in options:
        options = {"startingStep": steps[2]}
    query = stream(topic="t", **options)
    assert values(query.trigger()) == wanted
    topic.write("new")
    assert values(query.trigger()) == ["new"]


def test_the_first_batch_is_repeated_from_where_it_began(
    db: planstep.Engine, stream: Stream
) -> None:
    """Spark asks for the first position again, and "latest" has moved by then."""
    topic = db.create_topic("t", format="utf8")
    topic.write("before")
    query = stream(topic="t", startingOffset="latest")
    query.start()
    topic.write("a")
    assert query.plan()
    assert values(query.read()) == ["a"]
    topic.write("b")
    query.restart()
    assert values(query.trigger()) == ["a"]
    assert values(query.trigger()) == ["b"]


def test_the_first_position_is_kept_without_records(db: planstep.Engine, stream: Stream) -> None:
    topic = db.create_topic("t", format="utf8")
    query = stream(topic="t", startingOffset="latest")
    assert query.trigger().num_rows == 0  # an empty batch, for the checkpoint
    assert query.trigger() is None
    topic.write("while it was stopped")
    query.restart()
    assert values(query.trigger()) == ["while it was stopped"]


# several topics ----------------------------------------------------------------------------


def test_topics_that_are_created_later(db: planstep.Engine, stream: Stream) -> None:
    db.create_topic("in-a", partitions=2, format="utf8").write("a")
    db.create_topic("other", format="utf8").write("no")
    query = stream(topicPattern="in-.*")
    assert query.schema.names[0] == "topic"
    table = query.trigger()
    assert table.select(["topic", "value"]).to_pylist() == [{"topic": "in-a", "value": "a"}]
    with db.transaction() as tx:
        tx.write("in-a", "a2")
    db.create_topic("in-b", format="utf8").write("b")
    table = query.trigger()
    assert sorted(zip(table["topic"].to_pylist(), table["value"].to_pylist(), strict=True)) == [
        ("in-a", "a2"),
        ("in-b", "b"),
    ]
    query.restart()
    assert query.trigger() is None
    db.drop_topic("in-a")
    with pytest.raises(OffsetOutOfRange, match="topic 'in-a' of the checkpoint was dropped"):
        query.trigger()
    query.options["failOnDataLoss"] = "false"
    query.restart()
    db.topic("in-b").write("b2")
    assert values(query.trigger()) == ["b2"]


def test_a_pattern_that_matches_nothing_yet(db: planstep.Engine, stream: Stream) -> None:
    with pytest.raises(ValueError, match=r"no records yet.*declare them"):
        stream(topicPattern="in-.*")
    schema = StructType([StructField("topic", StringType()), StructField("value", StringType())])
    query = stream(schema, topicPattern="in-.*")
    query.trigger()
    db.create_topic("in-a", format="utf8").write("a")
    assert query.trigger().to_pylist() == [{"topic": "in-a", "value": "a"}]


def test_the_topic_of_fences_is_no_match(path: str, stream: Stream, write: Any) -> None:
    with planstep.open(path, mode="kafka") as db:
        db.create_topic("t", format="utf8")
    write(pa.table({"value": ["a"]}), topic="t", queryId="q", batchId=0)
    with planstep.open(path) as db:
        assert len(db.topics()) == 2
    query = stream(topicPattern=".*")
    assert set(query.trigger()["topic"].to_pylist()) == {"t"}


def test_another_topic_needs_another_checkpoint(db: planstep.Engine, stream: Stream) -> None:
    for name in ("a", "b"):
        db.create_topic(name, format="utf8").write(name)
    query = stream(topic="a")
    query.trigger()
    query.options["topic"] = "b"
    query.restart()
    with pytest.raises(OffsetOutOfRange, match=r"topic 'a' of the checkpoint.*not one of this"):
        query.trigger()


def test_topics_of_several_formats(db: planstep.Engine, stream: Stream) -> None:
    db.create_topic("in-a", format="utf8")
    db.create_topic("in-b", format="json")
    with pytest.raises(ValueError, match="the formats json, utf8"):
        stream(topicPattern="in-.*")


def test_starts_by_topic(db: planstep.Engine, stream: Stream) -> None:
    for name in ("in-a", "in-b"):
        db.create_topic(name, format="utf8").write_batch(["0", "1", "2"])
    query = stream(topicPattern="in-.*", startingOffset='{"in-a": {"0": 2}}')
    table = query.trigger()
    assert table.filter(table["topic"].to_numpy(zero_copy_only=False) == "in-a").num_rows == 1
    assert table.num_rows == 4


# refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"table": "t", "failOnDataLoss": "true"}, NotSupported, "a table is no stream"),
        (
            {"topic": "t", "endingOffset": 3, "wait": 1},
            ValueError,
            "endingOffset does not apply to a stream",
        ),
        (
            {"topic": "t", "asOfStep": 3, "wait": 1},
            ValueError,
            "step does not apply to a stream",
        ),
        ({"topic": "t", "topicPattern": "t"}, ValueError, "name one of both"),
        ({"topicPattern": "("}, ValueError, "a regular expression"),
        ({"topicPattern": "t", "partitions": "0"}, ValueError, "partitions applies to one topic"),
        ({"topic": "t", "maxOffsetsPerTrigger": 0}, ValueError, "a whole number, 1 or more"),
        ({"topic": "t", "maxOffsetPerTrigger": 1}, ValueError, "mean maxOffsetsPerTrigger"),
        ({"topic": "t", "startingStep": 1, "startingOffset": 1}, ValueError, "give one of"),
        ({"topic": "t", "startingTimestamp": "2026-01-01"}, ValueError, "a time with its zone"),
        ({"topic": "t", "startingOffset": 99}, OffsetOutOfRange, "outside the log"),
        ({"topic": "t", "partitions": "7"}, ValueError, "has partitions 0 to 0"),
        ({"topic": "none"}, UnknownName, "none"),
        ({"topic": "t", "startingOffset": '{"0": 1, "0": 0}'}, ValueError, "each partition once"),
    ],
)
def test_what_is_refused(
    db: planstep.Engine, stream: Stream, options: dict[str, Any], error: Any, message: str
) -> None:
    db.create_topic("t", format="utf8").write("a")
    with pytest.raises(error, match=message):
        stream(**options).trigger()


@pytest.mark.parametrize("mode", MODES)
def test_errors_are_spoken_plainly_with_a_schema_of_the_users(
    path: str, stream: Stream, read: Any, mode: Any
) -> None:
    """Spark would turn an error of the pickling, which takes a load's picture, into its own."""
    fill(path, mode)
    schema = StructType([StructField("value", StringType())])
    refused: list[tuple[dict[str, Any], Any, str]] = [
        ({"topic": "t", "startingOffset": 999}, OffsetOutOfRange, "startingOffset 999 is outside"),
        ({"topic": "none"}, UnknownName, "none"),
        ({"table": "none"}, NotSupported, "a table is no stream"),
        ({"topic": "t", "step": 1}, ValueError, "step does not apply to a stream"),
    ]
    if mode != "deterministic":
        refused.append(({"topic": "t", "startingStep": 1}, NotSupported, "leave startingStep out"))
    for options, error, message in refused:
        query = stream(schema, **options)
        with pytest.raises(error, match=message):
            query.trigger()
    with pytest.raises(UnknownName, match="none"):
        read(schema, topic="none")


def test_options_of_streams_are_refused_in_loads(db: planstep.Engine, read: Any) -> None:
    db.create_topic("t", format="utf8").write("a")
    with pytest.raises(NotSupported, match=r"spark\.readStream"):
        read(topic="t", failOnDataLoss="false")
    with pytest.raises(NotSupported, match=r"or leave out failOnDataLoss, wait$"):
        read(topic="t", failOnDataLoss="false", startingOffset="latest", wait=1)
    with pytest.raises(NotSupported, match=r"latest is for streams.*startingOffset a number$"):
        read(topic="t", startingOffset="latest")


def test_no_type_is_inferred_without_records(db: planstep.Engine, stream: Stream) -> None:
    db.create_topic("t", format="json")
    with pytest.raises(ValueError, match="no records yet"):
        stream(topic="t", failOnDataLoss="true")
    schema = StructType([StructField("value", StructType([StructField("n", LongType())]))])
    query = stream(schema, topic="t")
    query.trigger()
    db.topic("t").write({"n": 1})
    assert query.trigger().to_pylist() == [{"value": {"n": 1}}]


def test_a_foreign_checkpoint_is_refused(db: planstep.Engine, stream: Stream) -> None:
    db.create_topic("t", format="utf8").write("a")
    query = stream(topic="t")
    query.offsets, query.done = ['{"t": {"0": 5}}'], 1
    with pytest.raises(ValueError, match="not one of a planstep stream"):
        query.trigger()
