"""How drawings look, and what becomes of one: an SVG for a wide window, one for a narrow, a PNG.

    Drawing(name, alt, caption, paint) ─▶ paint(Sheet) twice ─▶ svg, svg ─▶ inlined by page.py
                                                             └▶ png/<name>.png

A system has one colour, one kind of line and one marker, wherever it is drawn. A Sheet has panels of a size in
inches, side by side where it is wide, one below the other where it is narrow, so text keeps its size: at least 9 pt
at 360 px. Text stays text. Nothing here is of chance or of the clock: the same figures make the same bytes.

Next: latency.py, the first family.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from planstep.errors import MissingExtra

from ...compare.systems import ENTRIES, PLACEMENTS, headline, where
from ...compare.systems.entry import Look

INK, MUTED, GRID, PAPER, ACCENT = "#1c2530", "#5b6673", "#e3e7ec", "#ffffff", "#b3261e"
_WIDE_IN, _NARROW_IN = 10.83, 3.5
"""1040 and 336 CSS pixels: the column of text, and a window of 360."""
_PNG_DPI = 144
_FONTS = ["DejaVu Sans", "Verdana", "sans-serif"]
_POINTS = {True: 10.0, False: 9.0}


_OTHERS = (
    ("#4d4d4d", (0, (8, 2)), "P"),
    ("#8c564b", (0, (2, 2)), "X"),
    ("#7f7f7f", "solid", "*"),
)


@cache
def look(system: str) -> Look:
    """A system that is not known here has a look of its own, too."""
    if system in ENTRIES:
        return ENTRIES[system].look
    color, dash, marker = _OTHERS[sum(system.encode()) % len(_OTHERS)]
    return Look(color, dash, marker, system)


def called(system: str, placement: str) -> str:
    """ "deterministic, separate"; without the placement where there is no choice."""
    return look(system).name + where(system, placement)


def line(system: str, placement: str | None = None) -> dict[str, Any]:
    """For `plot`; thin where a system does not stand as it is meant to."""
    of = look(system)
    aside = placement is not None and system in PLACEMENTS and placement != headline(system)
    return {
        "color": of.color,
        "linestyle": of.dash,
        "linewidth": 1.1 if aside else 2.1,
        "alpha": 0.75 if aside else 1.0,
        "solid_capstyle": "round",
        "dash_capstyle": "butt",
    }


@dataclass(frozen=True, slots=True)
class Drawing:
    """`name`: of its PNG. `alt`: in words, for who does not see it; `caption`: below it, for all."""

    name: str
    alt: str
    caption: str
    paint: Callable[["Sheet"], None]


class Sheet:
    """One drawing being drawn. Sizes are inches."""

    def __init__(self, wide: bool) -> None:
        self.wide = wide
        self.width = _WIDE_IN if wide else _NARROW_IN
        self.points = _POINTS[wide]
        self._figure: Any = None

    @property
    def figure(self) -> Any:
        assert self._figure is not None, "panels first"
        return self._figure

    def panels(
        self,
        count: int,
        *,
        height: float,
        columns: int | None = None,
        left: float = 0.62,
        bottom: float = 0.5,
        top: float = 0.34,
        right: float = 0.14,
        legend: Sequence[tuple[str, dict[str, Any]]] = (),
        widths: Sequence[float] | None = None,
        names: str | None = None,
    ) -> list[Any]:
        """Axes, `height` high each without their margins. `columns`: where it is wide, all by default; `widths`:
        of columns to one another. `legend`: (text, keywords of a line) above all."""
        _, Figure, _ = _matplotlib()
        columns = min(count, columns or count) if self.wide else 1
        rows = -(-count // columns)
        head = self._legend_height(legend)
        total = head + rows * (height + bottom + top)
        self._figure = figure = Figure(figsize=(self.width, total), facecolor=PAPER)
        shares = list(widths or [1.0] * columns) if columns > 1 else [1.0]
        free = self.width - columns * (left + right)
        axes = []
        for n in range(count):
            row, column = divmod(n, columns)
            before = sum(shares[:column]) / sum(shares)
            x = column * (left + right) + left + before * free
            y = total - head - (row + 1) * (height + bottom + top) + bottom
            width = free * shares[column] / sum(shares)
            axes.append(
                figure.add_axes((x / self.width, y / total, width / self.width, height / total))
            )
        self._legend(legend, total)
        return axes

    def _legend_height(self, legend: Sequence[tuple[str, Any]]) -> float:
        return 0.08 + 0.23 * len(self._legend_rows(legend)) if legend else 0.0

    def _legend_rows(self, legend: Sequence[tuple[str, Any]]) -> list[list[tuple[str, Any]]]:
        rows: list[list[tuple[str, Any]]] = [[]]
        at = 0.0
        for entry in legend:
            width = self._entry_width(entry[0])
            if at and at + width > self.width:
                rows.append([])
                at = 0.0
            rows[-1].append(entry)
            at += width
        return rows

    def _entry_width(self, text: str) -> float:
        return 0.66 + len(text) * self.points * 0.0071

    def _legend(self, legend: Sequence[tuple[str, dict[str, Any]]], total: float) -> None:
        from matplotlib.lines import Line2D

        for n, row in enumerate(self._legend_rows(legend)):
            y, x = 1 - (0.14 + 0.23 * n) / total, 0.12
            for text, style in row:
                ends = [x / self.width, (x + 0.34) / self.width]
                if "marker" in style:
                    ends = [sum(ends) / 2] * 2
                key = Line2D(ends, [y, y], transform=self.figure.transFigure, **style)
                self.figure.add_artist(key)
                self.figure.text(
                    (x + 0.45) / self.width, y, text, va="center", color=INK, fontsize=self.points
                )
                x += self._entry_width(text)


def title(axes: Any, text: str, unit: str = "") -> None:
    """Above a panel, to its left; the unit, fainter, behind."""
    if not text:
        axes.set_title(unit, loc="left", pad=6, color=MUTED)
        return
    shown = axes.set_title(text, loc="left", pad=6, fontweight="bold", color=INK)
    if unit:
        axes.annotate(
            unit,
            (1, 0.5),
            xycoords=shown,
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            annotation_clip=False,
        )


def quiet(axes: Any, x: bool = True, y: bool = True) -> None:
    """Without a box; grid lines along an axis where one has to read values."""
    for side in ("top", "right", *(() if y else ("left",)), *(() if x else ("bottom",))):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0 if not x else 3, colors=MUTED)


# to SVG and PNG -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rendered:
    name: str
    alt: str
    caption: str
    wide: str
    narrow: str
    png: bytes


def render(drawing: Drawing) -> Rendered:
    """MissingExtra without matplotlib."""
    svgs = {}
    png = b""
    for wide in (True, False):
        with style(wide):
            sheet = Sheet(wide)
            drawing.paint(sheet)
            buffer = io.BytesIO()
            sheet.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
            svgs[wide] = _inline(buffer.getvalue().decode(), f"{drawing.name}-{'nw'[wide]}")
            if wide:
                buffer = io.BytesIO()
                sheet.figure.savefig(
                    buffer, format="png", dpi=_PNG_DPI, metadata={"Software": None}
                )
                png = buffer.getvalue()
    return Rendered(drawing.name, drawing.alt, drawing.caption, svgs[True], svgs[False], png)


def available() -> None:
    """MissingExtra where drawings cannot be made."""
    _matplotlib()


def _matplotlib() -> tuple[Any, Any, Any]:
    try:
        import matplotlib
        from matplotlib.backends import backend_agg, backend_svg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "bench") from None
    return matplotlib, Figure, (backend_agg, backend_svg)


@contextmanager
def style(wide: bool) -> Iterator[None]:
    matplotlib, _, _ = _matplotlib()
    points = _POINTS[wide]
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "planstep",
        "font.family": "sans-serif",
        "font.sans-serif": _FONTS[:1],
        "font.size": points,
        "axes.titlesize": points,
        "axes.labelsize": points,
        "xtick.labelsize": points,
        "ytick.labelsize": points,
        "axes.edgecolor": "#9aa4af",
        "axes.labelcolor": MUTED,
        "axes.linewidth": 0.8,
        "axes.axisbelow": True,
        "text.color": INK,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "path.simplify": True,
        "text.parse_math": False,
        "axes.unicode_minus": True,
    }
    with matplotlib.rc_context(settings):
        yield


_ID = re.compile(r'\bid="([^"]+)"')
_USED = re.compile(r'(?:url\(#|href="#)([^")]+)')
_NUMBER = re.compile(r"(?<=[ \"ML,(])(-?\d+\.\d{3,})")


def _inline(svg: str, name: str) -> str:
    """What goes into a page: no header, no size of its own, ids that no other drawing has, shorter numbers."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.S)
    found = re.search(r'viewBox="([^"]+)"', svg)
    assert found is not None
    body = svg[svg.index(">") + 1 :]
    used = set(_USED.findall(body))
    body = _ID.sub(lambda m: f'id="{name}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", body)
    body = body.replace("xlink:href", "href")
    body = re.sub(
        r"font: ([^;\"]*?)(\d+(?:\.\d+)?px) [^;\"]*", r"font-weight: \1;font-size: \2", body
    )
    body = body.replace("font-weight: ;", "").replace(" ;font-size", ";font-size")
    body = _NUMBER.sub(lambda m: f"{float(m[1]):.2f}".rstrip("0").rstrip("."), body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return f'<svg viewBox="{found[1]}" aria-hidden="true" focusable="false">{body}'
