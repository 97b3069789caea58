"""Measures time: schedules that do not wait for the measured system, and percentiles of latencies.

    due 0 ─ 1 ─ 2 ─ 3 …     one schedule for each thread, fixed before the run
        slow work makes the next piece late: its latency counts from when it was due

Next: systems/base.py.
"""

import os
import resource
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any, TypeVar

from .processes import Usage, usage

N = TypeVar("N", int, float)
SUSTAINED_SHARE = 0.98
"""The share of the offered rate that a sustained run reaches."""
PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999))


class Latencies:
    """A list of latencies in milliseconds. One thread adds at a time, or several by `append` of single values."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = array("d")

    def add(self, nanoseconds: float) -> None:
        self.values.append(nanoseconds / 1e6)

    def summary(self) -> dict[str, float] | None:
        """Returns p50, p95, p99, p99_9 and max, or None when empty.

        A percentile is the smallest value that at least that share of the values do not exceed.
        """
        if not self.values:
            return None
        ordered = sorted(self.values)
        times = {name: round(percentile(ordered, share), 3) for name, share in PERCENTILES}
        times["max"] = round(ordered[-1], 3)
        return times


def percentile(ordered: Sequence[N], share: float) -> N:
    return ordered[min(len(ordered) - 1, max(0, ceil(share * len(ordered)) - 1))]


def without_percentiles(tree: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of the tree without its percentiles, however deep."""
    return {
        name: without_percentiles(value) if isinstance(value, dict) else value
        for name, value in tree.items()
        if not (isinstance(value, dict) and "p50" in value)
    }


def schedule(begin: int, interval: float, count: int, lag: Latencies) -> Iterator[tuple[int, int]]:
    """Yields (number, due time) of one thread's work when it is due, and records how late it begins.

    It is due every `interval` seconds from `begin` (time.monotonic_ns), `count` times. That is independent of the
    work: a late piece is not moved, and none is left out.
    """
    step = interval * 1e9
    for number in range(count):
        due = begin + int(number * step)
        early = due - time.monotonic_ns()
        if early > 0:
            time.sleep(early / 1e9)
        lag.add(max(0, time.monotonic_ns() - due))
        yield number, due


@contextmanager
def sampling(
    sample: Callable[[float, int, Usage], Any], servers: Sequence[int] = (), interval: float = 0.25
) -> Iterator[None]:
    """Calls `sample` every `interval` seconds, in a thread.

    It gets this process's CPU seconds and memory, and what the processes `servers` use.
    """
    stop = threading.Event()

    def run() -> None:
        sample(cpu_seconds(), rss_bytes(), usage(servers))
        while not stop.wait(interval):
            sample(cpu_seconds(), rss_bytes(), usage(servers))
        sample(cpu_seconds(), rss_bytes(), usage(servers))

    thread = threading.Thread(target=run, name="bench-sampler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def rss_bytes() -> int:
    """Returns the memory of this process now, or its peak where the platform reports no more."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_bytes()


def own_bytes() -> int:
    """Returns the memory of this process without its maps of files; all of it where the platform cannot say."""
    try:
        with open("/proc/self/status") as status:
            return next(
                int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:")
            )
    except OSError:
        return rss_bytes()


def peak_bytes() -> int:
    """Returns the peak memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if os.uname().sysname == "Darwin" else peak * 1024
