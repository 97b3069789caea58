"""Tests the way from results to output: the JSON's fields, medians and ranges, rules, and the text as a golden.

`PLANSTEP_GOLDEN=write pytest tests/compare/test_summary.py` writes the golden anew; read it, then commit it.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparisons import MACHINE, STEPS, searches, times

from planstep.bench.compare.cell import FAILED, IMPOSSIBLE, INTERRUPTED, Cell, Result
from planstep.bench.compare.harness import Outcome
from planstep.bench.compare.measure import without_percentiles
from planstep.bench.compare.options import ComparisonOptions
from planstep.bench.compare.plan import Block, Plan, plan
from planstep.bench.compare.ranking import shared_fate, shared_fates, who_wins
from planstep.bench.compare.rate_search import Search
from planstep.bench.compare.summary import entry as entry_of
from planstep.bench.compare.summary import summarize
from planstep.bench.report.text.blocks import WIDTH
from planstep.bench.report.text.text_report import words

GOLDEN = Path(__file__).with_name("compare.txt")
WRITE_MS = {"deterministic": 2.0, "kafka": 3.0, "sqlite": 40.0, "sqlite-64": 30.0}
CORES = {"deterministic": 0.5, "kafka": 0.6, "sqlite": 0.9, "sqlite-64": 0.7}


def result_of(cell: Cell) -> Result:
    """Makes the result of a cell: each repeat is a tenth slower than the one before."""
    options = cell.options
    slow = 1 + 0.1 * cell.repeat
    write = WRITE_MS[cell.system] * slow
    write += 1.5 * (options.placement == "separate") - 0.9 * (options.durability == "os")
    paced = cell.workload in ("reshard", "plain")
    result = Result(cell, verified=True, sustained=True if paced else None)
    result.records, result.transactions, result.seconds = 240_000, 96, cell.shape.duration
    result.offered_mb_s = cell.shape.rate if paced else None
    result.throughput_mb_s = 20.0 / slow if not paced else 20.0
    result.write_ms, result.commit_ms = times(write), times(write / 2)
    result.visible_ms, result.end_to_end_ms = times(write * 0.6), times(250 + write)
    result.generator_lag_ms = times(0.1)
    result.cpu_cores, result.memory_peak_mb = CORES[cell.system] * slow, 60.0
    result.disk_mb_s, result.network_mb_s = 21.0, 20.5
    result.disk_bytes_per_payload_byte = 1.05
    result.hops_before_reply = {"deterministic": 1.0, "kafka": 4.0}.get(cell.system)
    result.steps = STEPS.get(cell.system)
    result.settings = [("durability", options.durability, "", "")]
    result.judged = {"records": 240_000}
    if cell.system == "kafka":
        result.allowed_by = {"G0": 2}
        result.settings.append(("linger_ms", 0, "linger.ms", "5 since Kafka 4"))
    if cell.workload == "interval":
        result.extra = {"plain_mb_s": 100.0 / slow, "10": {"mb_s": 50.0, "share": 0.5}}
    if cell.workload == "small":
        result.extra = {"concurrency": {"1": small(1, slow), "64": small(64, slow)}}
    return result


def small(threads: int, slow: float) -> dict[str, Any]:
    """Makes the figures of one number of threads in workload small."""
    costs = {"cpu_ms": 0.4 * slow, "disk_bytes": 400.0, "syncs": 1 / threads}
    latencies = {"commit_ms": times(threads * slow), "done_ms": times(threads * slow * 1.2)}
    per_second = 800 * threads**0.5 / slow
    return {"threads": threads, "transactions_per_second": per_second, **latencies, **costs}


@pytest.fixture
def options() -> ComparisonOptions:
    workloads = ("reshard", "interval", "small", "contention")
    systems = ("deterministic", "kafka", "sqlite")
    # The usual plan has no time for both placements at durability os.
    return ComparisonOptions(
        workloads=workloads, systems=systems, partitions=10, repeat=3, thorough=True
    )


@pytest.fixture
def outcome(options: ComparisonOptions) -> Outcome:
    """Makes an outcome with one example of everything that can go wrong."""
    planned = plan(options)
    results = []
    for cell in planned.cells:
        result = result_of(cell)
        if (cell.workload, cell.system) == ("contention", "kafka"):
            result = Result(cell, IMPOSSIBLE, "kafka has no rows that several workers update")
        if (cell.system, cell.options.durability) == (
            "sqlite",
            "os",
        ) and cell.workload == "reshard":
            result.sustained, result.write_ms, result.end_to_end_ms = False, None, None
        if (cell.workload, cell.system) == ("small", "sqlite-64"):
            result = Result(
                cell, missing=2, records=99, problems=["record 7 of partition 3 is gone"]
            )
        results.append(result)
    return Outcome(planned, results, searches(planned), seconds=123.4)


@pytest.fixture
def summary(options: ComparisonOptions, outcome: Outcome) -> dict[str, Any]:
    text = json.dumps(summarize(options, outcome, MACHINE, "out/traces"))
    return dict(json.loads(text))


# the contract -------------------------------------------------------------------------------------

CONTRACT = (
    *("verified", "sustained", "records", "missing", "duplicated", "out_of_order", "violations"),
    *("transactions", "cancelled", "throughput_mb_s", "write_ms", "commit_ms", "visible_ms"),
    *("end_to_end_ms", "generator_lag_ms", "requests_per_transaction", "messages_per_transaction"),
    *("appends_per_transaction", "hops_before_reply", "syncs_per_transaction"),
    *("disk_bytes_per_payload_byte", "network_bytes_per_payload_byte", "cpu_cores"),
    *("memory_peak_mb", "range", "repeats"),
)


def test_every_field_of_the_contract_is_there(summary: dict[str, Any]) -> None:
    assert {"settings", "machine", "systems", "report", "plan", "who_wins", "shared_fate"} <= set(
        summary
    )
    assert summary["schema_version"] == 2
    assert summary["report"] == {"html": None, "png": [], "traces": "out/traces"}
    for by_workload in summary["systems"].values():
        for by_durability in by_workload.values():
            for by_placement in by_durability.values():
                for entry in by_placement.values():
                    assert set(CONTRACT) <= set(entry)
    entry = summary["systems"]["deterministic"]["reshard"]["full"]["shared"]
    assert set(entry["write_ms"]) == {"p50", "p95", "p99", "p99_9", "max"}


def test_every_field_is_explained(summary: dict[str, Any]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    entry = summary["systems"]["deterministic"]["reshard"]["full"]["shared"]
    objects = (summary, entry, summary["settings"], summary["machine"], summary["plan"])
    for names in (*objects, summary["verdicts"][0], summary["promises"][0]):
        for name in names:
            assert f"`{name}`" in page, name


def test_figures_are_medians_with_their_range(summary: dict[str, Any]) -> None:
    entry = summary["systems"]["deterministic"]["reshard"]["full"]["shared"]
    assert (entry["repeats"], entry["repeats_planned"]) == (3, 3)
    assert entry["write_ms"]["p50"] == 2.2
    assert entry["range"]["write_ms.p50"] == [2.0, 2.4]
    assert entry["range"]["cpu_cores"] == [0.5, 0.6]
    assert entry["highest_sustained_mb_s"] == 80.0
    assert [run["rate_mb_s"] for run in entry["rate_search"]] == [None, 80.0]


def one(*results: Result) -> dict[str, Any]:
    """Returns the only entry of a summary of these repeats."""
    options = ComparisonOptions(workloads=("reshard",), systems=("deterministic",))
    outcome = Outcome(Plan([Block([result.cell for result in results])]), list(results))
    summary = summarize(options, outcome, MACHINE)
    entry: dict[str, Any] = summary["systems"]["deterministic"]["reshard"]["full"]["shared"]
    return {**entry, "exit": 0 if outcome.verified else 1}


def repeats(count: int = 3) -> list[Result]:
    cell = plan(ComparisonOptions(workloads=("reshard",), systems=("deterministic",))).cells[0]
    return [result_of(replace(cell, repeat=n)) for n in range(count)]


def test_one_repeat_that_did_not_verify_takes_all_figures() -> None:
    runs = repeats()
    runs[1].verified, runs[1].missing, runs[1].problems = False, 3, ["gone"]
    entry = one(*runs)
    assert (entry["verified"], entry["missing"], entry["problems"]) == (False, 3, ["gone"])
    assert entry["throughput_mb_s"] is entry["write_ms"] is entry["steps"] is None
    assert entry["range"] == {} and entry["exit"] == 1


def test_a_repeat_that_was_not_sustained_counts_as_endlessly_slow() -> None:
    runs = repeats()
    runs[0].sustained, runs[0].write_ms, runs[0].commit_ms = False, None, None
    runs[0].visible_ms = runs[0].end_to_end_ms = None
    entry = one(*runs)
    assert (entry["verified"], entry["sustained"], entry["sustained_repeats"]) == (True, True, 2)
    assert entry["write_ms"]["p50"] == 2.4, "of 2.2, 2.4 and endless"
    assert entry["range"]["write_ms.p50"] == [2.2, None]
    runs[1].sustained, runs[1].write_ms, runs[1].commit_ms = False, None, None
    runs[1].visible_ms = runs[1].end_to_end_ms = None
    entry = one(*runs)
    assert (entry["verified"], entry["sustained"]) == (True, False)
    assert entry["write_ms"] is entry["end_to_end_ms"] is None
    assert entry["throughput_mb_s"] == 20.0 and entry["generator_lag_ms"] is not None


def test_no_rate_offered_is_neither_sustained_nor_not() -> None:
    runs = repeats(1)
    runs[0].sustained = None
    entry = one(*runs)
    assert entry["sustained"] is None and entry["write_ms"] is not None


def test_a_failed_repeat_fails_the_entry_an_interrupted_one_is_not_counted() -> None:
    runs = repeats()
    failed = one(*runs[:2], Result(runs[2].cell, FAILED, "it died"))
    assert (failed["status"], failed["reason"], failed["exit"]) == (FAILED, "it died", 1)
    assert failed["throughput_mb_s"] is None
    partial = one(*runs[:2], Result(runs[2].cell, INTERRUPTED, "interrupted"))
    assert (partial["status"], partial["repeats"], partial["repeats_planned"]) == ("ok", 2, 3)
    assert partial["write_ms"]["p50"] == pytest.approx(2.1)


def test_extras_are_merged_by_name() -> None:
    runs = repeats()
    for n, result in enumerate(runs):
        result.extra = {"held_s": n, "hot": {"cancelled": 10 * n}, "note": f"of {n}"}
    assert one(*runs)["extra"] == {"held_s": 1, "hot": {"cancelled": 10}, "note": "of 0"}


# rules --------------------------------------------------------------------------------------------


def placed(value: float, low: float, high: float | None, repeats: int = 3) -> dict[str, Any]:
    entry: dict[str, Any] = {"verified": True, "sustained": True, "repeats": repeats}
    entry |= {"offered_mb_s": 20.0, "cpu_cores": value, "range": {"cpu_cores": [low, high]}}
    return {"reshard": {"full": {"shared": entry}}}


def winners(**systems: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns for each figure (the systems in front, the systems behind)."""
    names = {"a": "deterministic", "b": "kafka", "c": "sqlite"}
    letters = {name: letter for letter, name in names.items()}
    return [
        ("".join(letters[x] for x in won["best"]), "".join(letters[x] for x in won["behind"]))
        for won in who_wins({names[letter]: entry for letter, entry in systems.items()})
    ]


def test_who_wins_is_said_only_where_ranges_keep_apart() -> None:
    best = placed(1.0, 0.9, 1.1)
    assert winners(a=best, b=placed(2.0, 1.8, 2.2)) == [("a", "b")]
    assert winners(a=placed(2.0, 1.8, 2.2), b=best) == [("b", "a")]
    assert winners(a=best, b=placed(1.2, 1.05, 1.4)) == []
    assert winners(a=best, b=placed(1.2, 1.05, 1.4), c=placed(3, 2, 4)) == [("ab", "c")]
    narrow = placed(1.0, 0.999, 1.001)
    assert winners(a=placed(1.0, 0.9, None), b=placed(5, 4, 6)) == [], "it was late once"
    assert winners(a=narrow, b=placed(1.03, 1.029, 1.031)) == [], "too little to tell"
    assert winners(a=placed(1.0, 1.0, 1.0, 1), b=placed(9.0, 9.0, 9.0, 1)) == [], "single runs"
    assert winners(a=placed(1.0, 1.0, 1.0, 1), b=placed(9.0, 9.0, 9.0)) == [], "one of them is"


def test_what_does_not_mean_the_same_or_was_found_in_single_runs_wins_nothing() -> None:
    """A write may be durable or also committed, which differ; a highest rate is found once, to about a tenth."""

    def other(write: float, rate: float) -> dict[str, Any]:
        by_workload = placed(1.0, 0.9, 1.1)
        entry = by_workload["reshard"]["full"]["shared"]
        entry |= {"highest_sustained_mb_s": rate, "write_ms": {"p50": write, "p99": write}}
        entry["range"] |= {"write_ms.p50": [write, write], "write_ms.p99": [write, write]}
        return by_workload

    assert winners(a=other(1.0, 100.0), b=other(9.0, 900.0)) == []


def test_who_did_not_verify_or_keep_up_neither_wins_nor_loses() -> None:
    for name in ("verified", "sustained"):
        out = placed(0.1, 0.1, 0.1)
        out["reshard"]["full"]["shared"][name] = False
        assert winners(a=placed(1, 1, 1), b=out) == []


def test_full_and_os_are_never_compared() -> None:
    os_ = placed(0.1, 0.1, 0.1)
    os_["reshard"]["os"] = os_["reshard"].pop("full")
    assert winners(a=placed(1, 1, 1), b=os_) == []


def test_protocol_and_fate_add_up_to_the_difference() -> None:
    def mode(shared: float, separate: float) -> dict[str, Any]:
        both = {"shared": {"cpu_cores": shared}, "separate": {"cpu_cores": separate}}
        return {"reshard": {"full": {p: {"verified": True, **v} for p, v in both.items()}}}

    systems = {"deterministic": mode(1.0, 1.5), "kafka": mode(3.0, 4.0), "pulsar": mode(2.0, 2.5)}
    effects, other = shared_fates(systems)
    assert effects == shared_fate(systems) and other["pulsar"] == "pulsar"
    assert other["full"]["cpu_cores"]["protocol"] == 1.0
    row = effects["full"]["cpu_cores"]
    assert (row["difference"], row["protocol"], row["fate"]) == (3.0, 2.25, 0.75)
    assert shared_fate({"deterministic": mode(1.0, 1.5)}) is None


def test_latencies_at_the_highest_rate_are_of_the_run_at_that_rate(
    options: ComparisonOptions, outcome: Outcome
) -> None:
    cell = outcome.plan.search[0]
    search = Search(10.0, True)
    while (rate := search.next()) is not None:
        slow = times(7777.0)
        search.tell(rate, True, rate < 33, min(rate, 90.0), write_ms=slow, end_to_end_ms=slow)
    outcome.searches = [(cell, search)]
    assert "7,777" in words(json.loads(json.dumps(summarize(options, outcome, MACHINE))))


def test_percentiles_of_what_was_not_sustained_are_not_told() -> None:
    tree = {"n": 1, "write_ms": times(1.0), "part": {"of": {"e2e": times(2.0), "m": 2}}}
    assert without_percentiles(tree) == {"n": 1, "part": {"of": {"m": 2}}}
    cell = Cell("held-open", "kafka")
    late = [Result(cell, verified=True, sustained=n < 1, extra=tree) for n in range(3)]
    assert entry_of(late, 3)["extra"] == without_percentiles(tree)
    assert entry_of(late[:1], 1)["extra"] == tree


# text ---------------------------------------------------------------------------------------------


def test_the_text_is_the_golden_one(summary: dict[str, Any]) -> None:
    text = words(summary)
    if os.environ.get("PLANSTEP_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_no_line_is_too_long_and_nothing_is_called_kafka_alone(summary: dict[str, Any]) -> None:
    lines = words(summary).splitlines()
    assert [line for line in lines if len(line) > WIDTH] == []
    for line in lines:  # a row of a table
        assert not line.startswith(("kafka ", "Kafka "))


def test_at_full_speed_there_is_no_latency_to_stand_beside_the_published(
    summary: dict[str, Any],
) -> None:
    summary["settings"]["rate_mb_s"] = None
    text = words(summary)
    assert "no latency at full speed" in text and "reshard: latency" not in text


def test_many_systems_go_on_below(summary: dict[str, Any]) -> None:
    long = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    for name in ("kafka-v1", "sqlite-64"):
        summary["systems"][name] = json.loads(json.dumps(summary["systems"]["kafka"]))
    for by_workload in summary["systems"].values():
        for entry in by_workload["interval"]["full"].values():
            entry["extra"]["100"] = {"seconds, and so on": "12.345, 123.456"}
        for by_durability in by_workload.values():
            for by_placement in by_durability.values():
                for entry in by_placement.values():
                    setting = {"name": "transaction_max_timeout_ms", "kafka_name": long}
                    setting |= {"value": "read_committed", "kafka_default": "5 (0 before Kafka 4)"}
                    entry["settings"].append(setting)
        interval = by_workload["interval"]["full"]
        interval["separate"] = interval["shared"] = next(iter(interval.values()))
    text = words(summary)
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    assert text.count("100: seconds, and so on") > 2


def test_full_and_os_never_share_a_table(summary: dict[str, Any]) -> None:
    for block in words(summary).split("\n\n"):
        if "  " in block:  # a table
            assert not {"full", "os"} <= set(block.split()), block


def test_verification_comes_first_and_what_failed_has_no_figures(summary: dict[str, Any]) -> None:
    text = words(summary)
    first = text.index("Verification")
    assert first < text.index("NOT VERIFIED") < text.index("reshard: latency")
    assert "record 7 of partition 3 is gone" in text
    row = next(line for line in text.splitlines() if line.startswith("SQLite (64 per COMMIT)  "))
    assert set(row.split()[5:]) <= {"–"}


def test_nothing_at_all_can_be_told(options: ComparisonOptions) -> None:
    outcome = Outcome(plan(options), interrupted=True)
    text = words(summarize(options, outcome, {**MACHINE, "disk_sync_ms": None}))
    assert text.startswith("INTERRUPTED") and "No run has ended." in text


def test_a_disk_in_memory_is_said(options: ComparisonOptions, outcome: Outcome) -> None:
    text = words(summarize(options, outcome, {**MACHINE, "filesystem": "tmpfs"}))
    assert "tmpfs is memory" in text
