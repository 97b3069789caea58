"""Runs one small transaction (1 range, 1 topic write) at a time, in each mode, placement and protocol version.

A bare durable append runs for comparison. `hops` is the number of consecutive syncs that a commit waited for. It
explains most of the differences. Mode kafka with placement "separate" and version 1 also has a back-off of 20 ms
while the markers of the previous transaction are under way (KAFKA-5477).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planstep

ROUNDS = 500
WAYS = [
    ("deterministic", "shared", None),
    ("deterministic", "separate", None),
    ("kafka", "shared", 1),
    ("kafka", "shared", 2),
    ("kafka", "separate", 1),
    ("kafka", "separate", 2),
]


@pytest.mark.benchmark(group="one small transaction, by mode")
@pytest.mark.parametrize("mode, placement, version", WAYS)
def test_transaction(
    benchmark: Any, tmp_path: Path, mode: Any, placement: Any, version: Any
) -> None:
    with planstep.open(
        tmp_path / "s", mode=mode, placement=placement, protocol_version=version
    ) as db:
        db.create_topic("in")
        db.create_topic("out")
        db.topic("in").write_batch([b"x" * 100] * (ROUNDS + 1))
        last = ""

        def one() -> None:
            nonlocal last
            with db.transaction(worker="w") as tx:
                tx.read("in", "c", max_records=1)
                tx.write("out", b"y" * 100)
            last = tx.id

        benchmark.pedantic(one, rounds=ROUNDS)
        total = db.costs()
        benchmark.extra_info["hops"] = db.costs(last).hops
        benchmark.extra_info["syncs_per_transaction"] = round(total.syncs / ROUNDS, 2)


@pytest.mark.benchmark(group="one small transaction, by mode")
def test_bare_append(benchmark: Any, append: Callable[[bytes], None]) -> None:
    benchmark.pedantic(append, args=(b"z" * 400,), rounds=ROUNDS)
