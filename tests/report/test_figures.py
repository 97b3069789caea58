"""Tests the report's figures, made of traces: standard percentiles, none where a trace has too little data."""

import json
from pathlib import Path
from typing import Any

import comparisons
import pytest

from planstep.bench.compare.measure import Latencies
from planstep.bench.report.html.figures import CURVE, MOMENTS, distribution, figures, of_run

MS = 1e6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    _, outcome = comparisons.outcome("reshard", systems=("deterministic", "kafka"))
    comparisons.save_traces(folder, outcome)
    return folder


@pytest.fixture
def summary() -> dict[str, Any]:
    return comparisons.summary(*comparisons.outcome("reshard", systems=("deterministic", "kafka")))


NAME = "reshard-deterministic-full-shared-0"


@pytest.fixture
def run(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    return of_run(folder / "traces" / NAME, summary)


@pytest.mark.parametrize("count", [1, 2, 7, 100, 1003])
def test_percentiles_are_those_of_latencies(count: int) -> None:
    import numpy as np

    values = [(n * 7919 % 1009) / 7 for n in range(count)]
    summary = distribution(np.array(values))
    latencies = Latencies()
    for value in values:
        latencies.add(value * MS)
    assert summary is not None
    curve = summary.pop("curve")
    assert summary.pop("count") == count
    assert summary == latencies.summary()
    assert [share for share, _ in curve] == list(CURVE)
    assert [ms for _, ms in curve] == sorted(ms for _, ms in curve)
    assert dict(map(tuple, curve))[0.5] == summary["p50"] and curve[-1][1] == summary["max"]
    assert distribution(np.array([])) is None


def test_latencies_are_those_of_the_rows(run: dict[str, Any]) -> None:
    trace = comparisons.trace(comparisons.cell())
    expected = {
        "write_ms": [b.written - b.intended for b in trace.batches],
        "commit_ms": [t.reply - t.proposed for t in trace.transactions],
        "visible_ms": [t.visible - t.proposed for t in trace.transactions],
        "end_to_end_ms": [b.read - b.intended for b in trace.batches for _ in range(b.records)],
    }
    for name, nanoseconds in expected.items():
        latencies = Latencies()
        for value in nanoseconds:
            latencies.add(value)
        figures = {k: v for k, v in run["latencies"][name].items() if k not in ("count", "curve")}
        assert figures == latencies.summary(), name
        assert run["latencies"][name]["count"] == len(nanoseconds)


def test_throughput_is_what_was_committed_when_it_was_answered(run: dict[str, Any]) -> None:
    points = run["throughput"]["points"]
    assert [at for at, _, _ in points] == [n * 0.5 for n in range(len(points))]
    size = comparisons.TRANSACTIONS * comparisons.PIECES * 5000
    assert sum(mb for _, mb, _ in points) * 0.5 == pytest.approx(size / 1e6)
    assert sum(tx for *_, tx in points) * 0.5 == comparisons.TRANSACTIONS


def test_phases_are_medians_and_the_transaction_of_median_length(run: dict[str, Any]) -> None:
    phases = run["phases"]
    assert phases["moments"] == list(MOMENTS)
    assert set(phases["medians_ms"]) == set(MOMENTS[1:])
    example = phases["example"]
    assert example["tx"] == 6, "the sixth of twelve by length"
    assert example["moments"]["begin"] == 0.0
    assert example["moments"]["proposed"] == 96.0
    assert len(example["batches"]) == comparisons.PIECES
    assert example["batches"][0] == {
        **{"intended": -5.0, "written": -4.0},
        **{"published": example["moments"]["visible"], "read": example["moments"]["visible"] + 1},
    }


def test_costs_and_resources(run: dict[str, Any]) -> None:
    assert run["costs"]["requests"] == 4.0 and run["costs"]["participants"] == 2.0
    assert run["costs"]["messages"] is None
    first = run["resources"]["points"][0]
    assert len(run["resources"]["points"]) == 7
    assert first == [0.5, 0.4, 50.0, 4.0, 4.0, 0.0]


def test_a_moment_that_no_transaction_has_is_none(folder: Path, summary: dict[str, Any]) -> None:
    run = of_run(folder / "traces" / "reshard-kafka-full-separate-0", summary)
    assert run["phases"]["medians_ms"]["planned"] is None
    assert run["phases"]["example"]["moments"]["planned"] is None


@pytest.mark.parametrize("field", ["verified", "sustained"])
def test_what_did_not_verify_or_keep_up_has_no_latencies(
    folder: Path, summary: dict[str, Any], field: str
) -> None:
    summary["systems"]["deterministic"]["reshard"]["full"]["shared"][field] = False
    run = of_run(folder / "traces" / NAME, summary)
    assert set(run["latencies"].values()) == {None}
    assert run["throughput"]["points"], "what went through was measured all the same"


def test_a_repeat_that_was_late_has_no_latencies(folder: Path, summary: dict[str, Any]) -> None:
    trace = comparisons.trace(comparisons.cell())
    trace.about["sustained"] = False
    trace.save(folder / "late")
    assert set(of_run(folder / "late", summary)["latencies"].values()) == {None}


@pytest.mark.parametrize(
    "workload, expected",
    [
        ("plain", {"write_ms", "end_to_end_ms"}),
        ("chain", {"commit_ms", "visible_ms"}),
        ("plain-beside", {"commit_ms", "visible_ms"}),
        ("interval", set()),
        ("held-open", set()),
        ("faults", set()),
    ],
)
def test_a_latency_that_means_something_else_there_is_none(
    tmp_path: Path, workload: str, expected: set[str]
) -> None:
    summary = comparisons.summary(*comparisons.outcome(workload))
    comparisons.trace(comparisons.cell(workload)).save(tmp_path)
    latencies = of_run(tmp_path, summary)["latencies"]
    assert {name for name, figures in latencies.items() if figures} == expected


def test_at_full_speed_only_commits_have_a_latency(tmp_path: Path, summary: dict[str, Any]) -> None:
    trace = comparisons.trace(comparisons.cell())
    trace.about["cell"]["shape"]["rate"] = None
    trace.save(tmp_path)
    latencies = of_run(tmp_path, summary)["latencies"]
    assert latencies["commit_ms"] and latencies["write_ms"] is latencies["end_to_end_ms"] is None


def test_an_empty_trace_has_figures_of_nothing(tmp_path: Path, summary: dict[str, Any]) -> None:
    trace = comparisons.trace(comparisons.cell())
    for rows in (trace.transactions, trace.batches, trace.resources):
        rows.clear()
    trace.save(tmp_path)
    run = of_run(tmp_path, summary)
    assert run["throughput"]["points"] == run["resources"]["points"] == []
    assert run["phases"]["example"] is None and run["outcomes"]["committed"] == 0
    assert set(run["latencies"].values()) == {None}


def test_a_trace_that_is_gone_or_no_trace_is_named(tmp_path: Path) -> None:
    options, outcome = comparisons.outcome("reshard", systems=("deterministic", "kafka"))
    summary = comparisons.summary(options, outcome)
    comparisons.save_traces(tmp_path, outcome)
    traces = tmp_path / "traces"
    (traces / NAME / "batches.parquet").unlink()
    other = traces / "reshard-kafka-full-separate-0"
    about = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**about, "schema": 99}))
    (traces / "reshard-deterministic-full-separate-0" / "seen.parquet").write_bytes(b"nonsense")
    drawn_from = figures(tmp_path, summary)
    assert drawn_from["source"] == "python" and drawn_from["schema_version"] == 1
    assert NAME in drawn_from["left_out"] and NAME not in drawn_from["runs"]
    assert "schema 99" in drawn_from["left_out"][other.name]
    assert "reshard-deterministic-full-separate-0" in drawn_from["left_out"]
    assert set(drawn_from["runs"]) == {"reshard-kafka-full-shared-0"}
    json.dumps(drawn_from, allow_nan=False)
