"""Sums up a comparison in a few plain sentences: every number in them is the summary's.

    proven?      runs, records read back, errors                               first, in red if there are any
    at the rate  when commits were answered and records read, by system        each at its headline placement
    why          how much of the difference is protocol, how much shared fate

Next: page.py.
"""

from typing import Any, NamedTuple

from ...compare.ranking import (
    DURABILITIES,
    REPEATS_MIN,
    at_headline,
    entries,
    figure,
    shared_fates,
    sides,
)
from ...compare.systems import modes_among
from ..text.blocks import number
from ..text.conclusions import split
from ..text.text_report import failures, spark_verdict
from .drawing import display_name
from .series import ms


class Board(NamedTuple):
    """A board of medians, each system at its headline placement. `rows`: (system, name in drawings, figures)."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, str, list[str]]]


class Verdict(NamedTuple):
    """The verdict. `tone`: "good", "bad" (there are errors) or "partial" (results are missing)."""

    tone: str
    headline: str
    sentences: list[str]
    wrong: list[str]
    board: Board | None


def verdict(summary: dict[str, Any]) -> Verdict:
    systems, spark = summary["systems"], summary.get("spark")
    results = [entry for *_, entry in entries(systems) if entry["status"] in ("ok", "failed")]
    runs = sum(entry["repeats"] for entry in results)
    failed, errors = failures(systems), spark_errors(spark)
    if failed:
        tone, headline = "bad", "Some runs did not verify. They have no figures."
    elif errors:
        tone, headline = "bad", "Python verified every run, but Spark disagrees: trust no figure."
    elif not runs:
        tone, headline = "partial", "No run has ended: there is nothing to compare."
    elif summary["interrupted"]:
        tone, headline = (
            "partial",
            "Interrupted: all runs that ended verified, but some are missing.",
        )
    else:
        tone, headline = "good", "Every run verified: each record is there once, in order."
    sentences = []
    if runs:
        records = sum(entry["records"] * entry["repeats"] for entry in results)
        sentences.append(
            f"Each of {runs} runs had a store of its own. After the run the store was opened anew, and its records "
            f"were read back: {records:,} records, {_losses(results)}."
        )
    if spark and spark["ran"]:
        sentences.append(spark_verdict(spark))
    board = None
    for durability in DURABILITIES:  # the first with results; each has its own parts below
        cells = [one for one in at_headline(systems, "reshard", durability) if one[2]["verified"]]
        if cells:
            board = _board(summary, durability, cells)
            sentences += _in_words(summary, durability, cells)
            break
    return Verdict(tone, headline, sentences, failed + errors, board)


def _losses(entries: list[dict[str, Any]]) -> str:
    names = ("missing", "duplicated", "out_of_order", "violations")
    counts = {name.replace("_", " "): sum(entry[name] for entry in entries) for name in names}
    lost = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)
    return lost or "none missing, none twice, none out of order"


def spark_errors(spark: dict[str, Any] | None) -> list[str]:
    """Returns disagreements with Python, and findings that no system's model allows, with their runs."""
    if not spark:
        return []
    errors = [f"Spark: {text}" for text in spark["disagreements"]]
    for check in spark["checks"]:
        counts = {name: n for name, n in check["found"].items() if n}
        if counts:
            runs = [run for run, of in (check.get("by_run") or {}).items() if {*of} & {*counts}]
            where = f", in {', '.join(runs)}" if runs else ""
            anomalies = ", ".join(f"{name} {n:,}" for name, n in counts.items())
            errors.append(f"Spark, {check['name']}: {anomalies}{where}")
    return errors


Cells = list[tuple[str, str, dict[str, Any]]]
"""(system, placement, entry)."""
_BOARD = (
    ("a commit is answered", "commit_ms.p50"),
    ("a reader has it", "end_to_end_ms.p50"),
)


def _board(summary: dict[str, Any], durability: str, cells: Cells) -> Board:
    """Returns medians without writes, which end with something else durable in each system."""
    rate = summary["settings"]["rate_mb_s"]
    at = f"at {rate:g} MB/s" if rate else "as fast as it goes"
    columns = (*(words for words, _ in _BOARD), "CPU cores" if rate else "MB/s")
    rows = []
    for name, placement, entry in cells:
        late = entry["sustained"] is False
        latencies = ["not sustained" if late else ms(figure(entry, key)) for _, key in _BOARD]
        last = entry["cpu_cores"] if rate else entry["throughput_mb_s"]
        rows.append((name, display_name(name, placement), [*latencies, number(last)]))
    return Board(f"reshard {at}, durability {durability}: medians", columns, rows)


def _in_words(summary: dict[str, Any], durability: str, cells: Cells) -> list[str]:
    rate = summary["settings"]["rate_mb_s"]
    if rate is None:
        return []
    won = {
        w["figure"]: w["best"]
        for w in summary["who_wins"]
        if (w["workload"], w["durability"]) == ("reshard", durability)
    }
    single = min(entry["repeats"] for *_, entry in cells) < REPEATS_MIN
    sentences = []
    for event, name in (
        ("A commit was answered", "commit_ms.p50"),
        ("A reader had a record", "end_to_end_ms.p50"),
    ):
        able = [
            (system, display_name(system, placement), value)
            for system, placement, e in cells
            if (value := figure(e, name)) is not None
        ]
        if len(able) > 1:
            sentences.append(_compare(event, able, won.get(name), single))
    split_up = [
        (row, sides(effects))
        for effects in shared_fates(summary["systems"])
        if (row := effects.get(durability, {}).get("end_to_end_ms.p50")) and row["difference"]
    ]
    if split_up:
        waits = ["its transaction's commit, half an interval on average"]
        waits += [one.reads_late for one in modes_among(summary["systems"]) if one.reads_late]
        sentences.append(f"A record waits for {', and '.join(waits)}.")
        for row, both in split_up:
            sentences.append(f"By mode and placement, {split('end_to_end_ms.p50', row, both)}")
    late = [display_name(name, at) for name, at, entry in cells if entry["sustained"] is False]
    if late:
        sentences.append(
            f"No latency is reported for {' and '.join(late)}: the rate of {rate:g} MB/s was not sustained."
        )
    return sentences


def _compare(
    event: str, able: list[tuple[str, str, float]], best: dict[str, float] | None, single: bool
) -> str:
    """Names the first system where the rule of compare/ranking.py does. `able`: (system, name in drawings, ms)."""
    able.sort(key=lambda one: one[2])
    if best is None:
        why = "a single run cannot rank the systems" if single else "the rule ranks no system first"
        return f"{event} after (median): {_list(able)}. Here {why}."
    front = [one for one in able if one[0] in best]
    rest = [one for one in able if one[0] not in best]
    return f"{event} soonest with {_list(front)} (median), against {_list(rest)}."


def _list(able: list[tuple[str, str, float]]) -> str:
    return "; ".join(f"{name} {ms(value)}" for _, name, value in able)
