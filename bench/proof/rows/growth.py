"""Measures the cost of a small transaction as a store gets older: CPU and memory, window by window.

    a child     COUNT small transactions ─▶ for each of WINDOWS: CPU of a transaction, largest RSS
    the judge   the last windows against the early ones: at most MOST times as much

The file system is in memory and durability is "os", so only the engine's own work is left, checkpoints and
retention included. A transaction writes a record and, if there are tables, adds to one of ROWS rows, which lie
far apart. A partition keeps RETAINED bytes, so that what grows is not the user's data.

CPU time of the same work differs by a half as other work on the machine comes and goes. So the judge counts in
reference loops, which run between the transactions, and takes the cheapest windows.

Negative control: each transaction takes a little more CPU and memory than the one before.

Left out: growth beyond COUNT; elapsed time.

Next: leak.py: this is a part of its row; ../../micro/age.py prints the same for a million transactions.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import planstep

from ...children import Children, call
from ...compare.measure import own_bytes, rss_bytes
from .registry import RowOptions, RowResult

FULL: dict[str, int] = {"deterministic": 300_000, "kafka": 50_000}
QUICK_PART, CONTROL_COUNT = 25, 4_000
WINDOWS = 20
_EARLY, _LATE = slice(2, 7), slice(-5, None)
MOST = {"deterministic": (2.2, 1.25), "kafka": (2.2, 1.5)}
"""How many times as much CPU and memory late transactions may take: current limits, the aim is 1.05."""
_MOST_SHORT = (2.2, 2.2)
_LITTLE_BYTES = 32 << 20
"""Memory to ignore in a short run: the interpreter's own warm-up."""
ROWS, _STRIDE, _VALUE = 20_000, 7919, b"v" * 100
RETAINED = 1 << 20
_SAMPLES = 100
"""Samples of RSS in a window, and reference loops."""


@dataclass(frozen=True)
class Age:
    """One window's figures: microseconds of CPU a transaction and a reference loop, and bytes.

    `rss` is the largest RSS, `own` the largest part of it that is no map of a file.
    """

    cpu_us: float
    loop_us: float
    rss: int
    own: int

    @property
    def cpu_loops(self) -> float:
        """A transaction's CPU, in thousandths of a reference loop."""
        return 1000 * self.cpu_us / self.loop_us


def watch(
    options: RowOptions, result: RowResult, counts: dict[str, int], planted: bool = False
) -> None:
    for mode, count in counts.items():
        ages = list(aged(options.memory / f"growth-{mode}", mode, count, WINDOWS, planted))
        result.events += count
        if len(ages) < WINDOWS:
            result.violations.append(f"{mode}: nothing was measured over {count:,} transactions")
            continue
        early, late = ages[_EARLY], ages[_LATE]
        cpu_most, rss_most = _MOST_SHORT if count < FULL[mode] else MOST[mode]
        for name, most, least in (("cpu_loops", cpu_most, 0.0), ("rss", rss_most, _LITTLE_BYTES)):
            before, after = (min(getattr(age, name) for age in part) for part in (early, late))
            result.figures[f"{mode} {name} early"] = round(before)
            result.figures[f"{mode} {name} late"] = round(after)
            result.must(
                after <= most * before + least * (count < FULL[mode]),
                f"{mode}: {name} has grown from {before:,.0f} to {after:,.0f}, to more than {most} "
                f"times as much, over {count:,} transactions",
            )


def counts(options: RowOptions) -> dict[str, int]:
    part = QUICK_PART if options.quick else 1
    return {mode: count // part for mode, count in FULL.items()}


def aged(
    store: Path, mode: str, count: int, windows: int, planted: bool = False, loops: bool = True
) -> Iterator[Age]:
    """Runs `count` transactions in a process of its own; yields the windows, fewer if it fails."""
    words = call(main, store, mode, count, windows, int(planted), int(loops))
    try:
        with Children() as children:
            child = children.start(words, stdout=subprocess.PIPE, text=True)
            for line in child.stdout or ():
                yield Age(**json.loads(line))
    finally:
        shutil.rmtree(store, ignore_errors=True)


def _loop() -> float:
    """Runs the reference loop; returns its microseconds of CPU."""
    began = time.thread_time()
    held: dict[int, tuple[int, bytes]] = {}
    for n in range(2_000):
        held[n * _STRIDE % 1_000] = n, b"%d" % n
    return (time.thread_time() - began) * 1e6


def main(store: str, mode: Any, transactions: str, windows: str, planted: str, loops: str) -> None:
    """Measures in a process of its own, and prints the windows."""
    kept: list[bytes] = []
    with planstep.open(store, mode=mode, durability="os") as db:
        db.create_topic("t", 2, retention_bytes=RETAINED)
        tables = mode == "deterministic"
        if tables:
            db.create_table("rows")
            with db.transaction() as tx:
                for key in range(ROWS):
                    tx.put("rows", key, 0)

        def transact(number: int) -> None:
            with db.transaction(worker="w") as tx:
                tx.write("t", _VALUE, partition=number % 2)
                if tables:
                    tx.add("rows", number * _STRIDE % ROWS, 1)
            if int(planted):
                kept.append(b"x" * ((1 << 16) + number))
                sum(range(len(kept) ** 2 // 200))

        for window in range(int(windows)):
            first, end = (int(transactions) * (window + more) // int(windows) for more in (0, 1))
            age = _measured(transact, range(first, end), bool(int(loops)))
            print(json.dumps(asdict(age)), flush=True)


def _measured(transact: Callable[[int], None], numbers: range, loops: bool) -> Age:
    every = max(1, len(numbers) // _SAMPLES)
    looped, rss, own, began = [], 0, 0, time.process_time()
    for number in numbers:
        transact(number)
        if number % every == 0:
            rss, own = max(rss, rss_bytes()), max(own, own_bytes())
            if loops:
                looped.append(_loop())
    spent = (time.process_time() - began) * 1e6 - sum(looped)
    loop_us = sum(looped) / len(looped) if looped else 0.0
    return Age(spent / max(1, len(numbers)), loop_us, rss, own)
