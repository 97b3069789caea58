"""Four hosts, four workers that write, and a Spark beside them: what it sees belongs to one step, every time."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import pyspark_planstep

ROUNDS = 50
ACCOUNTS, EACH = 50, 1000


@pytest.fixture
def owned(path: str, spark_environment: dict[str, str]) -> Iterator[str]:
    """A store that another process owns, and writes to all the while."""
    program = [sys.executable, "-m", "owner", path]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=spark_environment
    ) as owner:
        assert owner.stdout is not None and owner.stdin is not None
        assert owner.stdout.readline() == "ready\n"
        yield path
        owner.stdin.close()
    assert owner.returncode == 0


BALANCES = """
    WITH moved AS (
        SELECT inline(array(
            struct(value.source AS account, -value.amount AS amount),
            struct(value.target AS account, value.amount AS amount)))
        FROM moves),
    balances AS (SELECT account, sum(amount) AS amount FROM moved GROUP BY account)
    SELECT sum(accounts.value) AS total, count(*) AS accounts,
        count_if(accounts.value != {each} + coalesce(balances.amount, 0)) AS wrong
    FROM accounts LEFT JOIN balances ON accounts.key = balances.account"""
COPIES = """
    SELECT count(*) AS moves, count(copies.value.id) AS copies, count_if(copies.value != moves.value) AS wrong
    FROM moves LEFT JOIN copies ON moves.value.id = copies.value.id"""


def test_totals_are_those_of_the_step(spark: Any, owned: str) -> None:
    value = "value struct<id: string, source: bigint, target: bigint, amount: bigint>"
    steps, seen = [], 0
    for _ in range(ROUNDS):
        with pyspark_planstep.snapshot(owned, tables=["accounts", "counts"]) as snap:
            source = spark.read.format("planstep").options(**snap.options)
            source.option("table", "accounts").load().createOrReplaceTempView("accounts")
            source = spark.read.format("planstep").options(**snap.options).schema(value)
            source.option("topic", "moves").load().createOrReplaceTempView("moves")
            source.option("topic", "by-target").load().createOrReplaceTempView("copies")
            source = spark.read.format("planstep").options(**snap.options)
            counts = source.option("table", "counts").load()
            both = f"SELECT * FROM ({BALANCES.format(each=EACH)}) CROSS JOIN ({COPIES})"
            ((total, accounts, wrong, moves, copies, differing),) = spark.sql(both).collect()
            counted = {row.key: row.value for row in counts.collect()}
        assert (total, accounts, wrong, differing) == (ACCOUNTS * EACH, ACCOUNTS, 0, 0)
        assert counted == {"moves": moves, "copied": copies}
        assert pyspark_planstep.as_of_step(counts) == snap.step
        steps.append(snap.step)
        seen = max(seen, moves - copies)
    assert steps == sorted(set(steps)) and moves > ROUNDS
    assert seen > 0  # also between a move and its copy
