"""Defines the blocks of a report, and renders them as plain text of a fixed width.

    Section ▸ Paragraph, Bullets, Table, Command, or a line of text ─▶ text(section)      report.txt
                                                                    └▶ ../html/page.py     report.html

Next: text_report.py.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

WIDTH = 100
NONE = "–"


def number(value: Any) -> str:
    """Formats a number with two or three significant digits; "–" for None, text as it is."""
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


class Paragraph(NamedTuple):
    text: str


class Bullets(NamedTuple):
    """`head` is the sentence before the list."""

    lines: Sequence[str]
    head: str = ""


class Command(NamedTuple):
    """`line` is the command as typed."""

    head: str
    line: str


class Table(NamedTuple):
    """A table. The first `left` columns are left-aligned, numbers right-aligned.

    `long`: headings where there is room; `elsewhere`: numbers of rows that were not measured here; `zero`: columns
    of errors, which should be zero.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    left: int = 1
    long: Sequence[str] | None = None
    elsewhere: frozenset[int] = frozenset()
    zero: frozenset[int] = frozenset()

    @property
    def visible(self) -> list[int]:
        """Returns the columns to show: all but empty ones."""
        return [
            n
            for n in range(len(self.columns))
            if not n or not self.rows or any(number(row[n]) not in (NONE, "") for row in self.rows)
        ]


Block = str | Paragraph | Bullets | Command | Table


class Section(NamedTuple):
    title: str
    blocks: Sequence[Block]

    @property
    def tables(self) -> Iterator[Table]:
        return (block for block in self.blocks if isinstance(block, Table))


def section(title: str, *blocks: Block) -> Section:
    return Section(title, blocks)


# as text ------------------------------------------------------------------------------------------


def text(section: Section) -> str:
    heading = f"{section.title}\n{'─' * min(len(section.title), WIDTH)}"
    return "\n\n".join([heading, *map(plain, section.blocks)])


def plain(block: Block) -> str:
    """Renders a block as plain text."""
    if isinstance(block, Paragraph):
        return fill(block.text)
    if isinstance(block, Bullets):
        lines = [fill(line, "  ", "- ") for line in block.lines]
        return "\n".join([*([fill(block.head)] if block.head else []), *lines])
    if isinstance(block, Command):
        return f"{block.head}\n{shell(block.line)}"
    return _table(block) if isinstance(block, Table) else block


def fill(line: str, indent: str = "", first: str | None = None) -> str:
    """Fills lines to WIDTH; a number keeps its unit. `first`: the first line's indent."""
    together = re.sub(r"(?<=\d) (?=(?:%|ms|s|MB|MB/s|KB|GB)\b|%)", "\u00a0", line)
    lines = textwrap.fill(
        together,
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return lines.replace("\u00a0", " ")


def shell(line: str) -> str:
    """Fills a command so that a shell takes it as one line."""
    lines = textwrap.wrap(
        line,
        WIDTH - 2,
        initial_indent="    ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return " \\\n".join(lines)


def _table(table: Table) -> str:
    """Renders a table. If it is too wide it continues below, with its first columns again."""
    visible, left = table.visible, table.left
    cells = [[number(value) for value in row] for row in table.rows]
    lines = [[table.columns[n] for n in visible], *([row[n] for n in visible] for row in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(visible))]
    parts = _parts(widths, sum(n < left for n in visible))
    return "\n\n".join(
        "\n".join(
            "  ".join(
                line[i].ljust(widths[i]) if visible[i] < left else line[i].rjust(widths[i])
                for i in part
            ).rstrip()
            for line in lines
        )
        for part in parts
    )


def _parts(widths: Sequence[int], left: int) -> list[list[int]]:
    """Splits columns into parts that fit the width."""
    always = list(range(left))
    parts = [always]
    for i in range(left, len(widths)):
        wide = sum(widths[n] + 2 for n in (*parts[-1], i)) - 2
        if wide > WIDTH and parts[-1] != always:
            parts.append([*always, i])
        else:
            parts[-1] = [*parts[-1], i]
    return parts
