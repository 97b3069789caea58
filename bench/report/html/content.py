"""Defines the parts of a report's section, besides the blocks of ../text/blocks.py.

The template has a macro for each.

Next: sections.py.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...compare.ranking import DURABILITIES, in_words
from ...compare.systems import ENTRIES
from ..text.blocks import Block, Section, Table, number
from .drawing import Drawing, display_name


class Heading(NamedTuple):
    """A heading below the section's own; `question`: the question that its part answers."""

    text: str
    anchor: str
    question: str = ""


class Durability(NamedTuple):
    """Sets the durability of all parts up to the next one."""

    name: str


class Note(NamedTuple):
    """A remark. `tone`: "good", "bad", "partial", "absent"; `command` shows what is absent."""

    tone: str
    text: str
    command: str = ""


class Aside(NamedTuple):
    """Details, folded away."""

    title: str
    parts: Sequence[Block | Drawing]


class Key(NamedTuple):
    """Each system's colour and line: (name in drawings, name, description)."""

    entries: Sequence[tuple[str, str, str]]


class Glossary(NamedTuple):
    """Terms, each with its meaning."""

    terms: Sequence[tuple[str, str]]


class Win(NamedTuple):
    """A figure with a winner. `values` by system, as text; `best`: winners, `behind`: clear losers."""

    workload: str
    figure: str
    values: dict[str, str]
    best: Sequence[str]
    behind: Sequence[str]


class Wins(NamedTuple):
    """A table of wins. `systems`: columns, (name, name in drawings). `alone`: for a single workload."""

    systems: Sequence[tuple[str, str]]
    rows: Sequence[Win]
    alone: bool = False


def wins(
    who_wins: Sequence[dict[str, Any]], durability: str, workload: str | None = None
) -> Wins | None:
    """Returns the wins of one durability, and of one workload or all; None where no system is in front."""
    rows = [
        Win(
            won["workload"],
            in_words(won["figure"]),
            {name: number(value) for name, value in {**won["best"], **won["behind"]}.items()},
            list(won["best"]),
            list(won["behind"]),
        )
        for won in who_wins
        if won["durability"] == durability and workload in (None, won["workload"])
    ]
    names = dict.fromkeys(name for row in rows for name in row.values)
    order = dict.fromkeys([*(name for name in ENTRIES if name in names), *names])
    placements = {name: at for won in who_wins for name, at in won["placements"].items()}
    columns = [(name, display_name(name, placements[name])) for name in order]
    return Wins(columns, rows, workload is not None) if rows else None


Part = Block | Heading | Durability | Drawing | Note | Aside | Key | Glossary | Wins


class Chapter(NamedTuple):
    """A chapter of the report; `number` is 0 for a chapter without one."""

    number: int
    anchor: str
    title: str
    lead: str
    parts: list[Part]


def drawings_of(parts: Sequence[Part]) -> Iterator[Drawing]:
    """Yields the drawings among the parts, folded ones too."""
    for part in parts:
        if isinstance(part, Aside):
            yield from drawings_of(part.parts)
        elif isinstance(part, Drawing):
            yield part


def beside(parts: Sequence[Part]) -> list[Part]:
    """Moves the drawings that begin the parts of a durability to the front, beside each other.

    A drawing's title names its durability. One without other parts is not named again.
    """
    drawings: list[Part] = []
    rest: list[Part] = []
    begins = False
    for part in parts:
        begins = isinstance(part, Durability) or (begins and isinstance(part, Drawing))
        (drawings if begins and isinstance(part, Drawing) else rest).append(part)
    last = Durability("")
    named = [
        part
        for part, after in pairwise([*rest, last])
        if not (isinstance(part, Durability) and isinstance(after, Durability))
    ]
    return [*drawings, *named]


def by_durability(sections: Sequence[Section]) -> dict[str, Section]:
    """Returns the sections whose titles name a durability, by durability."""
    return {
        durability: section
        for durability in DURABILITIES
        for section in sections
        if section.title.endswith(f"durability {durability}")
    }


def has_figures(table: Table) -> bool:
    """Returns True if the table has a figure that was measured here."""
    return any(
        number(value) not in ("–", "")
        for n, row in enumerate(table.rows)
        if n not in table.elsewhere
        for value in row[table.left :]
    )
