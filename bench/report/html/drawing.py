"""Sets the style of drawings, and renders them: one SVG with all panels, and a PNG of the same.

    Drawing(name, title, alt, caption, paint) ─▶ paint(Sheet) ─▶ panels, legend above ─┬─▶ SVG, placed by page.py
                                                                                      └─▶ png/<name>.png

A system has one colour, one kind of line and one marker in all drawings. A drawing is as wide as a phone: its text
is at least 11 pixels high in a window of 420, and text stays text. In the page colours are CSS variables, which
colors.py defines for a light and a dark page; the paper is the page's own. A PNG is always light. Nothing here
depends on chance or the clock: the same figures make the same bytes.

Next: colors.py; latency.py, the first family of drawings.
"""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from typing import Any, NamedTuple

from planstep.errors import MissingExtra

from ...compare.systems import ENTRIES, PLACEMENTS, headline, where
from ...compare.systems.entry import LineStyle
from .colors import GRID, INK, MUTED, PAPER, readable, variables

CLEAR = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
"""`bbox` of a text in front of lines."""
_WIDTH_IN = 4.5
"""324 pt; as 396 CSS pixels, in a window of 420, text of 9.2 pt is 11 pixels high."""
_TITLE_IN, _UNIT_IN, _BELOW_IN, _LEGEND_LINE_IN = 0.22, 0.16, 0.32, 0.2
_LETTER_IN, _BOLD_IN = 0.078, 0.09
_PNG_DPI = 144
_TICKS = {"labelsize": "medium", "color": MUTED, "major.size": 3}
_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.2,
    **{f"{part}size": "medium" for part in ("axes.title", "axes.label", "legend.font")},
    **{f"{axis}tick.{part}": value for axis in "xy" for part, value in _TICKS.items()},
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.06,
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.edgecolor": MUTED,
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
        style = ENTRIES[system].line_style
        return style._replace(color=readable(style.color, PAPER))
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
    title: str
    alt: str
    caption: str
    paint: Callable[["Sheet"], None]


class Sheet:
    """The canvas of one drawing: its panels, and its legend above them."""

    def __init__(self) -> None:
        self.figure: Any = None

    def panels(
        self,
        count: int,
        *,
        height: float,
        columns: int = 1,
        legend: Legend = (),
        units: bool = True,
    ) -> list[Any]:
        """Creates panels, at most two `columns` of them; returns their axes.

        They are about `height` inches high, without titles, units and labels.
        """
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D

        columns = min(count, columns)
        rows = -(-count // columns)
        beside = (
            2 if all(len(text) * _LETTER_IN < _WIDTH_IN / 2 - 0.45 for text, _ in legend) else 1
        )
        above = _LEGEND_LINE_IN * -(-len(legend) // beside) + 0.1 * bool(legend)
        each = height + _TITLE_IN + _UNIT_IN * units + _BELOW_IN
        size = (_WIDTH_IN, rows * each + above)
        self.figure = Figure(size, layout="constrained", facecolor="none")
        axes = list(self.figure.subplots(rows, columns, squeeze=False).flat)
        for empty in axes[count:]:
            empty.set_axis_off()
        if legend:
            lines = [Line2D([], [], **style) for _, style in legend]
            texts = [text for text, _ in legend]
            where = {"loc": "outside upper left", "ncols": beside, "frameon": False}
            self.figure.legend(lines, texts, **where, handlelength=2.4, borderaxespad=0.1)
        return axes[:count]

    def svg(self, drawing: Drawing) -> str:
        """Returns an SVG that says what it shows, with ids that no other drawing has."""
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with matplotlib().rc_context({"svg.hashsalt": drawing.name}):
            self.figure.savefig(buffer, format="svg", metadata=nothing)
        svg = _NUMBERED_ID.sub("", buffer.getvalue())
        width, height = self.figure.get_size_inches() * 72
        name = f"svg-{drawing.name}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
            f'viewBox="0 0 {width:g} {height:g}" aria-labelledby="{name}-title" aria-describedby="{name}-desc">'
            f'<title id="{name}-title">{escape(drawing.title)}</title>'
            f'<desc id="{name}-desc">{escape(drawing.alt)}</desc>'
        )
        return variables(head + svg[svg.index(">", svg.index("<svg")) + 1 :])

    def png(self) -> bytes:
        buffer = io.BytesIO()
        options = {"dpi": _PNG_DPI, "facecolor": PAPER, "metadata": {"Software": "planstep"}}
        self.figure.savefig(buffer, format="png", **options)
        return buffer.getvalue()


def title(axes: Any, text: str, unit: str = "") -> None:
    """Titles a panel: its subject, and the unit below it, fainter."""
    wide = _WIDTH_IN / axes.get_gridspec().ncols / _BOLD_IN - 6
    lines = textwrap.fill(text, int(wide))
    axes.set_title(lines, fontweight="bold", pad=16 if unit else 5)
    if unit:
        place = {"xycoords": "axes fraction", "textcoords": "offset points"}
        axes.annotate(unit, (0, 1), (0, 4), color=MUTED, annotation_clip=False, **place)


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
    svg: str
    png: bytes


def render(drawing: Drawing) -> Rendered:
    """Renders a drawing. MissingExtra without matplotlib."""
    with settings():
        sheet = Sheet()
        drawing.paint(sheet)
        return Rendered(sheet.svg(drawing), sheet.png())


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
