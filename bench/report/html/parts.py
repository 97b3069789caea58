"""Draws the workloads with parts: commit intervals, few and many workers, hot rows and a hot consumer, a chain.

Each part's figures are in `extra`. Next: waits.py.
"""

from typing import Any

from ..text import published_figures
from ..text.blocks import number
from .drawing import GRID, INK, MUTED, Drawing, Sheet, look, title, without_y
from .marks import ROW_IN, Row, dots, slopes, span
from .series import Comparison, Series, ms

_INTERVALS = ("10", "100", "500")
_CONFLUENT_PERCENT = 97.0


def told(comparison: Comparison, workload: str, durability: str) -> list[Series]:
    return [one for one in comparison.of(workload, durability) if one.entry["extra"]]


def deep(extra: Any, *path: str) -> float | None:
    """Returns a number within a tree; None if there is none."""
    for name in path:
        extra = extra.get(name) if isinstance(extra, dict) else None
    return float(extra) if isinstance(extra, (int, float)) and not isinstance(extra, bool) else None


# interval -----------------------------------------------------------------------------------------


def interval(comparison: Comparison, durability: str) -> Drawing | None:
    rows = []
    for one in told(comparison, "interval", durability):
        extra = one.entry["extra"]
        shares = [deep(extra, name, "relative_to_plain") for name in _INTERVALS]
        rates = [deep(extra, name, "mb_s") for name in ("plain", *_INTERVALS)]
        rates[0] = deep(extra, "plain_mb_s")
        if any(share is not None for share in shares):
            rows.append((one, [None if s is None else 100 * s for s in shares], rates))
    if not rows:
        return None
    said = "; ".join(
        f"{one.name} "
        + ", ".join(
            f"{s:.0f} % at {name} ms" for name, s in zip(_INTERVALS, shares, strict=True) if s
        )
        for one, shares, _ in rows
    )
    return Drawing(
        f"interval-{durability}",
        f"Throughput by commit interval, of that of plain writes, durability {durability}: {said}.",
        "As fast as it goes, in percent of the same system's plain writes. "
        f"The cross: {published_figures.INTERVAL}; published, other hardware.",
        lambda sheet: _paint_interval(sheet, rows),
    )


def _paint_interval(sheet: Sheet, rows: list[Any]) -> None:
    legend = [(one.name, one.style) for one, _, _ in rows]
    left, right = sheet.panels(2, height=1.7, legend=legend)
    ends = [f"{name} ms" for name in _INTERVALS]
    title(left, "of plain writes", "%")
    title(right, "throughput", "MB/s")
    for axes, which, names in ((left, 1, ends), (right, 2, ["plain", *ends])):
        for row in rows:
            one, values = row[0], row[which]
            known = [(n, value) for n, value in enumerate(values) if value is not None]
            axes.plot(
                [n for n, _ in known],
                [value for _, value in known],
                **one.style,
                marker=look(one.system).marker,
            )
        axes.set_xlim(-0.3, len(names) - 0.7)
        axes.set_xticks(range(len(names)), names)
        axes.set_ylim(0, 1.1 * max((v for row in rows for v in row[which] if v), default=1.0))
        axes.grid(axis="y")
        axes.locator_params(axis="y", nbins=5)
        axes.set_xlabel("a commit every")
    left.axhline(100, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
    left.plot([1], [_CONFLUENT_PERCENT], marker="x", markersize=9, color=INK, zorder=4)


# transfer -----------------------------------------------------------------------------------------

_TRANSFER = (
    ("per_second", "transactions", "a second"),
    ("commit_ms.p50", "commit, median", "ms"),
    ("syncs_per_transaction", "syncs", "a transaction"),
)


def transfer(comparison: Comparison, durability: str) -> Drawing | None:
    rows = [
        (one, {name: [deep(one.entry["extra"], part, *name.split(".")) for part in ("workers", "in_flight")]
               for name, _, _ in _TRANSFER})
        for one in told(comparison, "transfer", durability)
    ]  # fmt: skip
    if not rows:
        return None
    extra = rows[0][0].entry["extra"]
    counts = [deep(extra, part, "threads") or 0 for part in ("workers", "in_flight")]
    said = "; ".join(
        f"{one.name} {number(figures['per_second'][0])} and {number(figures['per_second'][1])}"
        for one, figures in rows
    )
    return Drawing(
        f"transfer-{durability}",
        f"Transfers a second with {counts[0]:.0f} and {counts[1]:.0f} workers, durability {durability}: {said}.",
        f"From {counts[0]:.0f} workers to {counts[1]:.0f}: who can share a sync gains by more of them.",
        lambda sheet: _paint_transfer(sheet, rows, [f"{count:.0f} workers" for count in counts]),
    )


def _paint_transfer(sheet: Sheet, rows: list[Any], ends: list[str]) -> None:
    legend = [(one.name, one.style) for one, _ in rows]
    axes = sheet.panels(3, height=1.6, legend=legend)
    for panel, (name, words, unit) in zip(axes, _TRANSFER, strict=True):
        title(panel, words, unit)
        lines = []
        for one, figures in rows:
            values = figures[name]
            lines.append((one.system, values))
            if None not in values:
                panel.plot([0, 1], values, **one.style, marker=look(one.system).marker)
        slopes(panel, ends, lines)


# contention ---------------------------------------------------------------------------------------

_HOT = (("hot_rows", "hot rows"), ("hot_consumer", "hot consumer"))


def contention(comparison: Comparison, durability: str) -> Drawing | None:
    series = told(comparison, "contention", durability)
    if not series:
        return None
    said = []
    for name, words in _HOT:
        each = [f"{one.name} {_most_tries(one.entry['extra'].get(name))}" for one in series]
        said.append(f"{words}: {'; '.join(each)}")
    return Drawing(
        f"contention-{durability}",
        f"What workers' time went into, durability {durability}. {'. '.join(said)}.",
        "Where the workers' time went. In colour: into transactions that counted, waiting for a lock included; "
        "black: into attempts that were cancelled; grey: into pauses before another try.",
        lambda sheet: _paint_contention(sheet, series),
    )


def _contended(part: Any) -> str:
    if deep(part, "per_second") is None:
        return "not possible"
    return (
        f"{number(deep(part, 'per_second'))}/s, "
        f"{deep(part, 'attempts_per_success') or 1:.3g} tries each"
    )


def _most_tries(part: Any) -> str:
    most = deep(part, "attempts_p99")
    return _contended(part) + ("" if most is None else f" (p99 {most:.0f})")


def _paint_contention(sheet: Sheet, series: list[Series]) -> None:
    legend = [
        ("cancelled attempts", {"color": INK, "linewidth": 7}),
        ("pauses", {"color": GRID, "linewidth": 7}),
    ]
    axes = sheet.panels(2, height=0.56 * len(series) + 0.1, legend=legend)
    for panel, (name, words) in zip(axes, _HOT, strict=True):
        title(panel, words, "% of the workers' time")
        panel.set_xlim(0, 100)
        panel.set_ylim(len(series) - 0.4, -0.65)
        panel.grid(axis="x")
        without_y(panel)
        for y, one in enumerate(series):
            part = one.entry["extra"].get(name)
            panel.text(0, y - 0.06, one.name, va="bottom", color=INK)
            panel.text(100, y - 0.06, _contended(part), va="bottom", ha="right", color=INK)
            if deep(part, "per_second") is None:
                continue
            lost, paused = deep(part, "lost_percent") or 0.0, deep(part, "paused_percent") or 0.0
            left = max(0.0, 100 - lost - paused)
            color = look(one.system).color
            panel.barh(y + 0.14, left, height=0.26, color=color)
            panel.barh(y + 0.14, lost, left=left, height=0.26, color=INK)
            panel.barh(y + 0.14, paused, left=left + lost, height=0.26, color=GRID)


# chain --------------------------------------------------------------------------------------------


def chain(comparison: Comparison, durability: str) -> Drawing | None:
    series = [one for one in told(comparison, "chain", durability) if one.entry["end_to_end_ms"]]
    if not series:
        return None
    bound = deep(series[0].entry["extra"], "bound_ms") or 0.0
    rows = [
        Row(
            one.name,
            one.system,
            one.entry["end_to_end_ms"]["p50"],
            one.entry["end_to_end_ms"]["p99"],
        )
        for one in series
    ]
    said = "; ".join(f"{row.label} {ms(row.value)} and {ms(row.far)}" for row in rows)
    return Drawing(
        f"chain-{durability}",
        f"End to end through three stages, median and 99th percentile, durability {durability}: {said}; "
        f"three commit intervals are {ms(bound)}.",
        f"Dot: median, bar: 99 %. Dashed: three commit intervals, {ms(bound)}.",
        lambda sheet: _paint_chain(sheet, rows, bound),
    )


def _paint_chain(sheet: Sheet, rows: list[Row], bound: float) -> None:
    values = [v for row in rows for v in (row.value, row.far) if v is not None]
    (axes,) = sheet.panels(1, height=len(rows) * ROW_IN)
    title(axes, "end to end", "three stages")
    dots(axes, rows, *span([*values, *([bound] if bound else [])]))
    if bound:
        axes.axvline(bound, color=INK, linewidth=1.2, linestyle=(0, (3, 2)))
