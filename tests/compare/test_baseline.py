"""Tests `--baseline`: a figure changed only where intervals keep apart; what makes comparisons differ is said."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import comparisons
import pytest
from comparing import SMALL

from planstep.bench.compare.baseline import read, since
from planstep.bench.compare.ranking import entries
from planstep.bench.report.html.sections import page
from planstep.bench.report.text.blocks import WIDTH, text
from planstep.bench.report.text.changes import changes
from planstep.bench.report.text.terminal import LINES, terminal

OLD = Path("old.json")


@pytest.fixture
def old() -> dict[str, Any]:
    options, outcome = comparisons.outcome("reshard", "chain", "small", repeat=3)
    return comparisons.summary(options, outcome)


def entry(summary: dict[str, Any], workload: str = "reshard") -> dict[str, Any]:
    found: dict[str, Any] = summary["systems"]["deterministic"][workload]["full"]["shared"]
    return found


def put(summary: dict[str, Any], low: float, median: float, high: float | None) -> None:
    """Gives the commit latency of reshard, and its interval."""
    one = entry(summary)
    one["commit_ms"]["p50"], one["range"]["commit_ms.p50"] = median, [low, high]


@pytest.mark.parametrize(
    ("before", "now", "standing"),
    [
        ((0.9, 1.0, 1.1), (1.2, 1.3, 1.4), "worse"),
        ((1.2, 1.3, 1.4), (0.9, 1.0, 1.1), "better"),
        ((0.9, 1.0, 1.1), (1.05, 1.3, 1.4), ""),
        ((0.999, 1.0, 1.001), (1.03, 1.04, 1.05), ""),
        ((0.9, 1.0, None), (5.0, 6.0, 7.0), ""),
        ((0.9, 1.0, 1.1), (5.0, 6.0, None), "worse"),
    ],
)
def test_a_figure_changed_only_where_intervals_keep_apart(
    old: dict[str, Any], before: Any, now: Any, standing: str
) -> None:
    new = deepcopy(old)
    put(old, *before)
    put(new, *now)
    found = since(new, old, OLD)
    assert [row["standing"] for row in found["changed"]] == ([standing] if standing else [])
    for row in found["changed"]:
        assert (row["figure"], row["system"]) == ("commit_ms.p50", "deterministic")
        assert row["before"] == dict(zip(("low", "median", "high"), before, strict=True)) | {
            "repeats": 3
        }
        assert row["ratio"] == pytest.approx(now[1] / before[1], abs=1e-4)


def test_more_is_better_where_more_is_done_and_what_got_worse_is_first(old: dict[str, Any]) -> None:
    new = deepcopy(old)
    one = entry(new, "chain")
    one["transactions_per_second"] *= 3
    one["range"]["transactions_per_second"] = [one["transactions_per_second"]] * 2
    put(new, 100.0, 100.0, 100.0)
    entry(new)["throughput_mb_s"] = 500.0  # at an offered rate it says nothing
    entry(new)["range"]["throughput_mb_s"] = [500.0, 500.0]
    found = since(new, old, OLD)["changed"]
    assert [(row["figure"], row["standing"]) for row in found] == [
        ("commit_ms.p50", "worse"),
        ("transactions_per_second", "better"),
    ]


def test_figures_by_threads_are_compared(old: dict[str, Any]) -> None:
    place = {"system": "deterministic", "placement": "shared", "durability": "full"}
    for summary, rate in ((old, 100.0), (new := deepcopy(old), 60.0)):
        points = [
            {"threads": n, "transactions_per_second": {"median": r, "low": r - 1, "high": r + 1}}
            for n, r in ((1, 50.0), (16, rate))
        ]
        summary["curves"] = {"rate": [], "concurrency": [{**place, "points": points}]}
    found = since(new, old, OLD)
    (row,) = found["changed"]
    assert row["figure"] == "concurrency.16.transactions_per_second" and row["standing"] == "worse"
    (section,) = changes(new | {"since": found})
    assert "transactions a second, 16 threads" in text(section)


def test_what_cannot_be_compared_says_why(old: dict[str, Any]) -> None:
    new = deepcopy(old)
    entry(old)["repeats"] = 1
    entry(new, "chain")["verified"] = False
    entry(old, "small")["partitions"] = 7
    del old["systems"]["sqlite"]
    why = {one["what"]: one["why"] for one in since(new, old, OLD)["left_out"]}
    assert why["deterministic, reshard, full, shared"] == (
        "it ran 1 of the 3 times that an interval needs then"
    )
    assert why["deterministic, chain, full, shared"] == "it has no figures now"
    assert "partitions was 7, and is" in why["deterministic, small, full, shared"]
    assert why["sqlite, chain, full, shared"] == "it did not run then"


def test_another_machine_and_other_settings_are_a_warning(old: dict[str, Any]) -> None:
    new = deepcopy(old)
    assert since(new, old, OLD)["warnings"] == []
    new["machine"] |= {"cpus": 64, "load": {"busy": True}, "disk_sync_ms": {"p50": 9.0}}
    new["machine"]["memory_mb"] += 1
    new["machine"]["kernel"] += ".1.2-of-a-provider"
    new["settings"] |= {"rate_mb_s": 20.0, "seed": 9}
    entry(new)["duration_s"] = 99.0
    old["interrupted"] = True
    assert since(new, old, OLD)["warnings"] == [
        "The machine differs: cpus 2, now 64.",
        "A bare durable append took 0.5 ms then, and takes 9 ms now.",
        "The machine was busy with other work now.",
        "Settings differ: rate_mb_s 5.0, now 20.0.",
        "Runs had another length: reshard 7 s, now 99 s.",
        "The earlier comparison was interrupted.",
    ]


def test_the_standing_of_a_question_is_compared(old: dict[str, Any]) -> None:
    new = deepcopy(old)
    end_to_end = next(v for v in new["verdicts"] if v["question"] == "end-to-end")
    end_to_end["standing"] = "behind"
    next(v for v in new["verdicts"] if v["question"] == "move")["standing"] = "first"
    (found,) = since(new, old, OLD)["verdicts"]
    assert found["question"] == "end-to-end" and found["now"] == "behind", "the other had none"


def test_results_of_schema_1_are_read(old: dict[str, Any], tmp_path: Path) -> None:
    new = deepcopy(old)
    old["schema_version"] = 1
    for name in ("verdicts", "promises", "since", "servers"):
        old.pop(name, None)
    for by_workload in old["systems"].values():
        by_workload["transfer"] = by_workload.pop("small")
    (tmp_path / "results.json").write_text(json.dumps(old))
    put(new, 100.0, 100.0, 100.0)
    found = since(new, read(tmp_path), tmp_path)
    assert [row["figure"] for row in found["changed"]] == ["commit_ms.p50"]
    assert {one["why"] for one in found["left_out"]} == {
        "its figures were of several threads then, and are of one now"
    }
    assert found["schema_version"] == 1 and "schema 1" in found["warnings"][-1]


def test_a_file_that_is_no_comparison_is_refused_before_anything_runs(
    call: Any, old: dict[str, Any], tmp_path: Path
) -> None:
    def refusal(content: Any, name: str = "old.json") -> str:
        file = tmp_path / name
        if content is not None:
            file.write_text(content if isinstance(content, str) else json.dumps(content))
        ended = call(*SMALL, "--baseline", file, run=None)
        assert (ended.exit_code, ended.stdout) == (2, "")
        return " ".join(ended.stderr.replace("│", " ").split())

    assert "No such file" in refusal(None, "gone.json")
    assert "is no JSON" in refusal("{")
    assert "holds no comparison; name the results.json" in refusal({"kind": "else"})
    assert "holds no comparison" in refusal([1])
    assert "no run of that comparison had ended" in refusal({"kind": old["kind"]})
    assert "this version reads 1 to" in refusal(old | {"schema_version": 99})
    assert "is damaged" in refusal(old | {"machine": None})
    broken = deepcopy(old)
    del entry(broken)["repeats"]
    assert "is damaged" in refusal(broken)


def test_the_command_compares_with_what_its_folder_held(call: Any, tmp_path: Path) -> None:
    assert call(*SMALL, "--repeat", 3, "--out", tmp_path).exit_code == 0
    words = (*SMALL, "--repeat", 3, "--out", tmp_path, "--baseline", tmp_path)
    ended = call(*words)
    assert ended.exit_code == 0 and "figures changed: 0 better, 0 worse." in " ".join(
        ended.stdout.split()
    )
    kept = json.loads((tmp_path / "results.json").read_text())["since"]
    assert kept["same"] > 0 and kept["changed"] == [] and kept["baseline"] == str(tmp_path)
    assert "What changed since an earlier comparison" in (tmp_path / "report.txt").read_text()


def test_changes_are_written_within_the_width_and_for_every_reader(old: dict[str, Any]) -> None:
    new = deepcopy(old)
    for name, *_, one in entries(new["systems"]):
        if name in ("deterministic", "kafka"):
            for name, ends in one["range"].items():
                one["range"][name] = [end * 2 for end in ends]
            for name in ("commit_ms", "end_to_end_ms", "write_ms", "visible_ms"):
                one[name] = {p: 2 * value for p, value in one[name].items()}
    new["since"] = since(new, old, OLD)
    documented = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    assert all(f"`{name}`" in documented for name in new["since"])
    assert len(new["since"]["changed"]) > 10
    (section,) = changes(new)
    assert all(len(line) <= WIDTH for line in text(section).splitlines())
    short = terminal(new, None).splitlines()
    assert len(short) <= LINES and all(len(line) <= WIDTH for line in short)
    assert any(line.startswith("- worse: ") for line in short)
    content = page(new, {"schema_version": 1, "source": "python", "runs": {}})
    assert [chapter.anchor for chapter in content.chapters][1] == "since"
    assert changes(old) == []
