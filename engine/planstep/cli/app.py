"""Assembles the commands into one application, and turns errors into one line and an exit code.

    a PlanstepError, bad input, an error of the system ─▶ one line on stderr, exit 1
    wrong usage ─▶ typer's message, exit 2              interrupted ─▶ exit 130

PLANSTEP_DEBUG=1 shows the traceback of an error instead.

Next: command.py, output.py, then a module per group.
"""

import importlib.metadata
import os
import sys

import typer

from .. import __version__
from ..errors import PlanstepError, StoreInUse, UnknownName
from . import (
    backups,
    consumers,
    export,
    followers,
    inspect,
    logs,
    own,
    reshard,
    seeds,
    shared_logs,
    stats,
    tables,
    topics,
)
from .command import Command, StoreCommand, hush

_OPTIONS = {
    "exist_ok=True": "--exist-ok",
    "seek()": "`planstep consumer seek`",
    "prefix= or begin= and end=": "--prefix or --from and --to",
}
_DEPTH = 10_000

app = typer.Typer(
    help="Topics and tables that commit together. STORE is a folder; PLANSTEP_STORE is its default.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("reshard", cls=Command)(reshard.reshard)
app.add_typer(topics.app, name="topic")
app.add_typer(tables.app, name="table")
app.add_typer(consumers.app, name="consumer")
app.add_typer(inspect.tx, name="tx")
app.add_typer(logs.log, name="log")
app.command("export", cls=StoreCommand)(export.export)
app.command("backup", cls=StoreCommand)(backups.backup)
app.command("restore", cls=Command)(backups.restore)
app.command("stats", cls=StoreCommand)(stats.stats)
app.command("verify", cls=StoreCommand)(inspect.verify)
app.command("follow", cls=Command)(followers.follow)
app.command("own", cls=StoreCommand)(own.own)
app.command("check-log", cls=Command)(shared_logs.check)
shared_logs.replicate.command("start", cls=StoreCommand)(seeds.start)
shared_logs.replicate.command("diff", cls=Command)(seeds.diff)
app.add_typer(shared_logs.replicate, name="replicate", cls=seeds.WithStart)


def _version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Topics and tables that commit together."""


def run() -> None:
    """Runs the application. Other packages add commands through the entry-point group planstep.commands."""
    for entry in importlib.metadata.entry_points(group="planstep.commands"):
        app.command(entry.name, cls=Command)(entry.load())
    # Stored values may nest deeper than Python's default recursion limit.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEPTH))
    try:
        app()
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        raise SystemExit(0) from None
    except (PlanstepError, OSError, RecursionError, TypeError, ValueError) as error:
        if os.environ.get("PLANSTEP_DEBUG"):
            raise
        print(f"planstep: {_text(error)}", file=sys.stderr)
        raise SystemExit(1) from None


def _text(error: BaseException) -> str:
    """Puts an error into one line, with options in place of the library's arguments."""
    text = str(error)
    if isinstance(error, UnknownName) and error.nearest is None:
        text = f"no {error.kind} {error.name!r}; `planstep {error.kind} create` makes one"
    elif isinstance(error, StoreInUse) and not error.readers:
        since = "" if error.since is None else f" since {error.since}"
        owner = "another process" if error.pid is None else f"process {error.pid}"
        until = "this command needs the store alone: end that first"
        if not error.shares:
            until = "until it ends, only commands that look work"
        text = f"the store is in use by {owner}{since}; {until}"
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    text = "; ".join([text, *getattr(error, "__notes__", ())])
    return " ".join(text.split()) or type(error).__name__
