"""Tests a small comparison that really ran: its verdicts, percentiles and winners, and the command's output."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.cell import Cell
from planstep.bench.compare.ranking import who_wins
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.summary import entry
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.workloads.base import Shape
from planstep.bench.judges.spark import __main__ as command
from planstep.bench.judges.spark.session import NoSpark
from planstep.bench.judges.spark.wins import who_wins as wins_by_spark
from planstep.bench.judges.trace import Trace

SHAPE = Shape(rate=0.5, record_size=512, partitions=4, commit_interval=0.1, duration=0.4, workers=2)
CELLS = [
    Cell("reshard", "deterministic", Options(), SHAPE),
    Cell("reshard", "kafka", Options(placement="separate"), SHAPE),
    Cell("plain", "deterministic", Options(), SHAPE),
    Cell("chain", "kafka", Options(placement="separate"), replace(SHAPE, rate=0.1)),
]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("comparison")
    systems: dict[str, Any] = {}
    for cell in CELLS:
        result = run_cell(cell, folder / "cell")
        assert result.verified, result.problems
        (folder / "traces").mkdir(exist_ok=True)
        (folder / "cell" / "trace").rename(folder / "traces" / cell.name)
        result.trace = f"traces/{cell.name}"
        placements = systems.setdefault(cell.system, {}).setdefault(cell.workload, {})
        placements.setdefault("full", {})[cell.options.placement] = entry([result], 1)
    shutil.rmtree(folder / "cell", ignore_errors=True)
    summary = {"systems": systems, "who_wins": who_wins(systems)}
    (folder / "results.json").write_text(json.dumps(summary))
    return folder


class Borrowed:
    """Lends the tests' session to code that would stop it."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None: ...


@pytest.fixture
def borrowed(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(command, "start", lambda *args: Borrowed(spark))
    yield


def test_spark_and_python_say_the_same(
    compared: Path, borrowed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(compared)]) == 0
    assert capsys.readouterr().err.splitlines()[-1].endswith("nothing is wrong")
    report = json.loads((compared / "spark.json").read_text())
    spark, figures = report["spark"], report["figures"]
    assert spark["ran"] and spark["agrees_with_python"] and spark["disagreements"] == []
    assert all(check["agrees"] and not check["found"] for check in spark["checks"])
    assert [path.name for path in compared.iterdir() if path.name.startswith(".")] == []
    traces = {cell.name: Trace.load(compared / "traces" / cell.name) for cell in CELLS}
    tables = ("transactions", "operations", "batches", "resources", "lanes")
    assert spark["rows_read"] == sum(
        sum(len(getattr(trace, table)) for table in (*tables, "records", "seen", "inputs"))
        for trace in traces.values()
    )
    entries = json.loads((compared / "results.json").read_text())["systems"]
    for cell in CELLS:
        mine, trace = figures["runs"][cell.name], traces[cell.name]
        theirs = entries[cell.system][cell.workload]["full"][cell.options.placement]
        assert mine["outcomes"]["committed"] == theirs["transactions"]
        latencies = {name: one for name, one in mine["latencies"].items() if one}
        assert len(latencies) == (0 if theirs["sustained"] is False else _LATENCIES[cell.workload])
        for name, one in latencies.items():
            for percentile, ms in theirs[name].items():
                assert one[percentile] == pytest.approx(ms, abs=0.0011), (cell.name, name)
            assert one["curve"][-1] == [1.0, one["max"]]
        size = sum(point[1] * 0.5 for point in mine["throughput"]["points"])
        assert size == pytest.approx(sum(batch.bytes for batch in trace.batches) / 1e6, abs=0.001)
        assert len(mine["resources"]["points"]) == len(trace.resources) - 1
        example = mine["phases"]["example"]
        assert (example is None) == (not trace.transactions)
        assert example is None or example["moments"]["begin"] == 0


_LATENCIES = {"reshard": 4, "plain": 2, "chain": 2}


def test_a_lost_record_is_told(
    compared: Path, tmp_path: Path, borrowed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both the store's and the reader's checks report it; Python's results do not know it, and have another
    percentile."""
    copied = shutil.copytree(compared, tmp_path / "copied")
    for cell in CELLS[1:]:
        shutil.rmtree(copied / "traces" / cell.name)
    trace = Trace.load(copied / "traces" / CELLS[0].name)
    for column in ("lane", "offset", "source", "ordinal", "tx"):
        del getattr(trace.records, column)[7]
    trace.about["sustained"] = True  # however busy the machine was
    trace.save(copied / "traces" / CELLS[0].name)
    summary = json.loads((copied / "results.json").read_text())
    entry = summary["systems"]["deterministic"]["reshard"]["full"]["shared"]
    entry["sustained"] = True
    latencies = ("write_ms", "commit_ms", "visible_ms", "end_to_end_ms")
    for name in latencies:
        entry[name] = dict.fromkeys(("p50", "p95", "p99", "p99_9", "max"), 12_345.0)
    (copied / "results.json").write_text(json.dumps(summary))
    assert command.main([str(copied), "--json"]) == 1
    out, err = capsys.readouterr()
    assert "2 × lost" in err.splitlines()[-1]
    spark = json.loads(out)["spark"]
    assert not spark["agrees_with_python"]
    wrong = {check["name"] for check in spark["checks"] if check["found"]}
    assert "delivery: exactly once" in wrong
    assert any("lost: 2 by Spark, 0 by Python" in text for text in spark["disagreements"])
    for name in latencies:
        for percentile in ("p50", "p99"):
            assert any(f"{name} {percentile} is" in text for text in spark["disagreements"])
    problem = f"{CELLS[1].name}: the results name its trace, which is missing"
    assert problem in spark["disagreements"]


def test_what_cannot_be_done_is_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*args: Any) -> Any:
        raise NoSpark("there is no Java: apt install one")

    monkeypatch.setattr(command, "start", none)
    assert command.main([str(tmp_path)]) == 3
    assert capsys.readouterr().err.splitlines()[-1] == "there is no Java: apt install one"
    assert command.main([str(tmp_path / "nowhere")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_judge_is_an_error(
    tmp_path: Path, borrowed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(tmp_path)]) == 1
    assert "no traces" in capsys.readouterr().err


def test_who_wins_follows_the_rule() -> None:
    def run(system: str, repeat: int, p50: float | None) -> dict[str, Any]:
        latencies = dict.fromkeys(("write_ms", "visible_ms", "end_to_end_ms"))
        commit_ms = None if p50 is None else {"p50": p50, "p99": 9.0}
        cell = {"workload": "reshard", "durability": "full", "placement": "shared"}
        return {**cell, "system": system, "latencies": {**latencies, "commit_ms": commit_ms}}

    def won(**values: list[float | None]) -> list[tuple[dict[str, float], dict[str, float]]]:
        runs = [run(name, n, ms) for name, all_ in values.items() for n, ms in enumerate(all_)]
        wins = wins_by_spark({str(n): run for n, run in enumerate(runs)})
        return [(one["best"], one["behind"]) for one in wins]

    assert won(deterministic=[10, 11, 12], sqlite=[13, 13, 14]) == [
        ({"deterministic": 11}, {"sqlite": 13})
    ]
    assert won(deterministic=[10, 11, 13], sqlite=[13, 13, 14]) == []  # ranges touch
    assert won(deterministic=[10.0], sqlite=[13.0]) == []  # single runs
    assert won(deterministic=[10, 10], sqlite=[13, 13]) == []  # two of each are too few
    assert (
        won(deterministic=[10, 11, None], sqlite=[13, 13, 14]) == []
    )  # one was not sustained: it counts as endless
