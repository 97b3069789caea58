"""Describes SQLite, the usual alternative. Next: sqlite.py."""

from functools import partial

from ...judges.python import PLANNED
from .entry import (
    PARTITION,
    SHARED,
    WORKER,
    LineStyle,
    Mode,
    Promises,
    Protocol,
    Step,
    SystemEntry,
)
from .sqlite import SqliteSystem

MODE = Mode(
    name="sqlite",
    systems=(
        SystemEntry(
            name="sqlite",
            open=partial(SqliteSystem, per_commit=1),
            history=PLANNED,
            placements=(SHARED,),
            label="SQLite (1 per COMMIT)",
            line_style=LineStyle("#00825f", (0, (1.2, 1.2)), "^", "SQLite"),
            about="one SQLite file, as many would use it instead: one transaction a COMMIT",
            column="sqlite",
            narrow="SQLite (1 per COMMIT)",
        ),
        SystemEntry(
            name="sqlite-64",
            open=partial(SqliteSystem, per_commit=64),
            history=PLANNED,
            placements=(SHARED,),
            label="SQLite (64 per COMMIT)",
            line_style=LineStyle("#a06a00", (0, (3, 1, 1, 1, 1, 1)), "v", "SQLite, 64 a COMMIT"),
            about="the same; up to 64 waiting transactions share a COMMIT",
            option="64 transactions share a COMMIT; joins sqlite in small by itself",
            joins=("small",),
            column="sqlite-64",
            narrow="SQLite (64 per COMMIT)",
        ),
    ),
    style="SQLite",
    title="SQLite",
    commits="SQLite: one writer at a time, everything in one file.",
    protocol=Protocol(
        "one file, one writer",
        ("worker", "", "file", "reader"),
        (
            Step("wait for the lock", WORKER, PARTITION),
            Step("COMMIT: all of it", WORKER, PARTITION),
            Step("one sync", PARTITION),
            Step("committed", PARTITION, WORKER),
        ),
        2,
        "nothing",
        "all at once",
    ),
    durable="committed",
    promises=Promises(
        durable={
            "full": "the write-ahead log is on the disk (synchronous=FULL)",
            "os": "the operating system has the write-ahead log (synchronous=NORMAL); a power loss may take it",
        },
        tables="yes: all is in one file",
        readers="for nobody; writers wait for each other",
        zombie="its commit counts only if its position is still the one that it read",
    ),
)
