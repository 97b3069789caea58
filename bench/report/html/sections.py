"""Puts together the report as data: ten chapters of drawings, tables and sentences.

Sentences, tables and rules are those of report.txt (bench/report/text/); additions explain. A chapter
whose workload did not run names the command that runs it.

Next: teaching.py, others.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...compare.ranking import DURABILITIES, sides
from ...compare.systems.entry import SEPARATE, SHARED
from ..text import caveats, conclusions, text_report
from ..text.blocks import Bullets, Command, Paragraph, Section, Table
from ..text.durable_writes import who_persists
from .content import (
    Aside,
    Chapter,
    Durability,
    Heading,
    Note,
    Part,
    block_parts,
    by_durability,
    has_figures,
    only,
    wins,
)
from .counted import corners, persists
from .drawing import Drawing
from .latency import latencies
from .others import absent, others, troubles
from .phases import phases
from .rates import highest, throughput
from .series import Comparison
from .teaching import read_first
from .usage import usage
from .verdict import Verdict, forbidden, verdict


@dataclass
class Page:
    """The whole page; `ran`: lines about the runs and the machine."""

    verdict: Verdict
    ran: list[str]
    chapters: list[Chapter]

    @property
    def drawings(self) -> Iterator[Drawing]:
        for chapter in self.chapters:
            yield from (part for part in chapter.parts if isinstance(part, Drawing))


def page(summary: dict[str, Any], figures: dict[str, Any]) -> Page:
    comparison = Comparison(summary, figures)
    chapters = [
        _verification(summary),
        read_first(summary),
        _latency(summary, comparison),
        _phases(comparison),
        _throughput(comparison),
        _persists(summary),
        _corners(summary),
        _usage(summary, comparison),
        _others(summary, comparison),
        _wins(summary),
        _limits(summary, figures),
    ]
    return Page(verdict(summary), text_report.titles(summary), chapters)


# 1 ------------------------------------------------------------------------------------------------


def _verification(summary: dict[str, Any]) -> Chapter:
    section = text_report.verification(summary["systems"])
    parts: list[Part] = []
    if summary["interrupted"]:
        plan = summary["plan"]
        ended = f"{plan['done']} of {plan['cells']} runs had ended by then."
        parts.append(Note("partial", f"Interrupted, or still under way: {ended}"))
    bad = section.blocks and isinstance(section.blocks[0], str) and "NOT" in section.blocks[0]
    for n, block in enumerate(section.blocks):
        if n == 0 and isinstance(block, str):
            parts.append(Note("bad" if bad else "good", block))
        elif n == 1 and bad and isinstance(block, Bullets):
            parts += [Note("bad", line) for line in block.lines]
        else:
            parts.append(block)
    parts += _spark(summary.get("spark"))
    lead = (
        "Before any figure: behind each run its store was opened anew, to look only, and every record accounted "
        "for. A run that did not verify has no figures anywhere in this report."
    )
    return Chapter(1, "verification", "What was proven, and by whom", lead, parts)


def _spark(spark: dict[str, Any] | None) -> list[Part]:
    parts: list[Part] = [Heading("Who checked", "who-checked")]
    parts.append(
        Paragraph(
            "A checker in Python looked at each run as it ended: certificates of transactions, positions, "
            "offsets, what readers were shown. Apache Spark looks at all of them once more with code of its "
            "own, which shares nothing with it but the format of the traces."
        )
    )
    if not spark:
        parts.append(
            Note("absent", "Spark was not asked: what is said here is the Python checker's alone. It is done by",
                 "python -m planstep.bench.judges.spark DIR")
        )  # fmt: skip
        return parts
    if not spark.get("ran"):
        why = spark.get("why_not") or "no reason was given"
        parts.append(
            Note(
                "partial",
                f"Spark did not run: {why}. What is said here is the Python checker's alone.",
            )
        )
        return parts
    about = (
        f"Spark {spark.get('version')} on {spark.get('master')}, {spark.get('seconds') or 0:.0f} s, "
        f"{spark.get('rows_read') or 0:,} rows read"
    )
    said = {
        "True": ("good", f"{about}: it agrees with the Python checker."),
        "False": ("bad", f"{about}: it does NOT agree with the Python checker."),
    }
    unknown = ("partial", f"{about}: what Python found was not there.")
    parts.append(Note(*said.get(str(spark.get("agrees_with_python")), unknown)))
    parts += [Note("bad", text) for text in spark.get("disagreements") or ()]
    rows = []
    for check in spark.get("checks") or ():
        if beyond := forbidden(check):
            found = check["found"]
            runs = [
                run for run, counts in (check.get("by_run") or {}).items() if {*counts} & {*found}
            ]
            where = ", ".join(runs)
            parts.append(
                Note("bad", f"{check['name']}: {beyond}" + (f", in {where}" if where else ""))
            )
        rows.append(
            [
                *(check["name"], check.get("what", ""), check.get("rows")),
                *(_counts(check.get("found")), _counts(check.get("allowed"))),
                check.get("agrees"),
            ]
        )
    columns = ("check", "what it asks", "rows", "found", "allowed by the model", "Python agrees")
    if rows:
        parts.append(Table(columns, rows, left=2))
    jobs = [[job["name"], job.get("rows"), job.get("seconds")] for job in spark.get("jobs") or ()]
    if jobs:
        parts.append(Aside("Spark's jobs", [Table(("job", "rows", "seconds"), jobs)]))
    return parts


def _counts(found: dict[str, int] | None) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in (found or {}).items() if n) or "nothing"


# 2 … 7: reshard -----------------------------------------------------------------------------------


def _pieces(
    parts: list[Part], durability: str, drawing: Drawing | None, section: Section | None
) -> None:
    """Adds a drawing and its tables, under the name of their durability."""
    blocks = block_parts(section)
    if drawing is None and not blocks:
        return
    parts.append(Durability(durability))
    if drawing is not None:
        parts.append(drawing)
    parts += blocks


def _latency(summary: dict[str, Any], comparison: Comparison) -> Chapter:
    rate, interval = summary["settings"]["rate_mb_s"], summary["settings"]["commit_interval_s"]
    lead = (
        "The talk's model task, reshard: records partitioned by writer become records partitioned by user, exactly "
        f"once, a commit every {interval:g} s. "
    )
    lead += (
        f"At {rate:g} MB/s, offered whether or not a system keeps up."
        if rate
        else "As fast as it goes: only commits have a latency then."
    )
    parts: list[Part] = []
    drawings = latencies(comparison)
    tables = text_report.latencies(summary)
    sections = by_durability(tables)
    for durability in DURABILITIES:
        section = sections.get(durability)
        if section is None and durability not in drawings:
            continue
        parts.append(Durability(durability))
        if durability in drawings:
            parts.append(drawings[durability])
        for block in section.blocks if section else ():
            meaning = f"{durability}: {DURABILITIES[durability]}."
            if isinstance(block, Paragraph) and block.text.startswith(meaning):
                if rest := block.text.removeprefix(meaning).strip():
                    parts.append(Paragraph(rest))
            elif isinstance(block, Table) and not has_figures(block):
                parts.append(
                    Note("partial", "No system sustained the rate here, so nothing has latencies.")
                )
                if block.apart:
                    parts.append(block)
            else:
                parts.append(block)
    parts += [block for s in tables if s not in sections.values() for block in s.blocks]
    parts += (
        troubles(comparison.systems, "reshard") if parts else absent(comparison.systems, "reshard")
    )
    return Chapter(2, "latency", "Latency", lead, parts)


def _phases(comparison: Comparison) -> Chapter:
    parts: list[Part] = []
    for durability, drawing in phases(comparison).items():
        _pieces(parts, durability, drawing, None)
    lead = (
        "What happens to one transaction, from its first piece of work to the moment a reader may see all of "
        "it, drawn from its trace, in each mode and placement on the same axes."
    )
    return Chapter(3, "phases", "A transaction's phases", lead, parts or _no_trace(comparison))


def _no_trace(comparison: Comparison) -> list[Part]:
    if not comparison.ran("reshard"):
        return absent(comparison.systems, "reshard")
    text = "There are no traces to draw it from. They are kept by"
    return [Note("absent", text, "planstep compare --workload reshard --out DIR")]


def _throughput(comparison: Comparison) -> Chapter:
    parts: list[Part] = []
    over_time, most = throughput(comparison), highest(comparison)
    table = next((t for s in text_report.rates(comparison.systems) for t in s.tables), None)
    about = next((s.blocks[0] for s in text_report.rates(comparison.systems)), None)
    for durability in DURABILITIES:
        if durability in over_time:
            _pieces(parts, durability, over_time[durability], None)
        if durability in most:
            parts.append(Heading("Highest sustained rate", f"highest-{durability}"))
            parts.append(most[durability])
            if about is not None and table is not None:
                parts += [about, only(table, 2, durability)]
    parts = parts or _no_trace(comparison)
    if not most and comparison.ran("reshard"):
        command = "planstep compare --workload reshard --find-rate --out DIR"
        parts.append(
            Note("absent", "The highest sustained rate was not searched here. It is by", command)
        )
    lead = "How much got through, and whether it came evenly."
    return Chapter(4, "throughput", "Throughput", lead, parts)


def _persists(summary: dict[str, Any]) -> Chapter:
    lead = (
        "The difference between the protocols is what has to be on the disk before anything goes on. The talk "
        "has it as a table; here each row is counted."
    )
    parts: list[Part] = []
    drawing = persists(summary["systems"])
    if drawing is not None:
        parts.append(drawing)
        sections = who_persists(summary["systems"])
        for section in sections:
            *first, second, table = section.blocks
            parts += first
            parts.append(Aside(str(second).rstrip(":"), [table]))
    else:
        parts += absent(summary["systems"], "reshard")
    if summary["settings"]["hosts"] != "spread":
        parts.append(
            Note("absent", "Here tablets share a log, or few of them. With a log for each it is counted by",
                 "planstep compare --workload reshard --hosts spread --out DIR")
        )  # fmt: skip
    else:
        parts.append(
            Paragraph(
                "Spread: each tablet, and the coordinator, has a host and a log of its own, so whatever one tells "
                "another is durable first, as between servers. All share one disk: times say little, counts do."
            )
        )
    return Chapter(5, "persists", "Who persists what, counted", lead, parts)


_STANDS = {SHARED: "shares its turns", SEPARATE: "stands apart"}


def _corners(summary: dict[str, Any]) -> Chapter:
    home, other = sides(summary["shared_fate"])
    lead = (
        f"A {home.mode.style} store that {_STANDS[home.system.headline]} against a {other.mode.title} one that "
        f"{_STANDS[other.system.headline]} compares two things at once: the protocol, and whether tablets "
        "share their fate. All four corners tell them apart. Made by the protocol: the other mode in the same "
        "place; by shared fate: the other place in the same mode; each averaged over both. Together they are what "
        f"{other.as_meant()} has more than {home.as_meant()}."
    )
    parts: list[Part] = []
    drawings = corners(summary["shared_fate"])
    sections = by_durability(conclusions.mode_by_placement(summary["shared_fate"]))
    for durability in DURABILITIES:
        section = sections.get(durability)
        if section is not None:  # its first paragraph only explains abbreviations
            kept = [block for block in section.blocks if not isinstance(block, Paragraph)]
            section = Section(section.title, kept)
        _pieces(parts, durability, drawings.get(durability), section)
    if not parts:
        command = "planstep compare --workload reshard --placement both --out DIR"
        parts.append(
            Note(
                "absent",
                "It takes both modes in both placements, verified; that is not here. It is shown by",
                command,
            )
        )
    return Chapter(6, "corners", "The 2 × 2: mode and placement", lead, parts)


def _usage(summary: dict[str, Any], comparison: Comparison) -> Chapter:
    lead = "CPU, memory, disk, and what would cross a network, at the same offered rate."
    parts: list[Part] = []
    drawings = usage(comparison)
    sections = by_durability(text_report.resources(summary))
    for durability in DURABILITIES:
        _pieces(parts, durability, drawings.get(durability), sections.get(durability))
    return Chapter(
        7, "resources", "Resources", lead, parts or absent(comparison.systems, "reshard")
    )


# 8 … 10 -------------------------------------------------------------------------------------------


def _others(summary: dict[str, Any], comparison: Comparison) -> Chapter:
    lead = "Questions that resharding at a steady rate does not ask; each has a run of its own."
    parts = others(comparison, summary["who_wins"])
    return Chapter(8, "workloads", "The other workloads", lead, parts)


def _wins(summary: dict[str, Any]) -> Chapter:
    parts: list[Part] = [conclusions.wins(summary["who_wins"]).blocks[0]]
    for durability in DURABILITIES:
        found = wins(summary["who_wins"], durability)
        if found is not None:
            parts += [Durability(durability), found]
    if len(parts) == 1:
        parts.append(Note("absent", "Nobody, by that rule."))
    lead = "By a rule that was fixed before, not by eye. ● is in front; several: no telling them apart."
    return Chapter(9, "wins", "Who wins where", lead, parts)


def _limits(summary: dict[str, Any], figures: dict[str, Any]) -> Chapter:
    parts = block_parts(caveats.limits(summary))
    for section in caveats.left_out(summary):
        parts += [Heading(section.title, "left-out"), *section.blocks]
    parts.append(Heading("Settings, and the same again", "settings"))
    for section in caveats.settings(summary, None):
        for block in section.blocks:
            if isinstance(block, Command):
                parts.append(Command(block.head, f"{block.line} --out DIR"))
            else:
                parts.append(block)
    parts.append(Heading("Where these figures come from", "sources"))
    source = {"spark": "Apache Spark", "python": "Python"}.get(figures.get("source", ""), "nobody")
    parts.append(
        Paragraph(
            f"Drawings were made of the traces by {source}; tables are of results.json, medians over repeats. "
            "The same report again, from the same folder:"
        )
    )
    parts.append(Command("", "python -m planstep.bench.report.html DIR"))
    missing = figures.get("left_out") or {}
    lines = [f"{run}: {why}" for run, why in missing.items()]
    if lines:
        parts.append(Bullets(lines, "Traces that could not be read:"))
    lead = "What must not be read into it, what was left out, and how to do it again."
    return Chapter(10, "limits", "What this run cannot show", lead, parts)
