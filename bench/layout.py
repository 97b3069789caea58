"""Plain text of a fixed width: headings, tables, paragraphs, bullets, numbers.

Next: words.py.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 100
NONE = "–"


def number(value: Any) -> str:
    """Two or three digits that count; "–" for None, text as it is."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    size = abs(value)
    if isinstance(value, int) or size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 or not value else f"{value:.2g}"


def section(title: str, *blocks: str) -> str:
    return "\n\n".join([f"{title}\n{'─' * min(len(title), WIDTH)}", *blocks])


def paragraph(text: str, indent: str = "", first: str | None = None) -> str:
    """Filled; a number keeps its unit. `first`: the first line's indent."""
    together = re.sub(r"(?<=\d) (?=(?:%|ms|s|MB|MB/s|KB|GB)\b|%)", "\u00a0", text)
    filled = textwrap.fill(
        together,
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return filled.replace("\u00a0", " ")


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(paragraph(line, "  ", "- ") for line in lines)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """The first `left` columns stand left, numbers right; a column that is empty throughout is left out."""
    cells = [[number(value) for value in row] for row in rows]
    shown = [
        n
        for n in range(len(columns))
        if not n or any(row[n] not in (NONE, "") for row in cells) or not cells
    ]
    lines = [[columns[n] for n in shown], *([row[n] for n in shown] for row in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(shown))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if shown[i] < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
