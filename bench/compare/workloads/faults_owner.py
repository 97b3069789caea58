"""Owns the store in a process that gets killed: its workers loop, and it reports each acknowledged commit.

    python -m planstep.bench.compare.workloads.faults_owner SPEC      by faults_killed.py, SPEC: JSON

    stdin   "hold"   worker 0 stops after its writes, before its commit, and reports "held": certainly amid work
            "end"    closes the store in good order
            its end  the parent is gone, so this process ends

    stdout  "serve PID …"                                 servers that it has started, which die with it
            "at WHAT NS"                                  started, open, readable, held, closed; time.monotonic_ns()
            "acknowledged PARTITION BEGIN END NS"         records that a commit consumed, when its reply had come
            "failed WHY"

Worker w takes input partition w, and writes to every partition of the output. A line is one write to the pipe, so
the parent has every line, however this process ends.

Next: base.py.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...judges.trace import identities
from ..systems import ENTRIES, open_system
from ..systems.base import Cancelled, Impossible, Options, Poll, System, Work
from .faults_dropped import CONSUMER, IN, OUT, PACE_S, mark


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _at(what: str) -> None:
    _say(f"at {what} {time.monotonic_ns()}")


class Owner:
    """The workers and the reader. `incarnation` marks this process's records; the reader waits for them."""

    def __init__(self, system: System, partitions: int, name: str, incarnation: int) -> None:
        self.system, self.partitions = system, partitions
        self._name, self._incarnation = name, incarnation
        self.hold, self._stop = threading.Event(), threading.Event()
        poll = system.follower(OUT)
        works = [partial(self._work, number) for number in range(partitions)]
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (*works, partial(self._read, poll))
        ]
        for thread in self._threads:
            thread.start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            _say(f"failed {type(error).__name__}: {error}")

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _read(self, poll: Poll) -> None:
        waits_for = set(range(self.partitions))
        while waits_for and not self._stop.is_set():
            for partition, _, values in poll(0.25):
                if self._incarnation in identities(values)[2]:
                    waits_for.discard(partition)
        _at("readable")

    def _work(self, number: int) -> None:
        begin = self.system.worker(f"{self._name}-{number}", CONSUMER, number)
        due = time.monotonic()
        while not self._stop.is_set():
            work = begin()
            proposed = False
            try:
                first, last = self._pass_on(work, number)
                if number == 0 and self.hold.is_set():
                    _at("held")
                    threading.Event().wait()
                proposed = True
                work.commit()
                if first < last:
                    _say(f"acknowledged {number} {first} {last} {time.monotonic_ns()}")
            except Cancelled as error:
                if not proposed:
                    work.rollback()
                if not error.retryable:
                    raise
            now = time.monotonic()
            due = max(due + PACE_S, now)  # late transactions do not speed up later ones
            time.sleep(due - now)

    def _pass_on(self, work: Work, partition: int) -> tuple[int, int]:
        """Passes a record to each partition of the output; returns [begin, end) of the input records."""
        chunk = work.read(IN, partition, self.partitions)
        values = mark(chunk.values, self._incarnation)
        for target, (value, key) in enumerate(zip(values, chunk.keys, strict=True)):
            work.write(OUT, [value], [key], target)
        with suppress(Impossible):  # then it goes with the commit
            work.flush()
        return chunk.begin, chunk.end


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    name, folder, options = spec["system"], Path(spec["folder"]), Options(**spec["options"])
    try:
        # Imports and look-ups belong to Python's start, not to recovery. A server would take far longer.
        ENTRIES[name].load()
        if ENTRIES[name].server is None:
            with TemporaryDirectory(dir=folder) as empty:
                open_system(name, Path(empty), options).close()
        _at("started")
        system = open_system(name, folder, options)
        if system.pids():
            _say(" ".join(map(str, ("serve", *system.pids()))))
        _at("open")
        owner = Owner(system, spec["partitions"], spec["name"], spec["incarnation"])
        for line in sys.stdin:
            if line == "hold\n":
                owner.hold.set()
            elif line == "end\n":
                owner.end()
                system.close()
                _at("closed")
                return
    except Exception as error:
        _say(f"failed {type(error).__name__}: {error}")
    os._exit(1)


if __name__ == "__main__":
    main()
