"""What commands print: one JSON object, a table on a terminal, or plain lines in a pipe.

Next: reshard.py.
"""

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

import planstep

from ..errors import FormatError

Store = Annotated[
    Path, typer.Argument(help="The store's folder. [default: $PLANSTEP_STORE]", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

errors = Console(stderr=True)


class StoreCommand(TyperCommand):
    """A command whose first argument is STORE: left out, it is what PLANSTEP_STORE says.

    Left out means that an argument is missing, or, where any number may follow, that the first one
    is no store.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        default = os.environ.get("PLANSTEP_STORE")
        if default and not ctx.resilient_parsing and self._lacks_store(ctx, args):
            args = [default, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def _lacks_store(self, ctx: Any, args: list[str]) -> bool:
        try:
            values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        except Exception:  # wrong usage: said by the real parse
            return False
        given: list[str] = []
        for param in self.params:
            if param.param_type_name == "argument":
                value = values.get(param.name)
                if isinstance(value, (list, tuple)):
                    given += value
                elif isinstance(value, str):
                    given.append(value)
        places = [param for param in self.params if param.param_type_name == "argument"]
        if len(given) < sum(1 for param in places if param.required):
            return True
        many = any(param.nargs == -1 for param in places)
        return many and not (Path(given[0]) / "host-0").is_dir()


def say(line: str) -> None:
    """A line for people: never on stdout."""
    print(line, file=sys.stderr)


def jsonable(value: Any) -> Any:
    """Bytes become text, or hex behind "hex:" where they are none; tuples become lists; what JSON
    has no word for (msgpack's timestamps, say) becomes its text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "hex:" + value.hex()
    if isinstance(value, dict):
        return {str(jsonable(k)): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(jsonable(value)))


def print_rows(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    cells = [[str(jsonable(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        table = Table(title=Text(title), title_justify="left")
        for column in columns:
            table.add_column(column)
        for row in cells:
            table.add_row(*map(Text, row))  # what the store holds is no markup
        Console().print(table)
    else:
        for row in cells:
            print("\t".join(row))


def existing(store: Path, *, read_only: bool = True) -> "planstep.Engine":
    """Opens a store that must be there: a typo must not make one."""
    if not (store / "host-0").is_dir():
        raise FormatError(f"{os.fspath(store)} is not a store; `planstep topic create` makes one")
    return planstep.open(store, create=False, read_only=read_only)
