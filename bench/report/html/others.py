"""Lists the workloads besides reshard: the question of each, a drawing, the results.

Next: parts.py and waits.py, which draw.
"""

from collections.abc import Callable
from typing import Any

from ...compare.ranking import entries
from ..text.blocks import Bullets, Paragraph, Section, Table
from ..text.conclusions import of_workload
from .content import Aside, Durability, Heading, Note, Part, by_durability, has_figures, wins
from .drawing import Drawing, called
from .parts import chain, contention, deep, interval, told, transfer
from .series import Comparison, ms
from .waits import faults, held_open, plain_beside, with_and_without

Painter = Callable[[Comparison, str], Drawing | None]
_NAMES: tuple[tuple[str, str, str, Painter], ...] = (
    (
        "interval",
        "Commit intervals",
        "What does it cost to commit every 10, 100 or 500 ms instead of never, where all go as fast as they can?",
        interval,
    ),
    (
        "chain",
        "A chain of three stages",
        "If each stage commits every so often before the next one sees anything, how long does a record take "
        "through three of them, against three commit intervals?",
        chain,
    ),
    (
        "transfer",
        "Transfers",
        "Consume one record, update two rows, write one record: how many a second, by few workers and by many?",
        transfer,
    ),
    (
        "contention",
        "Contention",
        "Where all want the same row, or the same input: who is cancelled, who waits, and what does it cost them?",
        contention,
    ),
    (
        "held-open",
        "One transaction held open",
        "One transaction stays open for seconds: what do readers of the others, the quick ones, wait?",
        held_open,
    ),
    (
        "plain-beside",
        "Plain writes beside transactions",
        "Who writes without transactions, into partitions that others write to with them: what does that cost?",
        plain_beside,
    ),
    (
        "faults",
        "Faults",
        "A worker's session is dropped amid its transaction; the owner of a store is killed with kill -9. How long "
        "until work goes on, and what is lost?",
        faults,
    ),
    (
        "plain",
        "Without transactions",
        "The same bytes as reshard, written without transactions: what is it that transactions cost?",
        with_and_without,
    ),
)


def others(comparison: Comparison, who_wins: list[dict[str, Any]]) -> list[Part]:
    parts: list[Part] = []
    for workload, words, question, paint in _NAMES:
        parts.append(Heading(words, f"workload-{workload}", question))
        durabilities = list(comparison.durabilities(workload))
        if not durabilities:
            parts += absent(comparison.systems, workload)
            continue
        sections = by_durability(of_workload(comparison.systems, workload))
        for durability in durabilities:
            parts.append(Durability(durability))
            drawing = paint(comparison, durability)
            if drawing is not None:
                parts.append(drawing)
            parts += _came_of_it(comparison, who_wins, workload, durability)
            parts += _tables(sections.get(durability))
        parts += troubles(comparison.systems, workload)
    return parts


def _came_of_it(
    comparison: Comparison, who_wins: list[dict[str, Any]], workload: str, durability: str
) -> list[Part]:
    if workload == "faults":
        return _kept(comparison, durability)
    parts: list[Part] = []
    lines = [
        f"{one.name}: median {words} {ms(before)}, {then} {ms(after)}: {_times(after / before)}"
        for words, then, first, second in _TWICE.get(workload, ())
        for one in told(comparison, workload, durability)
        if (before := deep(one.entry["extra"], *first))
        and (after := deep(one.entry["extra"], *second))
    ]
    if lines:
        parts.append(Bullets(lines, "What came of it:"))
    found = wins(who_wins, durability, workload)
    if found is None:
        single = all(one.entry["repeats"] < 2 for one in told(comparison, workload, durability))
        why = (
            "Single runs: --repeat 3 tells who is in front."
            if single
            else "Nobody is in front, by the rule."
        )
        return [*parts, Note("absent", why)]
    head = "Who is in front (●), by the ranges of repeats; whatever is not in the table is too close to tell:"
    return [*parts, Paragraph(head), found]


_TWICE: dict[str, tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...]] = {
    "held-open": (
        ("end to end", "while one is held open", ("before", "p50"), ("while_held", "p50")),
    ),
    "plain-beside": (
        (
            "end to end of plain writes, alone",
            "beside transactions",
            ("plain_alone", "end_to_end_ms", "p50"),
            ("plain_beside", "end_to_end_ms", "p50"),
        ),
    ),
}
"""(first label, second label, path of the first in `extra`, path of the second)."""


def _times(ratio: float) -> str:
    if 0.8 <= ratio <= 1.25:
        return "about the same"
    return f"{ratio:,.0f} times as much" if ratio >= 10 else f"{ratio:.2g} times as much"


def _kept(comparison: Comparison, durability: str) -> list[Part]:
    lines = []
    for one in told(comparison, "faults", durability):
        killed = one.entry["extra"].get("killed")
        counts = [deep(killed, name) for name in ("acknowledged", "lost", "repeated")]
        if counts[0] is not None:
            known = [f"{count or 0:,.0f}" for count in counts]
            lines.append(
                f"{one.name}: {known[0]} records acknowledged before kills, {known[1]} lost, {known[2]} twice"
            )
    return [Bullets(lines, "What came of it:")] if lines else []


def _tables(section: Section | None) -> list[Part]:
    """Returns the tables, folded away."""
    kept = [
        block
        for block in (section.blocks if section else ())
        if isinstance(block, Bullets) or (isinstance(block, Table) and has_figures(block))
    ]
    return [Aside("All figures of this workload", kept)] if kept else []


def absent(systems: dict[str, Any], workload: str) -> list[Part]:
    """Returns notes why a workload has no results, with the command that makes some."""
    found = troubles(systems, workload)
    command = f"planstep compare --workload {workload} --out DIR"
    said = "Nothing of it ran to its end here." if found else "Not part of this comparison."
    return [*found, Note("absent", f"{said} It is shown by", command)]


def troubles(systems: dict[str, Any], workload: str) -> list[Part]:
    """Returns notes about runs without figures."""
    parts: list[Part] = []
    late = []
    for name, of, durability, placement, entry in entries(systems):
        if of != workload:
            continue
        where = f"{called(name, placement)}, durability {durability}"
        if entry["status"] == "failed":
            parts.append(Note("bad", f"{where}: failed: {entry['reason']}"))
        elif entry["status"] == "impossible":
            parts.append(Note("absent", f"{where}: not possible: {entry['reason']}"))
        elif entry["status"] == "interrupted":
            parts.append(Note("partial", f"{where}: interrupted"))
        elif not entry["verified"]:
            parts.append(Note("bad", f"{where}: did not verify, so it has no figures"))
        elif entry["sustained"] is False:
            late.append(where)
    if late:
        parts.append(
            Note(
                "partial",
                f"Without latencies, because the rate was not sustained: {'; '.join(late)}.",
            )
        )
    return parts
