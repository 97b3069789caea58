"""Draws a transaction's phases from its trace: its pieces of work, and the events after the call of commit.

    above   each piece of work: on its way ─ durable, hidden ─ readable       since the transaction began
    below   place durable · outcome durable · answered · readable by all     since commit was called

One transaction of each system and placement, the one of median length, all on the same axes.

Next: rates.py.
"""

import re
from typing import Any, NamedTuple

from ...compare.ranking import figure
from .colors import INK, MUTED
from .drawing import Drawing, Sheet, line_style, rows, title
from .marks import Row, dots, span
from .series import Comparison, Series, ms

_AFTER = (
    ("planned", "place durable"),
    ("decided", "outcome durable"),
    ("reply", "commit answered"),
    ("visible", "readable by all"),
)
_LEAST_MS = 0.1
_ON_ITS_WAY, _HIDDEN = 0.4, 0.35
"""Opacity of the bars."""
_PIECES_MAX, _HEIGHT_IN = 24, 1.3
_NO_NAME = re.compile(r"[^\w-]")
"""What the name of a file or an id does not have."""


ABOUT = (
    "Each drawing has one transaction, the one of median length. Above, each bar is a piece of work. It is grey "
    "until the piece is durable, and pale while the piece is hidden. It has its full colour once a reader of "
    "committed records may see the piece. The dashed line is the call of commit. Below are the events after that "
    "call, on a logarithmic axis. All drawings of a durability share their axes."
)


class Axes(NamedTuple):
    """The limits that all drawings share: of the pieces in ms, and of the events after the call of commit."""

    begin: float
    until: float
    low: float
    high: float


def phases(comparison: Comparison, durability: str) -> tuple[list[Drawing], list[Drawing]]:
    """Returns a drawing of each system that has a transaction to draw: at its headline placement, and at others."""
    examples = [
        (one, example)
        for one in comparison.of("reshard", durability)
        if (example := _example(one)) is not None
    ]
    axes = _axes([example for _, example in examples])
    headline, others = (
        [
            _drawing(one, example, durability, axes)
            for one, example in examples
            if one.off_headline == off
        ]
        for off in (False, True)
    )
    return headline, others


def _drawing(one: Series, example: dict[str, Any], durability: str, axes: Axes) -> Drawing:
    after, pieces = _after(example), len(example["batches"])
    texts = ", ".join(f"{words} {ms(after[name])}" for name, words in _AFTER if name in after)
    title = f"A transaction of {one.name}, durability {durability}"
    caption = ""
    if (commit := figure(one.entry, "commit_ms.p50")) is not None:
        visible = ms(figure(one.entry, "visible_ms.p50"))
        caption = f"Medians of all: commit answered after {ms(commit)}, visible after {visible}."
    return Drawing(
        "-".join(("phases", _NO_NAME.sub("_", one.system), one.placement, durability)),
        title,
        f"{title}: {pieces} pieces of work; after the call of commit: {texts}.",
        caption,
        lambda sheet: _paint(sheet, one, example, axes),
    )


def _axes(examples: list[dict[str, Any]]) -> Axes:
    begin = min([0.0, *(b["intended"] or 0.0 for e in examples for b in e["batches"])])
    ends = [value for e in examples for value in e["moments"].values() if value is not None]
    ends += [b["read"] for e in examples for b in e["batches"] if b["read"] is not None]
    after = [value for e in examples for value in _after(e).values()]
    return Axes(begin, max(ends, default=1.0) * 1.04, *span(after, _LEAST_MS))


def _example(one: Series) -> dict[str, Any] | None:
    """Returns the example of the first run that has one."""
    examples = (run["phases"].get("example") for run in one.runs)
    return next((e for e in examples if e and e["moments"].get("proposed") is not None), None)


def _after(example: dict[str, Any]) -> dict[str, float]:
    moments = example["moments"]
    return {
        name: max(0.0, moments[name] - moments["proposed"])
        for name, _ in _AFTER
        if moments.get(name) is not None
    }


def _paint(sheet: Sheet, one: Series, example: dict[str, Any], axes: Axes) -> None:
    color = line_style(one.system).color
    legend = [
        ("on its way", {"color": MUTED, "linewidth": 5, "alpha": _ON_ITS_WAY}),
        ("durable, hidden", {"color": color, "linewidth": 5, "alpha": _HIDDEN}),
        ("readable", {"color": color, "linewidth": 5}),
        ("commit called", {"color": INK, "linewidth": 1.2, "linestyle": (0, (3, 2))}),
    ]
    pieces, commit = sheet.panels(2, height=_HEIGHT_IN, legend=legend)
    _pieces(pieces, color, example, axes)
    _commit(commit, one, example, axes)


def _pieces(panel: Any, color: str, example: dict[str, Any], axes: Axes) -> None:
    pieces = example["batches"][:_PIECES_MAX]
    rows(panel, "pieces of work", "ms since it began", max(1, len(pieces)))
    panel.set_xlim(axes.begin, axes.until)
    thick = min(5.0, 60 / max(1, len(pieces)))
    bars: dict[tuple[str, float], list[tuple[int, float, float]]] = {}
    for y, piece in enumerate(pieces):
        due, written, published = (piece[name] for name in ("intended", "written", "published"))
        for start, end, fill in (
            (due, written, (MUTED, _ON_ITS_WAY)),
            (written, axes.until if published is None else published, (color, _HIDDEN)),
            (published, axes.until, (color, 1.0)),
        ):
            if start is not None and end is not None and end > start:
                bars.setdefault(fill, []).append((y, start, end))
    for (tone, alpha), spans in bars.items():
        ys, lefts, rights = zip(*spans, strict=True)
        panel.hlines(ys, lefts, rights, color=tone, alpha=alpha, linewidth=thick)
    panel.axvline(example["moments"]["proposed"], color=INK, linewidth=1.2, linestyle=(0, (3, 2)))


def _commit(panel: Any, one: Series, example: dict[str, Any], axes: Axes) -> None:
    after = _after(example)
    title(panel, "after the call of commit", "ms")
    points = []
    for name, words in _AFTER:
        value = after.get(name)
        text = "no such moment" if value is None else ms(value)
        points.append(Row(words, one.system, value, text=text, hollow=name != "visible"))
    dots(panel, points, axes.low, axes.high)
