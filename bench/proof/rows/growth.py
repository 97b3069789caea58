"""Measures what a small transaction costs in an old store beside a young one: CPU and memory.

    a child     COUNT small transactions ─▶ the old store ─┐
    a child     a third of them ─────────▶ the young one ──┴▶ ROUNDS blocks each, in turns ─▶ old ≤ MOST × young

The file system is in memory and durability is "os", so only the engine's own work is left, checkpoints and
retention included. A transaction writes a record and, if there are tables, adds to one of ROWS rows, which lie
far apart. A partition keeps RETAINED bytes, so that what grows is not the user's data.

CPU time of the same work differs by a half as other work on the machine comes and goes. Blocks that take turns
meet the same machine.

Negative control: each transaction takes a little more CPU and memory than the one before.

Left out: growth beyond COUNT; elapsed time.

Next: leak.py: this is a part of its row; ../../micro/age.py prints the cost for a million transactions.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import planstep

from ...children import Child, Children, call
from ...compare.measure import own_bytes, rss_bytes
from .registry import RowOptions, RowResult

FULL: dict[str, int] = {"deterministic": 300_000, "kafka": 60_000, "pulsar": 60_000}
QUICK_PART, CONTROL_COUNT = 25, 4_000
ROUNDS = 20
MOST = {"cpu_us": 1.15, "own": 1.15}
"""How many times as much CPU, and memory that is no map of a file, the old store may take. On a quiet machine it
took 0.99 to 1.06 times the CPU and 1.02 to 1.10 times the memory."""
_MOST_SHORT = {"cpu_us": 1.5, "own": 1.5}
_LITTLE_BYTES = 32 << 20
"""Memory to ignore in a short run: the interpreter's own warm-up."""
_YOUNG_PART, _BLOCK_PART = 3, 50
ROWS, _STRIDE, _VALUE = 20_000, 7919, b"v" * 100
RETAINED = 1 << 20
_SAMPLES = 100
"""Samples of memory in a block."""


@dataclass(frozen=True)
class Age:
    """A block's figures: microseconds of CPU a transaction, and bytes.

    `rss` is the largest RSS, `own` the largest part of it that is no map of a file.
    """

    cpu_us: float
    rss: int
    own: int


class AgingStore:
    """A store that a child process ages, block by block."""

    def __init__(self, child: Child) -> None:
        assert child.stdin is not None and child.stdout is not None
        self._asks, self._answers = child.stdin, child.stdout

    def run(self, transactions: int) -> Age:
        """Runs so many more transactions. EOFError if the child has failed."""
        try:
            self._asks.write(f"{transactions}\n")
            self._asks.flush()
        except OSError:
            raise EOFError from None
        line = self._answers.readline()
        if not line:
            raise EOFError
        return Age(**json.loads(line))


@contextmanager
def aging_stores(folder: Path, mode: str, count: int, planted: bool) -> Iterator[list[AgingStore]]:
    """Makes so many new stores, each in a process of its own."""
    folders = [Path(f"{folder}-{number}") for number in range(count)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    try:
        with Children() as children:
            yield [
                AgingStore(children.start(call(main, path, mode, int(planted)), **pipes))
                for path in folders
            ]
    finally:
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)


def watch(
    options: RowOptions, result: RowResult, counts: dict[str, int], planted: bool = False
) -> None:
    for mode, count in counts.items():
        result.events += count
        block = max(1, count // _BLOCK_PART)
        rounds: list[tuple[Age, Age]] = []
        try:
            with aging_stores(options.memory / f"growth-{mode}", mode, 2, planted) as (old, young):
                old.run(count)
                young.run(count // _YOUNG_PART)
                rounds += [(old.run(block), young.run(block)) for _ in range(ROUNDS)]
        except EOFError:
            result.violations.append(f"{mode}: nothing was measured over {count:,} transactions")
            continue
        short = count < FULL[mode]
        for name, most in (_MOST_SHORT if short else MOST).items():
            late, early = (
                fmean(getattr(age, name) for age in ages) for ages in zip(*rounds, strict=True)
            )
            result.figures[f"{mode} {name} young"] = round(early)
            result.figures[f"{mode} {name} old"] = round(late)
            little = _LITTLE_BYTES if short and name == "own" else 0
            result.must(
                late <= most * early + little,
                f"{mode}: {name} has grown from {early:,.0f} to {late:,.0f}, to more than {most} "
                f"times as much, over {count:,} transactions",
            )


def counts(options: RowOptions) -> dict[str, int]:
    part = QUICK_PART if options.quick else 1
    return {mode: count // part for mode, count in FULL.items()}


def main(store: str, mode: Any, planted: str) -> None:
    """Ages a store in a process of its own: for each number of stdin it runs so many transactions, and prints the
    figures."""
    kept: list[bytes] = []
    with planstep.open(store, mode=mode, durability="os") as db:
        db.create_topic("t", 2, retention_bytes=RETAINED)
        tables = db.context.runtime.hooks.has_tables
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

        first = 0
        for line in sys.stdin:
            numbers = range(first, first := first + int(line))
            print(json.dumps(asdict(_measured(transact, numbers))), flush=True)


def _measured(transact: Callable[[int], None], numbers: range) -> Age:
    every = max(1, len(numbers) // _SAMPLES)
    rss, own, began = 0, 0, time.process_time()
    for number in numbers:
        transact(number)
        if number % every == 0:
            rss, own = max(rss, rss_bytes()), max(own, own_bytes())
    spent = (time.process_time() - began) * 1e6
    return Age(spent / max(1, len(numbers)), rss, own)
