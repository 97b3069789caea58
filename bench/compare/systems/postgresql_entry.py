"""Describes PostgreSQL, the usual server. Next: postgresql.py."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ...judges.python import PLANNED
from . import postgresql_server
from .base import Options, System
from .entry import (
    PARTITION,
    READER,
    SHARED,
    WORKER,
    LineStyle,
    Mode,
    Promises,
    Protocol,
    ServerRoom,
    Step,
    SystemEntry,
)


def _open(name: str, by_statements: bool) -> Callable[[Path, Options], System]:
    """Returns a function that opens a system. OSError with what is missing, where PostgreSQL or its client is."""

    def opened(folder: Path, options: Options) -> System:
        missing = postgresql_server.unavailable()
        if missing:
            raise OSError(missing)
        from .postgresql import PostgresqlSystem  # which imports the client, an extra

        return PostgresqlSystem(folder, options, name, by_statements)

    return opened


_ROOM = ServerRoom(memory=postgresql_server.buffers_mb() + 150, disk=4200)
"""Its buffers and processes; its log before a checkpoint (max_wal_size), and an empty cluster."""


def _load() -> None:
    if not postgresql_server.unavailable():
        import_module(".postgresql", __package__)


MODE = Mode(
    name="postgresql",
    systems=(
        SystemEntry(
            name="postgresql",
            open=_open("postgresql", by_statements=False),
            history=PLANNED,
            placements=(SHARED,),
            label="PostgreSQL",
            line_style=LineStyle("#7a4fa3", (0, (5, 1, 1, 1)), "P", "PostgreSQL"),
            about="a PostgreSQL server with tables as logs; a small transaction commits in one round trip",
            option="needs PostgreSQL's server",
            peer=True,
            load=_load,
            unavailable=postgresql_server.unavailable,
            server=postgresql_server.serve,
            server_mb=_ROOM,
            start_s=3.0,
            warm_s=2.0,
            overhead_s=0.5,
            column="postgresql",
            narrow="PostgreSQL",
        ),
        SystemEntry(
            name="postgresql-statements",
            open=_open("postgresql-statements", by_statements=True),
            history=PLANNED,
            placements=(SHARED,),
            label="PostgreSQL (by statements)",
            line_style=LineStyle("#a98cc4", (0, (1.5, 1.5)), "p", "PostgreSQL, by statements"),
            about="the same server; a transaction is BEGIN, a statement for each step, COMMIT",
            option="a round trip for each statement; joins postgresql in small by itself",
            joins=("small",),
            peer=True,
            load=_load,
            unavailable=postgresql_server.unavailable,
            server=postgresql_server.serve,
            server_mb=_ROOM,
            column="postgresql-statements",
            narrow="PostgreSQL (statements)",
        ),
    ),
    style="PostgreSQL",
    title="PostgreSQL",
    commits="PostgreSQL: a server with one log; rows and partitions are locked until the commit.",
    protocol=Protocol(
        "one server, locks to the commit",
        ("worker", "", "server", "reader"),
        (
            Step("one statement: lock, write", WORKER, PARTITION),
            Step("COMMIT: one sync of its log", PARTITION),
            Step("committed", PARTITION, WORKER),
            Step("NOTIFY", PARTITION, READER),
        ),
        2,
        "nothing",
        "all at once",
    ),
    durable="committed",
    promises=Promises(
        durable={
            "full": "the log with all its records and rows is on the disk",
            "os": "the operating system has the log; a crash of the machine may corrupt the whole database",
        },
        tables="yes: records and rows change in one transaction",
        readers="for nobody: an open transaction delays no reader",
        zombie="its commit is refused as a conflict, if another one consumed what it had read",
    ),
)
