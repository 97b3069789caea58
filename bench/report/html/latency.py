"""Draws latencies as cumulative distributions: write, commit, visible, end to end, on a logarithmic axis.

Next: phases.py.
"""

from typing import Any

from ...compare.ranking import DURABILITIES
from .drawing import GRID, MUTED, Drawing, Sheet, look, title
from .marks import milliseconds, note, span
from .series import Comparison, Series, curve, ms, untold

_PANELS = (
    ("write_ms", "write", "due → durable"),
    ("commit_ms", "commit", "called → answered"),
    ("visible_ms", "visible", "commit called → all readable"),
    ("end_to_end_ms", "end to end", "due → received by a reader"),
)
_NAMES = tuple(name for name, _, _ in _PANELS)


def latencies(comparison: Comparison) -> dict[str, Drawing]:
    """Returns the drawings by durability."""
    return {
        durability: _drawing(durability, shown, series)
        for durability in DURABILITIES
        if (series := comparison.of("reshard", durability))
        and (shown := [one for one in series if any(curve(one.runs, n) for n in _NAMES)])
    }


def _drawing(durability: str, shown: list[Series], series: list[Series]) -> Drawing:
    told = []
    for name, words, _ in _PANELS:
        found = [(one.name, curve(one.runs, name)) for one in shown]
        each = [f"{who} {ms(c.at(0.5))} and {ms(c.at(0.99))}" for who, c in found if c]
        told.append(f"{words}: {', '.join(each) or 'not told'}")
    caption = (
        "How to read it: at the height of 50 % a curve tells what half of all stayed below, the median; the dotted "
        "line is 99 %. Further to the left is faster; each grid line to the right is ten times as long. "
        "Thin lines: a system that does not stand as it is meant to."
    )
    several = any(len(one.runs) > 1 for one in shown)
    caption += " Shaded: from the fastest to the slowest repeat." if several else ""
    missing = untold(series, _NAMES)
    return Drawing(
        f"latency-{durability}",
        f"Cumulative distributions of latency in reshard, durability {durability}; median and 99th "
        f"percentile of each: {'; '.join(told)}.",
        " ".join(filter(None, (caption, missing))),
        lambda sheet: _paint(sheet, shown),
    )


def _paint(sheet: Sheet, shown: list[Series]) -> None:
    curves = {(one.name, name): curve(one.runs, name) for one in shown for name in _NAMES}
    low, high = span([ms for c in curves.values() if c for ms in (c.low[0], c.high[-1])], 0.05)
    legend = [(one.name, one.style) for one in shown]
    axes = sheet.panels(4, height=1.75, legend=legend)
    for panel, (name, words, unit) in zip(axes, _PANELS, strict=True):
        title(panel, words, unit)
        milliseconds(panel, low, high)
        _percent(panel)
        drawn = False
        for one in reversed(shown):
            found = curves[one.name, name]
            if found is not None:
                _draw(panel, one, found)
                drawn = True
        if not drawn:
            note(panel, "not told in these runs")


def _percent(panel: Any) -> None:
    panel.set_ylim(0, 1.02)
    panel.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    panel.grid(axis="y", color=GRID)
    panel.axhline(0.99, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))


def _draw(panel: Any, one: Series, found: Any) -> None:
    of = look(one.system)
    if found.repeats > 1:
        panel.fill_betweenx(
            found.shares, found.low, found.high, color=of.color, alpha=0.14, linewidth=0
        )
    panel.plot(found.middle, found.shares, **one.style)
    panel.plot(
        [found.at(0.5), found.at(0.99)],
        [0.5, 0.99],
        linestyle="none",
        marker=of.marker,
        markersize=4 if one.aside else 5.5,
        color=of.color,
        markerfacecolor="white" if one.aside else of.color,
    )
