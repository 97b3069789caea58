"""What came of it in a few plain sentences: every number in them is the summary's.

    proven?      runs, records read back, what was wrong                       first, in red where it is not so
    at the rate  who had its writes durable, its records read, when            where each stands as it is meant to
    why          how much of the difference is protocol, how much shared fate

Next: page.py.
"""

from typing import Any, NamedTuple

from ..conclusions import split
from ..judging import DURABILITIES, at_headline, entries, figure
from .drawing import called, look
from .series import ms

_WHO_LOSES = ("missing", "duplicated", "out_of_order", "violations")


class Verdict(NamedTuple):
    """`tone`: "good", "bad" (something is wrong) or "partial" (some of it is missing)."""

    tone: str
    headline: str
    sentences: list[str]
    wrong: list[str]


def verdict(summary: dict[str, Any]) -> Verdict:
    systems = summary["systems"]
    spark = summary.get("spark") or {}
    ran = [entry for *_, entry in entries(systems) if entry["status"] in ("ok", "failed")]
    runs = sum(entry["repeats"] for entry in ran)
    records = sum(entry["records"] * entry["repeats"] for entry in ran)
    wrong = _wrong(summary)
    if wrong:
        tone, headline = "bad", "Not everything verified. What did not has no figures."
    elif not runs:
        tone, headline = "partial", "Nothing ran to its end: there is nothing to compare."
    elif summary["interrupted"]:
        tone, headline = "partial", "Interrupted: what there is verified, some of it is missing."
    else:
        tone, headline = "good", "Every run verified: each record there once, in order."
    sentences = []
    if runs:
        sentences.append(
            f"{runs} runs, each on a store of its own, which was then opened anew: {records:,} records were read "
            f"back, {_losses(ran)}."
        )
    if spark.get("ran"):
        said = {
            "True": "; it agrees with the Python checker.",
            "False": "; it does NOT agree with the Python checker.",
        }
        sentences.append(
            "Apache Spark read every record and every trace row and judged by itself"
            + said.get(str(spark.get("agrees_with_python")), ".")
        )
    for durability in DURABILITIES:
        found = _at_the_rate(summary, durability)
        if found:
            sentences += found
            sentences += _why(summary, durability)
            break  # the other durability has its own part below
    return Verdict(tone, headline, sentences, wrong)


def _losses(ran: list[dict[str, Any]]) -> str:
    counts = {name: sum(entry[name] for entry in ran) for name in _WHO_LOSES}
    if not any(counts.values()):
        return "none missing, none twice, none out of order"
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n)


def _wrong(summary: dict[str, Any]) -> list[str]:
    """What is wrong, not where: that is in the next part."""
    found = []
    for name, workload, durability, placement, entry in entries(summary["systems"]):
        where = f"{workload}, {called(name, placement)}, durability {durability}"
        if entry["status"] == "failed":
            found.append(f"{where} failed: {entry['reason']}")
        elif entry["status"] == "ok" and not entry["verified"]:
            told = [f"{entry[n]:,} {n.replace('_', ' ')}" for n in _WHO_LOSES if entry[n]]
            found.append(f"{where} did not verify: {', '.join(told) or 'the verifier said no'}")
        for run in entry["rate_search"] or ():
            if not run["verified"]:
                found.append(f"{where}: a run that searched the highest rate did not verify")
    spark = summary.get("spark") or {}
    found += [f"Spark: {text}" for text in spark.get("disagreements") or ()]
    for check in spark.get("checks") or ():
        if counts := forbidden(check):
            found.append(f"Spark, {check['name']}: {counts}")
    return found


def _at_the_rate(summary: dict[str, Any], durability: str) -> list[str]:
    rate = summary["settings"]["rate_mb_s"]
    shown = [
        (n, e) for n, e in at_headline(summary["systems"], "reshard", durability) if e["verified"]
    ]
    if rate is None or not shown:
        return []
    late = [look(name).name for name, entry in shown if entry["sustained"] is False]
    said = []
    able = [(name, entry) for name, entry in shown if entry["write_ms"]]
    if able:
        writes = _each(able, "write_ms.p50", "write_ms.p99")
        said.append(
            f"At {rate:g} MB/s, durability {durability}, half of all writes were durable within (and 99 % within): "
            f"{writes}."
        )
        seen = _each(able, "end_to_end_ms.p50", "end_to_end_ms.p99")
        said.append(
            f"A reader of committed records had half of them within (and 99 % within): {seen}."
        )
    if late:
        said.append(
            f"{' and '.join(late)} did not sustain {rate:g} MB/s on this machine, durability {durability}, and "
            f"{'have' if len(late) > 1 else 'has'} no latencies there."
        )
    return said


def _each(able: list[tuple[str, Any]], half: str, most: str) -> str:
    ordered = sorted(able, key=lambda one: figure(one[1], half) or 0.0)
    return ", ".join(
        f"{look(name).name} {ms(figure(entry, half))} ({ms(figure(entry, most))})"
        for name, entry in ordered
    )


def _why(summary: dict[str, Any], durability: str) -> list[str]:
    rows = (summary["shared_fate"] or {}).get(durability) or {}
    return [
        f"Why, by the four corners of mode and placement: {split(name, rows[name])}"
        for name in ("end_to_end_ms.p50", "hops_before_reply")
        if name in rows and rows[name]["difference"]
    ][:1]


def forbidden(check: dict[str, Any]) -> str:
    """What one of Spark's checks found beyond what its system's model allows; "" when nothing."""
    allowed = check.get("allowed") or {}
    found = {n: k for n, k in (check.get("found") or {}).items() if k and allowed.get(n) != k}
    return ", ".join(f"{name} {n:,}" for name, n in found.items())
