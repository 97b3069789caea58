"""Draws throughput over time, with and without transactions, and the highest rate that each system sustained.

Next: counted.py.
"""

from .colors import INK, MUTED
from .drawing import Drawing, Sheet, line, line_style, rows
from .marks import over_time
from .series import Comparison, Series


def throughput(comparison: Comparison, durability: str) -> Drawing | None:
    plain = {one.system: _points(one) for one in comparison.of("plain", durability)}
    series = [one for one in comparison.of("reshard", durability) if _points(one)]
    if not series:
        return None
    means = (f"{one.name} {one.entry['throughput_mb_s'] or 0:.3g} MB/s" for one in series)
    return Drawing(
        f"throughput-{durability}",
        f"Throughput over time in reshard, durability {durability}",
        f"Payload committed over time in reshard, durability {durability}; on average {', '.join(means)}.",
        "Payload whose commit was answered, in steps of half a second, in each system's first run. The dotted "
        "line is the offered rate. A system below it does not keep up. The grey line shows the same bytes without "
        "transactions.",
        lambda sheet: _paint_throughput(sheet, series, plain),
    )


def _points(one: Series) -> list[list[float]]:
    """Returns the points of the first run, without the last bucket, which is incomplete."""
    points = one.runs[0]["throughput"]["points"] if one.runs else []
    return [[at, size or 0.0, count] for at, size, count in points[:-1]]


def _paint_throughput(
    sheet: Sheet, series: list[Series], plain: dict[str, list[list[float]]]
) -> None:
    axes = sheet.panels(len(series), height=1.0, columns=2)
    offers = [one.entry["offered_mb_s"] or 0.0 for one in series]
    most = max([p[1] for one in series for p in _points(one)] + offers)
    until = max(1.0, *(_points(one)[-1][0] for one in series))
    for panel, one, offered in zip(axes, series, offers, strict=True):
        style, points = line_style(one.system), _points(one)
        times, sizes = [p[0] for p in points], [p[1] for p in points]
        over_time(panel, one.name, "MB/s", until)
        panel.fill_between(times, sizes, color=style.color, alpha=0.15, linewidth=0)
        panel.plot(times, sizes, **line(one.system))
        if without := [] if one.off_headline else plain.get(one.system, []):
            panel.plot([p[0] for p in without], [p[1] for p in without], color=MUTED, linewidth=1)
        if offered:
            panel.axhline(offered, color=INK, linewidth=1, linestyle=(0, (1, 2)))
        panel.set_xlim(0, until)
        panel.set_ylim(0, most * 1.15 or 1.0)


Rates = list[tuple[Series, float | None, float | None]]
"""The highest sustained rate of each system, and the rate as fast as it goes."""


def highest(comparison: Comparison, durability: str) -> Drawing | None:
    """Draws the systems whose rate was searched."""
    rates: Rates = []
    for one in comparison.of("reshard", durability):
        if runs := one.entry["rate_search"]:
            most = (run["throughput_mb_s"] for run in runs if run["rate_mb_s"] is None)
            rates.append((one, one.entry["highest_sustained_mb_s"], next(most, None)))
    if not rates:
        return None
    return Drawing(
        f"highest-{durability}",
        f"Highest sustained rate in reshard, durability {durability}",
        f"Highest sustained rate, durability {durability}: "
        f"{'; '.join(f'{one.name} {_in_words(*both)}' for one, *both in rates)}.",
        "Bar: the rate that was sustained; the generator was on time, and 98 % got through. Mark: the rate as "
        "fast as it goes, on time or not.",
        lambda sheet: _paint_highest(sheet, rates),
    )


def _in_words(low: float | None, most: float | None) -> str:
    low_, most_ = ("none" if value is None else f"{value:.3g} MB/s" for value in (low, most))
    return f"{low_}, at most {most_}"


def _paint_highest(sheet: Sheet, rates: Rates) -> None:
    (axes,) = sheet.panels(1, height=0.42 * len(rates) + 0.1)
    rows(axes, "highest rate", "MB/s of payload", len(rates))
    most = max((v or 0.0 for _, *both in rates for v in both), default=1.0)
    axes.set_xlim(0, most * 1.12 or 1.0)
    for y, (one, low, at_most) in enumerate(rates):
        style = line_style(one.system)
        axes.barh(y + 0.15, low or 0.0, height=0.22, color=style.color)
        if at_most is not None:
            axes.plot([at_most] * 2, [y, y + 0.3], color=style.color, linewidth=2.5)
        axes.text(0, y - 0.02, one.name, va="bottom")
        end = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "bottom"}
        axes.text(1, y - 0.02, _in_words(low, at_most), **end)
