"""`planstep table load` puts the rows of a file into a table, in transactions of bounded size.

    .jsonl ─ a line, a dict ──────────────┐
    .csv ─ read twice: types, then rows ──┼─▶ Table.load ─▶ put … commit ─▶ progress
    .parquet ─ record batches ────────────┘

The first reading of a CSV file guesses the columns' types from its beginning and checks all values against
them, before a row is written.

Next: inspect.py.
"""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from ..api import optional_packages
from ..api.columns.batch import counted
from ..errors import PlanstepError
from .names import TableName
from .output import Json, Store, existing, print_result, progress, say

_BLOCK_BYTES = 8 << 20


def load(
    store: Store,
    table: TableName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="FILE.csv, .jsonl or .parquet.")],
    *,
    key: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="The key; repeated: a list of these.")
    ],
    value: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The value. Without it: an object of all but the key."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of a CSV file to leave as text; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put the rows of a file, in transactions of bounded size.

    Existing rows are replaced, so an interrupted load may be repeated. CSV files begin with a line
    of column names; numbers and true/false are recognized. Dates, times and decimals become
    text. CSV and Parquet need the extra arrow.

    JSON: table, rows.

    Example: planstep table load shop.planstep users users.csv --key id
    """
    kind = file.suffix.lower()
    if kind not in _READERS:
        allowed = ", ".join(_READERS)
        raise typer.BadParameter(f"{file.name!r} is none of {allowed}", param_hint="FILE")
    if text and kind != ".csv":
        raise typer.BadParameter("is for CSV files", param_hint="--text")
    columns = [*key, *([] if value is None else [value])]
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done = rows
        tell("loading", rows, None)

    try:
        with existing(store, read_only=False) as db, progress("rows") as tell:
            handle = db.table(table)
            rows = _READERS[kind](file, columns, text or [])
            done = handle.load(rows, key[0] if len(key) == 1 else key, value, progress=advance)
    except KeyboardInterrupt:
        say(f"interrupted: {done} rows are there; the same command begins again")
        raise typer.Exit(130) from None
    result = {"table": table, "rows": done}
    print_result(result, as_json, f"{counted(done, 'row')} loaded into {table}")


def _lines(file: Path, columns: list[str], text: object) -> Iterator[dict[str, Any]]:
    file.open("rb").close()  # a missing file fails before anything is done
    return _objects(file, columns)


def _objects(file: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise PlanstepError(f"{file}, line {number}: no JSON: {error}") from None
            if not isinstance(row, dict):
                raise PlanstepError(f"{file}, line {number}: no JSON object")
            _check_columns(f"{file}, line {number}", columns, list(row))
            yield row


def _csv(file: Path, columns: list[str], text: list[str]) -> Any:
    pa = optional_packages.pyarrow()
    import pyarrow.csv as csv

    def reader(names: list[str]) -> Any:
        convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        return csv.open_csv(file, csv.ReadOptions(block_size=_BLOCK_BYTES), convert_options=convert)

    try:
        guessed = reader(text).schema
        _check_columns(str(file), [*columns, *text], guessed.names)
        text = [*text, *(field.name for field in guessed if _is_worded(field.type))]
        for _ in reader(text):
            pass
    except pa.ArrowInvalid as error:
        hint = ", or leave a column of mixed values as text with --text"
        raise PlanstepError(
            f"{file}: {error}; nothing was loaded: mend the file"
            + (hint if "conversion" in str(error) else "")
        ) from None
    return reader(text)


def _parquet(file: Path, columns: list[str], text: object) -> Any:
    pa = optional_packages.pyarrow()
    import pyarrow.parquet as parquet

    try:
        opened = parquet.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise PlanstepError(f"{file}: {error}") from None
    _check_columns(str(file), columns, opened.schema_arrow.names)
    return map(_in_words, opened.iter_batches())


def _is_worded(kind: Any) -> bool:
    """Returns whether JSON and msgpack lack the type, so that its values become text."""
    types = optional_packages.pyarrow().types
    return bool(types.is_temporal(kind) or types.is_decimal(kind))


def _in_words(batch: Any) -> Any:
    pa = optional_packages.pyarrow()
    fields = [f.with_type(pa.string()) if _is_worded(f.type) else f for f in batch.schema]
    return batch.cast(pa.schema(fields))


def _check_columns(where: str, wanted: list[str], names: list[str]) -> None:
    for name in wanted:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names)}"
            raise PlanstepError(f"{where}: no column {name!r}; {hint}")


_READERS = {".csv": _csv, ".jsonl": _lines, ".ndjson": _lines, ".parquet": _parquet}
