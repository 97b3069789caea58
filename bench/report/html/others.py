"""Lists the workloads besides reshard: the question of each, a drawing, the results.

Next: parts.py and waits.py, which draw.
"""

from collections.abc import Callable
from typing import Any

from ...compare.ranking import entries
from ..text.blocks import Bullets, Paragraph, Section, Table
from ..text.conclusions import of_workload
from .content import (
    Aside,
    Durability,
    Heading,
    Note,
    Part,
    beside,
    by_durability,
    has_figures,
    wins,
)
from .drawing import Drawing, display_name
from .parts import chain, contention, deep, interval
from .series import Comparison, ms
from .waits import faults, held_open, plain_beside, with_and_without

Painter = Callable[[Comparison, str], Drawing | None]
_WORKLOADS: tuple[tuple[str, str, str, Painter], ...] = (
    (
        "interval",
        "Commit intervals",
        "How much throughput does a commit every 10, 100 or 500 ms cost, against plain writes at full speed?",
        interval,
    ),
    (
        "chain",
        "A chain of three stages",
        "Each stage commits at an interval before the next one sees the record. How long does a record take "
        "through three stages, against three commit intervals?",
        chain,
    ),
    (
        "small",
        "Small transactions",
        "A transaction consumes one record, updates two rows and writes one record. How many run a second, with "
        "one thread and with many? The curves above have the drawing.",
        lambda comparison, durability: None,
    ),
    (
        "contention",
        "Contention",
        "All workers want the same row, or the same input. Which transactions are cancelled, which wait, and at "
        "what cost?",
        contention,
    ),
    (
        "held-open",
        "One transaction held open",
        "One transaction stays open for seconds. How long do readers wait for the quick transactions?",
        held_open,
    ),
    (
        "plain-beside",
        "Plain writes with transactions",
        "What do plain writes cost in partitions that others write to with transactions?",
        plain_beside,
    ),
    (
        "faults",
        "Faults",
        "A worker's session drops in the middle of its transaction; the owner of a store is killed with kill -9. "
        "How long until work goes on, and what is lost?",
        faults,
    ),
    (
        "plain",
        "Without transactions",
        "What do transactions cost, against plain writes of the same bytes?",
        with_and_without,
    ),
)
"""Name, heading, question, drawing."""


def others(comparison: Comparison, who_wins: list[dict[str, Any]]) -> list[Part]:
    parts: list[Part] = []
    for workload, words, question, paint in _WORKLOADS:
        parts.append(Heading(words, f"workload-{workload}", question))
        durabilities = comparison.durabilities(workload)
        sections = by_durability(of_workload(comparison.systems, workload))
        mine: list[Part] = []
        for durability in durabilities:
            mine.append(Durability(durability))
            if drawing := paint(comparison, durability):
                mine.append(drawing)
            mine += _results(comparison, who_wins, workload, durability)
            mine += _tables(sections.get(durability))
        notes = troubles if durabilities else absent
        parts += [*beside(mine), *notes(comparison.systems, workload)]
    return parts


def _results(
    comparison: Comparison, who_wins: list[dict[str, Any]], workload: str, durability: str
) -> list[Part]:
    lines = _killed(comparison, durability) if workload == "faults" else []
    series = comparison.extras(workload, durability)
    if workload in _TWICE:
        words, then, *paths = _TWICE[workload]
        for one in series:
            before, after = (deep(one.entry["extra"], *path.split(".")) for path in paths)
            if before and after:
                ratio = _times(after / before)
                lines.append(
                    f"{one.name}: median {words} {ms(before)}, {then} {ms(after)}: {ratio}"
                )
    parts: list[Part] = [Bullets(lines, "Results:")] if lines else []
    if workload == "faults":
        return parts
    winners = wins(who_wins, durability, workload)
    if winners is None:
        single = all(one.entry["repeats"] < 2 for one in series)
        why = (
            "Single runs cannot be ranked; --repeat 3 makes more."
            if single
            else "By the rule, no system wins."
        )
        return [*parts, Note("absent", why)]
    head = "● is in front, by the ranges of repeats. The rule cannot rank the figures that the table lacks."
    return [*parts, Paragraph(head), winners]


_TWICE = {
    "held-open": ("end to end", "while one is held open", "before.p50", "while_held.p50"),
    "plain-beside": (
        *("end to end of plain writes, alone", "with transactions"),
        *("plain_alone.end_to_end_ms.p50", "plain_beside.end_to_end_ms.p50"),
    ),
}
"""(first label, second label, path of the first in `extra`, path of the second)."""


def _times(ratio: float) -> str:
    if 0.8 <= ratio <= 1.25:
        return "about the same"
    return f"{ratio:,.0f} times as much" if ratio >= 10 else f"{ratio:.2g} times as much"


def _killed(comparison: Comparison, durability: str) -> list[str]:
    lines = []
    for one in comparison.extras("faults", durability):
        killed = one.entry["extra"].get("killed")
        counts = [deep(killed, name) for name in ("acknowledged", "lost", "repeated")]
        if counts[0] is not None:
            known, lost, twice = (f"{count or 0:,.0f}" for count in counts)
            lines.append(
                f"{one.name}: {known} records acknowledged before kills, {lost} lost, {twice} twice"
            )
    return lines


def _tables(section: Section | None) -> list[Part]:
    """Returns the tables, folded away."""
    blocks = [
        block
        for block in (section.blocks if section else ())
        if isinstance(block, Bullets) or (isinstance(block, Table) and has_figures(block))
    ]
    return [Aside("All figures of this workload", blocks)] if blocks else []


def absent(systems: dict[str, Any], workload: str) -> list[Part]:
    """Returns notes why a workload has no results, with the command that makes some."""
    notes = troubles(systems, workload)
    why = "No run of it has ended." if notes else "This comparison does not include it."
    command = f"planstep compare --workload {workload} --out DIR"
    return [*notes, Note("absent", f"{why} This command runs it:", command)]


_TROUBLES = {
    "failed": ("bad", "failed: {reason}"),
    "impossible": ("absent", "is not possible: {reason}"),
    "interrupted": ("partial", "was interrupted"),
    "unverified": ("bad", "did not verify, so it has no figures"),
}


def troubles(systems: dict[str, Any], workload: str) -> list[Part]:
    """Returns notes about runs without figures."""
    parts: list[Part] = []
    late = []
    for name, of, durability, placement, entry in entries(systems):
        if of != workload:
            continue
        where = f"{display_name(name, placement)}, durability {durability},"
        unverified = entry["status"] == "ok" and not entry["verified"]
        status = "unverified" if unverified else entry["status"]
        if status in _TROUBLES:
            tone, text = _TROUBLES[status]
            parts.append(Note(tone, f"{where} {text.format(reason=entry['reason'])}"))
        elif entry["sustained"] is False:
            late.append(where.rstrip(","))
    if late:
        text = "No latency is reported, because the rate was not sustained"
        parts.append(Note("partial", f"{text}: {'; '.join(late)}."))
    return parts
