"""What a section of the report is made of, besides the blocks of layout.py; the template has a macro for each.

Next: sections.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..judging import DURABILITIES
from ..layout import Block, Section, Table, number
from .drawing import Drawing


@dataclass(frozen=True, slots=True)
class Heading:
    """Below a section's own; `question`: what is asked there."""

    text: str
    anchor: str
    question: str = ""


@dataclass(frozen=True, slots=True)
class Durability:
    """What follows is of this one, until the next."""

    name: str

    @property
    def meaning(self) -> str:
        return DURABILITIES[self.name]


@dataclass(frozen=True, slots=True)
class Drawn:
    drawing: Drawing


@dataclass(frozen=True, slots=True)
class Note:
    """`tone`: "good", "bad", "partial", "absent"; `command`: that shows what is absent."""

    tone: str
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Aside:
    """What only some want to see, folded away."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Key:
    """Each system's colour and line: (what it is called, its name, what it is)."""

    entries: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Glossary:
    terms: Sequence[tuple[str, str]]


class Win(NamedTuple):
    """`values` by system, as text; `best`: who is in front, `behind`: who is beyond doubt not."""

    workload: str
    figure: str
    values: dict[str, str]
    best: Sequence[str]
    behind: Sequence[str]


@dataclass(frozen=True, slots=True)
class Wins:
    """`systems`: columns, (name, what it is called)."""

    systems: Sequence[tuple[str, str]]
    rows: Sequence[Win]


Part = Block | Heading | Durability | Drawn | Note | Aside | Key | Glossary | Wins


@dataclass
class Chapter:
    """`number`: 0 where it has none."""

    number: int
    anchor: str
    title: str
    lead: str
    parts: list[Part] = field(default_factory=list)


def block_parts(section: Section | None) -> list[Part]:
    return [] if section is None else list(section.blocks)


def by_durability(sections: Sequence[Section]) -> dict[str, Section]:
    """Of those whose titles say which."""
    return {
        durability: section
        for durability in DURABILITIES
        for section in sections
        if section.title.endswith(f"durability {durability}")
    }


def has_figures(table: Table) -> bool:
    """Whether anything that was measured here is told in it."""
    return any(
        number(value) not in ("–", "")
        for n, row in enumerate(table.rows)
        if n not in table.apart
        for value in row[table.left :]
    )


def only(table: Table, column: int, value: Any) -> Table:
    """Rows that have it there, without that column."""

    def without(row: Sequence[Any]) -> list[Any]:
        return [*row[:column], *row[column + 1 :]]

    return Table(
        without(table.columns),
        [without(row) for row in table.rows if row[column] == value],
        table.left - (column < table.left),
        None if table.long is None else without(table.long),
    )
