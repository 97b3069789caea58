"""Tests that schedules do not wait for the worker that they measure, and that percentiles are measured values."""

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from planstep.bench.compare import processes
from planstep.bench.compare.measure import PERCENTILES, Latencies, peak_bytes, sampling, schedule
from planstep.bench.compare.processes import Usage, family, usage
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.systems.sqlite import SqliteSystem
from planstep.bench.compare.workloads.base import Run, Shape
from planstep.bench.compare.workloads.meter import Meter


@pytest.mark.parametrize("count", [1, 2, 3, 10, 99, 1000, 1001])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(count: int) -> None:
    draw = random.Random(count)
    latencies = Latencies()
    for _ in range(count):
        latencies.add(draw.randrange(10**9))
    summary = latencies.summary()
    assert summary is not None
    values = sorted(round(value, 3) for value in latencies.values)
    for name, share in PERCENTILES:
        exact = Fraction(str(share))
        expected = next(value for n, value in enumerate(values, 1) if Fraction(n, count) >= exact)
        assert summary[name] == expected, name
    assert summary["max"] == values[-1]


def test_of_nothing_there_are_no_percentiles() -> None:
    assert Latencies().summary() is None


def test_what_is_late_makes_nothing_later() -> None:
    """A worker that stops for longer than an interval then gets all missed work, each with its due time."""
    lag = Latencies()
    begin = time.monotonic_ns()
    events = []
    for number, due in schedule(begin, 0.002, 50, lag):
        events.append((number, due))
        if number == 10:
            time.sleep(0.03)
    assert events == [(n, begin + n * 2_000_000) for n in range(50)]
    assert len(lag.values) == 50
    assert max(lag.values) >= 28.0 - 1e-6  # the work after the stop: 30 ms, less an interval


def test_a_schedule_waits_until_it_is_due() -> None:
    for _, due in schedule(time.monotonic_ns() + 3_000_000, 0.001, 5, Latencies()):
        assert time.monotonic_ns() >= due


def test_a_sampler_looks_at_the_beginning_and_at_the_end() -> None:
    looked = []
    with sampling(lambda cpu, rss, servers: looked.append((cpu, rss)), interval=60):
        pass
    assert len(looked) == 2
    assert looked[0][0] <= looked[1][0]
    assert all(0 < rss <= 2 * peak_bytes() for _, rss in looked)


_WORKER = """
import os, sys, time
data = bytearray(b"x") * 30_000_000
with open(sys.argv[1], "wb") as file:
    file.write(data[:5_000_000])
    os.fsync(file.fileno())
while time.process_time() < 0.35:  # the kernel tells whole hundredths, rounded down
    pass
print(flush=True)
sys.stdin.read()
"""
_PARENT = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', *sys.argv[1:]]))"


def _forbidden(pid: int) -> int:
    raise PermissionError(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_what_a_server_uses_includes_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-c", _PARENT, _WORKER, str(tmp_path / "file")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdout.readline()
        pids, used = family([parent.pid]), usage([parent.pid])
        assert len(pids) == 2 and pids[0] == parent.pid
        assert used.cpu_s >= 0.3 and used.memory_bytes >= 30_000_000
        assert 5_000_000 <= used.call_bytes < 6_000_000
        (child,) = pids[1:]
        assert usage([child]).memory_bytes < used.memory_bytes, "the parent's is in it, too"
        with monkeypatch.context() as patch:
            patch.setattr(processes, "_call_bytes", _forbidden)
            more = usage([parent.pid])
        assert more.call_bytes is None, "not 0: they are unknown"
        assert more.cpu_s >= used.cpu_s and more.memory_bytes >= 30_000_000
        parent.stdin.close()
    assert usage([parent.pid]) == Usage(), "it has ended"


_SERVER = """
import sys, time
sys.stdin.readline()
begin = time.process_time()
while time.process_time() < begin + 0.2:
    pass
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_a_part_costs_what_its_servers_use_too(tmp_path: Path) -> None:
    class Served(SqliteSystem):
        def pids(self) -> Sequence[int]:
            return [server.pid]

    words = [sys.executable, "-c", _SERVER]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server,
        closing(Served(tmp_path, Options(), 1)) as system,
    ):
        assert server.stdin is not None and server.stdout is not None
        meter = Meter(Run(system, Options(), Shape(), tmp_path))
        server.stdin.write(b"\n")
        server.stdin.flush()
        server.stdout.readline()
        meter.stop()
        costs = meter.of_one(10, "cpu_ms", "syncs", "appends")
        assert costs["cpu_ms"] is not None and costs["cpu_ms"] >= 18, "a tenth, in ticks"
        assert costs["syncs"] == 0 and costs["appends"] is None, "SQLite does not count appends"
        assert meter.of_one(0, "cpu_ms", "syncs") == {"cpu_ms": None, "syncs": None}
        server.stdin.close()
