"""Measures the cost of a small transaction as a store gets older: CPU and memory, window by window.

    a child     COUNT small transactions ─▶ for each of WINDOWS: CPU of a transaction, RSS
    the judge   the last windows against the early ones: at most CPU_MOST and RSS_MOST times as much

The file system is in memory and durability is "os", so only the engine's own work is left, checkpoints
included. A transaction writes a record and, if there are tables, one of ROWS rows, which lie far apart.

Negative control: each transaction takes a little more CPU and memory than the one before.

Left out: growth beyond COUNT; elapsed time.

Next: leak.py: this is a part of its row.
"""

import json
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import planstep

from ...children import Children, call
from ...compare.measure import rss_bytes
from .registry import RowOptions, RowResult

FULL: dict[str, int] = {"deterministic": 300_000, "kafka": 50_000}
QUICK_PART, CONTROL_COUNT = 25, 4_000
WINDOWS = 20
_EARLY, _LATE = slice(2, 7), slice(-5, None)
CPU_MOST = RSS_MOST = 2.2
"""Current limits; the aim is hardly more than 1."""
_LITTLE_BYTES = 32 << 20
"""Memory to ignore in a short run: the interpreter's own warm-up."""
ROWS, _STRIDE, _VALUE = 100_000, 7919, b"v" * 100
_SECONDS = 3600.0


@dataclass(frozen=True)
class Age:
    """One window: microseconds of CPU a transaction, bytes at its end."""

    cpu_us: float
    rss: int


def watch(
    options: RowOptions, result: RowResult, counts: dict[str, int], planted: bool = False
) -> None:
    for mode, count in counts.items():
        ages = _measure(options.memory / f"growth-{mode}", mode, count, planted)
        result.events += count
        if not ages:
            result.violations.append(f"{mode}: nothing was measured over {count:,} transactions")
            continue
        early, late = ages[_EARLY], ages[_LATE]
        for name, most, least in (("cpu_us", CPU_MOST, 0.0), ("rss", RSS_MOST, _LITTLE_BYTES)):
            before, after = (median(getattr(age, name) for age in part) for part in (early, late))
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


def _measure(store: Path, mode: str, count: int, planted: bool) -> list[Age]:
    words = call(main, store, mode, count, int(planted))
    try:
        with Children() as children:
            child = children.start(words, stdout=subprocess.PIPE, text=True)
            output, _ = child.communicate(timeout=_SECONDS)
    finally:
        shutil.rmtree(store, ignore_errors=True)
    return [] if child.returncode else [Age(**json.loads(line)) for line in output.splitlines()]


def main(store: str, mode: Any, transactions: str, planted: str) -> None:
    """Measures in a process of its own, and prints the windows."""
    leak: list[bytes] = []
    with planstep.open(store, mode=mode, durability="os") as db:
        db.create_topic("t", 2)
        tables = mode == "deterministic"
        if tables:
            db.create_table("rows")
        done = 0
        for window in range(WINDOWS):
            upto = int(transactions) * (window + 1) // WINDOWS
            began, first = time.process_time(), done
            while done < upto:
                with db.transaction(worker="w") as tx:
                    tx.write("t", _VALUE, partition=done % 2)
                    if tables:
                        tx.put("rows", done * _STRIDE % ROWS, done)
                if int(planted):
                    leak.append(b"x" * ((1 << 16) + done))
                    sum(range(len(leak) ** 2 // 200))
                done += 1
            spent = (time.process_time() - began) / max(1, done - first)
            print(json.dumps(asdict(Age(spent * 1e6, rss_bytes()))), flush=True)
