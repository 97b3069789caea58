"""Sums up a comparison in a few plain sentences: every number in them is the summary's.

    proven?      runs, records read back, errors                               first, in red if there are any
    at the rate  when commits were answered and records read, by system        each at its headline placement
    why          how much of the difference is protocol, how much shared fate

Next: page.py.
"""

from typing import Any, NamedTuple

from ...compare.ranking import DURABILITIES, REPEATS_MIN, at_headline, entries, figure, sides
from ...compare.systems import MODES
from ..text.blocks import number
from ..text.conclusions import split
from .drawing import called
from .series import ms

_WHO_LOSES = ("missing", "duplicated", "out_of_order", "violations")


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
    systems = summary["systems"]
    spark = summary.get("spark") or {}
    ran = [entry for *_, entry in entries(systems) if entry["status"] in ("ok", "failed")]
    runs = sum(entry["repeats"] for entry in ran)
    records = sum(entry["records"] * entry["repeats"] for entry in ran)
    unverified, doubted = _unverified(summary), _by_spark(spark)
    wrong = unverified + doubted
    if unverified:
        tone, said = "bad", "Not everything verified. What did not has no figures."
    elif doubted:
        tone, said = "bad", "Python verified every run, and Spark says otherwise: trust no figure."
    elif not runs:
        tone, said = "partial", "Nothing ran to its end: there is nothing to compare."
    elif summary["interrupted"]:
        tone, said = "partial", "Interrupted: what there is verified, some of it may be missing."
    else:
        tone, said = "good", "Every run verified: each record there once, in order."
    sentences = []
    if runs:
        sentences.append(
            f"{runs} runs, each on a store of its own, which was then opened anew: {records:,} records were read "
            f"back, {_losses(ran)}."
        )
    if spark.get("ran"):
        agreement = {
            "True": "; it agrees with the Python checker.",
            "False": "; it does NOT agree with the Python checker.",
        }
        sentences.append(
            "Apache Spark read every row of every trace and judged by itself"
            + agreement.get(str(spark.get("agrees_with_python")), ".")
        )
    board = None
    for durability in DURABILITIES:  # the first with results; each has its own parts below
        shown = [one for one in at_headline(systems, "reshard", durability) if one[2]["verified"]]
        if shown:
            board = _board(summary, durability, shown)
            sentences += _in_words(summary, durability, shown)
            break
    return Verdict(tone, said, sentences, wrong, board)


def _losses(ran: list[dict[str, Any]]) -> str:
    counts = {name: sum(entry[name] for entry in ran) for name in _WHO_LOSES}
    if not any(counts.values()):
        return "none missing, none twice, none out of order"
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n)


def _unverified(summary: dict[str, Any]) -> list[str]:
    """Returns the errors, not where they are: the next part shows that."""
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
    return found


def _by_spark(spark: dict[str, Any]) -> list[str]:
    found = [f"Spark: {text}" for text in spark.get("disagreements") or ()]
    for check in spark.get("checks") or ():
        if counts := forbidden(check):
            found.append(f"Spark, {check['name']}: {counts}")
    return found


Shown = list[tuple[str, str, dict[str, Any]]]
"""(system, placement, entry)."""
_BOARD = (
    ("a commit is answered", "commit_ms.p50"),
    ("a reader has it", "end_to_end_ms.p50"),
)


def _board(summary: dict[str, Any], durability: str, shown: Shown) -> Board:
    """Returns medians without writes, which end with something else durable in each system."""
    rate = summary["settings"]["rate_mb_s"]
    at = f"at {rate:g} MB/s" if rate else "as fast as it goes"
    columns = (*(words for words, _ in _BOARD), "CPU cores" if rate else "MB/s")
    rows = []
    for name, placement, entry in shown:
        late = entry["sustained"] is False
        told = ["not sustained" if late else ms(figure(entry, key)) for _, key in _BOARD]
        last = entry["cpu_cores"] if rate else entry["throughput_mb_s"]
        rows.append((name, called(name, placement), [*told, number(last)]))
    return Board(f"reshard {at}, durability {durability}: medians", columns, rows)


def _in_words(summary: dict[str, Any], durability: str, shown: Shown) -> list[str]:
    rate = summary["settings"]["rate_mb_s"]
    if rate is None:
        return []
    won = {
        w["figure"]: w
        for w in summary["who_wins"]
        if (w["workload"], w["durability"]) == ("reshard", durability)
    }
    said = []
    for what, name in (
        ("A commit was answered", "commit_ms.p50"),
        ("A reader had a record", "end_to_end_ms.p50"),
    ):
        able = [
            (system, called(system, placement), value)
            for system, placement, e in shown
            if (value := figure(e, name)) is not None
        ]
        if len(able) > 1:
            single = min(entry["repeats"] for *_, entry in shown) < REPEATS_MIN
            able.sort(key=lambda one: one[2])
            said.append(_compared(what, able, won.get(name), single))
    rows = (summary["shared_fate"] or {}).get(durability) or {}
    row = rows.get("end_to_end_ms.p50")
    if row and row["difference"]:
        waits = ["its transaction's commit, half an interval on average"]
        waits += [mode.reads_late for mode in MODES if mode.reads_late]
        said.append(
            f"It waits for {', and '.join(waits)}. By mode and placement, "
            f"{split('end_to_end_ms.p50', row, sides(summary['shared_fate']))}"
        )
    late = [called(name, at) for name, at, entry in shown if entry["sustained"] is False]
    if late:
        have = "have" if len(late) > 1 else "has"
        said.append(
            f"{' and '.join(late)} did not sustain {rate:g} MB/s on this machine, so {have} no latencies here."
        )
    return said


def _compared(
    what: str, able: list[tuple[str, str, float]], won: dict[str, Any] | None, single: bool
) -> str:
    """Names the first system where the rule of compare/ranking.py does. `able`: (system, name in drawings, ms)."""
    each = [f"{name} {ms(value)}" for _, name, value in able]
    if won is None:
        why = "single runs tell nobody apart" if single else "no telling them apart"
        return f"{what}, in half of all cases, in {'; '.join(each)}: {why}."
    best = " and ".join(name for system, name, _ in able if system in won["best"])
    first = " and ".join(ms(value) for system, _, value in able if system in won["best"])
    rest = "; ".join(
        one for one, (system, *_) in zip(each, able, strict=True) if system not in won["best"]
    )
    return f"{what} soonest with {best}: {first} in half of all cases, against {rest}."


def forbidden(check: dict[str, Any]) -> str:
    """Returns findings of one of Spark's checks that no system's model allows; "" if there are none."""
    found = {name: n for name, n in (check.get("found") or {}).items() if n}
    return ", ".join(f"{name} {n:,}" for name, n in found.items())
