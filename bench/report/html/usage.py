"""Draws resources of workload reshard over time, of each system's first run: CPU, memory, disk, syncs, links.

Next: parts.py.
"""

from ..text.blocks import number
from .drawing import Drawing, Sheet
from .marks import over_time
from .series import Comparison, Series

_PANELS = (
    (1, "CPU", "cores", "cpu_cores"),
    (2, "memory", "MB", "memory_peak_mb"),
    (3, "to disk", "MB/s", "disk_mb_s"),
    (4, "syncs", "a second", ""),
    (5, "over links", "MB/s", "network_mb_s"),
)

_APART_S = 0.2


def usage(comparison: Comparison, durability: str) -> Drawing | None:
    series = [one for one in comparison.of("reshard", durability) if _points(one)]
    if not series:
        return None
    means = [
        f"{words}: "
        + ", ".join(f"{one.name} {number(one.entry[name])}" for one in series if one.entry[name])
        for _, words, _, name in _PANELS
        if name
    ]
    return Drawing(
        f"resources-{durability}",
        f"Resources over time in reshard, durability {durability}",
        f"Resources over time in reshard, durability {durability}; on average (memory: at most) "
        f"{'; '.join(means)}.",
        "The whole process every quarter of a second, generator and readers included. Each line is a system's "
        "first run.",
        lambda sheet: _paint(sheet, series),
    )


def _points(one: Series) -> list[list[float]]:
    """Returns the points of the first run, without points so close together that their rates are noise."""
    points: list[list[float]] = []
    for point in one.runs[0]["resources"]["points"] if one.runs else []:
        if not points or point[0] - points[-1][0] >= _APART_S:
            points.append(point)
    return points


def _paint(sheet: Sheet, series: list[Series]) -> None:
    legend = [(one.name, one.style) for one in series]
    every = [point for one in series for point in _points(one)]
    panels = [panel for panel in _PANELS if any(point[panel[0]] for point in every)]
    axes = sheet.panels(len(panels), height=1.15, columns=2, legend=legend)
    until = max(point[0] for point in every)
    for panel, (column, words, unit, name) in zip(axes, panels, strict=True):
        for one in reversed(series):
            if name and one.entry[name] is None:
                continue  # it does not count these
            points = _points(one)
            panel.plot([p[0] for p in points], [p[column] for p in points], **one.style)
        over_time(panel, words, unit, until)
