"""Runs a few transactions before a run's clock, the same for all systems, so that none pays for its first ones.

    "warm-up" ─ read 1 ─▶ write 1 to "warmed" ─ commit         one after the other, for SECONDS at most
    write to all partitions of what the run will write ─ roll back      twice

In its first transactions a process imports, compiles and connects: the interpreter and clients get warm by them. A
peer's server, such as a JVM, was warmed before (systems/servers.py). The first records of a partition make what a
log has once: a broker's index files take it 500 ms for 100 partitions, in which it does little else. The trace has
nothing of all this.

Left out: tables, which some systems lack; whatever only a certain workload needs.

Next: run_cell.py.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from .systems.base import Cancelled, Impossible, System, Work

TRANSACTIONS, SECONDS = 30, 1.0
"""The number of transactions, and the time after which no more begin."""
_FROM, _TO, _CONSUMER = "warm-up", "warmed", "warmer"
_RECORD = bytes(100)
_TAKEN_BACK, _TAKEN_BACK_RECORD = 2, bytes(1000)
_KEYS = [b"%d" % n for n in range(1000)]
"""Enough for 100 partitions: a broker's index files begin at 4 KB of a partition, with its second batch."""


def warm_up(system: System, feeds: Mapping[str, str]) -> int:
    """Returns the number of transactions that it committed; `feeds` as a workload has them."""
    system.prepare({_FROM: 1, _TO: 1})
    system.writer(_FROM)([_RECORD] * TRANSACTIONS, None, 0)
    begin = system.worker(_CONSUMER, _CONSUMER)
    until = time.monotonic() + SECONDS
    done = 0
    while done < TRANSACTIONS and time.monotonic() < until:
        with suppress(Cancelled):
            work = begin()
            work.write(_TO, work.read(_FROM, 0, 1).values, None, 0)
            work.commit()
        done += 1
    sources = {source.partition("/")[0] for source in feeds.values()}
    for topic in sorted(
        feeds.keys() - sources
    ):  # offsets of a topic that is read count from its first record
        for _ in range(_TAKEN_BACK):
            _take_back(begin, topic)
    return done


def _take_back(begin: Callable[[], Work], topic: str) -> None:
    """Writes to all partitions, and rolls back."""
    with suppress(Cancelled):
        work = begin()
        work.write(topic, [_TAKEN_BACK_RECORD] * len(_KEYS), _KEYS)
        with suppress(Impossible):
            work.flush()
        work.rollback()
