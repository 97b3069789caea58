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


def _fill(path: str) -> None:
    with planstep.open(path) as db:
        clicks = db.create_topic("clicks", partitions=2, format="json")
        clicks.write_batch([{"ms": n} for n in range(10)])
        db.create_table("totals").load({f"u{n}": n for n in range(3)})


def test_tables_of_the_catalog(spark: Any, path: str, sql: Sql, refused: Any) -> None:
    """Each query shows the newest step, or the one it names."""
    _fill(path)
    sql(
        "CREATE TABLE clicks USING planstep OPTIONS (STORE, topic 'clicks') COMMENT 'all' TBLPROPERTIES (a='b')"
    )
    ask = "SELECT count(*), sum(value.ms), max(place.step) FROM clicks"
    ((count, total, step),) = sql(ask)
    assert (count, total) == (10, 45)
    once = "INSERT INTO clicks WITH (queryId 'q', batchId 0) (value) VALUES (named_struct('ms', 1))"
    sql(once)
    sql(once)
    assert sql(ask)[0][:2] == (11, 46)
    assert sql(f"SELECT count(*) FROM clicks WITH (step {step})") == [(10,)]
    with pytest.raises(ValueError, match="no column tells of a step"):
        pyspark_planstep.as_of_step(spark.table("clicks"))
    refused("INSERT OVERWRITE clicks SELECT * FROM clicks", 'use .mode("append")')


def test_rows_of_a_table(path: str, sql: Sql, refused: Any) -> None:
    _fill(path)
    options = "OPTIONS (STORE, table 'totals', columns 'key,value')"
    refused(f"CREATE TABLE totals USING planstep {options.replace('columns', 'colums')}", "colums")
    sql(f"CREATE TABLE totals USING planstep {options}")
    exactly = "INSERT INTO totals {}SELECT 'u7' AS key, 7L AS value"
    refused(exactly.format(""), "Spark passes no options of a catalog's table")
    sql(exactly.format("WITH (STORE, table 'totals') "))
    sql("INSERT INTO totals SELECT key, value + 10 AS more FROM totals")
    rows = sql("SELECT key, value FROM totals ORDER BY key")
    assert rows == [("u0", 10), ("u1", 11), ("u2", 12), ("u7", 17)]
    sql("DROP TABLE totals")
    with planstep.open(path) as db:
        assert len(list(db.table("totals").scan())) == 4


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
    assert sql("SELECT sum(value.ms) FROM clicks_view") == [(1045,)]
    refused("SELECT * FROM planstep.`STORE`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY")
