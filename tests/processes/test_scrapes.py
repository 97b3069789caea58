"""Scrapes of all processes of a store together: a sum counts nothing twice, and the owner's figures come once."""

import signal
import socket
import subprocess
import sys
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child, until
from process_kit import Other

import planstep

prometheus_client = pytest.importorskip("prometheus_client")

MODES = ("deterministic", "kafka", "pulsar")
_OWN = {
    "planstep_memory_bytes",
    "planstep_open_snapshots",
    "planstep_oldest_snapshot_seconds",
    "planstep_owns",
    "planstep_link_connected",
    "planstep_link_owners_lost_total",
    "planstep_link_waiting_transactions",
}
_OF_CLIENTS = {"planstep_transactions_total", "planstep_waiting_transactions"}
_SCRAPE = """
import prometheus_client
registry = prometheus_client.CollectorRegistry()
planstep.metrics.register(db, registry)
def scrape():
    return [
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
"""


def scraped(samples: Any) -> dict[str, float]:
    """Returns the sum of each family's samples."""
    sums: dict[str, float] = defaultdict(float)
    for name, _, value in samples:
        sums[name] += value
    return sums


@pytest.mark.parametrize("mode", MODES)
def test_sums_count_nothing_twice(tmp_path: Path, mode: str) -> None:
    scope: dict[str, Any] = {"planstep": planstep}
    with planstep.open(tmp_path / "s", mode=mode) as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        db.topic("t").create_consumer("c")
        scope["db"] = db
        exec(_SCRAPE, scope)
        other.run(_SCRAPE)
        before = scraped(scope["scrape"]() + other("scrape()"))
        for who in (lambda code: exec(code, scope), other.run):
            who("for n in range(5):\n with db.transaction() as tx: tx.write('t', b'x')")
        until(lambda: len(db.topic("t").read()) == 10)
        ours, theirs = scraped(scope["scrape"]()), scraped(other("scrape()"))
        both = scraped(scope["scrape"]() + other("scrape()"))
        name = "planstep_transactions_total"
        assert both[name] - before[name] == 10
        assert both["planstep_consumer_lag_records"] == ours["planstep_consumer_lag_records"]
        assert (both["planstep_owns"], both["planstep_attached_processes"]) == (1, 1)
        assert both["planstep_link_connected"] == 1
        assert set(theirs) == _OWN | (set() if mode == "deterministic" else _OF_CLIENTS)
        assert _OWN - set(ours) == {one for one in _OWN if "_link_" in one}


def test_a_process_that_becomes_the_owner_exports_all(tmp_path: Path) -> None:
    owner = Other(tmp_path / "s")
    owner.run("db.create_topic('t').write(b'x')")
    with Other(tmp_path / "s") as other:
        other.run(_SCRAPE)
        assert "planstep_topic_records" not in scraped(other("scrape()"))
        owner.kill()
        other.run("db.topic('t').write(b'y')")
        until(lambda: scraped(other("scrape()"))["planstep_owns"] == 1)
        now = scraped(other("scrape()"))
        assert now["planstep_topic_records"] == 2 and "planstep_link_connected" not in now


def test_a_scrape_waits_for_no_owner(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner, Other(tmp_path / "s") as other:
        other.run(_SCRAPE)
        other.run("db._runtime.link.call = None  # a scrape asks the owner nothing")
        owner.signal(signal.SIGSTOP)
        try:
            assert scraped(other("scrape()"))["planstep_link_connected"] == 1
        finally:
            owner.signal(signal.SIGCONT)
        other.run("del db._runtime.link.call")


def test_a_process_that_only_owns_serves_its_figures(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t").write(b"x")
    with Child(PLANSTEP, "own", tmp_path / "s", "--metrics", port) as own:
        assert own.line().startswith("owner: process")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            text = page.read().decode()
    assert "planstep_topic_records{" in text and "planstep_owns{" in text


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "planstep",
                "own",
                tmp_path / "s",
                "--create",
                "--metrics",
                str(port),
            ],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"port {port}: Address already in use" in " ".join(done.stderr.split())


@pytest.mark.parametrize("port", ["-1", "99999"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    words = [sys.executable, "-m", "planstep", "own", tmp_path / "s", "--create", "--metrics", port]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr


@pytest.mark.parametrize("durability", ["full", "os"])
def test_it_attaches_to_a_service_with_settings_of_its_own(tmp_path: Path, durability: str) -> None:
    words = [sys.executable, "-m", "planstep", "own", tmp_path / "s", "--for", "1s"]
    with Other(tmp_path / "s", durability=durability):
        done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("attached: process"), done.stderr
