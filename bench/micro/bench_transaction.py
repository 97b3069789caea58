"""Runs small durable transactions (1 range, 1 topic write, 2 rows), one at a time and with 64 in flight.

For comparison run a bare durable append of about the same bytes, and SQLite (WAL, synchronous=FULL).
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

import planstep

ROUNDS = 2000


def prepare(db: planstep.Engine) -> None:
    db.create_topic("in")
    db.create_topic("out")
    db.create_table("t", shards=2)
    db.topic("in").write_batch([b"x" * 100] * (ROUNDS + 100))


def write(tx: planstep.Transaction, i: int) -> None:
    tx.write("out", b"y" * 100)
    tx.put("t", i, i)
    tx.put("t", -i, i)


def transact(db: planstep.Engine, i: int) -> None:
    with db.transaction() as tx:
        tx.read("in", "c", max_records=1)
        write(tx, i)


@pytest.mark.benchmark(group="one small transaction")
def test_planstep(benchmark: Any, db: planstep.Engine) -> None:
    prepare(db)
    numbers = count()
    benchmark.pedantic(lambda: transact(db, next(numbers)), rounds=ROUNDS)
    stats = db.stats()["store"]
    benchmark.extra_info["bytes_per_turn"] = stats["log_bytes"] // stats["turns"]


@pytest.mark.benchmark(group="one small transaction")
def test_bare_append(benchmark: Any, append: Callable[[bytes], None]) -> None:
    benchmark.pedantic(append, args=(b"z" * 700,), rounds=ROUNDS)


@pytest.mark.benchmark(group="one small transaction")
def test_sqlite(benchmark: Any, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    for name in ("out (o INTEGER PRIMARY KEY, v BLOB)", "t (k INTEGER PRIMARY KEY, v INTEGER)"):
        connection.execute(f"CREATE TABLE {name}")
    connection.execute("CREATE TABLE inp (o INTEGER PRIMARY KEY, v BLOB)")
    connection.execute("CREATE TABLE pos (c TEXT PRIMARY KEY, o INTEGER)")
    rows = [(i, b"x" * 100) for i in range(1, ROUNDS + 100)]
    connection.executemany("INSERT INTO inp VALUES (?, ?)", rows)
    connection.execute("INSERT INTO pos VALUES ('c', 0)")
    numbers = count(1)

    def one() -> None:
        i = next(numbers)
        run = connection.execute
        run("BEGIN IMMEDIATE")
        (at,) = run("SELECT o FROM pos WHERE c = 'c'").fetchone()
        run("SELECT v FROM inp WHERE o = ?", (at + 1,)).fetchone()
        run("UPDATE pos SET o = ? WHERE c = 'c'", (at + 1,))
        run("INSERT INTO out (v) VALUES (?)", (b"y" * 100,))
        run("INSERT OR REPLACE INTO t VALUES (?, ?)", (i, i))
        run("INSERT OR REPLACE INTO t VALUES (?, ?)", (-i, i))
        run("COMMIT")

    benchmark.pedantic(one, rounds=ROUNDS)
    connection.close()


IN_FLIGHT, EACH, ROUNDS_IN_FLIGHT = 64, 20, 5


def measure(benchmark: Any, db: planstep.Engine, run: Callable[[], object]) -> None:
    """Benchmarks EACH transactions of each of IN_FLIGHT, and counts their syncs."""
    before = db.stats()["store"]["syncs"]
    benchmark.pedantic(run, rounds=ROUNDS_IN_FLIGHT)
    syncs = db.stats()["store"]["syncs"] - before
    transactions = ROUNDS_IN_FLIGHT * IN_FLIGHT * EACH
    benchmark.extra_info["syncs_per_transaction"] = syncs / transactions


@pytest.mark.benchmark(group="64 in flight, 1,280 transactions")
def test_planstep_64_in_flight(benchmark: Any, db: planstep.Engine) -> None:
    db.create_topic("out", partitions=4)
    db.create_table("t", shards=2)
    numbers = count()

    def work() -> None:
        for i in islice(numbers, EACH):
            with db.transaction() as tx:
                write(tx, i)

    def run() -> None:
        threads = [threading.Thread(target=work) for _ in range(IN_FLIGHT)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    measure(benchmark, db, run)


@pytest.mark.benchmark(group="64 in flight, 1,280 transactions")
def test_planstep_submitted(benchmark: Any, db: planstep.Engine) -> None:
    """Keeps 64 commits in flight from one thread, through `submit`."""
    db.create_topic("out", partitions=4)
    db.create_table("t", shards=2)
    numbers = count()

    def submit() -> Any:
        tx = db.transaction()
        write(tx, next(numbers))
        return tx.submit()

    def run() -> None:
        for _ in range(EACH):
            for future in [submit() for _ in range(IN_FLIGHT)]:
                future.result()

    measure(benchmark, db, run)


@pytest.mark.benchmark(group="64 in flight, 1,280 transactions")
def test_planstep_64_asyncio_tasks(benchmark: Any, tmp_path: Path) -> None:
    numbers = count()

    async def work(db: planstep.AsyncEngine) -> None:
        for i in islice(numbers, EACH):
            async with db.transaction() as tx:
                await tx.write("out", b"y" * 100)
                await tx.put("t", i, i)
                await tx.put("t", -i, i)

    with asyncio.Runner() as runner:

        async def opened() -> planstep.AsyncEngine:
            db = await planstep.open_async(tmp_path / "asyncio")
            await db.create_topic("out", partitions=4)
            await db.create_table("t", shards=2)
            return db

        db = runner.run(opened())

        async def sixty_four() -> None:
            await asyncio.gather(*(work(db) for _ in range(IN_FLIGHT)))

        measure(benchmark, db.sync, lambda: runner.run(sixty_four()))
        runner.run(db.close())
