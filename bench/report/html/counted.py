"""Draws durable changes of a transaction, by the talk's rows, and mode × placement, corner by corner.

Next: usage.py.
"""

from typing import Any

from ...compare.ranking import DURABILITIES, Side, at_headline, in_words, sides
from ...compare.systems.entry import SEPARATE, SHARED
from ..text.blocks import number
from ..text.durable_writes import ROWS, by_row
from .colors import GRID
from .drawing import CLEAR, Drawing, Sheet, line, line_style, rows, title
from .marks import label, slopes

_ROWS = [row for row, _ in ROWS]
_LINE_IN = 0.18
_CORNERS = (
    *("write_ms.p50", "commit_ms.p50", "visible_ms.p50", "end_to_end_ms.p50", "cpu_cores"),
    *("hops_before_reply", "messages_per_transaction", "syncs_per_transaction"),
)


def persists(systems: dict[str, Any]) -> Drawing | None:
    """Draws each system at its headline placement; one durability is enough, as steps are the same at each."""
    by_system: dict[str, dict[str, float]] = {}
    for durability in DURABILITIES:
        for name, _, entry in at_headline(systems, "reshard", durability):
            if entry["steps"]:
                by_system.setdefault(name, by_row(entry["steps"]))
    if not by_system:
        return None
    alt = "; ".join(
        f"{line_style(name).name}: "
        + ", ".join(f"{row} {number(float(counts.get(row, 0.0)))}" for row in _ROWS)
        for name, counts in by_system.items()
    )
    return Drawing(
        "persists",
        "Durable changes of a transaction in reshard",
        f"Durable changes of a transaction, by purpose. {alt}.",
        "The number of durable changes of a transaction, in the order in which they happen. The axis is "
        "logarithmic.",
        lambda sheet: _paint_persists(sheet, by_system),
    )


def _paint_persists(sheet: Sheet, by_system: dict[str, dict[str, float]]) -> None:
    """Paints a panel for each row, with a line for each system."""
    from matplotlib.ticker import NullLocator

    others = [row for counts in by_system.values() for row in counts if row not in _ROWS]
    purposes = [*_ROWS, *dict.fromkeys(others)]
    legend = [(line_style(name).name, line(name)) for name in by_system]
    positive = [n for counts in by_system.values() for n in counts.values() if n > 0]
    low, high = min(positive, default=1.0) / 2, max(positive, default=1.0) * 4
    axes = sheet.panels(len(purposes), height=len(by_system) * _LINE_IN, legend=legend, units=False)
    for panel, row in zip(axes, purposes, strict=True):
        panel.set_xscale("log")
        panel.set_xlim(low, high)
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        rows(panel, row, "", len(by_system))
        for y, (name, counts) in enumerate(by_system.items()):
            _count(panel, y, name, counts.get(row), low)


def _count(axes: Any, y: float, name: str, value: float | None, low: float) -> None:
    of = line_style(name)
    axes.axhline(y, color=GRID, linewidth=0.8, zorder=1)
    if value:
        axes.plot([low, value], [y, y], color=of.color, linewidth=1.2, alpha=0.35, zorder=2)
        axes.plot([value], [y], marker=of.marker, markersize=7, color=of.color, zorder=3)
    text, style = number(float(value)) if value else "nothing", {"bbox": CLEAR, "zorder": 3}
    label(axes, (value or low, y), 9 if value else 2, text, color=of.color, **style)


# mode × placement ---------------------------------------------------------------------------------


def corners(effects: dict[str, Any], durability: str) -> Drawing | None:
    both, figures = sides(effects), effects.get(durability) or {}
    compared = [(name, figures[name]) for name in _CORNERS if name in figures]
    if not compared:
        return None
    alt = "; ".join(
        f"{in_words(name)}: {', '.join(_side_in_words(side, row) for side in both)}"
        for name, row in compared
    )
    return Drawing(
        f"corners-{both[1].mode.name}-{durability}",
        f"Mode × placement, {both[0].mode.style} and {both[1].mode.style}, durability {durability}",
        f"Mode by placement, durability {durability}. {alt}.",
        "Each panel has four corners. A line is a mode; its ends are the two placements. The climb of a line is "
        "the saving by shared fate. The distance between the lines is the effect of the protocol.",
        lambda sheet: _paint_corners(sheet, both, compared),
    )


def _side_in_words(side: Side, row: dict[str, float]) -> str:
    shared, separate = (number(row[corner]) for corner in side.corners())
    return f"{side.system.line_style.name} {shared} shared, {separate} separate"


def _paint_corners(
    sheet: Sheet, both: tuple[Side, Side], compared: list[tuple[str, dict[str, float]]]
) -> None:
    legend = [(side.system.line_style.name, line(side.system.name)) for side in both]
    axes = sheet.panels(len(compared), height=1.15, columns=2, legend=legend)
    for panel, (name, row) in zip(axes, compared, strict=True):
        words, _, unit = in_words(name).partition(", ")
        title(panel, words.replace("CPU cores at the same rate", "CPU cores"), unit)
        lines = []
        for side in both:
            values = [row[corner] for corner in side.corners()]
            system = side.system
            style = {**line(system.name), "marker": system.line_style.marker}
            panel.plot([0, 1], values, **style, markersize=6)
            lines.append((system.name, values))
        slopes(panel, (SHARED, SEPARATE), lines)
