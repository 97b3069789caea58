"""Measures what Spark reads by the data source beside Parquet of the same data, in turns.

    case         the same query of both, which must agree     ─▶ medians, and their ratio
    partitions   the full scan in 1 and in 16 tasks           ─▶ the ratio of the two

Sizes and rounds are settable: PLANSTEP_BENCH_RECORDS, _JSON_RECORDS, _ROWS, _ROUNDS and _MASTER (local[2]). With a
tenth of the data it takes a minute. Other work on the machine changes the ratios little.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import planstep
import pyspark_planstep
from planstep.bench.judges.spark import session

pytest.importorskip("pyspark")

Action: TypeAlias = Callable[[], Any]
Case: TypeAlias = tuple[str, Action, Action]
"""Name, query by the data source, query of Parquet."""
PARTITIONS, EACH, BYTES = 4, 10_000, 200


def _setting(name: str, number: int) -> int:
    return int(os.environ.get(f"PLANSTEP_BENCH_{name}", number))


RECORDS = _setting("RECORDS", 2_000_000)
JSON_RECORDS = _setting("JSON_RECORDS", 400_000)
ROWS = _setting("ROWS", 500_000)
ROUNDS = _setting("ROUNDS", 5)
MASTER = os.environ.get("PLANSTEP_BENCH_MASTER", "local[2]")
_VALUE = "value struct<user: string, n: bigint, price: double, ok: boolean>"
_ALL = ("count(*)", "sum(length(value))", "sum(length(key))", "max(offset)", "max(timestamp)")


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Any]:
    config = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}
    spark = pyspark_planstep.session("bench", MASTER, config, folder=tmp_path, quiet=True)
    yield spark
    session.end(spark)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "bench.planstep")
    with planstep.open(path) as db:
        topic = db.create_topic("t", partitions=PARTITIONS)
        for begin in range(0, RECORDS, EACH):
            content = os.urandom(BYTES * EACH)
            values = [content[i : i + BYTES] for i in range(0, len(content), BYTES)]
            keys = [b"user-%d" % (i * 7 % 50_000) for i in range(begin, begin + EACH)]
            topic.write_batch(values, keys=keys)
        objects = db.create_topic("j", partitions=PARTITIONS, format="json")
        for begin in range(0, JSON_RECORDS, EACH):
            objects.write_batch([_object(n) for n in range(begin, begin + EACH)])
        db.create_table("rows").load(
            {f"key-{n:07}": {"n": n, "text": "x" * 50} for n in range(ROWS)}
        )
    return path


def _object(n: int) -> dict[str, Any]:
    more = {"page": f"/products/{n % 97}", "agent": "x" * 60}
    return {"user": f"u{n % 5000}", "n": n, "price": n / 7, "ok": n % 3 == 0, **more}


def _scan(frame: Any) -> Any:
    return frame.selectExpr(*_ALL).collect()


def _cases(spark: Any, path: str, folder: Path) -> list[Case]:
    """Writes the Parquet, and returns the cases."""

    def load(schema: str | None = None, **options: Any) -> Any:
        source = spark.read.format("planstep").options(path=path, **options)
        return (source if schema is None else source.schema(schema)).load()

    def parquet(frame: Any, name: str) -> Any:
        frame.write.parquet(str(folder / name))
        return spark.read.parquet(str(folder / name))

    topic, objects, rows = load(topic="t"), load(_VALUE, topic="j"), load(table="rows")
    files = [parquet(f, name) for f, name in ((topic, "t"), (objects, "j"), (rows, "rows"))]
    pruned, key = f"partition = {PARTITIONS - 1} and offset < 100", f"key-{ROWS // 2:07}"

    def both(name: str, frames: tuple[Any, Any], query: Callable[[Any], Any]) -> Case:
        return name, lambda: query(frames[0]), lambda: query(frames[1])

    def total(frame: Any) -> Any:
        fields = ("count(value.user)", "sum(value.n)", "max(value.price)", "count_if(value.ok)")
        return frame.selectExpr(*fields).collect()

    def one(frame: Any) -> Any:
        return frame.filter(f"key = '{key}'").select("value.n").collect()

    offsets = load(topic="t", columns="offset")
    return [
        both("full scan", (topic, files[0]), _scan),
        both("count()", (topic, files[0]), lambda f: f.count()),
        both("count(), columns=offset", (offsets, files[0]), lambda f: f.count()),
        both(pruned, (topic, files[0]), lambda f: f.filter(pruned).count()),
        (
            "load + the same by options",
            lambda: load(topic="t", partitions=PARTITIONS - 1, endingOffset=100).count(),
            lambda: spark.read.parquet(str(folder / "t")).filter(pruned).count(),
        ),
        both("limit 10", (topic, files[0]), lambda f: len(f.limit(10).collect())),
        both("JSON, declared struct", (objects, files[1]), total),
        both(f"one row by key of {ROWS:,}", (rows, files[2]), one),
        (
            "load + the same by keys",
            lambda: load(table="rows", keys=f'["{key}"]').select("value.n").collect(),
            lambda: one(spark.read.parquet(str(folder / "rows"))),
        ),
    ]


def _medians(actions: Mapping[str, Action]) -> dict[str, float]:
    """Runs the actions in turns; the first round is cold and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(1 + ROUNDS):
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(each[1:]) for name, each in seconds.items()}


def test_reading(spark: Any, path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [f"{'s':>42} {'parquet':>9} {'ratio':>7}"]
    for name, ours, theirs in _cases(spark, path, tmp_path):
        assert ours() == theirs(), name
        medians = _medians({"ours": ours, "theirs": theirs})
        a, b = medians["ours"], medians["theirs"]
        lines.append(f"{name:33} {a:8.3f} {b:9.3f} {a / b:7.1f}")
    source = spark.read.format("planstep").options(path=path, topic="t")
    frames = {n: source.option("numPartitions", n).load() for n in (1, 16)}
    tasks = {str(n): partial(_scan, frame) for n, frame in frames.items()}
    medians = _medians(tasks)
    ratio = medians["16"] / medians["1"]
    lines.append(f"16 tasks {medians['16']:.3f} s, 1 task {medians['1']:.3f} s: {ratio:.2f} x")
    with capfd.disabled():
        sizes = f"{RECORDS:,} records of {BYTES} B, {JSON_RECORDS:,} of JSON, {ROWS:,} rows"
        print(f"\n{MASTER}, {sizes}; medians of {ROUNDS}, load {os.getloadavg()[0]:.1f}")
        print("\n".join(lines))
