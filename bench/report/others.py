"""The workloads besides reshard: what each asks, a drawing, what came of it.

Next: parts.py and waits.py, which draw.
"""

from collections.abc import Callable
from typing import Any

from ..conclusions import of_workload, orders
from ..judging import entries
from ..layout import Bullets, Section
from .content import Aside, Drawn, Durability, Heading, Note, Part, by_durability, has_figures
from .drawing import Drawing, called
from .parts import chain, contention, deep, interval, told, transfer
from .series import Comparison
from .waits import faults, held_open, plain_beside

Painter = Callable[[Comparison, str], Drawing | None]
_NAMES: tuple[tuple[str, str, str, Painter | None], ...] = (
    (
        "interval",
        "Commit intervals",
        "What does it cost to commit every 10, 100 or 500 ms instead of never, where all go as fast as they can?",
        interval,
    ),
    (
        "chain",
        "A chain of three stages",
        "If each stage commits every so often before the next one sees anything, how long does a record take through "
        "three of them, against three commit intervals?",
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
        None,
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
            drawing = paint(comparison, durability) if paint else None
            if drawing is not None:
                parts.append(Drawn(drawing))
            parts += _came_of_it(comparison, who_wins, workload, durability)
            parts += _tables(sections.get(durability))
        parts += troubles(comparison.systems, workload)
    return parts


def _came_of_it(
    comparison: Comparison, who_wins: list[dict[str, Any]], workload: str, durability: str
) -> list[Part]:
    if workload == "faults":
        return _kept(comparison, durability)
    lines, runs = orders(who_wins, workload, durability)
    if not lines:
        return [Note("absent", "What came of it: nobody is beyond doubt in front, by the rule.")]
    times = "a single run each" if runs == 1 else f"{runs} runs each"
    return [Bullets(lines, f"What came of it, {times}, figures in the order of the names:")]


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
    """Its first table as it is, what else there is folded away."""
    if section is None:
        return []
    first, *rest = section.tables
    kept = [block for block in section.blocks if block in rest or isinstance(block, Bullets)]
    parts: list[Part] = [first] if has_figures(first) else []
    return [*parts, *([Aside("All figures of this workload", kept)] if kept else [])]


def absent(systems: dict[str, Any], workload: str) -> list[Part]:
    """Why there is nothing to show of it, and what shows it."""
    found = troubles(systems, workload)
    command = f"planstep compare --workload {workload} --out DIR"
    said = "Nothing of it ran to its end here." if found else "Not part of this comparison."
    return [*found, Note("absent", f"{said} It is shown by", command)]


def troubles(systems: dict[str, Any], workload: str) -> list[Part]:
    """What did not come to figures."""
    parts: list[Part] = []
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
            parts.append(
                Note("partial", f"{where}: the rate was not sustained, so it has no latencies")
            )
    return parts
