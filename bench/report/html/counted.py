"""Draws durable changes of a transaction, by the talk's rows, and mode × placement, corner by corner.

Next: usage.py.
"""

from typing import Any

from ...compare.ranking import DURABILITIES, Side, at_headline, in_words, sides
from ...compare.systems.entry import SEPARATE, SHARED
from ..text import published_figures
from ..text.blocks import number
from ..text.durable_writes import ROWS, by_row
from .drawing import CLEAR, GRID, Drawing, Sheet, line, look, rows, title
from .marks import label, slopes

_ROWS = [row for row, _ in ROWS]
_LINE_IN = 0.22
_CORNERS = (
    *("write_ms.p50", "commit_ms.p50", "visible_ms.p50", "end_to_end_ms.p50", "cpu_cores"),
    *("hops_before_reply", "messages_per_transaction", "syncs_per_transaction"),
)


def persists(systems: dict[str, Any]) -> Drawing | None:
    """Draws each system at its headline placement; one durability is enough, as steps are the same at each."""
    counted: dict[str, dict[str, float]] = {}
    for durability in DURABILITIES:
        for name, _, entry in at_headline(systems, "reshard", durability):
            if entry["steps"]:
                counted.setdefault(name, by_row(entry["steps"]))
    if not counted:
        return None
    alt = "; ".join(
        f"{look(name).name}: "
        + ", ".join(f"{row} {number(float(counts.get(row, 0.0)))}" for row in _ROWS)
        for name, counts in counted.items()
    )
    return Drawing(
        "persists",
        f"Durable changes of a transaction, by purpose. {alt}.",
        "The number of durable changes of a transaction, in the order in which they happen. The axis is "
        "logarithmic. " + published_figures.WHO_IS_IN_THE_TABLE,
        lambda sheet: _paint_persists(sheet, counted),
    )


def _paint_persists(sheet: Sheet, counted: dict[str, dict[str, float]]) -> None:
    """Paints a panel for each row, with a line for each system, and the talk's row below."""
    from matplotlib.ticker import NullLocator

    others = [row for counts in counted.values() for row in counts if row not in _ROWS]
    purposes = [*_ROWS, *dict.fromkeys(others)]
    talk = {row: who for row, *who in published_figures.WHO_PERSISTS}
    legend = [(look(name).name, line(name)) for name in counted]
    known = [n for counts in counted.values() for n in counts.values() if n > 0]
    low, high = min(known, default=1.0) / 2, max(known, default=1.0) * 4
    axes = sheet.panels(len(purposes), height=len(counted) * _LINE_IN, legend=legend)
    for panel, row in zip(axes, purposes, strict=True):
        panel.set_xscale("log")
        panel.set_xlim(low, high)
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        rows(panel, row, "", len(counted))
        if row in talk:
            panel.set_xlabel(published_figures.WHO_IN_WORDS.format(*talk[row]))
        for y, (name, counts) in enumerate(counted.items()):
            _count(panel, y, name, counts.get(row), low)


def _count(axes: Any, y: float, name: str, value: float | None, low: float) -> None:
    of = look(name)
    axes.axhline(y, color=GRID, linewidth=0.8, zorder=1)
    if value:
        axes.plot([low, value], [y, y], color=of.color, linewidth=1.2, alpha=0.35, zorder=2)
        axes.plot([value], [y], marker=of.marker, markersize=7, color=of.color, zorder=3)
    text, style = number(float(value)) if value else "nothing", {"bbox": CLEAR, "zorder": 3}
    label(axes, (value or low, y), 9 if value else 2, text, color=of.color, **style)


# mode × placement ---------------------------------------------------------------------------------


def corners(fate: dict[str, Any] | None, durability: str) -> Drawing | None:
    both, figures = sides(fate), (fate or {}).get(durability) or {}
    shown = [(name, figures[name]) for name in _CORNERS if name in figures]
    if not shown:
        return None
    alt = "; ".join(
        f"{in_words(name)}: {', '.join(_side_in_words(side, row) for side in both)}"
        for name, row in shown
    )
    return Drawing(
        f"corners-{durability}",
        f"Mode by placement, durability {durability}. {alt}.",
        "Each panel has four corners. A line is a mode; its ends are the two placements. The climb of a line is "
        "the saving by shared fate. The distance between the lines is the effect of the protocol.",
        lambda sheet: _paint_corners(sheet, both, shown),
    )


def _side_in_words(side: Side, row: dict[str, float]) -> str:
    shared, separate = (number(row[corner]) for corner in side.corners())
    return f"{side.system.look.name} {shared} shared, {separate} separate"


def _paint_corners(
    sheet: Sheet, both: tuple[Side, Side], shown: list[tuple[str, dict[str, float]]]
) -> None:
    legend = [(side.system.look.name, line(side.system.name)) for side in both]
    axes = sheet.panels(len(shown), height=1.35, legend=legend)
    for panel, (name, row) in zip(axes, shown, strict=True):
        words, _, unit = in_words(name).partition(", ")
        title(panel, words.replace("CPU cores at the same rate", "CPU cores"), unit)
        lines = []
        for side in both:
            values = [row[corner] for corner in side.corners()]
            system = side.system
            panel.plot([0, 1], values, **line(system.name), marker=system.look.marker, markersize=6)
            lines.append((system.name, values))
        slopes(panel, (SHARED, SEPARATE), lines)
