"""Draws throughput over time, with and without transactions, and the highest rate that each system sustained.

Next: counted.py.
"""

from ...compare.ranking import DURABILITIES
from .drawing import INK, MUTED, Drawing, Sheet, line, look, title, without_y
from .marks import over_time
from .series import Comparison, Series


def throughput(comparison: Comparison) -> dict[str, Drawing]:
    """Returns the drawings by durability."""
    found = {}
    for durability in DURABILITIES:
        plain = {one.system: _points(one) for one in comparison.of("plain", durability)}
        shown = [one for one in comparison.of("reshard", durability) if _points(one)]
        if shown:
            found[durability] = _throughput(durability, shown, plain)
    return found


def _points(one: Series) -> list[list[float]]:
    """Returns the points of the first run, without the last bucket, which is incomplete."""
    points = one.runs[0]["throughput"]["points"] if one.runs else []
    return [[at, size or 0.0, count] for at, size, count in points[:-1]]


def _throughput(
    durability: str, shown: list[Series], plain: dict[str, list[list[float]]]
) -> Drawing:
    told = ", ".join(f"{one.name} {one.entry['throughput_mb_s'] or 0:.3g} MB/s" for one in shown)
    return Drawing(
        f"throughput-{durability}",
        f"Payload committed over time in reshard, durability {durability}; on average {told}.",
        "Payload whose commit was answered, in steps of half a second, first run of each. Dotted: what was "
        "offered. Grey line: the same bytes without transactions. Who falls below the dotted line does not keep "
        "up.",
        lambda sheet: _paint_throughput(sheet, shown, plain),
    )


def _paint_throughput(
    sheet: Sheet, shown: list[Series], plain: dict[str, list[list[float]]]
) -> None:
    axes = sheet.panels(len(shown), height=1.15)
    most = max([p[1] for one in shown for p in _points(one)] + [_offered(one) for one in shown])
    until = max(1.0, *(_points(one)[-1][0] for one in shown))
    for panel, one in zip(axes, shown, strict=True):
        of, points = look(one.system), _points(one)
        times, sizes = [p[0] for p in points], [p[1] for p in points]
        over_time(panel, one.name, "MB/s", until)
        panel.fill_between(times, sizes, color=of.color, alpha=0.15, linewidth=0)
        panel.plot(times, sizes, **line(one.system))
        if beside := [] if one.aside else plain.get(one.system, []):
            panel.plot([p[0] for p in beside], [p[1] for p in beside], color=MUTED, linewidth=1)
        if offered := _offered(one):
            panel.axhline(offered, color=INK, linewidth=1, linestyle=(0, (1, 2)))
        panel.set_xlim(0, until)
        panel.set_ylim(0, most * 1.15 or 1.0)


def _offered(one: Series) -> float:
    return float(one.entry["offered_mb_s"] or 0.0)


def highest(comparison: Comparison) -> dict[str, Drawing]:
    """Returns the drawings by durability, of systems whose rate was searched."""
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
    (axes,) = sheet.panels(1, height=0.42 * len(rows) + 0.1)
    title(axes, "highest rate", "MB/s of payload")
    axes.set_ylim(len(rows) - 0.45, -0.6)
    axes.grid(axis="x")
    without_y(axes)
    most = max((v or 0.0 for _, *both in rows for v in both), default=1.0)
    axes.set_xlim(0, most * 1.12 or 1.0)
    for y, (one, low, at_most) in enumerate(rows):
        of = look(one.system)
        axes.barh(y + 0.15, low or 0.0, height=0.22, color=of.color)
        if at_most is not None:
            axes.plot([at_most] * 2, [y, y + 0.3], color=of.color, linewidth=2.5)
        axes.text(0, y - 0.02, one.name, va="bottom")
        said = f"{_said(low)}, at most {_said(at_most)}"
        axes.text(1, y - 0.02, said, transform=axes.get_yaxis_transform(), ha="right", va="bottom")
