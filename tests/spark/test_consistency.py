"""Tests a Spark that reads while four workers write on four hosts: it always sees exactly one step.

The store grows all the while, so rounds become slower: PLANSTEP_ROUNDS=50 takes two minutes or more.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import pyspark_planstep

ROUNDS = int(os.environ.get("PLANSTEP_ROUNDS", "12"))
ACCOUNTS, EACH = 50, 1000


@pytest.fixture
def owned(path: str, spark_environment: dict[str, str]) -> Iterator[str]:
    """Yields a store that another process owns and keeps writing to."""
    program = [sys.executable, "-m", "owner", path]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=spark_environment
    ) as owner:
        assert owner.stdout is not None and owner.stdin is not None
        assert owner.stdout.readline() == "ready\n"
        yield path
        owner.stdin.close()
    assert owner.returncode == 0


QUESTION = f"""
    WITH moved AS (
        SELECT int(copy.id IS NOT NULL) AS copied, int(copy != move) AS differing, inline(array(
            struct(move.source AS account, -move.amount AS amount),
            struct(move.target AS account, move.amount AS amount)))
        FROM (SELECT value AS move FROM moves)
        LEFT JOIN (SELECT value AS copy FROM copies) ON move.id = copy.id),
    balances AS (
        SELECT account, sum(amount) AS amount, count(*) AS moves, sum(copied) AS copies,
            sum(differing) AS differing
        FROM moved GROUP BY account)
    SELECT sum(accounts.value) AS total, count(*) AS accounts,
        count_if(accounts.value != {EACH} + coalesce(amount, 0)) + coalesce(sum(differing), 0) AS wrong,
        coalesce(sum(moves), 0) AS both_sides, coalesce(sum(copies), 0) AS copies_both_sides
    FROM accounts LEFT JOIN balances ON accounts.key = account"""
"""Reads each account's balance and moves, and the copy of each move: all of one step."""


def test_totals_are_those_of_the_step(spark: Any, owned: str) -> None:
    value = "value struct<id: string, source: bigint, target: bigint, amount: bigint>"
    steps, between = [], 0
    # Between a move and its copy, too, unless the copying worker is always as fast as the moving one.
    while len(steps) < ROUNDS or (not between and len(steps) < 3 * ROUNDS):
        with pyspark_planstep.snapshot(owned, ["accounts", "counts"], spark=spark) as snap:
            source = spark.read.format("planstep").option("path", owned)
            source.option("table", "accounts").load().createOrReplaceTempView("accounts")
            source = spark.read.format("planstep").option("path", owned).schema(value)
            source.option("topic", "moves").load().createOrReplaceTempView("moves")
            source.option("topic", "by-target").load().createOrReplaceTempView("copies")
            source = spark.read.format("planstep").options(**snap.options)
            counts = source.option("table", "counts").load()
            ((total, accounts, wrong, moves, copies),) = spark.sql(QUESTION).collect()
            counted = {row.key: row.value for row in counts.collect()}
        assert (total, accounts, wrong) == (ACCOUNTS * EACH, ACCOUNTS, 0)
        assert counted == {"moves": moves / 2, "copied": copies / 2}
        assert pyspark_planstep.as_of_step(counts) == snap.step
        steps.append(snap.step)
        between = max(between, moves - copies)
    source = spark.read.format("planstep").option("path", owned).option("topic", "moves")
    assert pyspark_planstep.as_of_step(source.load()) > steps[-1]
    assert steps == sorted(set(steps)) and moves > 2 * ROUNDS
