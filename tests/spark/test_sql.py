"""Tests SQL with a real Spark: tables of its catalog, temporary views, INSERT; none of them owns the store."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planstep
import pyspark_planstep

# A path with a space: Spark makes a URI of the path of a catalog's table.
Sql = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "my shop é.planstep")


@pytest.fixture
def sql(spark: Any, path: str) -> Any:
    def sql(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(text.replace("STORE", f"path '{path}'")).collect()]

    for name in ("clicks", "totals"):
        spark.catalog.dropTempView(name)  # another file's would hide the table
    yield sql
    for name in ("clicks", "totals"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"DROP VIEW IF EXISTS {name}_view")


@pytest.fixture
def refused(sql: Sql) -> Callable[[str, str], None]:
    from pyspark.errors import PySparkException

    def refused(text: str, message: str) -> None:
        with pytest.raises(PySparkException, match=re.escape(message)):
            sql(text)

    return refused


def _fill(path: str) -> int:
    """Returns the step of the records."""
    with planstep.open(path) as db:
        clicks = db.create_topic("clicks", partitions=2, format="json")
        places = clicks.write_batch([{"ms": n} for n in range(10)])
        db.create_table("totals").load({f"u{n}": n for n in range(3)})
        return places.step


def test_tables_of_the_catalog(spark: Any, path: str, sql: Sql) -> None:
    """Each query shows the newest step, or the one it names."""
    step = _fill(path)
    sql(
        "CREATE TABLE clicks USING planstep OPTIONS (STORE, topic 'clicks') COMMENT 'all' TBLPROPERTIES (a='b')"
    )
    sql("INSERT INTO clicks WITH (queryId 'q', batchId 0) (value) VALUES (named_struct('ms', 1))")
    assert sql("SELECT count(*), sum(value.ms) FROM clicks") == [(11, 46)]
    assert sql(f"SELECT count(*) FROM clicks WITH (step {step})") == [(10,)]
    with pytest.raises(ValueError, match="no column tells of a step"):
        pyspark_planstep.as_of_step(spark.table("clicks"))
    with planstep.open(path) as db:
        assert dict(db.table("planstep.spark").scan()) == {("q", "topic", "clicks"): 0}


def test_rows_of_a_table(path: str, sql: Sql, refused: Any) -> None:
    _fill(path)
    sql("CREATE TABLE totals USING planstep OPTIONS (STORE, table 'totals', columns 'key,value')")
    refused("INSERT INTO totals SELECT 'u7' AS key, 7L AS value", "Spark passes no options of a")
    sql("INSERT INTO totals SELECT key, value + 10 AS more FROM totals")
    refused("INSERT OVERWRITE totals SELECT key, 1 AS more FROM totals", 'use .mode("append")')
    sql("DROP TABLE totals")
    with planstep.open(path) as db:
        assert dict(db.table("totals").scan()) == {"u0": 10, "u1": 11, "u2": 12}


def test_declared_columns(path: str, sql: Sql, refused: Any) -> None:
    """Spark passes the options of a view always, of a catalog's table only with the query."""
    _fill(path)
    columns = "(key STRING, value STRUCT<ms: INT>)"
    options = "USING planstep OPTIONS (STORE, topic 'clicks')"
    sql(f"CREATE TABLE clicks {columns} {options}")
    refused("SELECT * FROM clicks", "or CREATE TEMPORARY VIEW")
    assert sql("SELECT sum(value.ms) FROM clicks WITH (STORE, topic 'clicks')") == [(45,)]
    sql(f"CREATE TEMPORARY VIEW clicks_view {columns} {options}")
    sql("INSERT INTO clicks_view SELECT 'u9', named_struct('ms', 1000)")
    with planstep.open(path) as db:
        assert [r.value for r in db.topic("clicks").read() if r.key == "u9"] == [{"ms": 1000}]
    refused("SELECT * FROM planstep.`STORE`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY")
