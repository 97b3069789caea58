"""Tests with a real Spark that it finds the source, plans and runs it, and repeats failed tasks."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sink_kit import topic

import planstep
import pyspark_planstep

Reader = Callable[..., Any]


@pytest.fixture
def source(spark: Any, path: str) -> Reader:
    def source(**options: Any) -> Any:
        return spark.read.format("planstep").option("path", path).options(**options)

    return source


def test_it_is_found_by_its_name(spark: Any, db: planstep.Engine, source: Reader) -> None:
    """No registration is needed, also in SQL; the store has an owner, which goes on writing."""
    clicks = db.create_topic("clicks", partitions=3, format="json")
    totals = db.create_table("totals")
    clicks.write_batch([{"km": n} for n in range(100)], keys=[f"u{n % 10}" for n in range(100)])
    totals.load({f"u{n}": 10 for n in range(10)})
    frame = source(TOPIC="clicks").load()
    step = pyspark_planstep.as_of_step(frame)
    assert frame.schema.simpleString() == (
        "struct<partition:int,offset:bigint,timestamp:timestamp,key:string,value:struct<km:bigint>,"
        "headers:map<string,binary>,place:struct<step:bigint,n:bigint>>"
    )
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW totals USING planstep OPTIONS (path '{db.path}', table 'totals')"
    )
    clicks.write({"km": 1000}, key="u1")
    totals.put("u1", 0)
    frame.createOrReplaceTempView("clicks")
    question = (
        "SELECT count(*), sum(value.km), sum(t.n) / 10, count(distinct place.step), count(headers) "
        "FROM clicks JOIN (SELECT key, value AS n FROM totals) t ON clicks.key = t.key"
    )
    assert tuple(spark.sql(question).collect()[0]) == (100, 4950, 100.0, 1, 0)
    assert pyspark_planstep.as_of_step(frame.select("key", "value.km")) == step
    assert frame.count() == 100 and source(topic="clicks", asOfStep=step).load().count() == 100
    assert source(topic="clicks").load().count() == 101
    both = frame.select("key").crossJoin(source(topic="clicks").load().select("offset"))
    with pytest.raises(ValueError, match="several steps"):
        pyspark_planstep.as_of_step(both)
    with pytest.raises(ValueError, match="no column tells of a step"):
        pyspark_planstep.as_of_step(spark.range(3))


def test_a_schema_of_the_users(db: planstep.Engine, source: Reader) -> None:
    topic = db.create_topic("t", format="json")
    topic.write({"a": 1, "t": {"x": [1, 2]}})
    frame = source(topic="t").schema("value struct<a: double, t: map<string, array<int>>>").load()
    assert frame.collect()[0].value.asDict() == {"a": 1.0, "t": {"x": [1, 2]}}
    topic.write({"a": 2})
    assert frame.count() == 1  # the step of the first action


@pytest.mark.parametrize("form", ["bytes", "utf8", "json", "msgpack"])
def test_nothing_and_one(db: planstep.Engine, source: Reader, form: Any) -> None:
    topic, table = db.create_topic("t", 2, form), db.create_table("rows", format=form)
    assert source(topic="t").load().collect() == [] == source(table="rows").load().collect()
    value: Any = {"bytes": b"\xff", "utf8": "é"}.get(form, {"a": [None, 1], "b": {"c": "x"}})
    topic.write(value)
    table.put("k", value)
    records, rows = source(topic="t").load().collect(), source(table="rows").load().collect()
    for row in (*records, *rows):
        actual = row.value if form in ("bytes", "utf8") else row.value.asDict(recursive=True)
        assert actual == value


@pytest.mark.parametrize(
    "options, message",
    [
        ({"topic": "click"}, "UnknownName: no topic 'click'; did you mean 'clicks'"),
        (
            {"topic": "clicks", "colums": "key"},
            "ValueError: no option 'colums' for reading; did you",
        ),
        ({"topic": "clicks", "asOfStep": "99"}, "step=99 has not come yet: the newest step"),
    ],
)
def test_errors_say_what_to_do(
    db: planstep.Engine, source: Reader, options: dict[str, str], message: str
) -> None:
    from pyspark.errors import AnalysisException

    db.create_topic("clicks")
    with pytest.raises(AnalysisException) as raised:
        source(**options).load()
    assert message in str(raised.value)
    assert "picture.py" not in str(raised.value)  # the error names no file of ours


def test_spark_mixes_up_the_filters_that_it_passes(
    spark: Any, db: planstep.Engine, source: Reader
) -> None:
    """So our reader takes none. When the first part fails, Spark is mended: then give it `pushFilters`."""
    setting = "spark.sql.python.filterPushdown.enabled"
    db.create_topic("t", partitions=2).write_batch([b"x"] * 3, partition=1)
    spark.conf.set(setting, "true")
    try:
        numbers = spark.read.format("filtering").load()
        two, three = numbers.filter("n = 2"), numbers.filter("n = 3")
        assert [row.n for row in two.union(three).collect()] == [3, 3]
        assert numbers.count() == 1

        records = source(topic="t", columns="partition,offset").load()
        ones, zeros = records.filter("partition = 1"), records.filter("partition = 0")
        assert ones.union(zeros).count() == 3
        assert records.count() == 3
    finally:
        spark.conf.unset(setting)


def test_a_value_that_does_not_fit(db: planstep.Engine, source: Reader) -> None:
    topic = db.create_topic("clicks", format="json")
    topic.write_batch([1, 2, "three"])
    from pyspark.errors import PySparkException

    frame = source(topic="clicks", inferRecords=2).load()
    with pytest.raises(PySparkException, match="partition 0, offset 2 does not fit int64"):
        frame.collect()


def test_a_task_that_fails_once(spark: Any, path: str, tmp_path: Path) -> None:
    """A part of its records was staged before; they count once."""
    topic(path, "t", partitions=2, format="json")
    failed = str(tmp_path / "failed")

    def fail(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            yield batch
            if number == 2 and not os.path.exists(failed):
                Path(failed).touch()
                raise RuntimeError("a task fails")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    frame = spark.range(0, 3000, numPartitions=3).mapInArrow(fail, "id long")
    write = frame.write.format("planstep").mode("append").option("path", path)
    write.option("topic", "t").save()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert os.path.exists(failed)
    with planstep.open(path) as db:
        ids = [value["id"] for value in db.topic("t").read(max_records=9999).values]
    assert sorted(ids) == list(range(3000))
    assert not Path(path, "spark").exists()


def test_a_job_that_fails_leaves_nothing(spark: Any, path: str) -> None:
    from pyspark.errors import PySparkException

    with planstep.open(path, share=False) as db:
        db.create_topic("t", format="json")
        frame = spark.range(10)
        for options, message in (
            ({"topic": "t", "wait": "0.1"}, f"process {os.getpid()} owns"),
            ({"topic": "t", "batchId": "1"}, "give the options queryId and batchId together"),
            ({"table": "t"}, "no table 't'"),
        ):
            write = frame.write.format("planstep").mode("append").option("path", path)
            with pytest.raises(PySparkException, match=re.escape(message)):
                write.options(**options).save()
        with pytest.raises(PySparkException, match=re.escape('use .mode("append")')):
            frame.write.format("planstep").mode("overwrite").options(path=path, topic="t").save()
        assert db.topic("t").describe().records == 0
    assert not Path(path, "spark").exists()


def test_each_batch_of_a_stream_counts_once(spark: Any, path: str, tmp_path: Path) -> None:
    """Its checkpoint is lost after the first run: the fence knows the batches."""
    with planstep.open(path) as db:
        db.create_topic("t", format="json")
        db.create_table("last")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"a": 1}\n{"a": 2}\n')

    def write(batch: Any, number: int) -> None:
        ids = {"path": path, "queryId": "a", "batchId": str(number)}
        sink = batch.write.format("planstep").mode("append").options(**ids)
        sink.option("topic", "t").save()
        batch.selectExpr("a AS key", "a AS value").write.format("planstep").mode("append").options(
            **ids
        ).option("table", "last").save()

    for checkpoint in ("one", "one", "two"):
        stream = spark.readStream.schema("a long").json(str(tmp_path / "in")).writeStream
        stream = stream.foreachBatch(write).trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()
    with planstep.open(path) as db:
        assert [value["a"] for value in db.topic("t").read().values] == [1, 2]
        assert dict(db.table("last").scan()) == {1: 1, 2: 2}
