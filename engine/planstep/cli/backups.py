"""`planstep backup`, `planstep restore`: a store copied at one step, and back. Next: inspect.py."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from ..api.columns.batch import counted
from ..runtime.backup import Backup, Telling, backup_store
from ..runtime.backup import restore as restore_store
from .output import Json, Store, errors, print_json, say
from .values import readable


def backup(
    store: Store,
    to: Annotated[Path, typer.Argument(help="A folder that is not there yet.", metavar="TO")],
    as_json: Json = False,
) -> None:
    """Copy a store, as of one step, while its writers go on.

    TO is complete and verified, or not there; what a killed backup leaves is
    called TO.incomplete, and the next backup to TO removes it. It is made in a
    folder that is there, outside of the store. TO is a store: any command may
    look into it. It has an id of its own.

    JSON: path, step, hosts, records, rows, bytes (of records).

    Example: planstep backup shop.planstep shop-monday.planstep
    """
    with _stopping(), _progress("backup") as tell:
        done = backup_store(store, to, tell)
    _print("backed up to", done, as_json)


def restore(
    source: Annotated[Path, typer.Argument(help="A backup, or any store.", metavar="FROM")],
    store: Annotated[
        Path,
        typer.Argument(
            help="The store's folder (default: $PLANSTEP_STORE).",
            metavar="STORE",
            envvar="PLANSTEP_STORE",
            show_envvar=False,
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the store that is there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make STORE a copy of a backup, verified before it gets its name.

    A store that is there is replaced with --force only, and never while a
    process has it open, to look at it too. FROM stays as it is.

    JSON: path, step, hosts, records, rows, bytes (of records).

    Example: planstep restore shop-monday.planstep shop.planstep --force
    """
    with _stopping(), _progress("restore") as tell:
        done = restore_store(source, store, force, tell)
    _print("restored to", done, as_json)


def _print(what: str, done: Backup, as_json: bool) -> None:
    if as_json:
        print_json(done._asdict())
    else:
        print(
            f"{what} {done.path}: step {done.step}, {counted(done.records, 'record')} "
            f"({readable(done.bytes)}), {counted(done.rows, 'row')}, verified"
        )


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; nothing was made or replaced")
        raise typer.Exit(130) from None


@contextlib.contextmanager
def _progress(word: str) -> Iterator[Telling]:
    """A bar on a terminal; else a line for each million records."""
    if errors.is_terminal:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
        )
        with Progress(*columns, console=errors, transient=True) as bars:
            task = bars.add_task(f"{word}: records", total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)
        return
    told = 0

    def tell(done: int, total: int) -> None:
        nonlocal told
        if done // 1_000_000 > told:
            told = done // 1_000_000
            say(f"{word}: {done} of {total} records")

    yield tell
