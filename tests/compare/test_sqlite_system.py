"""Runs the contract of systems on SQLite, and tests its own properties."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from contract import SharedRowsContract, SystemContract, a_get_holds_its_row, numbered

from planstep.bench.compare.systems.base import Cancelled, Impossible, Options, System
from planstep.bench.compare.systems.sqlite import SqliteSystem


@pytest.fixture(params=["sqlite", "sqlite-64"])
def name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestSqlite(SystemContract, SharedRowsContract):
    """Runs both contracts."""


@pytest.mark.parametrize("durability, synchronous", [("full", "FULL"), ("os", "NORMAL")])
def test_settings_are_what_is_in_force(
    opened: Callable[..., System], durability: str, synchronous: str
) -> None:
    settings = {at.name: at.value for at in opened(durability=durability).settings()}
    assert (settings["journal_mode"], settings["synchronous"]) == ("wal", synchronous)


def test_an_open_transaction_holds_no_lock(system: System) -> None:
    slow, quick = (system.worker(name, name) for name in ("slow", "quick"))
    tx = slow()
    tx.write("out", numbered(0, 1), partition=0)
    tx.add("state", "n", 1)
    for n in range(3):
        other = quick()
        other.write("out", numbered(1, 1, n), partition=0)
        assert other.commit().published == {("out", 0): (n, n + 1)}
    assert tx.commit().published == {("out", 0): (3, 4)}


def test_a_get_holds_the_lock_to_the_end(tmp_path: Path) -> None:
    system = SqliteSystem(tmp_path, Options(), 1)
    system.prepare({}, ("state",))
    a_get_holds_its_row(system)
    system.close()


def test_what_a_get_saw_is_compared_where_commits_are_merged(tmp_path: Path) -> None:
    system = SqliteSystem(tmp_path, Options(), 64)
    system.prepare({"out": 1}, ("state",))
    first, second = (system.worker(name, "c") for name in ("first", "second"))
    tx, other = first(), second()
    for work in (tx, other):
        work.put("state", "n", (work.get("state", "n") or 0) + 1)
        work.write("out", numbered(0, 1), partition=0)
    other.commit()
    with pytest.raises(Cancelled, match="Conflict"):
        tx.commit()
    assert system.rows("state") == {"n": 1}
    assert sum(len(chunk.values) for chunk in system.records("out", 0)) == 1
    system.close()


def test_transactions_that_wait_share_a_commit(tmp_path: Path) -> None:
    """If one of them conflicts, the others still commit."""
    system = SqliteSystem(tmp_path, Options(), 64)
    system.prepare({"in": 1, "out": 8}, ())
    system.writer("in")(numbered(0, 1), None, 0)
    before = system.counters()
    assert before.syncs is not None
    works = []
    for n in range(8):
        tx = system.worker(f"w{n}", "c" if n < 2 else f"c{n}")()
        tx.read("in", 0, 1)
        tx.write("out", numbered(n, 1), partition=n)
        works.append(tx)
    cancelled: list[Cancelled] = []

    def commit(n: int) -> None:
        try:
            works[n].commit()
        except Cancelled as error:
            cancelled.append(error)

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(8)]
    system.store.begin()  # so that all of them wait
    for thread in threads:
        thread.start()
    assert system.merger is not None
    while system.merger.waiting < 7:
        pass
    system.store.rollback()
    for thread in threads:
        thread.join()
    after = system.counters()
    assert len(cancelled) == 1
    assert after.transactions - before.transactions == 7
    assert after.syncs is not None and after.syncs - before.syncs == 1
    assert system.costs(works[-1].id).syncs == 1 / 7
    system.close()


def test_a_commit_that_fails_is_cancelled_whole(tmp_path: Path) -> None:
    system = SqliteSystem(tmp_path, Options(), 1)
    system.prepare({"out": 1}, ("state",))
    worker = system.worker("w", "c")
    tx = worker()
    tx.add("state", "n", 1)
    tx.write("out", numbered(0, 1), partition=0)
    other = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    other.execute("DROP TABLE topic_1_0")
    with pytest.raises(Cancelled) as cancelled:
        tx.commit()
    assert not cancelled.value.retryable
    other.close()
    assert system.rows("state") == {}
    tx = worker()
    tx.add("state", "n", 2)
    tx.commit()
    assert system.rows("state") == {"n": 2}
    system.close()


def test_names_that_were_not_prepared(system: System) -> None:
    tx = system.worker("w", "c")()
    with pytest.raises(ValueError, match="no topic 'nope'"):
        tx.write("nope", numbered(0, 1))
    with pytest.raises(ValueError, match="has no partition 4"):
        tx.write("out", numbered(0, 1), partition=4)
    with pytest.raises(ValueError, match="no table 'nope'"):
        tx.get("nope", "k")


def test_who_looks_only_writes_nothing(system: System, opened: Callable[..., System]) -> None:
    assert system
    again = opened(read_only=True)
    tx = again.worker("w", "c")()
    tx.write("out", numbered(0, 1), partition=0)
    with pytest.raises(Impossible):
        tx.commit()
