"""Tests the work after the runs: Spark in its own process, and a comparison without Spark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

from comparing import SMALL

from planstep.bench.compare import postprocess
from planstep.bench.judges import spark_process
from planstep.bench.judges.spark_process import prove_apart, without
from planstep.bench.report.html import page


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces Spark's process by a shell script that is given the folder as $3."""

    def child(script: str) -> None:
        program = tmp_path / "child"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(program))

    return child


def test_why_spark_cannot_start_is_its_last_line(
    child: Callable[[str], None], tmp_path: Path
) -> None:
    child('echo "WARNING: of Java" >&2; echo "Spark needs Java 17" >&2; exit 3')
    assert prove_apart(tmp_path) == {"spark": without("Spark needs Java 17")}


@pytest.mark.parametrize(
    "script, why",
    [
        ("echo out of memory >&2; kill -9 $$", "it ended with status -9: out of memory"),
        ("exit 0", "it ended with status 0: it printed nothing"),
        ('echo "{" > "$3/spark.json"', "it ended with status 0: it printed nothing"),
    ],
)
def test_a_spark_that_dies_is_no_comparison_that_does(
    child: Callable[[str], None], tmp_path: Path, script: str, why: str
) -> None:
    child(script)
    assert prove_apart(tmp_path)["spark"]["why_not"] == why


def test_what_it_says_of_its_jobs_is_progress(child: Callable[[str], None], tmp_path: Path) -> None:
    proof = {"spark": {"ran": True}, "figures": {"runs": {}}}
    child(
        'echo "Spark: reads" >&2; echo "WARNING: of Java" >&2; '
        f"echo '{json.dumps(proof)}' > \"$3/spark.json\""
    )
    lines: list[str] = []
    assert prove_apart(tmp_path, tell=lines.append) == proof
    assert lines == ["Spark: reads"]


def test_a_trace_that_spark_cannot_judge_is_a_disagreement(
    child: Callable[[str], None], tmp_path: Path
) -> None:
    child('echo "traces/x/records.parquet cannot be read" >&2; exit 1')
    verdict = prove_apart(tmp_path)["spark"]
    assert verdict["agrees_with_python"] is False and not verdict["ran"]
    assert verdict["disagreements"] == ["traces/x/records.parquet cannot be read"]
    assert postprocess.refuted({"spark": verdict})


def test_an_earlier_verdict_is_not_taken_for_this_one(
    child: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "spark.json").write_text('{"spark": {"ran": true}, "figures": {}}')
    child("exit 2")
    assert prove_apart(tmp_path)["spark"]["ran"] is False


def test_one_that_does_not_end_is_ended(
    child: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_process, "_PATIENCE_S", 1.0)
    child('mkdir -p "$3/.spark-it/scratch"; exec sleep 600')
    assert "did not end within" in prove_apart(tmp_path)["spark"]["why_not"]
    assert not list(tmp_path.glob(".spark-*")), "what it had no time to remove"


# in the command ------------------------------------------------------------------------------------


def _results(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return summary


def spark(**changes: Any) -> dict[str, Any]:
    verdict = without("") | {"ran": True, "why_not": None, "version": "4", "master": "local[*]"}
    return verdict | {"java": "17", "agrees_with_python": True} | changes


def test_without_spark_pythons_figures_are_drawn(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = without("Spark needs Java 17")
    monkeypatch.setattr(postprocess, "prove_apart", lambda *_: {"spark": why})
    ended = call("--spark", *SMALL, "--out", tmp_path)
    assert ended.exit_code == 0
    assert "Spark did not run: Spark needs Java 17" in ended.stderr
    output = " ".join(ended.stdout.split())
    assert "Java 17. The verdicts are those of Python's checker." in output
    assert _results(tmp_path)["spark"] == why
    assert "Spark needs Java 17" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    "changes, status, words",
    [
        ({}, 0, "It found no forbidden anomaly. It agrees with Python's checker."),
        ({"agrees_with_python": None}, 0, "It found no forbidden anomaly."),
        (
            {"agrees_with_python": False, "disagreements": ["a run: lost: 1 by Spark"]},
            1,
            "It does NOT agree with Python's checker. - a run: lost: 1 by Spark",
        ),
        (
            {"checks": [{"name": "c", "what": "", "rows": 1, "found": {"lost": 1}, "allowed": {}}]},
            1,
            "It found lost 1. It agrees with Python's checker.",
        ),
    ],
)
def test_exit_1_when_spark_finds_otherwise(
    call: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    status: int,
    words: str,
) -> None:
    proof = {"spark": spark(**changes), "figures": None}
    monkeypatch.setattr(postprocess, "prove_apart", lambda *_: proof)
    ended = call("--spark", *SMALL, "--out", tmp_path)
    assert ended.exit_code == status
    assert _results(tmp_path)["spark"] == proof["spark"]
    output = " ".join(ended.stdout.split())
    assert words in output


def interrupted(*_: Any) -> dict[str, Any]:
    raise KeyboardInterrupt


def test_spark_that_is_interrupted_leaves_the_rest(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postprocess, "prove_apart", interrupted)
    assert call("--spark", *SMALL, "--out", tmp_path).exit_code == 130
    results = _results(tmp_path)
    assert results["interrupted"] is True and results["spark"]["why_not"] == "it was interrupted"
    assert results["verified"] is True and (tmp_path / "report.html").exists()


def test_a_report_that_is_interrupted_leaves_the_rest(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "write", interrupted)
    monkeypatch.setattr(postprocess, "prove_apart", lambda *_: {"spark": spark(), "figures": {}})
    ended = call("--workload", "reshard", "--no-find-rate", "--spark", "--out", tmp_path, "--json")
    assert ended.exit_code == 130
    assert json.loads(ended.stdout) == _results(tmp_path)
    results = _results(tmp_path)
    assert results["interrupted"] is True and results["verified"] is True
    assert results["report"]["html"] is None and not (tmp_path / "stores").exists()


def test_stores_are_left_for_spark_and_go_when_it_has_read_them(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def list_stores(folder: Path, *_: Any) -> dict[str, Any]:
        names.extend(sorted(path.name for path in (folder / "stores").iterdir()))
        return {"spark": without("no more to see")}

    monkeypatch.setattr(postprocess, "prove_apart", list_stores)
    words = ("--workload", "reshard,plain", "--repeat", "2", "--no-find-rate", "--out", tmp_path)
    assert call("--spark", *words).exit_code == 0
    assert names == [
        "reshard-deterministic-full-separate-0",
        "reshard-deterministic-full-shared-0",
        "reshard-kafka-full-separate-0",
        "reshard-kafka-full-shared-0",
        "reshard-pulsar-full-separate-0",
        "reshard-pulsar-full-shared-0",
    ]
    assert not (tmp_path / "stores").exists()


def test_a_cluster_is_given_to_spark_and_sees_no_stores(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def record(folder: Path, master: str, *_: Any) -> dict[str, Any]:
        calls.append((master, (folder / "stores").exists()))
        return {"spark": without("it was looked at only")}

    monkeypatch.setattr(postprocess, "prove_apart", record)
    words = ("--workload", "reshard", "--no-find-rate", "--out", tmp_path)
    assert call("--spark", *words, "--master", "spark://far:7077").exit_code == 0
    assert calls == [("spark://far:7077", False)]


def test_a_master_without_a_folder_is_wrong_usage(call: Any, tmp_path: Path) -> None:
    assert call("--spark", *SMALL, "--master", "local[1]").exit_code == 2
    ended = call(*SMALL, "--master", "local[1]", "--out", tmp_path / "out")
    assert ended.exit_code == 2 and "--master" in ended.stderr
