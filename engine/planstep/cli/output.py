"""Prints the results of commands, as JSON, a table or plain lines, and asks the user to confirm.

A terminal gets a table; a pipe gets plain lines for `cut` and `while read`. There tabs separate fields; tabs
and line ends within a field become \\t and \\n. Only --json keeps values exactly.

Next: values.py.
"""

import contextlib
import json
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
)
from rich.table import Table
from rich.text import Text

import planstep

from ..errors import FormatError
from ..runtime.store_path import is_store, nearest_store

Store = Annotated[
    Path,
    typer.Argument(
        metavar="STORE", help="The store's folder (default: $PLANSTEP_STORE).", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
ExistOk = Annotated[bool, typer.Option("--exist-ok", help="Accept one that is there already.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")
]

errors = Console(stderr=True)
_CONTROLS = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160))}
_CONTROLS |= {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def say(line: str) -> None:
    """Prints a line for people, on stderr."""
    print(line, file=sys.stderr)


def jsonable(value: Any) -> Any:
    """Converts a value to one that JSON has.

    Bytes become text, or hex behind "hex:" where they are not UTF-8 or begin so; tuples become lists.
    Other types, such as msgpack's timestamps, become their text.
    """
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return "hex:" + value.hex()
        return "hex:" + value.hex() if text.startswith("hex:") else text
    if isinstance(value, dict):
        return {str(jsonable(k)): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def text_of(value: Any) -> str:
    """Shows a value to people: text as it is, nothing for None, else JSON, which commands accept as input."""
    value = jsonable(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def field_of(value: Any) -> str:
    """Shows a value on one line, with control characters escaped: it must not control the terminal."""
    text = text_of(value)
    return text if text.isprintable() else text.translate(_CONTROLS)


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(jsonable(value)))


def print_result(result: dict[str, Any], as_json: bool, text: str) -> None:
    """Prints what a command did: as JSON, or `text` for people."""
    if as_json:
        print_json(result)
    else:
        print(text)


def print_fields(*values: Any) -> None:
    print("\t".join(map(field_of, values)))


def print_rows(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Prints a table on a terminal, and tab-separated lines in a pipe."""
    if sys.stdout.isatty():
        table = Table()
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(field_of(cell)) for cell in row))  # stored text is not markup
        console = Console()
        # A table would fold its title to its own width.
        console.print(Text(title, style="italic"), soft_wrap=True)
        console.print(table)
    else:
        for row in rows:
            print_fields(*row)


@contextlib.contextmanager
def progress(unit: str, each: int = 100_000) -> Iterator[Callable[[str, int, int | None], None]]:
    """Shows progress on stderr by phase: bars on a terminal, else a line every `each` units. Thread-safe."""
    lock = threading.Lock()
    if errors.is_terminal:
        text = TextColumn("{task.description}")
        columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=errors, transient=True) as bars:
            tasks: dict[str, TaskID] = {}

            def draw(phase: str, done: int, total: int | None) -> None:
                with lock:
                    if phase not in tasks:
                        tasks[phase] = bars.add_task(phase, total=None)
                    bars.update(tasks[phase], completed=done, total=total)

            yield draw
        return
    printed: dict[str, int] = {}

    def tell(phase: str, done: int, total: int | None) -> None:
        with lock:
            if done // each > printed.get(phase, 0):
                printed[phase] = done // each
                say(f"{phase}: {done} of {total} {unit}" if total else f"{phase}: {done} {unit}")

    yield tell


@contextlib.contextmanager
def interruptible(then: str) -> Iterator[None]:
    """Ends the command with exit 130 on Ctrl-C, and prints `then`, the state that it leaves."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted; {then}")
        raise typer.Exit(130) from None


def sleep_while_read(seconds: float) -> None:
    """Sleeps. BrokenPipeError when the reader of stdout has left: `tail -f` ends then, too."""
    try:
        hung_up = select.poll()
        hung_up.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # stdout is no file
        time.sleep(seconds)
        return
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in hung_up.poll(seconds * 1000)):
        raise BrokenPipeError


def confirm(question: str, yes: bool) -> None:
    """Asks the user: exit 1 when they refuse, exit 2 without a terminal."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise typer.BadParameter("required without a terminal", param_hint="--yes")
    if not typer.confirm(question, err=True):
        say("nothing was changed")
        raise typer.Exit(1)


def existing(store: Path, *, read_only: bool = True) -> "planstep.Engine":
    """Opens a store that must exist: a typo must not create one. Errors as `check_is_store`.

    `read_only`: all that a command shows of it is as of one step.
    """
    check_is_store(store)
    db = planstep.open(store, create=False, read_only=read_only)
    if read_only:
        db.context.runtime.stay()
    return db


def check_is_store(store: Path) -> None:
    """FormatError, which suggests the nearest name, if there is no store."""
    if not is_store(store):
        close = nearest_store(store)
        hint = f"did you mean {close!r}?" if close else "`planstep topic create` makes one"
        raise FormatError(f"{os.fspath(store)} is not a store; {hint}")
