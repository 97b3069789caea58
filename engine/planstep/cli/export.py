"""`planstep export` writes topics and tables to Parquet files, all as of one step. Next: reshard.py."""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import AlreadyExists, NoCommonType
from ..store.files import check_parent
from .output import Json, Store, existing, interruptible, print_json, print_rows, progress

if TYPE_CHECKING:
    from ..api.columns.parquet import Source


def export(
    store: Store,
    *,
    to: Annotated[Path, typer.Option(help="FILE.parquet, or a folder for NAME.parquet of each.")],
    topic: Annotated[list[str] | None, typer.Option(help="A topic; may be repeated.")] = None,
    table: Annotated[list[str] | None, typer.Option(help="A table; may be repeated.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Values as stored: JSON text, msgpack as bytes.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: Json = False,
) -> None:
    """Write topics and tables to Parquet files (zstd), all as of one step.

    A topic has the columns partition, offset, timestamp, key, value, headers;
    a table has key and value. Values of format json and msgpack become columns
    of their own type; dicts become structs. Either all files are complete or
    none is written. The folder is created, but not the folders above it. The
    store may be in use. Needs the extra arrow.

    Mode kafka has no step in common: each partition is as it was when it was read.

    JSON: step (null in modes kafka and pulsar), files (list of kind, name, file, rows, bytes).

    Example: planstep export shop.planstep --topic clicks --to clicks.parquet
    """
    from ..api.columns.parquet import Source, partial_of, write

    wanted = [("topic", name) for name in topic or ()] + [("table", name) for name in table or ()]
    files = _files(wanted, to)
    check_parent(to)
    present = [file for file in files if file.exists() and not force]
    if present:
        raise AlreadyExists(f"{present[0]} exists; --force replaces it")
    columns = ["kind", "name", "file", "rows", "bytes"]
    entries: list[dict[str, Any]] = []
    with (
        interruptible("nothing was written"),
        contextlib.ExitStack() as undo,
        existing(store) as db,
        db.context.open_view() as view,
    ):
        sources = [Source(view, kind, name, not raw) for kind, name in wanted]
        for source, file in zip(sources, files, strict=True):
            _make_folder(file.parent, undo)
            unfinished = partial_of(file)
            undo.callback(unfinished.unlink, missing_ok=True)
            with progress("rows", 1_000_000) as tell, _advised():
                rows = write(source, file, partial(_tell, tell, source))
            about = (source.kind, source.name, str(file), rows, unfinished.stat().st_size)
            entries.append(dict(zip(columns, about, strict=True)))
        step = view.step if db.context.runtime.hooks.has_places else None
        for file in files:
            os.replace(partial_of(file), file)
        undo.pop_all()
    if as_json:
        print_json({"step": step, "files": entries})
    else:
        when = "each partition as it was read" if step is None else f"as of step {step}"
        print_rows(when, columns, [list(f.values()) for f in entries])


def _files(wanted: list[tuple[str, str]], to: Path) -> list[Path]:
    """Chooses the file for each topic and table."""
    if not wanted:
        raise typer.BadParameter("name what to export with --topic or --table")
    if to.suffix == ".parquet" and not to.is_dir():
        if len(wanted) > 1:
            raise typer.BadParameter("several need a folder, not one file", param_hint="--to")
        return [to]
    names = [name for _, name in wanted]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice!r} would be written twice to one file; export it apart")
    return [to / f"{name}.parquet" for name in names]


def _make_folder(folder: Path, undo: contextlib.ExitStack) -> None:
    """Creates the folder if it does not exist; `undo` then removes it, if it is empty."""
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        undo.callback(_remove_empty, folder)


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another program has put files into it
        folder.rmdir()


@contextlib.contextmanager
def _advised() -> Iterator[None]:
    """Replaces the library's advice: this command exports whole tables and has no `value_type`."""
    try:
        yield
    except NoCommonType as error:
        what = str(error).rpartition("; ")[0]
        advice = "leave the table out"
        if not what.startswith("keys of"):
            advice = "--raw exports values as stored"
        raise NoCommonType(f"{what}; {advice}") from error


def _tell(
    tell: Callable[[str, int, int | None], None], source: "Source", phase: str, done: int
) -> None:
    word = {"types": "finding types", "write": "writing"}[phase]
    tell(f"{source.name}: {word}", done, source.rows)
