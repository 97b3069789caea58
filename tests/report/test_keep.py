"""Tests what is kept of comparisons: the repository's own results, and the command that keeps others."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import comparisons
import pytest

from planstep.bench.compare.baseline import read
from planstep.bench.compare.ranking import entries
from planstep.bench.report import keep as module
from planstep.bench.report.keep import KEPT, keep, load, results_table, verdict_table, with_table

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / KEPT).glob("*.json"))
BYTES_MAX = 1_000_000


# what this repository keeps -----------------------------------------------------------------------


def test_the_readme_says_what_the_kept_results_say() -> None:
    text = (ROOT / "README.md").read_text()
    sources = [file for file in FILES if f"]({KEPT}/{file.name})" in text]
    assert len(sources) == 1, "the README's table is of one comparison"
    assert text == with_table(ROOT / "README.md", "verdicts", verdict_table(load(sources[0])))
    index = ROOT / KEPT / "README.md"
    assert index.read_text() == with_table(index, "results", results_table(index.parent))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_kept_results_are_small_whole_and_a_baseline(file: Path) -> None:
    kept = read(file)
    assert kept["verified"] and not kept["interrupted"] and kept["kept"]["name"] == file.stem
    assert file.stat().st_size < BYTES_MAX and file.with_suffix(".html").exists()
    for text in (file.read_text(), file.with_suffix(".html").read_text()):
        assert "/tmp/" not in text and "/home/" not in text
    assert not any(entry["traces"] for *_, entry in entries(kept["systems"]))
    assert {"cpus", "cpu_model", "memory_mb", "filesystem", "disk_sync_ms"} <= set(kept["machine"])


# the command --------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Makes a repository with places for the tables."""
    folder = tmp_path / "repository"
    (folder / KEPT).mkdir(parents=True)
    for page, name in (("README.md", "verdicts"), (KEPT / "README.md", "results")):
        (folder / page).write_text(
            f"before\n<!-- {name} -->\nstale\n<!-- end of {name} -->\nafter\n"
        )
    return folder


@pytest.fixture
def comparison(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Writes a folder of results, with a page in place of the report."""
    summary = comparisons.summary(*comparisons.outcome("reshard", "chain", repeat=3))
    summary["machine"]["kernel"] = "Linux 6.1.2-of-a-provider"
    summary["servers"] = [{"name": "postgresql", "address": "passfile='/home/someone/password'"}]
    return write(tmp_path / "out", summary), summary


def write(folder: Path, summary: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(summary))
    (folder / "report.html").write_text("<p>on Linux 6.1.2-of-a-provider</p>")
    return folder


def test_results_are_kept_and_the_tables_say_so(
    comparison: tuple[Path, dict[str, Any]], repository: Path
) -> None:
    folder, summary = comparison
    written = keep(folder, "1.2", repository)
    assert {path.relative_to(repository) for path in written} == {
        *(KEPT / "1.2.json", KEPT / "1.2.html", Path("README.md"), KEPT / "README.md")
    }
    kept = read(repository / KEPT / "1.2.json")
    assert kept["servers"] == [{"name": "postgresql"}], "no folder of the machine is kept"
    ranges = {name for *_, entry in entries(kept["systems"]) for name in entry["range"]}
    assert "commit_ms.p99" in ranges and "commit_ms.p95" not in ranges
    assert kept["verdicts"] == summary["verdicts"] and kept["machine"]["kernel"] == "Linux 6.1"
    assert (repository / KEPT / "1.2.html").read_text() == "<p>on Linux 6.1</p>"
    text = (repository / "README.md").read_text()
    assert text.startswith("before\n<!-- verdicts -->\n| durability full | deterministic, shared |")
    assert text.endswith("<!-- end of verdicts -->\nafter\n") and "stale" not in text
    assert "1.00 × (1.00–1.00) *" in text, "no clear difference"
    verdict = next(v for v in kept["verdicts"] if v["question"] == "end-to-end")
    assert verdict["words"] in text and "](docs/results/1.2.html)" in text
    keep(folder, "1.3", repository)
    index = (repository / KEPT / "README.md").read_text()
    assert "[1.2.json](1.2.json)" in index and "[1.3.html](1.3.html)" in index


def test_a_loss_is_in_bold(comparison: tuple[Path, dict[str, Any]], repository: Path) -> None:
    folder, summary = comparison
    for verdict in summary["verdicts"]:
        for ratio in verdict["ratios"]:
            if ratio["system"] == "kafka":
                ratio["ratio"] = {"median": 0.5, "low": 0.4, "high": 0.6}
    keep(write(folder, summary), "1", repository)
    assert "| **0.50 × (0.40–0.60)** |" in (repository / "README.md").read_text()


def test_results_of_a_busy_machine_are_kept_only_on_demand_and_say_so(
    comparison: tuple[Path, dict[str, Any]], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, summary = comparison
    calm = keep(folder, "1", repository)[0]
    assert load(calm)["kept"]["busy"] is False
    summary["machine"]["load"] = {"busy": True, "sentence": "Other work used 2 of 2 cores."}
    write(folder, summary)
    before = {path: path.read_bytes() for path in repository.rglob("*.*")}
    with pytest.raises(ValueError, match=r"Other work used 2 of 2 cores\. --busy keeps them"):
        keep(folder, "1", repository)
    assert {path: path.read_bytes() for path in repository.rglob("*.*")} == before
    monkeypatch.chdir(repository)
    monkeypatch.setattr(sys, "argv", ["keep", "--busy", str(folder), "1"])
    module.main()
    assert load(calm)["kept"]["busy"] is True
    assert "The machine was busy with other work" in (repository / "README.md").read_text()
    assert "| too much |" in (repository / KEPT / "README.md").read_text()


@pytest.mark.parametrize(
    "options, system, words",
    [
        ({}, "sqlite", "default"),
        ({"quick": True}, "sqlite", "quick"),
        ({"thorough": True}, "postgresql", "thorough, with peers"),
        ({"workloads": ["small", "move"]}, "sqlite", "default, only small, move"),
        ({}, "apache-kafka", "default, with peers"),
    ],
)
def test_the_plan_of_what_is_kept_is_said(
    options: dict[str, Any],
    system: str,
    words: str,
    comparison: tuple[Path, dict[str, Any]],
    repository: Path,
) -> None:
    folder, summary = comparison
    summary["settings"] |= {"workloads": None} | options
    summary["systems"][system] = summary["systems"].pop("sqlite")
    kept = keep(write(folder, summary), "1", repository)[0]
    assert load(kept)["kept"]["plan"] == words
    assert f"(plan: {words})" in (repository / "README.md").read_text()
    assert f"| {words} |" in (repository / KEPT / "README.md").read_text()


def test_what_is_not_worth_keeping_is_refused(
    comparison: tuple[Path, dict[str, Any]], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, summary = comparison
    before = sorted(repository.rglob("*"))

    def refused(words: str, name: str = "1", at: Path = repository, **changes: Any) -> None:
        with pytest.raises(ValueError, match=words):
            keep(write(folder, summary | changes), name, at)

    refused("is no name", name="../1")
    refused("interrupted or did not verify", interrupted=True)
    refused("interrupted or did not verify", verified=False)
    refused("no question has a verdict", verdicts=[])
    refused("is no checkout", at=folder)
    shutil.copy(folder / "results.json", repository / "results.json")
    with pytest.raises(ValueError, match=r"report\.html is not there"):
        keep(repository, "1", repository)
    (repository / "results.json").unlink()
    assert sorted(repository.rglob("*")) == before
    monkeypatch.chdir(repository)
    for words, code in (([], 2), ([folder], 2), ([folder / "gone", "1"], 1), ([folder, "/"], 1)):
        monkeypatch.setattr(sys, "argv", ["keep", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            module.main()
        assert ended.value.code == code
