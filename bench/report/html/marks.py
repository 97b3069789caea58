"""Draws the parts that several drawings share: axes of milliseconds, rows of dots, lines over time.

Next: latency.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..text.blocks import number
from .colors import GRID, INK, MUTED, PAPER
from .drawing import CLEAR, line_style, title, without_y
from .series import ms


def milliseconds(axes: Any, low: float, high: float) -> None:
    """Sets a logarithmic x axis, with labels such as 1 ms, 10 ms, 1 s."""
    decades(axes, "x", low, high, _in_words)
    axes.grid(axis="x", color=GRID)


def decades(
    axes: Any,
    which: str,
    low: float,
    high: float,
    words: Callable[[float], str] = "{:,.10g}".format,
    marks: Sequence[float] = (),
) -> None:
    """Sets a logarithmic axis, `which` is "x" or "y", with labels at powers of ten.

    A narrow range also has them at 2 and 5; `marks` are other places for them.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    steps = (1,) if high / low > 80 else (1, 2, 5)
    ticks = [step * 10.0**n for n in range(-6, 10) for step in steps]
    room = (high / low) ** 0.06  # a label beyond would be cut off
    within = sorted({*marks} or {tick for tick in ticks if low <= tick <= high / room})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(within))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([words(tick) for tick in within])


def _in_words(milliseconds: float) -> str:
    return f"{milliseconds / 1000:g} s" if milliseconds >= 1000 else f"{milliseconds:g} ms"


def span(values: Sequence[float], least: float = 0.01) -> tuple[float, float]:
    """Returns limits of a logarithmic axis that has all values, at least a decade apart."""
    positive = [max(value, least) for value in values] or [1.0]
    low, high = min(positive) / 1.6, max(positive) * 1.6
    while high / low < 10:
        low, high = low / 1.3, high * 1.3
    return low, high


class Group(NamedTuple):
    """A label above the rows of a system."""

    label: str
    system: str


class Row(NamedTuple):
    """A dot at `value`, with a line to `far`; `text` replaces the default text next to it."""

    label: str
    system: str
    value: float | None
    far: float | None = None
    text: str | None = None
    hollow: bool = False


ROW_IN = 0.37
"""Height of a row of `dots`."""


def dots(axes: Any, rows: Sequence[Row | Group | None], low: float, high: float) -> None:
    """Draws rows on logarithmic milliseconds, each with its name above its line; None leaves a gap."""
    milliseconds(axes, low, high)
    axes.set_ylim(len(rows) - 0.3, -0.75)
    without_y(axes)
    lines = [y for y, row in enumerate(rows) if isinstance(row, Row)]
    axes.hlines(lines, low, high, color=GRID, linewidth=0.8, zorder=1)
    transform = axes.get_yaxis_transform()
    for y, row in enumerate(rows):
        if row is None:
            continue
        style = line_style(row.system)
        if isinstance(row, Group):
            name = {"color": style.color, "fontweight": "bold"}
            axes.text(0, y + 0.2, row.label, transform=transform, va="bottom", **name)
            continue
        axes.text(0, y - 0.22, row.label, transform=transform, va="bottom")
        text = row.text or ms(row.value) + ("" if row.far is None else f" … {ms(row.far)}")
        end = {"ha": "right", "color": MUTED if row.value is None else INK, "bbox": CLEAR}
        axes.text(1, y - 0.22, text, transform=transform, va="bottom", **end)
        if row.value is None:
            continue
        value = max(row.value, low)
        if row.far is not None:
            axes.plot([value, row.far], [y, y], color=style.color, linewidth=2, zorder=2)
            axes.plot([row.far] * 2, [y - 0.16, y + 0.16], color=style.color, linewidth=2, zorder=2)
        dot = {"marker": style.marker, "markersize": 7, "zorder": 3, "color": style.color}
        axes.plot([value], [y], markerfacecolor=PAPER if row.hollow else style.color, **dot)


def over_time(axes: Any, name: str, unit: str, until: float) -> None:
    """Sets up a panel over the seconds of a run, starting at zero."""
    title(axes, name, unit)
    axes.set_xlim(0, until)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.set_xlabel("seconds since the run began")
    axes.margins(x=0)
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="x", nbins=6)


def slopes(
    axes: Any, ends: Sequence[str], values: Sequence[tuple[str, Sequence[float | None]]]
) -> None:
    """Sets up axes with a line for each system from one place to the next, with values next to the outer ones."""
    axes.set_xlim(-0.55, len(ends) - 0.45)
    axes.set_xticks(range(len(ends)), ends)
    known = [value for _, row in values for value in row if value is not None]
    top = max(known, default=1.0) or 1.0
    axes.set_ylim(0, top * 1.15)
    without_y(axes)
    for end in (0, len(ends) - 1):
        at = -1.0  # moved so that texts do not overlap
        for value, system in sorted(
            (x, name) for name, row in values if (x := row[end]) is not None
        ):
            at = max(value, at + 0.115 * top)
            style = {"ha": "left" if end else "right", "color": line_style(system).color}
            label(axes, (end, at), 7 if end else -7, number(float(value)), **style)


def label(axes: Any, point: tuple[float, float], away: int, text: str, **style: Any) -> None:
    """Writes a text next to a point, `away` points to the right."""
    where = {"xytext": (away, 0), "textcoords": "offset points", "va": "center"}
    axes.annotate(text, point, **where, **style)
