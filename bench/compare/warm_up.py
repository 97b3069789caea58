"""Runs a few transactions before a run's clock, the same for all systems, so that none pays for its first ones.

    "warm-up" ─ read 1 ─▶ write 1 to "warmed" ─ commit        one after the other, for SECONDS at most

In its first transactions a process imports, compiles and connects: the interpreter and clients get warm by them. A
peer's server, such as a JVM, was warmed before (systems/servers.py). The topics are of no workload, and the trace
has nothing of it.

Left out: tables, which some systems lack; whatever only a certain workload needs.

Next: run_cell.py.
"""

import time
from contextlib import suppress

from .systems.base import Cancelled, System

TRANSACTIONS, SECONDS = 30, 1.0
"""The number of transactions, and the time after which no more begin."""
_FROM, _TO, _CONSUMER = "warm-up", "warmed", "warmer"
_RECORD = bytes(100)


def warm_up(system: System) -> int:
    """Returns the number of transactions that it ran."""
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
    return done
