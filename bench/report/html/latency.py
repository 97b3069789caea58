"""Draws latencies as cumulative distributions: write, commit, visible, end to end, on a logarithmic axis.

Next: phases.py.
"""

from typing import Any

from .colors import GRID, MUTED, PAPER
from .drawing import Drawing, Sheet, line_style, title
from .marks import milliseconds, span
from .series import Comparison, Curve, Series, curve, ms

_PANELS = (
    ("write_ms", "write", "due → durable"),
    ("commit_ms", "commit", "called → answered"),
    ("visible_ms", "visible", "commit called → readable"),
    ("end_to_end_ms", "end to end", "due → received"),
)
_NAMES = tuple(name for name, _, _ in _PANELS)


def latencies(comparison: Comparison, durability: str) -> Drawing | None:
    series = comparison.of("reshard", durability)
    with_curves = [one for one in series if any(curve(one.runs, name) for name in _NAMES)]
    if not with_curves:
        return None
    alt = []
    for name, words, _ in _PANELS:
        curves = [(one.name, curve(one.runs, name)) for one in with_curves]
        texts = [f"{who} {ms(c.at(0.5))} and {ms(c.at(0.99))}" for who, c in curves if c]
        alt.append(f"{words}: {', '.join(texts) or 'no figures'}")
    caption = (
        "Each curve shows the share of values below a latency. At 50 % it shows the median. The dotted line marks "
        "99 %. A curve further to the left is faster. Each grid line is ten times the one before. A thin line is a "
        "system at another placement than its headline."
    )
    if any(len(one.runs) > 1 for one in with_curves):
        caption += " The shaded area lies between the fastest and the slowest repeat."
    if missing := [f"{one.name} ({_why_not(one)})" for one in series if one not in with_curves]:
        caption += f" Not drawn: {'; '.join(missing)}."
    return Drawing(
        f"latency-{durability}",
        f"Latency in reshard, durability {durability}",
        f"Cumulative distributions of latency in reshard, durability {durability}; median and 99th "
        f"percentile of each: {'; '.join(alt)}.",
        caption,
        lambda sheet: _paint(sheet, with_curves),
    )


def _why_not(one: Series) -> str:
    if one.entry["sustained"] is False:
        return "the rate was not sustained"
    return "its trace has no latencies" if one.runs else "it has no trace"


def _paint(sheet: Sheet, series: list[Series]) -> None:
    curves = {(one.name, name): curve(one.runs, name) for one in series for name in _NAMES}
    low, high = span([ms for c in curves.values() if c for ms in (c.low[0], c.high[-1])], 0.05)
    axes = sheet.panels(4, height=1.5, columns=2, legend=[(one.name, one.style) for one in series])
    for panel, (name, words, unit) in zip(axes, _PANELS, strict=True):
        title(panel, words, unit)
        milliseconds(panel, low, high)
        panel.set_ylim(0, 1.02)
        panel.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        panel.grid(axis="y", color=GRID)
        panel.axhline(0.99, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
        pairs = [(one, points) for one in reversed(series) if (points := curves[one.name, name])]
        for one, points in pairs:
            _draw(panel, one, points)
        if not pairs:
            centre = {"transform": panel.transAxes, "ha": "center", "va": "center"}
            panel.text(0.5, 0.5, "no such figures", color=MUTED, **centre)


def _draw(panel: Any, one: Series, points: Curve) -> None:
    style = line_style(one.system)
    if points.repeats > 1:
        shade = {"color": style.color, "alpha": 0.14, "linewidth": 0}
        panel.fill_betweenx(points.shares, points.low, points.high, **shade)
    panel.plot(points.middle, points.shares, **one.style)
    panel.plot(
        [points.at(0.5), points.at(0.99)],
        [0.5, 0.99],
        linestyle="none",
        marker=style.marker,
        markersize=4 if one.off_headline else 5.5,
        color=style.color,
        markerfacecolor=PAPER if one.off_headline else style.color,
    )
