"""Draws how each protocol commits: who writes to which place, and when a reader may see it.

    worker ── coordinator ── partition ── reader      time runs down; ● is on the disk before the next step

Each mode's entry has its drawing as data. Left out: retries, aborts, time-outs; ARCHITECTURE.md and docs/ have
them.

Next: verdict.py.
"""

from collections.abc import Sequence
from typing import Any

from ...compare.systems.entry import COORDINATOR, READER, LineStyle, Mode, Protocol, Step
from .colors import GRID, INK, MUTED
from .drawing import CLEAR, Drawing, Sheet, line_style
from .marks import label

_X = (0.09, 0.40, 0.68, 0.93)
_ROW_IN = 0.3


_ABOUT = (
    "Time runs down. ● is durable before the next step begins. The bar on the right is pale while readers see "
    "nothing of it, and full once they may see it{late}. In placement shared, one sync makes all of a host's "
    "discs up to an answer durable. In placement separate, each disc waits for the one before."
)


def about(modes: Sequence[Mode]) -> str:
    """Explains the drawings of these modes."""
    return _ABOUT.format(late="".join(f"; {mode.shown_late}" for mode in modes if mode.shown_late))


def protocols(modes: Sequence[Mode]) -> list[Drawing]:
    return [_drawing(mode) for mode in modes]


def _drawing(mode: Mode) -> Drawing:
    protocol, style = mode.protocol, _style(mode)
    steps = ", ".join(_words(protocol, step) for step in protocol.steps)
    return Drawing(
        f"protocol-{mode.name}",
        f"How {style.name} commits: {protocol.idea}",
        f"The steps of a commit of {style.name}, from top to bottom: {steps}.",
        "",
        lambda sheet: _paint(sheet, protocol, style),
    )


def _words(protocol: Protocol, step: Step) -> str:
    lanes = protocol.lanes
    if step.to is None:
        return f"{lanes[step.lane]} makes durable: {step.text}"
    return f"{lanes[step.lane]} to {lanes[step.to]}: {step.text}"


def _style(mode: Mode) -> LineStyle:
    return line_style(mode.systems[0].name)


def _paint(sheet: Sheet, protocol: Protocol, style: LineStyle) -> None:
    rows = len(protocol.steps) + 0.6
    (axes,) = sheet.panels(1, height=(rows + 1.3) * _ROW_IN)
    color = style.color
    axes.set_xlim(0, 1)
    axes.set_ylim(rows + 0.2, -1.1)
    axes.axis("off")
    bottom = rows - 0.7
    for x, name in zip(_X, protocol.lanes, strict=True):
        if name:
            axes.text(x, -0.62, name, ha="center", va="center", color=MUTED)
            axes.plot([x, x], [-0.35, bottom], color=GRID, linewidth=1.2, zorder=1)
    bar = {"color": color, "linewidth": 9, "solid_capstyle": "butt"}
    axes.plot([_X[READER]] * 2, [-0.3, protocol.visible_after], alpha=0.18, **bar)
    axes.plot([_X[READER]] * 2, [protocol.visible_after, bottom], **bar)
    text = f"readers: {protocol.hidden}, then {protocol.visible}"
    axes.text(0.97, bottom + 0.62, text, ha="right", va="center", color=color)
    for y, step in enumerate(protocol.steps):
        _step(axes, step, y, color)


def _step(axes: Any, step: Step, y: int, color: str) -> None:
    x = _X[step.lane]
    if step.to is None:
        axes.plot([x], [y], marker="o", markersize=9, color=color, zorder=4)
        left = step.lane != COORDINATOR
        style = {"color": INK, "fontweight": "bold", "bbox": CLEAR, "zorder": 3}
        label(axes, (x, y), -9 if left else 9, step.text, ha="right" if left else "left", **style)
        return
    end = _X[step.to]
    arrow = {"arrowstyle": "-|>", "color": MUTED, "lw": 1.2, "shrinkA": 0, "shrinkB": 2}
    axes.annotate("", (end, y), (x, y), arrowprops=arrow, zorder=3)
    middle = {"ha": "center", "va": "center", "bbox": CLEAR, "zorder": 4}
    axes.text((x + end) / 2, y, step.text, color=INK, **middle)
