"""Kills the processes that own the store with kill -9 amid work, and restarts them, several times.

    owner     ─ work ─ work ─ ✗  started ─ open ─ first commit ─ … ─ work ─ work ─ ✗  …  ─ closed
                              │     │        │         │          │
    gone_ms                   ├─┤   │        │         │          │   kill to process gone
    start_ms                    ├───┤        │         │          │   Python: in no other figure
    open_ms                         ├────────┤         │          │   the store's recovery
    first_commit_ms           ├╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤          │   since the kill, without start_ms
    readable_ms               ├╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤   the reader has new records of each partition

At the kill one worker has written and not committed; the others are anywhere, for instance amid a commit. A
time-out runs on while Python starts: with that way readable_ms includes start_ms.

A system with a server has it in the second store's folder: it is killed with its clients, and open_ms is its start.

Left out: power loss, which kill -9 is not: the operating system keeps all that it has. A server that is killed
while its clients go on.

Next: faults_owner.py, the process.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ..processes import family, is_running
from ..systems.base import TIME_OUT
from .base import Run
from .faults_dropped import PACE_S, endings, patience

KILLS_MIN, KILLS_MAX = 2, 20
"""Kills of a way that does not wait for a time-out."""
_WORK_S = 0.2, 1.0
_SPARE_S, _GONE_S = 10.0, 30.0
_FIGURES = ("gone_ms", "start_ms", "open_ms", "first_commit_ms", "readable_ms")


class Acknowledged(NamedTuple):
    """Records [begin, end) of an input partition; `at`: time.monotonic_ns() of their commit's reply."""

    partition: int
    begin: int
    end: int
    at: int


def folder(run: Run) -> Path:
    """Returns the folder of the second store, which the owner opens in a process of its own."""
    return run.folder / "killed"


def count(run: Run) -> int:
    """Returns the records of an input partition: more than a worker can take in the time."""
    waiting = 2 * run.options.transaction_timeout_ms / 1e3 if run.system.ended_by else 0.0
    return int((run.shape.duration + waiting + _SPARE_S) / PACE_S)


def kill(run: Run, partitions: int, until: int) -> tuple[dict[str, Any], list[Acknowledged]]:
    """Kills and restarts the owner until `run.now()` is `until`, a few times at least.

    Returns {way: {"kills", …, in ms}}, with medians, and all acknowledged records.
    ValueError where the store cannot be opened again, or work does not go on.
    """
    low, high = _WORK_S
    work_s = min(high, max(low, run.shape.duration / 8))
    acknowledged: list[Acknowledged] = []
    times: dict[str, list[tuple[float, ...]]] = {}
    name = "owner"
    owner = _Process(run, partitions, name, 0)
    try:
        owner.wait("readable")
        for incarnation, ending in enumerate(_plan(run, until), 1):
            time.sleep(work_s)
            owner.send("hold")
            owner.wait("held")
            killed_at, gone_at = owner.kill()
            acknowledged += owner.acknowledged
            if ending == TIME_OUT:
                name = f"owner-{incarnation}"
            owner = _Process(run, partitions, name, incarnation)
            started, opened = owner.wait("started"), owner.wait("open")
            readable = owner.wait("readable")
            committed = owner.wait("committed")
            away = started - gone_at  # Python's start, which is not the system's time
            figures = (gone_at - killed_at, away, opened - started, committed - killed_at - away)
            nanoseconds = (*figures, readable - killed_at - (0 if ending == TIME_OUT else away))
            times.setdefault(ending, []).append(tuple(ns / 1e6 for ns in nanoseconds))
        owner.send("end")
        owner.wait("closed")
    finally:
        owner.kill()
    acknowledged += owner.acknowledged
    results = {}
    for ending, rows in times.items():
        medians = [round(median(column), 3) for column in zip(*rows, strict=True)]
        results[ending] = {"kills": len(rows), **dict(zip(_FIGURES, medians, strict=True))}
    return results, acknowledged


def _plan(run: Run, until: int) -> Iterator[str]:
    """Yields the way of each restart. A restart by time-out uses names that no worker had before."""
    *first, ending = endings(run)
    yield from first
    for n in range(KILLS_MAX):
        if n >= KILLS_MIN and run.now() >= until:
            return
        yield ending


class _Process:
    """A running owner. It ends with its parent's process group, or when its standard input is closed."""

    def __init__(self, run: Run, partitions: int, name: str, incarnation: int) -> None:
        spec = {
            "system": run.system.name,
            "folder": str(folder(run)),
            "options": asdict(replace(run.options, server="")),
            "partitions": partitions,
            "name": name,
            "incarnation": incarnation,
        }
        self._run = run
        self.acknowledged: list[Acknowledged] = []
        self._moments: dict[str, int] = {}
        self._servers: list[int] = []
        self._failure = ""
        self._changed = threading.Condition()
        module = "planstep.bench.compare.workloads.faults_owner"
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._listener = threading.Thread(target=self._listen, name="bench-owner", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if not line.endswith("\n"):
                break  # cut off by the kill
            self._take(*line.split())
        self._take("failed", "it ended by itself")

    def _take(self, what: str, *words: str) -> None:
        with self._changed:
            if what == "acknowledged":
                commit = Acknowledged(*map(int, words))
                self._moments.setdefault("committed", commit.at)
                self.acknowledged.append(commit)
            elif what == "serve":
                self._servers += map(int, words)
            elif what == "at":
                self._moments[words[0]] = int(words[1])
            else:
                self._failure = self._failure or " ".join(words)
            self._changed.notify_all()

    def wait(self, what: str) -> int:
        """Returns when an event happened, time.monotonic_ns(). ValueError when it does not come."""
        with self._changed:
            self._changed.wait_for(
                lambda: what in self._moments or self._failure, patience(self._run) / 1e9
            )
            if what not in self._moments:
                why = self._failure or f"it has waited too long to be {what}"
                raise ValueError(f"the process that owns the store: {why}")
            return self._moments[what]

    def send(self, what: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{what}\n")

    def kill(self) -> tuple[int, int]:
        """Kills the owner and its servers; returns when that was, and when all were gone, time.monotonic_ns().

        All that it reported has been read by then. ValueError if a server does not go.
        """
        serving = family(self._servers)
        killed_at = time.monotonic_ns()
        for (
            server
        ) in serving:  # a parent before its children, which would else finish by themselves
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        with self._child:  # closes its pipes
            self._child.kill()
            self._child.wait()
            until = killed_at + int(_GONE_S * 1e9)
            while any(map(is_running, serving)):
                if time.monotonic_ns() > until:
                    raise ValueError(f"a server still runs {_GONE_S:.0f} s after kill -9")
                time.sleep(0.001)
            gone_at = time.monotonic_ns()
            self._listener.join()
        self._servers.clear()  # their numbers may be others' soon
        return killed_at, gone_at
