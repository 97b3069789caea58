"""Puts together the report as data: its chapters of drawings, tables and sentences.

Sentences, tables and rules are those of report.txt (bench/report/text/); additions explain. A chapter
whose workload did not run names the command that runs it.

Next: teaching.py, others.py.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...compare.ranking import DURABILITIES, shared_fates, sides
from ...compare.systems.entry import SEPARATE, SHARED
from ..text import caveats, conclusions, text_report
from ..text.blocks import Bullets, Command, Paragraph, Section, Table
from ..text.changes import changes
from ..text.durable_writes import who_persists
from ..text.published import published
from ..text.servers import servers
from .answers import Answers, answers, promises
from .content import (
    Aside,
    Chapter,
    Durability,
    Heading,
    Note,
    Part,
    beside,
    by_durability,
    drawings_of,
    has_figures,
    wins,
)
from .counted import corners, persists
from .curves import curves
from .drawing import Drawing
from .latency import latencies
from .others import absent, others, troubles
from .phases import ABOUT as ABOUT_PHASES
from .phases import phases
from .rates import highest, throughput
from .series import Comparison
from .teaching import read_first
from .usage import usage
from .verdict import Verdict, spark_errors, verdict

_RESHARD = "planstep compare --workload reshard"


class Page(NamedTuple):
    """The whole page.

    curves     the chapter on the first screen; None without any
    warnings   why not to trust any figure
    history    lines about the runs and the machine
    """

    verdict: Verdict
    answers: Answers | None
    promises: Table | None
    curves: Chapter | None
    warnings: list[str]
    history: list[str]
    chapters: list[Chapter]

    @property
    def drawings(self) -> Iterator[Drawing]:
        for chapter in (*([self.curves] if self.curves else []), *self.chapters):
            yield from drawings_of(chapter.parts)


def page(summary: dict[str, Any], figures: dict[str, Any]) -> Page:
    comparison = Comparison(summary, figures)
    chapters = [
        _verification(summary),
        *_since(summary),
        read_first(summary),
        _latency(summary, comparison),
        _phases(comparison),
        _throughput(comparison),
        _persists(summary),
        _corners(summary),
        _usage(summary, comparison),
        _others(summary, comparison),
        _wins(summary),
        *_published(summary),
        _limits(summary, figures),
    ]
    numbers = itertools.count(1)
    chapters = [c._replace(number=next(numbers) if c.number else 0) for c in chapters]
    history = [line for line in text_report.titles(summary) if not line.startswith("WARNING")]
    first = (answers(summary), promises(summary), curves(summary), text_report.warnings(summary))
    return Page(verdict(summary), *first, history, chapters)


# 1 ------------------------------------------------------------------------------------------------


def _verification(summary: dict[str, Any]) -> Chapter:
    parts: list[Part] = []
    if summary["interrupted"]:
        plan = summary["plan"]
        ended = f"{plan['done']} of {plan['cells']} runs have ended."
        parts.append(
            Note("partial", f"The comparison was interrupted, or is still running: {ended}")
        )
    first, *blocks = text_report.verification(summary["systems"]).blocks
    failed = "NOT" in str(first)
    parts.append(Note("bad" if failed else "good", str(first)))
    if failed:
        blocks.pop(0)  # the same list, as notes
        parts += [Note("bad", line) for line in text_report.failures(summary["systems"])]
    parts += [*blocks, *_spark(summary.get("spark"))]
    lead = (
        "After each run its store was opened anew, read-only, and every record was accounted for. A run that did "
        "not verify has no figures anywhere in this report."
    )
    return Chapter(1, "verification", "What was proven, and by whom", lead, parts)


def _since(summary: dict[str, Any]) -> Iterator[Chapter]:
    """Yields a chapter about what changed since an earlier comparison, if one was given."""
    for section in changes(summary):
        lead = "Each figure now against the same figure of an earlier comparison."
        yield Chapter(0, "since", section.title, lead, list(section.blocks))


def _spark(spark: dict[str, Any] | None) -> list[Part]:
    about = (
        "A checker in Python judged each run as it ended: certificates of transactions, positions, offsets, and "
        "the records that readers got. Apache Spark judges all runs once more with code of its own. The two share "
        "only the format of the traces."
    )
    parts: list[Part] = [Heading("Who checked", "who-checked"), Paragraph(about)]
    if not spark:
        why = "Spark did not judge these runs; the verdicts are those of Python's checker. This command runs Spark:"
        return [*parts, Note("absent", why, "python -m planstep.bench.judges.spark DIR")]
    tones = {True: "good", False: "bad"}
    parts.append(
        Note(tones.get(spark["agrees_with_python"], "partial"), text_report.spark_verdict(spark))
    )
    parts += [Note("bad", text) for text in spark_errors(spark)]
    columns = (
        "check",
        "what it verifies",
        "rows",
        "found",
        "allowed by the model",
        "Python agrees",
    )
    rows = [
        [
            *(check["name"], check["what"], check["rows"]),
            *(_counts(check["found"]), _counts(check["allowed"]), check.get("agrees")),
        ]
        for check in spark["checks"]
    ]
    if rows:
        parts.append(Table(columns, rows, left=2))
    jobs = [[job["name"], job["rows"], job["seconds"]] for job in spark["jobs"]]
    if jobs:
        parts.append(Aside("Spark's jobs", [Table(("job", "rows", "seconds"), jobs)]))
    return parts


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items() if n) or "nothing"


# 2 … 7: reshard -----------------------------------------------------------------------------------


def _pieces(durability: str, drawing: Drawing | None, section: Section | None = None) -> list[Part]:
    """Returns a drawing and its tables, under the name of their durability."""
    parts: list[Part] = [drawing] if drawing else []
    parts += section.blocks if section else ()
    return [Durability(durability), *parts] if parts else []


def _latency(summary: dict[str, Any], comparison: Comparison) -> Chapter:
    rate, interval = summary["settings"]["rate_mb_s"], summary["settings"]["commit_interval_s"]
    lead = (
        "The talk's model task is reshard: records partitioned by writer become records partitioned by user, "
        f"exactly once, with a commit every {interval:g} s. "
    )
    lead += (
        f"The generator offers {rate:g} MB/s, whether or not a system keeps up."
        if rate
        else "As fast as it goes, only commits have a latency."
    )
    parts: list[Part] = []
    tables = text_report.latencies(summary)
    sections = by_durability(tables)
    for durability, meaning in DURABILITIES.items():
        blocks: list[Part] = []
        for block in sections[durability].blocks if durability in sections else ():
            if isinstance(block, Paragraph):  # the page says the meaning already
                text = block.text.removeprefix(f"{durability}: {meaning}.").strip()
                blocks += [Paragraph(text)] if text else []
            elif isinstance(block, Table) and not has_figures(block):
                note = "No latency is reported here, because no system sustained the rate."
                blocks.append(Note("partial", note))
            else:
                blocks.append(block)
        drawing = latencies(comparison, durability)
        if drawing or blocks:
            parts += [Durability(durability), *([drawing] if drawing else []), *blocks]
    parts += [block for s in tables if s not in sections.values() for block in s.blocks]
    parts = beside(parts)
    parts += (
        troubles(comparison.systems, "reshard") if parts else absent(comparison.systems, "reshard")
    )
    return Chapter(2, "latency", "Latency", lead, parts)


def _phases(comparison: Comparison) -> Chapter:
    parts: list[Part] = []
    for durability in DURABILITIES:
        headline, others = phases(comparison, durability)
        if headline or others:
            parts += [
                *([] if parts else [Paragraph(ABOUT_PHASES)]),
                Durability(durability),
                *headline,
            ]
            parts += [Aside("In the other placement", others)] if others else []
    lead = (
        "These are the events of one transaction, from its first piece of work to the moment when a reader may "
        "see all of it. They are drawn from its trace, in each mode and placement on the same axes."
    )
    return Chapter(3, "phases", "A transaction's phases", lead, parts or _no_trace(comparison))


def _no_trace(comparison: Comparison) -> list[Part]:
    if not comparison.durabilities("reshard"):
        return absent(comparison.systems, "reshard")
    return [
        Note(
            "absent",
            "There are no traces to draw. This command keeps them:",
            f"{_RESHARD} --out DIR",
        )
    ]


def _throughput(comparison: Comparison) -> Chapter:
    parts: list[Part] = []
    searched = False
    rates = text_report.rates(comparison.systems)
    for durability in DURABILITIES:
        parts += _pieces(durability, throughput(comparison, durability))
        if most := highest(comparison, durability):
            searched = True
            parts += [Heading("Highest sustained rate", f"highest-{durability}"), most]
            for about, table in (section.blocks for section in rates):
                assert isinstance(table, Table)
                mine = (row for row in table.rows if row[2] == durability)
                # Without the durability its column is empty, so it is not shown.
                parts += [about, table._replace(rows=[(*r[:2], "", *r[3:]) for r in mine])]
    parts = beside(parts) or _no_trace(comparison)
    if not searched and comparison.durabilities("reshard"):
        text = "The highest sustained rate was not searched here. This command searches it:"
        parts.append(Note("absent", text, f"{_RESHARD} --find-rate --out DIR"))
    lead = "How much got through, and whether it came evenly."
    return Chapter(4, "throughput", "Throughput", lead, parts)


def _persists(summary: dict[str, Any]) -> Chapter:
    lead = (
        "The protocols differ in what must be on the disk before the next step. The talk that this comparison "
        "reproduces lists that in a table. Here each of its rows is counted."
    )
    parts: list[Part] = []
    drawing = persists(summary["systems"])
    if drawing is not None:
        parts.append(drawing)
        for section in who_persists(summary["systems"]):
            *first, second, table = section.blocks
            parts += [*first, Aside(str(second).rstrip(":"), [table])]
    else:
        parts += absent(summary["systems"], "reshard")
    if summary["settings"]["hosts"] != "spread":
        text = "Here the tablets share a log, or a few. This command counts with a log for each:"
        parts.append(Note("absent", text, f"{_RESHARD} --hosts spread --out DIR"))
    else:
        parts.append(
            Paragraph(
                "Spread: each tablet, and the coordinator, has a host and a log of its own. So every message is "
                "durable before it leaves, as between servers. All share one disk, so the times say little, the "
                "counts do."
            )
        )
    return Chapter(5, "persists", "Who persists what, counted", lead, parts)


_STANDS = {SHARED: "shares its turns", SEPARATE: "stands apart"}


def _corners(summary: dict[str, Any]) -> Chapter:
    fates = shared_fates(summary["systems"])
    home, other = sides(fates[0] if fates else None)
    lead = (
        f"A {home.mode.style} store that {_STANDS[home.system.headline]} differs in two ways from a "
        f"{other.mode.title} store that {_STANDS[other.system.headline]}: in the protocol, and in whether tablets "
        "share their fate. All four corners separate the two effects. The effect of the protocol is the "
        "difference of the modes at the same placement. The effect of shared fate is the difference of the "
        "placements in the same mode. Each is averaged over both cases. Their sum is the difference between "
        f"{other.as_meant()} and {home.as_meant()}."
    )
    if len(fates) > 1:
        more = " and ".join(f"a {sides(effects)[1].mode.title} store" for effects in fates[1:])
        lead += f" The same follows for {more}."
    parts: list[Part] = []
    for durability in DURABILITIES:
        mine: list[Part] = []
        for effects in fates:
            section = by_durability(conclusions.mode_by_placement(effects)).get(durability)
            drawing = corners(effects, durability)
            mine += [] if drawing is None else [drawing]
            if section is not None:  # its first paragraph only explains abbreviations
                mine += [block for block in section.blocks if not isinstance(block, Paragraph)]
        parts += [Durability(durability), *mine] if mine else []
    if not parts:
        text = "This chapter needs verified runs of two modes in both placements. This command runs them:"
        parts.append(Note("absent", text, f"{_RESHARD} --placement both --out DIR"))
    return Chapter(6, "corners", "The 2 × 2: mode and placement", lead, beside(parts))


def _usage(summary: dict[str, Any], comparison: Comparison) -> Chapter:
    lead = "CPU, memory, disk, and what would cross a network, at the same offered rate."
    sections = by_durability(text_report.resources(summary))
    parts = [
        part
        for durability in DURABILITIES
        for part in _pieces(durability, usage(comparison, durability), sections.get(durability))
    ]
    parts = beside(parts) or absent(comparison.systems, "reshard")
    for section in servers(summary):
        parts += [Heading(section.title, "servers"), *section.blocks]
    return Chapter(7, "resources", "Resources", lead, parts)


# 8 … 11 -------------------------------------------------------------------------------------------


def _others(summary: dict[str, Any], comparison: Comparison) -> Chapter:
    lead = (
        "Each of these workloads asks a question that resharding at a steady rate does not answer."
    )
    parts = others(comparison, summary["who_wins"])
    return Chapter(8, "workloads", "The other workloads", lead, parts)


def _wins(summary: dict[str, Any]) -> Chapter:
    parts: list[Part] = [conclusions.wins(summary).blocks[0]]
    for durability in DURABILITIES:
        if winners := wins(summary["who_wins"], durability):
            parts += [Durability(durability), winners]
    if len(parts) == 1:
        parts.append(Note("absent", "By that rule, no system wins."))
    lead = "A rule that was fixed before the runs ranks the systems. ● is in front; several ● cannot be ranked."
    return Chapter(9, "wins", "Who wins where", lead, parts)


def _published(summary: dict[str, Any]) -> Iterator[Chapter]:
    """Yields the chapter of published figures, if a workload ran that somebody published figures of."""
    parts: list[Part] = []
    for n, section in enumerate(published(summary["systems"])):
        parts += [Heading(section.title, f"published-{n}"), *section.blocks]
    if parts:
        lead = "Nothing in this chapter was measured here. It is from other hardware, and no rule compares it."
        yield Chapter(10, "published", "Published elsewhere", lead, parts)


def _limits(summary: dict[str, Any], figures: dict[str, Any]) -> Chapter:
    parts: list[Part] = [*caveats.limits(summary).blocks]
    for section in caveats.left_out(summary):
        parts += [Heading(section.title, "left-out"), *section.blocks]
    parts.append(Heading("Settings, and the command to repeat it", "settings"))
    for section in caveats.settings(summary, None):
        for block in section.blocks:
            if isinstance(block, Command):
                block = Command(block.head, f"{block.line} --out DIR")
            parts.append(block)
    parts.append(Heading("Where these figures come from", "sources"))
    sources = {"spark": "Apache Spark", "python": "Python"}
    source = sources.get(figures.get("source", ""), "An unknown program")
    text = f"{source} computed the drawings from the traces. The tables are medians over repeats, of results.json. "
    parts.append(Paragraph(f"{text}This command makes the report again from the same folder:"))
    parts.append(Command("", "python -m planstep.bench.report.html DIR"))
    missing = figures.get("left_out") or {}
    if missing:
        lines = [f"{run}: {why}" for run, why in missing.items()]
        parts.append(Bullets(lines, "Traces that could not be read:"))
    lead = "The limits of these figures, the runs that were left out, and the command to repeat the comparison."
    return Chapter(11, "limits", "What this run cannot show", lead, parts)
