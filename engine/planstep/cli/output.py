"""What commands print: one JSON object, a table on a terminal, or plain lines in a pipe.

Next: reshard.py.
"""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import planstep

from ..errors import FormatError

Store = Annotated[
    Path, typer.Argument(envvar="PLANSTEP_STORE", help="The store's folder.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

errors = Console(stderr=True)


def say(line: str) -> None:
    """A line for people: never on stdout."""
    print(line, file=sys.stderr)


def jsonable(value: Any) -> Any:
    """Bytes become text, or hex behind "hex:" where they are none; tuples become lists."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "hex:" + value.hex()
    if isinstance(value, dict):
        return {str(jsonable(k)): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return value


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(jsonable(value)))


def print_rows(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    cells = [[str(jsonable(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column)
        for row in cells:
            table.add_row(*row)
        Console().print(table)
    else:
        for row in cells:
            print("\t".join(row))


def existing(store: Path, *, read_only: bool = True) -> "planstep.Engine":
    """Opens a store that must be there: a typo must not make one."""
    if not (store / "host-0").is_dir():
        raise FormatError(f"{os.fspath(store)} is not a store; `planstep topic create` makes one")
    return planstep.open(store, create=False, read_only=read_only)
