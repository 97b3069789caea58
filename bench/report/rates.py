"""Throughput over time, with and without transactions; the highest rate that each system sustained.

Next: counted.py.
"""

from ..judging import DURABILITIES
from .drawing import MUTED, Drawing, Sheet, line, look, quiet, title
from .marks import over_time
from .series import Comparison, Series

_WORKLOADS = (("reshard", "with transactions"), ("plain", "without: plain writes"))


def throughput(comparison: Comparison) -> dict[str, Drawing]:
    """By durability."""
    found = {}
    for durability in DURABILITIES:
        panels = [
            (workload, words, shown)
            for workload, words in _WORKLOADS
            if (shown := [one for one in comparison.of(workload, durability) if _points(one)])
        ]
        if panels:
            found[durability] = _throughput(durability, panels)
    return found


def _points(one: Series) -> list[list[float]]:
    """Of its first run; the last bucket is not whole."""
    points: list[list[float]] = one.runs[0]["throughput"]["points"] if one.runs else []
    return points[:-1]


def _throughput(durability: str, panels: list[tuple[str, str, list[Series]]]) -> Drawing:
    told = "; ".join(
        f"{words}: "
        + ", ".join(f"{one.name} {one.entry['throughput_mb_s'] or 0:.3g} MB/s" for one in shown)
        for _, words, shown in panels
    )
    return Drawing(
        f"throughput-{durability}",
        f"Payload committed over time, durability {durability}, on average {told}.",
        "Payload whose commit was answered, in steps of half a second, first run of each. Dotted: what was offered. "
        "Who falls below it does not keep up; what comes late shows above it.",
        lambda sheet: _paint_throughput(sheet, panels),
    )


def _paint_throughput(sheet: Sheet, panels: list[tuple[str, str, list[Series]]]) -> None:
    named = {one.name: line(one.system, one.placement) for _, _, shown in panels for one in shown}
    axes = sheet.panels(
        len(panels), height=1.7, columns=2, legend=list(named.items()), left=0.5, top=0.36
    )
    most = max((p[1] for _, _, shown in panels for one in shown for p in _points(one)), default=1)
    for panel, (_, words, shown) in zip(axes, panels, strict=True):
        until = max(points[-1][0] for one in shown if (points := _points(one)))
        over_time(panel, words, "MB/s", max(until, 1.0))
        panel.set_ylim(0, most * 1.1 or 1.0)
        for offered in sorted({one.entry["offered_mb_s"] or 0.0 for one in shown}):
            if offered:
                panel.axhline(offered, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
        for one in reversed(shown):
            points = _points(one)
            panel.plot(
                [p[0] for p in points], [p[1] for p in points], **line(one.system, one.placement)
            )


def highest(comparison: Comparison) -> dict[str, Drawing]:
    """By durability, of systems whose rate was searched."""
    found = {}
    for durability in DURABILITIES:
        rows = [
            (one, one.entry["highest_sustained_mb_s"], _most(one))
            for one in comparison.of("reshard", durability)
            if one.entry["rate_search"]
        ]
        if rows:
            found[durability] = _highest(durability, rows)
    return found


def _most(one: Series) -> float | None:
    return next(
        (run["throughput_mb_s"] for run in one.entry["rate_search"] if run["rate_mb_s"] is None),
        None,
    )


def _said(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g} MB/s"


def _highest(durability: str, rows: list[tuple[Series, float | None, float | None]]) -> Drawing:
    told = "; ".join(f"{one.name} {_said(low)}, at most {_said(most)}" for one, low, most in rows)
    return Drawing(
        f"highest-{durability}",
        f"Highest sustained rate, durability {durability}: {told}.",
        "Bar: sustained, generator on time and 98 % through. Mark: as fast as it goes, late or not.",
        lambda sheet: _paint_highest(sheet, rows),
    )


def _paint_highest(sheet: Sheet, rows: list[tuple[Series, float | None, float | None]]) -> None:
    (axes,) = sheet.panels(1, height=0.42 * len(rows) + 0.1, left=0.16, right=0.5)
    title(axes, "highest rate", "MB/s of payload")
    axes.set_ylim(len(rows) - 0.45, -0.6)
    axes.set_yticks([])
    axes.grid(axis="x")
    quiet(axes, y=False)
    most = max((v or 0.0 for _, *both in rows for v in both), default=1.0)
    axes.set_xlim(0, most * 1.12 or 1.0)
    for y, (one, low, at_most) in enumerate(rows):
        of = look(one.system)
        axes.barh(y + 0.15, low or 0.0, height=0.22, color=of.color)
        if at_most is not None:
            axes.plot([at_most] * 2, [y, y + 0.3], color=of.color, linewidth=2.5)
        axes.text(0, y - 0.02, f"{one.name}: {_said(low)}, at most {_said(at_most)}", va="bottom")
