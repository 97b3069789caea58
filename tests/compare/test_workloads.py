"""Tests every workload on every system that can run it: only lost or repeated data fails verification."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.cell import OK, Result
from planstep.bench.compare.cell import Cell as BenchCell
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.systems import ENTRIES, headline, open_system, sqlite, sqlite_store
from planstep.bench.compare.systems.base import SHARED_ROWS, STAGING, Certificate, Options
from planstep.bench.compare.workloads import aborts, interval, log_batching, retrying, small
from planstep.bench.compare.workloads.base import Shape
from planstep.bench.compare.workloads.retrying import RetryQueue
from planstep.bench.judges.trace import ABORTED, COMMITTED, CONSUMER, INDIVIDUAL, PRODUCE, Trace

SMALL = Shape(
    rate=1.0, record_size=256, partitions=3, commit_interval=0.03, duration=0.35, workers=3
)
EMBEDDED = [name for name, entry in ENTRIES.items() if not entry.peer]
"""Peers have tests of their own."""
SYSTEMS = [name for name in EMBEDDED if name != "kafka-batched" and not name.endswith("ungrouped")]
"""The others are kinds of these, for log-batching."""
NAMES = ["small", "contention", "held-open", "plain-beside", "interval", "chain"]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduces the input to a third of a second, and gives readers and the last records time on a slow machine."""
    monkeypatch.setattr(small, "THREADS", (1, 2, 6))
    monkeypatch.setattr(interval, "_BYTES_PER_SECOND_MAX", 10_000_000)
    monkeypatch.setattr("planstep.bench.compare.workloads.driving._LAST_SECONDS", 600.0)
    for module in ("chain", "held_open"):
        monkeypatch.setattr(f"planstep.bench.compare.workloads.{module}._GRACE_NS", 600 * 10**9)


def run_workload(path: Path, workload: str, system: str, **more: Any) -> Result:
    options = Options(placement=headline(system))
    return run_cell(BenchCell(workload, system, options, replace(SMALL, **more)), path / "cell")


def long_enough(
    enough: Callable[[Result], object],
    path: Path,
    workload: str,
    system: str,
    duration: float = SMALL.duration,
    **more: Any,
) -> Result:
    """Runs a workload that ends by the clock, which must verify, with more time until there was enough of it.

    On a busy machine a part of a tenth of a second may be over before its threads come to their work.
    """
    for doubled in range(6):
        result = run_workload(path, workload, system, duration=duration * 2**doubled, **more)
        assert (result.status, result.verified, result.problems) == (OK, True, [])
        if enough(result):
            break
    return result


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("workload", NAMES)
def test_it_verifies(tmp_path: Path, workload: str, system: str) -> None:
    result = long_enough(lambda one: one.records and one.transactions, tmp_path, workload, system)
    assert result.records > 0 and result.transactions > 0
    assert result.extra
    trace = Trace.load(tmp_path / "cell" / "trace")
    outcomes = [row.outcome for row in trace.transactions]
    assert outcomes.count(COMMITTED) >= result.transactions
    assert set(outcomes) <= {COMMITTED, ABORTED}
    numbers = [row.tx for row in trace.transactions]
    assert len(set(numbers)) == len(numbers)
    assert {op.tx for op in trace.operations} <= set(numbers)
    committed = {row.tx for row in trace.transactions if row.outcome == COMMITTED}
    consumers = {lane.key for lane in trace.lanes if lane.kind == CONSUMER}
    assert consumers <= {INDIVIDUAL if system == "pulsar-individual" else ""}
    consumed: dict[int, list[tuple[int, int]]] = {}
    for op in trace.operations:
        if op.tx in committed and trace.lanes[op.lane].kind == CONSUMER:
            consumed.setdefault(op.lane, []).append((op.begin, op.end))
    for spans in consumed.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    counts = {(op.lane, op.tx): op.records for op in trace.operations if op.op == PRODUCE}
    stored = Counter(zip(trace.records.lane, trace.records.tx, strict=True))
    for (lane, tx), count in stored.items():
        assert tx < 0 or counts[lane, tx] == count, "so many of its own, whoever wrote between them"


def passing(trace: Trace, staged: bool) -> int:
    """Counts records that were due after a transaction's write to their partition, and seen before its commit.

    `staged`: counts only transactions whose write is known to be there, by a flush. Where a write may wait in its
    client until the commit, the begin of other transactions proves nothing.
    """
    pieces = {
        (trace.lanes[batch.lane].partition, ordinal): batch
        for batch in trace.batches
        for ordinal in range(batch.begin, batch.begin + batch.records)
    }
    rows = {row.tx: row for row in trace.transactions}
    reads = trace.seen
    records = list(zip(reads.lane, reads.source, reads.ordinal, reads.tx, reads.at, strict=True))
    first_read: dict[tuple[int, int], int] = {}
    for lane, source, ordinal, tx, _ in records:
        if tx >= 0:
            piece, row = pieces.get((source, ordinal)), rows[tx]
            at = piece.written if piece is not None and row.staged else row.staged or row.begin
            assert at is not None
            if staged and not row.staged:
                continue
            first_read[lane, tx] = min(at, first_read.get((lane, tx), at))
    passed = 0
    for lane, source, ordinal, _, at in records:
        piece = pieces.get((source, ordinal))
        passed += piece is not None and any(
            of == lane and since < piece.intended and at < (rows[tx].proposed or 0)
            for (of, tx), since in first_read.items()
        )
    return passed


@pytest.mark.parametrize("workload", ["held-open", "plain-beside"])
@pytest.mark.parametrize("system", ["deterministic", "kafka", "pulsar", "sqlite"])
def test_who_is_held_up_by_an_open_transaction(tmp_path: Path, workload: str, system: str) -> None:
    """In modes that write in place readers stop before an open transaction; others do not notice it."""
    in_place, found = system in ("kafka", "pulsar"), []

    def enough(result: Result) -> bool:
        trace = Trace.load(tmp_path / "cell" / "trace")
        if workload == "held-open" and in_place:
            assert any(row.staged for row in trace.transactions)
        found.append(passing(trace, staged=in_place))
        return in_place or found[-1] > 0

    shape = {"duration": 0.8, "commit_interval": 0.25}
    result = long_enough(enough, tmp_path, workload, system, **shape)
    assert (found[-1] == 0) == in_place
    if workload == "held-open":
        held_s = pytest.approx(0.6 * result.cell.shape.duration)
        assert result.extra["held_committed"] and result.extra["held_s"] == held_s
        with open_store(tmp_path, system) as opened:
            assert result.extra["staged"] == (STAGING not in opened.missing)


@pytest.mark.parametrize("workload", ["chain", "interval", "plain-beside", "reshard"])
def test_large_records_are_as_large_as_was_asked(tmp_path: Path, workload: str) -> None:
    shape = {"record_size": 65_560, "rate": 4.0, "duration": 0.2}
    result = long_enough(lambda one: one.records, tmp_path, workload, "deterministic", **shape)
    batches = Trace.load(tmp_path / "cell" / "trace").batches
    assert {batch.bytes / batch.records for batch in batches} == {65_560}
    assert max(batch.bytes for batch in batches) <= 1 << 20
    if workload == "chain":
        assert result.offered_mb_s == pytest.approx(1.0)


def test_each_worker_has_its_own_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "THREADS", (1, 34))
    assert run_workload(tmp_path, "small", "kafka").verified


def test_what_is_not_possible_is_said(tmp_path: Path) -> None:
    for system in ("kafka", "deterministic"):
        result = long_enough(lambda one: one.transactions, tmp_path, "contention", system)
        with open_store(tmp_path, system) as opened:
            reason = opened.missing.get(SHARED_ROWS)
        assert result.extra["hot_rows"].get("impossible") == reason
        consumer = result.extra["hot_consumer"]
        assert consumer["successes"] > 0
        assert 1 <= consumer["attempts_p99"] <= consumer["attempts_max"]
        assert result.transactions == result.extra["hot_consumer"]["successes"], "all can do that"
        assert result.cancelled == result.extra["hot_consumer"]["cancelled"]


def test_an_interval_that_the_time_is_too_short_for_is_left_out(tmp_path: Path) -> None:
    def enough(result: Result) -> bool:
        return result.extra["10"]["relative_to_plain"] and result.extra["10"]["transactions"]

    extra = run_workload(tmp_path, "interval", "deterministic").extra
    assert "3.3 s" in extra["500"]["left_out"]
    extra = long_enough(enough, tmp_path, "interval", "deterministic").extra
    assert extra["10"]["relative_to_plain"] > 0 and extra["10"]["transactions"] > 0


@pytest.mark.parametrize("duration", [0.1, 2.0, 3.2, 86_400.0])
def test_parts_of_small_share_the_time_and_have_orders_for_it(duration: float) -> None:
    parts = small.parts(duration)
    assert sum(part.seconds for part in parts) == pytest.approx(duration)
    assert tuple(part.threads for part in parts) == small.THREADS
    for part in parts:
        assert part.orders * part.threads >= 20_000 * part.seconds, "SQLite takes 14,000 a second"


def test_each_part_of_small_has_its_figures_and_the_first_is_the_runs(tmp_path: Path) -> None:
    def enough(result: Result) -> bool:
        return all(part["transactions"] for part in result.extra["concurrency"].values())

    result = long_enough(enough, tmp_path, "small", "deterministic", duration=0.6)
    parts = result.extra["concurrency"]
    assert [part["threads"] for part in parts.values()] == [1, 2, 6]
    for part in parts.values():
        assert part["transactions"] > 0 and part["transactions_per_second"] > 0
        assert 0 < part["commit_ms"]["p50"] <= part["done_ms"]["p99"]
        assert min(part[cost] for cost in ("cpu_ms", "disk_bytes", "syncs", "appends")) > 0
    first = parts["1"]
    assert (result.transactions, result.commit_ms) == (first["transactions"], first["commit_ms"])
    assert result.cpu_ms_per_transaction == pytest.approx(first["cpu_ms"], abs=0.001)
    assert result.syncs_per_transaction == pytest.approx(first["syncs"], abs=0.001)
    trace = Trace.load(tmp_path / "cell" / "trace")
    committed = [row.worker for row in trace.transactions if row.outcome == COMMITTED]
    warm = len(committed) - sum(part["transactions"] for part in parts.values())
    assert result.records == len(committed) and warm == 1 + 2 + 6
    assert set(committed) == {f"small-{n}" for n in range(6)}


def test_a_client_starts_before_the_clock_of_a_part_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of peers connect with their first transaction, which takes long."""
    measured: list[retrying.Meter] = []
    started: dict[str, int] = {}

    class Meter(retrying.Meter):
        def __init__(self, run: Any) -> None:
            measured.append(self)
            super().__init__(run)

        def stop(self) -> None:
            super().stop()
            measured.remove(self)

    worker = sqlite.SqliteSystem.worker

    def noting(system: Any, name: str, *args: Any) -> Any:
        begin = worker(system, name, *args)

        def noted() -> Any:
            started.setdefault(name, len(measured))
            return begin()

        return noted

    monkeypatch.setattr(retrying, "Meter", Meter)
    monkeypatch.setattr(sqlite.SqliteSystem, "worker", noting)
    assert run_workload(tmp_path, "small", "sqlite", duration=0.6).verified
    assert started == {"warmer": 0, **{f"small-{n}": 0 for n in range(6)}}


def test_orders_that_are_used_up_end_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "_SECONDLY", 3)
    result = run_workload(tmp_path, "small", "sqlite", duration=20.0)
    loaded = sum(part.orders * part.threads for part in small.parts(20.0))
    assert result.verified and result.records == loaded
    assert result.extra["concurrency"]["6"]["orders_used_up_by"] == 6


def test_the_oldest_in_line_is_behind_nobody() -> None:
    waiting = RetryQueue()
    old, young = (1, 7), (2, 3)
    assert waiting.rank(young) == (0, 0)
    assert waiting.rank(old) == (0, 0) and waiting.rank(young) == (1, 1)
    waiting.leave(old, True)
    waiting.leave(old, False)
    assert waiting.rank(young) == (0, 0)  # one of them has won


class _Flaw:
    """Makes SQLite omit, or write twice, the last record of one transaction."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        self.done = False
        self._applied = 0
        whole = sqlite_store.Store._apply

        def apply(store: Any, n: int, change: sqlite_store.Change) -> Any:
            loading = threading.current_thread() is threading.main_thread()
            if self.done or loading or not change.records:
                return whole(store, n, change)
            self._applied += 1
            if self._applied > 2:
                records = next(iter(change.records.values()))
                records[-1:] = [] if kind == "lost" else records[-1:] * 2
            answer = whole(store, n, change)
            self.done = self._applied > 2 and isinstance(answer, Certificate)
            return answer

        monkeypatch.setattr(sqlite_store.Store, "_apply", apply)


@pytest.mark.parametrize("kind", ["lost", "repeated"])
@pytest.mark.parametrize("workload", NAMES)
def test_a_record_that_is_lost_or_repeated_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str, kind: str
) -> None:
    monkeypatch.setattr("planstep.bench.compare.workloads.driving._LAST_SECONDS", 0.1)
    monkeypatch.setattr("planstep.bench.compare.workloads.chain._GRACE_NS", 100_000_000)
    for doubled in range(6):  # on a busy machine there may be too few transactions in a short time
        with monkeypatch.context() as patch:
            flaw = _Flaw(patch, kind)
            result = run_workload(
                tmp_path, workload, "sqlite", duration=SMALL.duration * 2**doubled
            )
        if flaw.done:
            break
    assert flaw.done and not result.verified and result.problems
    assert result.missing if kind == "lost" else result.duplicated
    assert result.throughput_mb_s is None and not result.extra


@pytest.mark.parametrize(
    "workload, violation", [("small", "balance"), ("contention", "lost updates")]
)
def test_a_row_that_is_not_written_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str, violation: str
) -> None:
    lost: list[str] = []
    whole = sqlite._Work.commit

    def commit(work: Any) -> Any:
        if work.change.rows and not lost:
            lost.append(work.id)
            work.change.rows.popitem()
        return whole(work)

    monkeypatch.setattr(sqlite._Work, "commit", commit)
    result = run_workload(tmp_path, workload, "sqlite")
    assert lost and not result.verified
    assert result.violations_by[violation] >= 1 and result.problems


def open_store(path: Path, system: str) -> Any:
    return closing(open_system(system, path / f"look-{system}", Options()))


@pytest.mark.parametrize("system", EMBEDDED)
def test_records_and_entries_of_logs_are_counted_at_each_rate(
    tmp_path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_batching, "RATES", (30, 60))
    monkeypatch.setattr(log_batching, "PART_S", 0.6)

    def enough(result: Result) -> bool:
        return all(part["per_second"] for part in result.extra.values())

    result = long_enough(enough, tmp_path, "log-batching", system, duration=1.2)
    assert list(result.extra) == ["30", "60"] and result.transactions == result.records > 0
    for part in result.extra.values():
        assert ("done_ms" in part) == part["sustained"]
        if part["records"] is not None:
            assert part["records"] >= part["appends"] >= part["entries"] > 0
            assert (part["records_per_append"] > 1) == ("batched" in system)
        if system.startswith("pulsar"):
            assert part["records"] >= 9
            assert system != "pulsar-ungrouped" or part["entries"] >= 8.9


@pytest.mark.parametrize("system", SYSTEMS)
def test_aborted_ids_cost_snapshots_where_a_mode_takes_them(
    tmp_path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborts, "SIZES", (4, 40))
    monkeypatch.setattr(aborts, "ENDS", 30)
    options = Options(placement=headline(system), snapshot_transactions=5)
    cell = BenchCell("aborts", system, options, replace(SMALL, duration=0.35))
    result = run_cell(cell, tmp_path / "cell")
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    assert result.transactions == result.records == 30, "one in two"
    outcomes = Counter(row.outcome for row in Trace.load(tmp_path / "cell/trace").transactions)
    assert outcomes == {ABORTED: 44 + 30, COMMITTED: 30}
    few, many = (result.extra[size]["snapshot_bytes"] for size in ("4", "40"))
    assert many > few > 0 if system.startswith("pulsar") else few is many is None
    assert all(result.extra[size]["first_read_ms"] >= 0 for size in ("4", "40"))


def test_an_aborted_record_that_is_shown_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborts, "SIZES", (4,))
    monkeypatch.setattr(aborts, "ENDS", 30)
    monkeypatch.setattr(aborts.WorkerRun, "rollback", aborts.WorkerRun.commit)
    result = run_workload(tmp_path, "aborts", "pulsar")
    assert not result.verified and result.duplicated
