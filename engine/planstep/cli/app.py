"""The application: groups of commands, one way to fail, commands of other packages.

    PlanstepError ─▶ one line on stderr, exit 1      wrong usage ─▶ typer's words, exit 2

Next: output.py, then a module per group.
"""

import importlib.metadata
import sys

import typer

from .. import __version__
from ..errors import PlanstepError
from . import inspect, reshard, tables, topics

app = typer.Typer(
    help="Topics and tables that commit together. STORE is a folder; PLANSTEP_STORE is its default.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("reshard")(reshard.reshard)
app.add_typer(topics.app, name="topic")
app.add_typer(tables.app, name="table")
app.add_typer(inspect.tx, name="tx")
app.add_typer(inspect.log, name="log")
app.command("stats")(inspect.stats)
app.command("verify")(inspect.verify)


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
    """Entry point; other packages add commands through the entry-point group planstep.commands."""
    for entry in importlib.metadata.entry_points(group="planstep.commands"):
        app.command(entry.name)(entry.load())
    try:
        app()
    except PlanstepError as error:
        print(f"planstep: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
