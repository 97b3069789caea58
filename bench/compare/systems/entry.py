"""What the comparison knows of a way to commit, and of the systems that commit so: one entry each, data only.

    deterministic_entry.py ─┐
    kafka_entry.py          ├─▶ Mode ─▶ __init__.py: MODES ─┬─▶ ../plan.py: what can run, and where it stands
    sqlite_entry.py        ─┘                               └─▶ ../ranking.py, ../../report/: what is said, drawn

A mode that comes later is one more entry: nothing that compares or reports asks for a mode by name. Sentences that
are about one mode only are whole here, or clauses that the report strings together, one mode's behind the other's.

Next: engine_mode.py, then deterministic_entry.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .base import Options, System

SHARED, SEPARATE = "shared", "separate"
WORKER, COORDINATOR, PARTITION, READER = 0, 1, 2, 3
LANES = ("worker", "coordinator", "partition", "reader")


class Step(NamedTuple):
    """A message from lane to lane; or, of one lane only, a durable change. `text`: what."""

    text: str
    lane: int
    to: int | None = None


class Protocol(NamedTuple):
    """How a mode commits, to be drawn. `lanes`: names; "" where it has no such part. `seen`: number of the step at
    which readers may see it; what they are shown before, and then."""

    idea: str
    lanes: tuple[str, str, str, str]
    steps: tuple[Step, ...]
    seen: int
    hidden: str
    visible: str


class DurableChanges(NamedTuple):
    """Which durable changes, "who: at which message", stand for each row of the talk's table, in its order."""

    registers_transaction: tuple[str, ...] = ()
    registers_participants: tuple[str, ...] = ()
    sets_aside: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    intends: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()


NO_CHANGES = DurableChanges()


class Look(NamedTuple):
    """One colour, one kind of line, one marker, wherever it is drawn; `name`: beside them. Colours are Okabe's and
    Ito's, darker where they would be faint on white: told apart by the colour-blind, too."""

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    marker: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEntry:
    """A system under test.

    name        as it is asked for
    opened      opens it in a folder
    history     what its histories can be held to, for traces that do not say it themselves (System.history)
    placements  where its parts can stand; the first is where there is no choice
    headline    the placement that it is meant to be run in
    label       what people are told
    look        how it is drawn
    about       what it is, for those who do not know it
    option      what the command line's help says of it, if anything
    column      heads a column of figures
    narrow      heads a column where there are many of them
    """

    name: str
    opened: Callable[[Path, Options], System]
    history: str
    placements: tuple[str, ...]
    headline: str
    label: str
    look: Look
    about: str
    option: str = ""
    column: str
    narrow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A way to commit, and what is said of it; the first of its `systems` is what it is drawn as.

    name        as in the JSON
    style       its name amid a sentence          title     and where one begins
    short       in narrow columns                 in_full   what `short` is short for
    original    what it follows, if anything      is_not    what a figure says nothing about, then
    limit       the same, in more words           time_out  when what was left open ends there, by default
    commits     how it commits, in words          protocol  and drawn
    terms       words that only it needs, each with its meaning
    durable     what of a write is durable when it is acknowledged, as in "it is durable then: …"
    changes     its durable changes
    reads_late  who else a record waits for       shown_late   and before it may be seen
    crowded     what its readers would do in another workload than reshard
    """

    name: str
    systems: tuple[SystemEntry, ...]
    style: str
    title: str
    short: str = ""
    in_full: str = ""
    original: str = ""
    is_not: str = ""
    limit: str = ""
    time_out: str = ""
    commits: str
    protocol: Protocol
    terms: tuple[tuple[str, str], ...] = ()
    durable: str
    changes: DurableChanges = NO_CHANGES
    reads_late: str = ""
    shown_late: str = ""
    crowded: str = ""
