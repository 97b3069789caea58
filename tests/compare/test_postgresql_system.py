"""Runs the contract of systems on PostgreSQL, and tests its own properties. They share one server."""

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contract import (
    WAIT_S,
    SharedRowsContract,
    SystemContract,
    a_get_holds_its_row,
    numbered,
    stored,
)
from kit import in_threads
from peers import long, needs, taken_port

from planstep.bench.compare.cell import OK, Cell
from planstep.bench.compare.processes import family
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.systems import open_system
from planstep.bench.compare.systems.base import (
    Cancelled,
    Impossible,
    Options,
    System,
    Unknown,
    Work,
)
from planstep.bench.compare.systems.postgresql_server import serve
from planstep.bench.compare.workloads import workload
from planstep.bench.compare.workloads.base import Shape
from planstep.bench.compare.workloads.faults_dropped import NOTHING

pytestmark = needs("postgresql")


@pytest.fixture
def name() -> str:
    return "postgresql"


@pytest.fixture
def server(address: Callable[[str], str]) -> str:
    return address("postgresql")


def asked(server: str, text: str, *parameters: object) -> list[Any]:
    import psycopg

    with psycopg.connect(server, dbname="postgres") as connection:
        return connection.execute(text, parameters or None).fetchall()


class TestPostgresql(SystemContract, SharedRowsContract):
    """Runs both contracts."""


class TestStatements(SystemContract, SharedRowsContract):
    """Runs both contracts, with a statement for each step."""

    @pytest.fixture
    def name(self) -> str:
        return "postgresql-statements"


def in_force(system: System) -> dict[str, object]:
    return {at.name: at.value for at in system.settings()}


def test_settings_are_what_is_in_force(opened: Callable[..., System]) -> None:
    settings = in_force(opened())
    assert (settings["synchronous_commit"], settings["fsync"]) == ("on", "on")
    assert settings["jit"] == "off"


def test_at_durability_os_nothing_is_synced(tmp_path: Path) -> None:
    with serve(tmp_path / "server", Options("os")) as server:
        system = open_system("postgresql", tmp_path, Options("os", server=server.address))
        system.prepare({"out": 1})
        write = system.writer("out")
        for n in range(3):
            write(numbered(0, 1, n), None, 0)
        settings = in_force(system)
        assert (settings["synchronous_commit"], settings["fsync"]) == ("on", "off")
        assert system.counters().syncs == 0
        system.close()
        with pytest.raises(OSError, match="durability full needs one with fsync=on"):
            open_system("postgresql", tmp_path, Options("full", server=server.address))


def test_a_sample_asks_no_connection_of_a_worker(system: System, server: str) -> None:
    """It is taken amid the work. At the ends of a measured part each of them tells what it counted."""
    tx = system.worker("w", "c")()
    tx.write("out", numbered(0, 1), partition=0)
    tx.commit()
    text = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s AND pid <> pg_backend_pid()"
    system.sampled()
    assert asked(server, text, "%force_next_flush%") == [(0,)]
    exact = system.counters()
    assert asked(server, text, "%force_next_flush%") == [(1,)]
    assert exact.syncs


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


def test_large_changes_have_dense_offsets_in_the_order_of_places(system: System) -> None:
    """Some go by one statement, some by COPY, and all of them take the same locks."""
    certificates = []

    def work(number: int) -> None:
        begin = system.worker(f"w{number}", "c", number)
        for n in range(3):
            tx = begin()
            for partition in (2, 0, 1):
                tx.write("out", numbered(number, 1 + 60 * (n % 2), 100 * n), partition=partition)
            tx.add("state", "n", 1)
            certificates.append(tx.commit())

    in_threads(partial(work, number) for number in range(4))
    certificates.sort(key=lambda one: one.step or 0)
    for partition in range(3):
        end = 0
        for certificate in certificates:
            begin, following = certificate.published["out", partition]
            assert begin == end < following
            end = following
        assert [at for chunk in system.records("out", partition) for at in chunk.offsets] == [
            *range(end)
        ]
    assert len({one.step for one in certificates}) == 12
    assert system.rows("state") == {"n": 12}


def test_a_get_holds_the_row_to_the_end(system: System) -> None:
    """It does so for a row that does not exist, too."""
    a_get_holds_its_row(system)


def test_a_deadlock_cancels_one(system: System) -> None:
    works = [system.worker(name, "c")() for name in ("first", "second")]
    for tx, key in zip(works, "ab", strict=True):
        tx.get("state", key)
    causes: list[str] = []

    def other_way_round(tx: Work, key: str) -> None:
        try:
            tx.get("state", key)
            tx.put("state", key, 1)
            tx.commit()
        except Cancelled as cancelled:
            assert cancelled.retryable
            causes.append(cancelled.cause)

    in_threads(partial(other_way_round, *each) for each in zip(works, "ba", strict=True))
    assert causes == ["DeadlockDetected"]
    assert len(system.rows("state")) == 1


def test_an_idle_transaction_with_a_row_is_ended_by_the_server(
    opened: Callable[..., System],
) -> None:
    system = opened(transaction_timeout_ms=100)
    system.prepare({"out": 1}, ("state",))
    tx = system.worker("dropped", "c")()
    tx.get("state", "n")
    other = system.worker("other", "c")()
    other.put("state", "n", 1)
    other.commit()
    tx.put("state", "n", 2)
    with pytest.raises(Cancelled) as cancelled:
        tx.commit()
    assert cancelled.value.retryable
    assert system.rows("state") == {"n": 1}


def wait_for_lock(server: str) -> None:
    """Waits until a transaction waits for a lock."""
    text = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    until = time.monotonic() + WAIT_S
    while asked(server, text) == [(0,)]:
        assert time.monotonic() < until


def end_connections(server: str, query: str) -> None:
    """Ends the connections whose last query is like this."""
    text = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND query LIKE %s AND pid <> pg_backend_pid()"
    )
    assert set(asked(server, text, query)) == {(True,)}


def test_a_connection_lost_before_the_commit_cancels(system: System, server: str) -> None:
    begin = system.worker("w", "c")
    tx = begin()
    tx.put("state", "n", (tx.get("state", "n") or 0) + 1)
    end_connections(server, "%locked%")
    with pytest.raises(Cancelled) as cancelled:
        tx.read("in", 0, 1)
    assert cancelled.value.retryable
    tx = begin()
    tx.add("state", "n", 5)
    tx.commit()
    assert system.rows("state") == {"n": 5}


def test_a_connection_lost_amid_the_commit_leaves_the_outcome_unknown(
    system: System, server: str
) -> None:
    holder, tx = (system.worker(name, "c")() for name in ("holder", "w"))
    holder.get("state", "n")
    tx.add("state", "n", 1)
    outcomes: list[BaseException] = []

    def commit() -> None:
        try:
            tx.commit()
        except (Cancelled, Unknown) as error:
            outcomes.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_for_lock(server)
    end_connections(server, "%placed%")
    thread.join()
    holder.rollback()
    assert [type(one) for one in outcomes] == [Unknown]
    assert system.rows("state") == {}


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
    tx = opened(read_only=True).worker("w", "c")()
    tx.write("out", numbered(0, 1), partition=0)
    with pytest.raises(Impossible):
        tx.commit()


def test_a_dropped_schema_is_gone(server: str, tmp_path: Path) -> None:
    system = open_system("postgresql", tmp_path, Options(server=server))
    schema = (tmp_path / "schema").read_text()
    system.prepare({"out": 2}, ("state",))
    text = "SELECT nspname FROM pg_namespace"
    assert (schema,) in asked(server, text)
    system.drop()
    system.close()
    assert (schema,) not in asked(server, text)


@pytest.mark.parametrize(
    "way", ["verified", "impossible", "failed in its run", "failed at verifying"]
)
def test_a_run_leaves_no_schema_however_it_ends(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    task = type(workload("plain"))
    text = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'planstep%' ORDER BY 1"

    def fail(*arguments: Any) -> None:
        raise ValueError("it fails")

    if way == "impossible":
        monkeypatch.setattr(task, "impossible", lambda self, system: "it cannot be")
    elif way != "verified":
        monkeypatch.setattr(task, "run" if "run" in way else "verify", fail)
    before = asked(server, text)
    shape = Shape(rate=0.1, partitions=2, duration=0.1, workers=2)
    cell = Cell("plain", "postgresql", Options(server=server), shape, keep_store=True)
    if way.startswith("failed"):
        with pytest.raises(ValueError, match="it fails"):
            run_cell(cell, tmp_path / "run")
    else:
        assert run_cell(cell, tmp_path / "run").verified == (way == "verified")
    assert (tmp_path / "run" / "schema").exists()
    assert asked(server, text) == before


def test_a_verifier_of_many_partitions_has_one_connection(system: System, server: str) -> None:
    system.prepare({"wide": 40})
    text = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    assert list(system.records("wide", 0)) == []
    before = asked(server, text)
    for partition in range(40):
        assert list(system.records("wide", partition)) == []
    assert asked(server, text) == before


@long
@pytest.mark.parametrize("durability", ["full", "os"])
def test_a_server_starts_behind_one_that_was_killed_and_not_reaped(
    tmp_path: Path, durability: str
) -> None:
    """It has what was acknowledged right before the kill, at either durability."""
    system = open_system("postgresql", tmp_path, Options(durability))
    system.prepare({"out": 1})
    write, (pid,) = system.writer("out"), system.pids()
    write(numbered(0, 3), None, 0)
    for one in family([pid]):  # this process is the first one's parent, and does not wait for it
        os.kill(one, signal.SIGKILL)
    again = open_system("postgresql", tmp_path, Options(durability, read_only=True))
    assert stored(again, "out", 0) == numbered(0, 3)
    again.close()
    system.close()


@long
def test_a_server_whose_port_was_taken_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planstep.bench.compare.systems.postgresql_server import PostgresqlServer

    with taken_port(monkeypatch) as port, PostgresqlServer(tmp_path, "full") as server:
        assert server.version and f"port={port} " not in server.address


def test_a_server_of_its_own_keeps_its_data_and_leaves_nothing(tmp_path: Path) -> None:
    system = open_system("postgresql", tmp_path, Options())
    (pid,) = system.pids()
    system.prepare({"out": 1})
    system.writer("out")(numbered(0, 3), None, 0)
    system.close()
    system = open_system("postgresql", tmp_path, Options(read_only=True))
    assert stored(system, "out", 0) == numbered(0, 3)
    pids = family([pid, *system.pids()])
    assert len(pids) > 2
    system.close()
    assert not any(Path(f"/proc/{one}").exists() for one in pids)
    assert not (tmp_path / "server" / "data" / "postmaster.pid").exists()


@long
@pytest.mark.parametrize("durability", ["full", "os"])
def test_work_goes_on_after_the_server_is_killed(tmp_path: Path, durability: str) -> None:
    """A crash of the server alone loses no acknowledged commit, at either durability."""
    options = Options(durability, transaction_timeout_ms=1000)
    shape = Shape(partitions=2, workers=2, duration=0.1)
    result = run_cell(Cell("faults", "postgresql", options, shape), tmp_path / "cell")
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    assert result.extra["dropped"][NOTHING]["comes_late"] == "Conflict"
    killed = result.extra["killed"]
    assert killed[NOTHING]["kills"] >= 2
    assert killed["acknowledged"] > 0 and killed["lost"] == killed["repeated"] == 0
