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
    """The first `left` columns stand left, numbers right; a column that is empty throughout is left out.

    One that is too wide goes on below, its first `left` columns again.
    """
    cells = [[number(value) for value in row] for row in rows]
    shown = [
        n
        for n in range(len(columns))
        if not n or any(row[n] not in (NONE, "") for row in cells) or not cells
    ]
    lines = [[columns[n] for n in shown], *([row[n] for n in shown] for row in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(shown))]
    parts = _parts(widths, sum(n < left for n in shown))
    return "\n\n".join(
        "\n".join(
            "  ".join(
                line[i].ljust(widths[i]) if shown[i] < left else line[i].rjust(widths[i])
                for i in part
            ).rstrip()
            for line in lines
        )
        for part in parts
    )


def _parts(widths: Sequence[int], left: int) -> list[list[int]]:
    """Columns that fit side by side."""
    always = list(range(left))
    parts = [always]
    for i in range(left, len(widths)):
        wide = sum(widths[n] + 2 for n in (*parts[-1], i)) - 2
        if wide > WIDTH and parts[-1] != always:
            parts.append([*always, i])
        else:
            parts[-1] = [*parts[-1], i]
    return parts
