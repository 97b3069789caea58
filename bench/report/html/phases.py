"""Draws a transaction's phases from its trace: its pieces of work, and the events after the call of commit.

    left    each piece of work: on its way ─ durable, hidden ─ readable       since the transaction began
    right   place durable · outcome durable · answered · readable by all     since commit was called

One transaction of each system and placement, the one of median length, all on the same axes.

Next: rates.py.
"""

from typing import Any

from ...compare.ranking import figure
from .drawing import INK, Drawing, Sheet, line_style, rows, title
from .marks import Row, dots, span
from .series import Comparison, Series, ms

_AFTER = (
    ("planned", "place durable"),
    ("decided", "outcome durable"),
    ("reply", "commit answered"),
    ("visible", "readable by all"),
)
_ON_ITS_WAY, _LEAST_MS = "#c3cad3", 0.1
_PIECES_MAX = 24
_ROW_IN = 1.7


def phases(comparison: Comparison, durability: str) -> Drawing | None:
    examples = [
        (one, example)
        for one in comparison.of("reshard", durability)
        if (example := _example(one)) is not None
    ]
    if not examples:
        return None
    alt = []
    for one, example in examples:
        after, pieces = _after(example), len(example["batches"])
        texts = ", ".join(f"{words} {ms(after[name])}" for name, words in _AFTER if name in after)
        alt.append(f"{one.name}, {pieces} pieces; after the call of commit: {texts}")
    medians = [
        f"{one.name} {ms(commit)}, {ms(figure(one.entry, 'visible_ms.p50'))}"
        for one, _ in examples
        if (commit := figure(one.entry, "commit_ms.p50")) is not None
    ]
    caption = (
        "Left: each bar is a piece of work. It is grey until the piece is durable, and pale while the piece is "
        "hidden. It has its full colour once a reader of committed records may see the piece. The dashed line is "
        "the call of commit. Right: the events after that call, on a logarithmic axis. Each system shows one "
        "transaction, of median length."
    )
    if medians:
        caption += f" Medians of all, commit answered and visible: {'; '.join(medians)}."
    return Drawing(
        f"phases-{durability}",
        f"Timelines of one transaction of each system, durability {durability}. {'; '.join(alt)}.",
        caption,
        lambda sheet: _paint(sheet, examples),
    )


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


def _paint(sheet: Sheet, examples: list[tuple[Series, dict[str, Any]]]) -> None:
    begin = min([0.0, *(b["intended"] or 0.0 for _, e in examples for b in e["batches"])])
    ends = [value for _, e in examples for value in e["moments"].values() if value is not None]
    ends += [b["read"] for _, e in examples for b in e["batches"] if b["read"] is not None]
    until = max(ends) * 1.04
    low, high = span([v for _, e in examples for v in _after(e).values()], _LEAST_MS)
    legend = [
        ("on its way", {"color": _ON_ITS_WAY, "linewidth": 5}),
        ("durable, hidden", {"color": "#7f8b99", "linewidth": 5, "alpha": 0.4}),
        ("readable", {"color": INK, "linewidth": 5}),
        ("commit called", {"color": INK, "linewidth": 1.2, "linestyle": (0, (3, 2))}),
    ]
    axes = sheet.panels(2 * len(examples), height=_ROW_IN, columns=2, legend=legend)
    for n, (one, example) in enumerate(examples):
        _pieces(axes[2 * n], one, example, begin, until)
        _commit(axes[2 * n + 1], one, example, low, high)


def _pieces(axes: Any, one: Series, example: dict[str, Any], begin: float, until: float) -> None:
    color = line_style(one.system).color
    pieces = example["batches"][:_PIECES_MAX]
    rows(axes, one.name, "ms since it began", max(1, len(pieces)))
    axes.set_xlim(begin, until)
    thick = min(5.0, 60 / max(1, len(pieces)))
    bars: dict[tuple[str, float], list[tuple[int, float, float]]] = {}
    for y, piece in enumerate(pieces):
        due, written, published = (piece[name] for name in ("intended", "written", "published"))
        for start, end, fill in (
            (due, written, (_ON_ITS_WAY, 1.0)),
            (written, until if published is None else published, (color, 0.28)),
            (published, until, (color, 1.0)),
        ):
            if start is not None and end is not None and end > start:
                bars.setdefault(fill, []).append((y, start, end))
    for (tone, alpha), spans in bars.items():
        ys, lefts, rights = zip(*spans, strict=True)
        axes.hlines(ys, lefts, rights, color=tone, alpha=alpha, linewidth=thick)
    axes.axvline(example["moments"]["proposed"], color=INK, linewidth=1.2, linestyle=(0, (3, 2)))


def _commit(axes: Any, one: Series, example: dict[str, Any], low: float, high: float) -> None:
    after = _after(example)
    title(axes, one.name, "since commit")
    points = []
    for name, words in _AFTER:
        value = after.get(name)
        text = "no such moment" if value is None else ms(value)
        points.append(Row(words, one.system, value, text=text, hollow=name != "visible"))
    dots(axes, points, low, high)
