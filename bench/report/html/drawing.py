"""Sets the style of drawings, and renders them: an SVG for each panel, and a PNG of all.

    Drawing(name, alt, caption, paint) ─▶ paint(Sheet) ─▶ panels ─▶ SVGs, a legend ─▶ placed by page.py
                                                              └───▶ png/<name>.png

A system has one colour, one kind of line and one marker in all drawings. A panel is a figure of its own, as wide as
a phone: a page sets panels side by side if there is room, else below each other. So text keeps its size, at least
9 pt at 360 px. Text stays text. Nothing here depends on chance or the clock: the same figures make the same
bytes.

Next: latency.py, the first family of drawings.
"""

import io
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from planstep.errors import MissingExtra

from ...compare.systems import ENTRIES, PLACEMENTS, headline, where
from ...compare.systems.entry import LineStyle

INK, MUTED, GRID, PAPER = "#1c2530", "#5b6673", "#e3e7ec", "#ffffff"
CLEAR = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
"""`bbox` of a text in front of lines."""
_PANEL_IN, _AROUND_IN = 3.5, 0.7
"""Width of a panel, 336 CSS pixels for a window of 360; and height for title and labels."""
_PNG_DPI = 144
_LEGEND_IN, _LEGEND_LINE_IN = 2.2, 0.24
_TICKS = {"labelsize": "medium", "color": MUTED, "major.size": 3}
_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    **{f"{part}size": "medium" for part in ("axes.title", "axes.label", "legend.font")},
    **{f"{axis}tick.{part}": value for axis in "xy" for part, value in _TICKS.items()},
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.06,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#9aa4af",
    **{f"axes.spines.{side}": False for side in ("top", "right")},
    "axes.labelcolor": MUTED,
    "axes.axisbelow": True,
    "text.color": INK,
    "grid.color": GRID,
    "text.parse_math": False,
}
Legend = Sequence[tuple[str, dict[str, Any]]]
"""(text, keywords of a line)."""
_OTHERS = (
    ("#4d4d4d", (0, (8, 2)), "P"),
    ("#8c564b", (0, (2, 2)), "X"),
    ("#7f7f7f", "solid", "*"),
)


def off_headline(system: str, placement: str | None) -> bool:
    """Returns True if the placement is not the headline."""
    return system in PLACEMENTS and placement not in (None, headline(system))


@cache
def line_style(system: str) -> LineStyle:
    """Returns a system's colour, line and marker, also for a system without an entry."""
    if system in ENTRIES:
        return ENTRIES[system].line_style
    color, dash, marker = _OTHERS[sum(system.encode()) % len(_OTHERS)]
    return LineStyle(color, dash, marker, system)


def display_name(system: str, placement: str) -> str:
    """Names a system and its placement, "deterministic, separate"; without the placement where it has only one."""
    return line_style(system).name + where(system, placement)


def line(system: str, placement: str | None = None) -> dict[str, Any]:
    """Returns keywords for `plot`; the line is thin if the placement is not the headline."""
    style, thin = line_style(system), off_headline(system, placement)
    return {
        "color": style.color,
        "linestyle": style.dash,
        "linewidth": 1.1 if thin else 2.1,
        "alpha": 0.75 if thin else 1.0,
        "solid_capstyle": "round",
        "dash_capstyle": "butt",
    }


class Drawing(NamedTuple):
    """A drawing. `name` names its PNG, `alt` describes it for those who cannot see it, `caption` is below it."""

    name: str
    alt: str
    caption: str
    paint: Callable[["Sheet"], None]


class Sheet:
    """The canvas of one drawing: its panels, `columns` of them side by side where there is room, and its legend."""

    def __init__(self) -> None:
        self.figures: list[Any] = []
        self.columns = 1
        self.legend: Legend = ()

    def panels(
        self, count: int, *, height: float, columns: int | None = None, legend: Legend = ()
    ) -> list[Any]:
        """Creates panels; returns their axes.

        They are about `height` inches high, without titles and labels. `columns`: by default three, or two for two
        or four panels.
        """
        from matplotlib.figure import Figure

        self.columns = min(count, columns or (2 if count in (2, 4) else 3))
        self.legend = legend
        size = (_PANEL_IN, height + _AROUND_IN)
        self.figures = [Figure(size, layout="constrained", facecolor=PAPER) for _ in range(count)]
        return [figure.subplots() for figure in self.figures]

    def svgs(self, name: str) -> list[str]:
        """Returns the SVG of each panel, with ids that no other panel has."""
        svgs = []
        for n, figure in enumerate(self.figures):
            buffer = io.StringIO()
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            with matplotlib().rc_context({"svg.hashsalt": f"{name}-{n}"}):
                figure.savefig(buffer, format="svg", metadata=nothing)
            svg = buffer.getvalue()
            svgs.append(_NUMBERED_ID.sub("", svg[svg.index("<svg") :]))
        return svgs

    def png(self) -> bytes:
        """Returns a picture of the legend and all panels."""
        import numpy as np
        from matplotlib.image import imsave

        panels = [_pixels(figure) for figure in self.figures]
        panels += [np.full_like(panels[0], 255)] * (-len(panels) % self.columns)
        rows = [
            np.hstack(panels[n : n + self.columns]) for n in range(0, len(panels), self.columns)
        ]
        if self.legend:
            rows.insert(0, _pixels(self.key()))
        buffer = io.BytesIO()
        imsave(buffer, np.vstack(rows), format="png", metadata={"Software": "planstep"})
        return buffer.getvalue()

    def key(self) -> Any:
        """Returns the legend, as a figure of its own, as wide as all columns."""
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D

        width = self.columns * _PANEL_IN
        columns = max(1, int(width / _LEGEND_IN))
        height = 0.1 + _LEGEND_LINE_IN * -(-len(self.legend) // columns)
        figure = Figure((width, height), facecolor=PAPER)
        lines = [Line2D([], [], **style) for _, style in self.legend]
        texts = [text for text, _ in self.legend]
        figure.legend(lines, texts, loc="center left", ncols=columns, frameon=False, handlelength=3)
        return figure


def _pixels(figure: Any) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(_PNG_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.buffer_rgba()


def title(axes: Any, text: str, unit: str = "") -> None:
    """Titles a panel: its subject on the left, the unit, fainter, on the right."""
    axes.set_title(text, fontweight="bold")
    axes.set_title(unit, loc="right", color=MUTED)


def without_y(axes: Any) -> None:
    """Removes the y axis, for panels that label their rows or points."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def rows(axes: Any, text: str, unit: str, count: int) -> None:
    """Sets up a panel of `count` rows, the first on top, at y = 0, 1, …; the x axis has a grid."""
    title(axes, text, unit)
    axes.set_ylim(count - 0.4, -0.65)
    axes.grid(axis="x")
    without_y(axes)


# to SVG and PNG -----------------------------------------------------------------------------------


class Rendered(NamedTuple):
    legend: Legend
    columns: int
    svgs: Sequence[str]
    png: bytes


def render(drawing: Drawing) -> Rendered:
    """Renders a drawing. MissingExtra without matplotlib."""
    with settings():
        sheet = Sheet()
        drawing.paint(sheet)
        svgs = sheet.svgs(drawing.name)
        return Rendered(sheet.legend, sheet.columns, svgs, sheet.png())


def settings() -> Any:
    """Returns a context with the style of reports."""
    return matplotlib().rc_context(_SETTINGS)


def matplotlib() -> Any:
    """Returns the package. MissingExtra without it."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("matplotlib", "bench") from None
    return matplotlib


_NUMBERED_ID = re.compile(r' id="[A-Za-z2.]+_[0-9]+"')
"""Ids that nothing refers to, and that every panel has."""
