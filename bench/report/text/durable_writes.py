"""Counts durable writes of a transaction, in the rows of the talk's table.

    durable changes, "who: at which message" ─▶ the talk's six rows ─▶ a count for each system

All modes keep records and state in the same store, so durable changes are comparable: each is a tablet that changed
its rows for a message, synced before any of its effects left the tablet.

Next: published_figures.py.
"""

from collections import defaultdict
from typing import Any

from ...compare.ranking import DURABILITIES, Entry, at_headline
from ...compare.systems import MODES, label, narrow
from . import published_figures
from .blocks import Paragraph, Section, Table, section

_CHANGES = zip(*(mode.changes for mode in MODES), strict=True)
ROWS = tuple(
    (row, tuple(dict.fromkeys(change for changes in of_modes for change in changes)))
    for (row, *_), of_modes in zip(published_figures.WHO_PERSISTS, _CHANGES, strict=True)
)
"""The talk's rows, each with the changes that belong to it."""
_OTHER = "anything else"


def who_persists(systems: dict[str, Any]) -> list[Section]:
    """Returns the table, each system at its headline placement."""
    entries: dict[str, Entry] = {}
    for durability in DURABILITIES:
        for name, _, entry in at_headline(systems, "reshard", durability):
            if entry["steps"]:
                entries.setdefault(name, entry)
    if not entries:
        return []
    by_system = {name: by_row(entry["steps"]) for name, entry in entries.items()}
    named = [row for row, _ in ROWS]
    rows = [
        (row, *(counts.get(row) for counts in by_system.values()))
        for row in [*named, _OTHER]
        if row in named or any(row in counts for counts in by_system.values())
    ]
    total = ("in all", *(sum(counts.values()) for counts in by_system.values()))
    hosts = max(entry["hosts"] for entry in entries.values())
    columns, long = ("", *map(narrow, entries)), ("", *map(label, entries))
    abbreviated = [f"{mode.short}: {mode.in_full}." for mode in MODES[1:] if mode.short]
    steps = [entry["steps"] for entry in entries.values()]
    causes = sorted({cause for counts in steps for cause in counts})
    by_cause = [(cause, *(counts.get(cause) for counts in steps)) for cause in causes]
    spread = (
        f"{hosts} hosts: each tablet and the coordinator has its own" if hosts > 1 else "one host"
    )
    about = f"The number of durable changes of a transaction; {spread}. {' '.join(abbreviated)}"
    return [
        section(
            "reshard: who persists what, by count",
            Paragraph(about.strip()),
            Table(columns, [*rows, total], long=long),
            "The same changes, by the component that makes them and its message:",
            Table(columns, by_cause, long=long),
        )
    ]


def by_row(steps: dict[str, float]) -> dict[str, float]:
    """Sums up durable changes by row of the talk's table."""
    row_of = {cause: row for row, causes in ROWS for cause in causes}
    totals: dict[str, float] = defaultdict(float)
    for cause, times in steps.items():
        totals[row_of.get(cause, _OTHER)] += times
    return totals
