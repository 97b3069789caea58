"""Draws the workloads with parts: commit intervals, hot rows and a hot consumer, a chain.

Each part's figures are in `extra`. Next: waits.py.
"""

from typing import Any

from ..text.blocks import number
from .colors import GRID, INK, MUTED
from .drawing import Drawing, Sheet, line_style, rows, title
from .marks import ROW_IN, Row, dots, span
from .series import Comparison, Series, ms

_INTERVALS = ("10", "100", "500")


def deep(extra: Any, *path: str) -> float | None:
    """Returns a number within a tree; None if there is none."""
    for name in path:
        extra = extra.get(name) if isinstance(extra, dict) else None
    return float(extra) if isinstance(extra, (int, float)) and not isinstance(extra, bool) else None


# interval -----------------------------------------------------------------------------------------


def interval(comparison: Comparison, durability: str) -> Drawing | None:
    results = []
    for one in comparison.extras("interval", durability):
        extra = one.entry["extra"]
        shares = [deep(extra, name, "relative_to_plain") for name in _INTERVALS]
        rates = [deep(extra, "plain_mb_s"), *(deep(extra, name, "mb_s") for name in _INTERVALS)]
        if any(share is not None for share in shares):
            results.append((one, [None if s is None else 100 * s for s in shares], rates))
    if not results:
        return None
    alt = []
    for one, percents, _ in results:
        pairs = zip(_INTERVALS, percents, strict=True)
        alt.append(f"{one.name} {', '.join(f'{p:.0f} % at {name} ms' for name, p in pairs if p)}")
    return Drawing(
        f"interval-{durability}",
        f"Throughput by commit interval, durability {durability}",
        f"Throughput by commit interval, of that of plain writes, durability {durability}: {'; '.join(alt)}.",
        "Each system writes as fast as it goes. Left: its throughput in percent of its own plain writes.",
        lambda sheet: _paint_interval(sheet, results),
    )


def _paint_interval(sheet: Sheet, results: list[Any]) -> None:
    legend = [(one.name, one.style) for one, _, _ in results]
    left, right = sheet.panels(2, height=1.5, columns=2, legend=legend)
    title(left, "of plain writes", "%")
    title(right, "throughput", "MB/s")
    for axes, which, names in ((left, 1, _INTERVALS), (right, 2, ("plain", *_INTERVALS))):
        for figures in results:
            one, known = figures[0], [(n, v) for n, v in enumerate(figures[which]) if v is not None]
            marker = line_style(one.system).marker
            axes.plot([n for n, _ in known], [v for _, v in known], **one.style, marker=marker)
        axes.set_xlim(-0.3, len(names) - 0.7)
        axes.set_xticks(range(len(names)), names)
        most = max((v for figures in results for v in figures[which] if v), default=1.0)
        axes.set_ylim(0, 1.1 * most)
        axes.grid(axis="y")
        axes.locator_params(axis="y", nbins=5)
        axes.set_xlabel("a commit every … ms")
    left.axhline(100, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))


# contention ---------------------------------------------------------------------------------------

_HOT = (("hot_rows", "hot rows"), ("hot_consumer", "hot consumer"))


def contention(comparison: Comparison, durability: str) -> Drawing | None:
    series = comparison.extras("contention", durability)
    if not series:
        return None
    alt = []
    for name, words in _HOT:
        texts = []
        for one in series:
            part = one.entry["extra"].get(name)
            most = deep(part, "attempts_p99")
            texts.append(f"{one.name} {_tries(part)}" + (f" (p99 {most:.0f})" if most else ""))
        alt.append(f"{words}: {'; '.join(texts)}")
    return Drawing(
        f"contention-{durability}",
        f"Contention: what workers' time went into, durability {durability}",
        f"What workers' time went into, durability {durability}. {'. '.join(alt)}.",
        "The bars show how the workers spent their time. The system's colour is time in transactions that "
        "committed, waits for locks included. Black is time in attempts that were cancelled. Grey is pauses "
        "before another try.",
        lambda sheet: _paint_contention(sheet, series),
    )


def _tries(part: Any) -> str:
    rate = deep(part, "per_second")
    if rate is None:
        return "not possible"
    return f"{number(rate)}/s, {deep(part, 'attempts_per_success') or 1:.3g} tries each"


def _paint_contention(sheet: Sheet, series: list[Series]) -> None:
    legend = [
        ("cancelled attempts", {"color": INK, "linewidth": 7}),
        ("pauses", {"color": GRID, "linewidth": 7}),
    ]
    axes = sheet.panels(2, height=0.42 * len(series) + 0.1, legend=legend)
    for panel, (name, words) in zip(axes, _HOT, strict=True):
        rows(panel, words, "% of the workers' time", len(series))
        panel.set_xlim(0, 100)
        for y, one in enumerate(series):
            part = one.entry["extra"].get(name)
            panel.text(0, y - 0.06, one.name, va="bottom", color=INK)
            panel.text(100, y - 0.06, _tries(part), va="bottom", ha="right", color=INK)
            if deep(part, "per_second") is None:
                continue
            lost, paused = deep(part, "lost_percent") or 0.0, deep(part, "paused_percent") or 0.0
            begin = 0.0
            worked = (max(0.0, 100 - lost - paused), line_style(one.system).color)
            for width, color in (worked, (lost, INK), (paused, GRID)):
                panel.barh(y + 0.14, width, left=begin, height=0.26, color=color)
                begin += width


# chain --------------------------------------------------------------------------------------------


def chain(comparison: Comparison, durability: str) -> Drawing | None:
    series = [one for one in comparison.extras("chain", durability) if one.entry["end_to_end_ms"]]
    if not series:
        return None
    bound = deep(series[0].entry["extra"], "bound_ms") or 0.0
    values = [(one, one.entry["end_to_end_ms"]) for one in series]
    points = [Row(one.name, one.system, of["p50"], of["p99"]) for one, of in values]
    alt = "; ".join(f"{row.label} {ms(row.value)} and {ms(row.far)}" for row in points)
    return Drawing(
        f"chain-{durability}",
        f"End to end through a chain of three stages, durability {durability}",
        f"End to end through three stages, median and 99th percentile, durability {durability}: {alt}; "
        f"three commit intervals are {ms(bound)}.",
        f"Dot: median. Bar: up to the 99th percentile. Dashed: three commit intervals, {ms(bound)}.",
        lambda sheet: _paint_chain(sheet, points, bound),
    )


def _paint_chain(sheet: Sheet, points: list[Row], bound: float) -> None:
    values = [v for row in points for v in (row.value, row.far, bound) if v]
    (axes,) = sheet.panels(1, height=len(points) * ROW_IN)
    title(axes, "end to end", "three stages")
    dots(axes, points, *span(values))
    if bound:
        axes.axvline(bound, color=INK, linewidth=1.2, linestyle=(0, (3, 2)))
