"""Describes modes and their systems to the comparison: one entry each, data only.

    deterministic_entry.py ─┐
    kafka_entry.py          │
    pulsar_entry.py         ├─▶ Mode ─▶ __init__.py: MODES ─┬─▶ ../plan.py: what can run, and in which placement
    sqlite_entry.py        ─┘                               └─▶ ../ranking.py, ../../report/: sentences, drawings

A new mode is one more entry: no code that compares or reports asks for a mode by name. A sentence about one mode
only is here as a whole. Clauses about several modes are here too, and the report strings them together.

Next: deterministic_entry.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...judges.python import ALLOWED_ELSEWHERE
from .base import Options, System
from .servers import Server

SHARED, SEPARATE = "shared", "separate"
WORKER, COORDINATOR, PARTITION, READER = 0, 1, 2, 3
LANES = ("worker", "coordinator", "partition", "reader")


class Step(NamedTuple):
    """A message from lane to lane, or, with one lane only, a durable change; `text` names it."""

    text: str
    lane: int
    to: int | None = None


class Protocol(NamedTuple):
    """A drawing of how a mode commits.

    `lanes` has names, "" where the mode has no such part. `visible_after` is the number of the step after which
    readers may see the records. `hidden` and `visible` say what readers get before it and after it.
    """

    idea: str
    lanes: tuple[str, str, str, str]
    steps: tuple[Step, ...]
    visible_after: int
    hidden: str
    visible: str


class DurableChanges(NamedTuple):
    """The durable changes, "who: at which message", that belong to each row of the talk's table, in its order."""

    registers_transaction: tuple[str, ...] = ()
    registers_participants: tuple[str, ...] = ()
    sets_aside: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    intends: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()


NO_CHANGES = DurableChanges()


class Promises(NamedTuple):
    """Says what a mode promises, each part in a few words that fit a table's cell.

    durable  what has happened when a commit is answered, by durability ("full", "os")
    tables   whether rows of tables change with the records, all or nothing
    readers  whom a reader of committed records waits for
    zombie   what becomes of a worker that was replaced and does not know it
    """

    durable: dict[str, str]
    tables: str
    readers: str
    zombie: str


NO_PROMISES = Promises({}, "", "", "")


class LineStyle(NamedTuple):
    """The colour, line and marker of a system in every drawing, and the `name` next to them.

    Colours are those of Okabe and Ito, which the colour-blind can tell apart; some are darker, to show on white.
    """

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    marker: str
    name: str


class ServerRoom(NamedTuple):
    """The memory and the disk that a server takes, in MB."""

    memory: float = 0.0
    disk: float = 0.0


NO_ROOM = ServerRoom()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEntry:
    """A system under test.

    name        its name on the command line
    open        opens it in a folder
    history     the kind of history that its traces are checked as: one of judges.python.MODES
    allowed     anomalies that its model allows
    placements  where its parts can stand; a single one leaves no choice
    headline    the placement that it is meant to run in
    label       the name that people read
    line_style  its colour, line and marker
    about       explains it to a newcomer
    option      its text in the command line's help, if any
    joins       workloads in which it runs by itself where the first system of its mode does
    peer        a product with a server of its own, which `--peers` adds
    load        imports what a system with a server needs, and looks it up, which is not part of a server's start
    unavailable says what this machine lacks to run it and how to get that; "" if nothing is missing
    fetch       fetches what pip does not bring, by `make peers`; it gets a function that tells
    server      starts a server that serves many runs; None for a system without a server. Systems with the same
                function share the server
    server_mb   memory and disk that the server takes at most, beside the records of a run; in MB
    start_s, warm_s  seconds to start the server, and to warm it, about
    overhead_s  seconds that a run of it takes beyond one of this engine, about, measured part left out
    column      heading of a column of figures
    narrow      heading where there are many columns
    """

    name: str
    open: Callable[[Path, Options], System]
    history: str
    allowed: tuple[str, ...] = ALLOWED_ELSEWHERE
    placements: tuple[str, ...] = (SHARED, SEPARATE)
    headline: str = SHARED
    label: str
    line_style: LineStyle
    about: str
    option: str = ""
    joins: tuple[str, ...] = ()
    peer: bool = False
    load: Callable[[], None] = lambda: None
    unavailable: Callable[[], str] = lambda: ""
    fetch: Callable[[Callable[[str], None]], None] | None = None
    server: Callable[[Path, Options], Server] | None = None
    server_mb: ServerRoom = NO_ROOM
    start_s: float = 5.0
    warm_s: float = 10.0
    overhead_s: float = 0.0
    column: str
    narrow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A way to commit, with the words about it; the first of its `systems` gives the drawing's colour and line.

    name        its name in the JSON
    style       its name within a sentence        title     its name at the start of one
    short       its name in narrow columns        in_full   `short` spelled out
    original    the product it follows, if any    is_not    says that figures are not about that product
    limit       the same in more words            time_out  when the original aborts an open transaction, by default
    commits     how it commits, in words          protocol  how it commits, drawn
    terms       words that only this mode needs, each with its meaning
    durable     state of a write when it is acknowledged, as in "it is durable then: …"
    promises    what it promises, for the table of promises
    changes     its durable changes
    reads_late  clause: who else a record waits for
    shown_late  clause: when a record may be seen
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
    promises: Promises = NO_PROMISES
    changes: DurableChanges = NO_CHANGES
    reads_late: str = ""
    shown_late: str = ""
    crowded: str = ""
