"""Describes SQLite, the usual alternative. Next: sqlite.py."""

from collections.abc import Callable
from pathlib import Path

from ...judges.python import PLACES
from .base import Options, System
from .entry import PARTITION, SHARED, WORKER, Look, Mode, Protocol, Step, SystemEntry


def _opens(per_commit: int) -> Callable[[Path, Options], System]:
    def opened(folder: Path, options: Options) -> System:
        from .sqlite import SqliteSystem

        return SqliteSystem(folder, options, per_commit)

    return opened


MODE = Mode(
    name="sqlite",
    systems=(
        SystemEntry(
            name="sqlite",
            opened=_opens(1),
            history=PLACES,
            placements=(SHARED,),
            headline=SHARED,
            label="SQLite (1 per COMMIT)",
            look=Look("#00825f", (0, (1.2, 1.2)), "^", "SQLite"),
            about="one SQLite file, as many would use it instead: one transaction a COMMIT",
            column="sqlite",
            narrow="SQLite (1 per COMMIT)",
        ),
        SystemEntry(
            name="sqlite-64",
            opened=_opens(64),
            history=PLACES,
            placements=(SHARED,),
            headline=SHARED,
            label="SQLite (64 per COMMIT)",
            look=Look("#b87a00", (0, (3, 1, 1, 1, 1, 1)), "v", "SQLite, 64 a COMMIT"),
            about="the same; up to 64 waiting transactions share a COMMIT",
            option="64 transactions share a COMMIT; joins sqlite in transfer by itself",
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
)
