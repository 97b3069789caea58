"""Damages a copy of a store: one record lost, repeated, swapped, torn off, or of an aborted transaction.

The judge must find it in the records that an engine reads there; nothing of the trace is changed.
"""

import shutil
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import evil
import pytest

import planstep
from planstep.bench.judges.python import PLANNED, judge
from planstep.bench.judges.python.findings import INCONSISTENT_OFFSET
from planstep.bench.judges.python.plant import IN_STORES
from planstep.bench.judges.trace import (
    ABORTED,
    COMMITTED,
    PRODUCE,
    TOPIC,
    Operation,
    Records,
    Trace,
    Transaction,
    identity,
)

PARTITIONS = 4
IN_FLIGHT = 256


class StoreRun(NamedTuple):
    store: Path
    trace: Trace


def run(store: Path, transactions: int) -> StoreRun:
    """Runs transactions of two records in one partition, every fourth with one more in the next; some are rolled
    back."""
    trace = Trace()
    lanes = [trace.lane(TOPIC, "out", p) for p in range(PARTITIONS)]
    flying: deque[tuple[int, int, Future[planstep.Commit]]] = deque()

    def settle() -> None:
        tx, begin, future = flying.popleft()
        commit = future.result()
        for (_, partition), (start, end) in commit.published.items():
            produced = Operation(tx, PRODUCE, lanes[partition], start, end, end - start)
            trace.operations.append(produced)
        step, n = commit.place
        now = time.monotonic_ns()
        row = Transaction(tx, commit.id, "w", COMMITTED, step, n, begin=begin, reply=now)
        trace.transactions.append(row)

    with planstep.open(store, durability="os") as db:
        db.create_topic("out", partitions=PARTITIONS)
        for i in range(transactions):
            tx, begin, first = trace.next_tx(), time.monotonic_ns(), i % PARTITIONS
            work = db.transaction()
            two = [identity(first, 3 * i + j, tx) for j in range(2)]
            work.write_batch("out", two, partition=first)
            if i % 4 == 1:
                work.write("out", identity(first, 3 * i + 2, tx), partition=first + 1)
            flying.append((tx, begin, work.submit()))
            if len(flying) >= IN_FLIGHT:
                settle()
            if i % 50 == 0:
                tx = trace.next_tx()
                work = db.transaction()
                work.write("out", identity(first, 0, tx), partition=first)
                work.rollback()
                trace.operations.append(Operation(tx, PRODUCE, lanes[first], records=1))
                trace.transactions.append(Transaction(tx, work.id, "w", ABORTED))
        while flying:
            settle()
    return StoreRun(store, trace)


def read(source: StoreRun, store: Path) -> Trace:
    """Returns the trace with the records of the store at `store`."""
    records = Records()
    with planstep.open(store, read_only=True) as db:
        topic = db.topic("out")
        for lane, (_, _, partition, _) in enumerate(source.trace.lanes):
            start = 0
            while values := topic.read(start, partition, max_records=100_000).values:
                records.add(lane, range(start, start + len(values)), values)
                start += len(values)
    return replace(source.trace, records=records)


def check(source: StoreRun, folder: Path, kind: str, seed: int) -> None:
    copy = folder / f"{kind}-{seed}"
    shutil.copytree(source.store, copy)
    evil.spoil(copy, source.trace, kind, seed)
    findings = judge(read(source, copy), mode=PLANNED)
    shutil.rmtree(copy)
    assert findings.counts.pop(kind, 0) == 1, findings.examples
    assert set(findings.counts) <= {INCONSISTENT_OFFSET}, findings.examples
    assert kind not in ("reordered", "aborted data visible") or not findings.counts


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreRun]:
    folder = tmp_path_factory.mktemp("large")
    yield run(folder / "store", 20_000)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> StoreRun:
    return run(tmp_path_factory.mktemp("small") / "store", 1_000)


def test_a_store_that_nobody_touched_has_nothing_wrong(large: StoreRun) -> None:
    findings = judge(read(large, large.store), mode=PLANNED)
    assert findings.clean and not findings.counts, findings.examples
    assert findings.looked_at["records"] == 45_000


@pytest.mark.parametrize("kind", IN_STORES)
def test_each_kind_is_found_in_a_store_of_20_000(
    large: StoreRun, tmp_path: Path, kind: str
) -> None:
    check(large, tmp_path, kind, seed=1)


@pytest.mark.parametrize("kind", IN_STORES)
def test_each_kind_is_found_from_several_seeds(small: StoreRun, tmp_path: Path, kind: str) -> None:
    for seed in range(4):
        check(small, tmp_path, kind, seed)
