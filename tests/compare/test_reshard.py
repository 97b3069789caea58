"""Tests runs of the workload reshard: verified, and reported when not sustained, incorrect or given up."""

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare import run_cell as runner
from planstep.bench.compare.cell import IMPOSSIBLE, OK, Cell, Result
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.systems import engine
from planstep.bench.compare.systems.base import Cancelled, Certificate, Options
from planstep.bench.compare.workloads import reshard_spark
from planstep.bench.compare.workloads.base import Shape
from planstep.bench.judges.trace import COMMITTED, CONSUME, PRODUCE, Trace

SMALL = Shape(rate=0.5, record_size=512, partitions=6, commit_interval=0.1, duration=0.5, workers=3)
WAYS = [
    ("deterministic", "shared"),
    ("deterministic", "separate"),
    ("kafka", "shared"),
    ("kafka", "separate"),
    ("kafka-v1", "separate"),
    ("pulsar", "shared"),
    ("pulsar", "separate"),
    ("pulsar-batched", "separate"),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets readers get all records on a slow machine, too."""
    monkeypatch.setattr("planstep.bench.compare.workloads.driving._LAST_SECONDS", 600.0)


def run_reshard(
    path: Path, system: str = "deterministic", placement: str = "shared", **more: Any
) -> Result:
    workload = more.pop("workload", "reshard")
    cell = Cell(workload, system, Options(placement=placement), replace(SMALL, **more))
    return run_cell(cell, path / "cell")


@pytest.mark.skipif(find_spec("pyspark") is None, reason="Spark is not installed")
def test_by_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reshard_spark, "SHARES", 2)
    result = run_reshard(tmp_path, "kafka", workload="reshard-spark")
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    assert result.transactions >= 2
    assert [p.name for p in (tmp_path / "cell").iterdir()] == ["trace"]
    trace = Trace.load(tmp_path / "cell" / "trace")
    assert len(trace.records) == len(trace.seen) == result.records > 400
    consumed = [op for op in trace.operations if op.op == CONSUME]
    assert sum(op.end - op.begin for op in consumed) == result.records
    assert sum(op.records for op in trace.operations if op.op == PRODUCE) == result.records


def test_spark_writes_to_this_engine_only(tmp_path: Path) -> None:
    result = run_reshard(tmp_path, "sqlite", workload="reshard-spark")
    assert result.status == IMPOSSIBLE


@pytest.mark.parametrize("system, placement", WAYS)
@pytest.mark.parametrize("workload", ["reshard", "plain"])
def test_it_verifies_and_leaves_a_trace(
    tmp_path: Path, workload: str, system: str, placement: str
) -> None:
    result = run_reshard(tmp_path, system, placement, workload=workload)
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    assert result.records == 486 - 486 % 3 or result.records > 400
    assert [p.name for p in (tmp_path / "cell").iterdir()] == ["trace"]
    trace = Trace.load(tmp_path / "cell" / "trace")
    assert sum(batch.records for batch in trace.batches) == result.records
    assert len(trace.records) == len(trace.seen) == result.records
    assert all(batch.read is not None for batch in trace.batches)
    for batch in trace.batches:
        assert batch.written is not None and batch.read is not None
        assert batch.intended <= batch.written and batch.intended <= batch.read
    if workload == "reshard":
        committed = [row for row in trace.transactions if row.outcome == COMMITTED]
        assert len(committed) == result.transactions
        consumed = [op for op in trace.operations if op.op == CONSUME]
        assert sum(op.end - op.begin for op in consumed) == result.records
        for row in committed:
            assert row.begin is not None and row.staged is not None and row.proposed is not None
            assert row.reply is not None and row.decided is not None and row.visible is not None
            assert row.begin <= row.staged <= row.proposed <= row.decided
            assert row.decided <= row.reply and row.decided <= row.visible
            assert (row.step is None) == (system != "deterministic")
            assert (row.epoch is None) == (not system.startswith("kafka"))
            assert row.appends and row.participants and row.participants >= 2


@pytest.mark.parametrize("workload", ["reshard", "plain"])
def test_at_maximum_rate_nothing_is_offered(
    tmp_path: Path, monkeypatch: Any, workload: str
) -> None:
    monkeypatch.setattr("planstep.bench.compare.workloads.reshard.INPUT_BYTES_MAX", 3_000_000)
    monkeypatch.setattr("planstep.bench.compare.workloads.reshard._MAX_PIECE_BYTES", 100_000)
    result = run_reshard(tmp_path, rate=None, duration=20.0, workload=workload)
    assert result.verified and result.records >= 3_000_000 // 512 // 200 * 195
    assert result.sustained is None and result.throughput_mb_s
    assert result.end_to_end_ms is None and result.write_ms is None
    assert result.generator_lag_ms is None, "nothing was due"


def test_real_events_are_resharded(tmp_path: Path) -> None:
    result = run_reshard(tmp_path, demo=True, record_size=None)
    assert result.verified and result.records > 400
    batches = Trace.load(tmp_path / "cell" / "trace").batches
    due = sum(batch.bytes for batch in batches) / 1e6 / 0.5
    assert result.offered_mb_s == pytest.approx(due, rel=0.02) == pytest.approx(0.5, rel=0.05)


def stumbling(monkeypatch: Any, commit: Any) -> None:
    """Makes the commits of every worker but the one that warms the process go through `commit`."""

    class Stumbling(engine.EngineSystem):
        def worker(self, name: str, consumer: str, number: int = 0) -> Any:
            whole = super().worker(name, consumer, number)
            if name == "warmer":
                return whole

            def begin() -> Any:
                work: Any = whole()
                work.commit = partial(commit, work.commit)
                return work

            return begin

    monkeypatch.setattr(engine, "EngineSystem", Stumbling)


def test_what_was_cancelled_is_done_again(tmp_path: Path, monkeypatch: Any) -> None:
    failed: list[int] = []

    def commit(inner: Any) -> Certificate:
        if len(failed) < 4:
            failed.append(1)
            raise Cancelled("Conflict")
        certificate: Certificate = inner()
        return certificate

    stumbling(monkeypatch, commit)
    result = run_reshard(tmp_path)
    assert result.verified and result.cancelled == 4


def test_an_error_that_no_retry_helps_ends_the_run(tmp_path: Path, monkeypatch: Any) -> None:
    def commit(inner: Any) -> Certificate:
        raise Cancelled("Aborted", retryable=False)

    stumbling(monkeypatch, commit)
    with pytest.raises(Cancelled):
        run_reshard(tmp_path)


def test_a_system_that_cannot_keep_up_has_no_latencies(tmp_path: Path, monkeypatch: Any) -> None:
    """Each commit takes two intervals, in every run: the open loop goes on, and reports its lag."""
    import time

    def commit(inner: Any) -> Certificate:
        time.sleep(0.25)
        certificate: Certificate = inner()
        return certificate

    stumbling(monkeypatch, commit)
    result = run_reshard(tmp_path)
    assert result.verified and result.sustained is False
    assert result.throughput_mb_s and result.generator_lag_ms
    assert result.end_to_end_ms is None and result.write_ms is None and result.commit_ms is None


def test_what_its_reader_never_got_was_not_sustained(tmp_path: Path, monkeypatch: Any) -> None:
    """Otherwise the slowest records would be the ones that no latency counts."""

    class Blind(engine.EngineSystem):
        def follower(self, topic: str) -> Any:
            poll = super().follower(topic)
            return lambda timeout: [part for part in poll(timeout) if part.partition != 1]

    monkeypatch.setattr(runner, "SUSTAINED_SHARE", 0.0)  # whatever else the machine is doing
    monkeypatch.setattr(runner, "_LAG_LIMIT", math.inf)
    result = run_reshard(tmp_path, commit_interval=5.0)
    assert result.verified and result.sustained and result.end_to_end_ms is not None
    monkeypatch.setattr("planstep.bench.compare.workloads.driving._LAST_SECONDS", 0.1)
    monkeypatch.setattr(engine, "EngineSystem", Blind)
    result = run_reshard(tmp_path, commit_interval=5.0)
    assert result.verified and result.sustained is False and result.end_to_end_ms is None


def test_visible_is_when_readers_can_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mode kafka, workers write to all partitions, so a record also waits until other workers' transactions
    end.

        resharder-0   begin ─ writes ─────────────────────────────────── commit
        resharder-1                    begin ─ writes ─ commit ─ replied          visible only now
    """
    written, replied = threading.Event(), threading.Event()

    def commit_last(commit: Any) -> Certificate:
        written.set()
        assert replied.wait(600)
        certificate: Certificate = commit()
        return certificate

    def commit_first(commit: Any) -> Certificate:
        certificate: Certificate = commit()
        replied.set()
        return certificate

    class Ordered(engine.EngineSystem):
        def worker(self, name: str, consumer: str, number: int = 0) -> Any:
            begin = super().worker(name, consumer, number)

            def begin_in_order() -> Any:
                if name != "resharder-0":
                    assert written.wait(600)
                work: Any = begin()
                if name == "resharder-0" and not written.is_set():
                    work.commit = partial(commit_last, work.commit)
                elif name == "resharder-1":
                    work.commit = partial(commit_first, work.commit)
                return work

            return begin if name == "warmer" else begin_in_order

    monkeypatch.setattr(engine, "EngineSystem", Ordered)
    monkeypatch.setattr("planstep.bench.compare.workloads.reshard._GIVEN_UP", 1e6)
    monkeypatch.setattr(runner, "_is_sustained", lambda run, result: True)
    result = run_reshard(tmp_path, "kafka", "separate")
    trace = Trace.load(tmp_path / "cell" / "trace")
    rows = {row.tx: row for row in trace.transactions if row.outcome == COMMITTED}
    for batch in trace.batches:
        assert batch.published == rows[batch.tx].visible
    last, first = (
        min((row for row in rows.values() if row.worker == name), key=lambda row: row.begin)
        for name in ("resharder-0", "resharder-1")
    )
    assert first.decided and first.visible and last.decided
    assert first.decided <= last.decided <= first.visible
    its_own = {
        (trace.lanes[batch.lane].partition, ordinal)
        for batch in trace.batches
        for ordinal in range(batch.begin, batch.begin + batch.records)
        if batch.tx == first.tx
    }
    reads = zip(trace.seen.source, trace.seen.ordinal, trace.seen.at, strict=True)
    seen = [at for source, ordinal, at in reads if (source, ordinal) in its_own]
    assert len(seen) == len(its_own) > 0
    assert last.decided <= min(seen), "they come behind records of the open one"
    waits = [(row.visible or 0) - (row.proposed or 0) for row in rows.values()]
    assert result.visible_ms is not None
    assert result.visible_ms["max"] == pytest.approx(max(waits) / 1e6, abs=0.001)


@pytest.mark.parametrize("workload", ["reshard", "plain"])
def test_a_key_whose_records_are_in_two_partitions_is_found(
    tmp_path: Path, monkeypatch: Any, workload: str
) -> None:
    class Flawed(engine.EngineSystem):
        def records(self, topic: str, partition: int) -> Iterator[Any]:
            for chunk in super().records(topic, partition):
                yield chunk._replace(keys=[b"a user", *chunk.keys[1:]])

    monkeypatch.setattr(engine, "EngineSystem", Flawed)
    result = run_reshard(tmp_path, workload=workload)
    assert not result.verified and result.violations_by == {"scattered": 5}


@pytest.mark.parametrize("flaw", ["lost", "repeated", "reordered", "foreign"])
def test_a_run_that_does_not_verify_has_no_figures(
    tmp_path: Path, monkeypatch: Any, flaw: str
) -> None:
    """The verifier sees one record less, a record twice, another order, or a record of no writer."""

    class Flawed(engine.EngineSystem):
        def records(self, topic: str, partition: int) -> Iterator[Any]:
            for n, chunk in enumerate(super().records(topic, partition)):
                values, offsets = list(chunk.values), list(chunk.offsets)
                if partition == 0 and n == 0:
                    _spoil(flaw, values, offsets)
                yield chunk._replace(values=values, offsets=offsets)

    monkeypatch.setattr(engine, "EngineSystem", Flawed)
    result = run_reshard(tmp_path)
    assert not result.verified and result.problems
    assert {
        "lost": result.missing,
        "repeated": result.duplicated,
        "reordered": result.out_of_order,
        "foreign": result.violations,
    }[flaw]
    assert result.throughput_mb_s is None and result.commit_ms is None


def _spoil(flaw: str, values: list[bytes], offsets: list[int]) -> None:
    if flaw == "lost":
        del values[3], offsets[3]
    elif flaw == "repeated":
        values[3:3] = [values[4]]
        offsets[3:3] = [offsets[4]]
    elif flaw == "foreign":
        values[3:3] = [runner.__name__.encode().ljust(24, b"\x7f")]
        offsets[3:3] = [0]
    else:
        sources = [value[:8] for value in values]
        a = next(n for n, source in enumerate(sources) if source in sources[n + 1 :])
        b = sources.index(sources[a], a + 1)
        values[a], values[b] = values[b], values[a]
