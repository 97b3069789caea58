"""`planstep table …` creates and drops tables, and reads and writes rows. Next: loading.py, inspect.py."""

import json
import os
from typing import Annotated, Any

import typer

from ..api.columns.batch import counted
from ..api.columns.codecs import check_format
from . import loading
from .command import StoreCommand
from .names import NewTable, TableName
from .output import (
    ExistOk,
    Json,
    Store,
    Yes,
    confirm,
    existing,
    print_json,
    print_result,
    print_rows,
    text_of,
)
from .values import parse, prefix

app = typer.Typer(
    help="Create, list and drop tables; get, put, delete, scan, count and load rows.",
    no_args_is_help=True,
)
Key = Annotated[str, typer.Argument(metavar="KEY", help='JSON (1, "a", ["a", 1]) or plain text.')]


@app.command(cls=StoreCommand)
def create(
    store: Store,
    table: NewTable,
    shards: Annotated[int | None, typer.Option(min=1, help="4 if not given.")] = None,
    format: Annotated[
        str | None, typer.Option(help="msgpack (if not given), json, utf8 or bytes.")
    ] = None,
    exist_ok: ExistOk = False,
    as_json: Json = False,
) -> None:
    """Create a table in an existing store; `planstep topic create` makes a store.

    JSON: table, shards, format.

    Example: planstep table create shop.planstep totals
    """
    with existing(store, read_only=False) as db:
        form = None if format is None else check_format(format)
        created = db.create_table(table, shards, form, exist_ok).describe()
    text = f"table {table}: {counted(created.shards, 'shard')}, format {created.format}"
    result = {"table": table, "shards": created.shards, "format": created.format}
    print_result(result, as_json, text)


@app.command("list", cls=StoreCommand)
def list_tables(store: Store, as_json: Json = False) -> None:
    """List tables with their number of rows.

    JSON: tables (list of name, shards, rows, format).

    Example: planstep table list shop.planstep
    """
    with existing(store) as db:
        db.context.runtime.schema.check_tables()
        with db.snapshot() as view:
            tables = [table.describe() for table in db.tables().values()]
            rows = [[t.name, t.shards, view.count(t.name), t.format] for t in tables]
    columns = ["name", "shards", "rows", "format"]
    if as_json:
        print_json({"tables": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_rows("tables", columns, rows)


@app.command(cls=StoreCommand)
def drop(store: Store, table: TableName, yes: Yes = False, as_json: Json = False) -> None:
    """Drop a table with all its rows. Asks first.

    JSON: table, rows (how many it had).

    Example: planstep table drop shop.planstep totals --yes
    """
    with existing(store) as db:
        rows = db.table(table).count()
    confirm(f"Drop table {table} with {counted(rows, 'row')}, for ever?", yes)
    with existing(store, read_only=False) as db:
        db.drop_table(table)
    text = f"table {table} dropped, with {counted(rows, 'row')}"
    print_result({"table": table, "rows": rows}, as_json, text)


@app.command(cls=StoreCommand)
def get(store: Store, table: TableName, key: Key, as_json: Json = False) -> None:
    """Show one row; exit 1 when there is none.

    JSON: table, key, found, value.

    Example: planstep table get shop.planstep totals u1
    """
    missing = object()
    with existing(store) as db:
        value: Any = db.table(table).get(parse(key), missing)
    hit = value is not missing
    if as_json:
        print_json({"table": table, "key": key, "found": hit, "value": value if hit else None})
    elif hit:
        print(text_of(value))
    if not hit:
        raise typer.Exit(1)


@app.command(cls=StoreCommand)
def put(
    store: Store,
    table: TableName,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON or plain text.")],
    as_json: Json = False,
) -> None:
    """Write one row; an existing one is replaced.

    JSON: table, key, place (step and n).

    Example: planstep table put shop.planstep totals u1 3
    """
    with existing(store, read_only=False) as db:
        form = db.table(table).format
        place = db.table(table).put(parse(key), _row(form, value))
    result = {"table": table, "key": key, "place": place}
    print_result(result, as_json, f"written at place {tuple(place)}")


def _row(form: str, text: str) -> Any:
    if form == "bytes":
        return os.fsencode(text)
    if form == "utf8":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@app.command(cls=StoreCommand)
def delete(store: Store, table: TableName, key: Key, as_json: Json = False) -> None:
    """Remove one row; a missing row is no error.

    JSON: table, key, found, place (step and n; null when there was none).

    Example: planstep table delete shop.planstep totals u1
    """
    row, missing = parse(key), object()

    with existing(store, read_only=False) as db, db.transaction() as tx:
        hit = tx.get(table, row, missing) is not missing
        if hit:
            tx.delete(table, row)
        place = tx.commit().place if hit else None
    text = "there was no such row" if place is None else f"deleted at place {tuple(place)}"
    print_result({"table": table, "key": key, "found": hit, "place": place}, as_json, text)


@app.command(cls=StoreCommand)
def scan(
    store: Store,
    table: TableName,
    *,
    prefix_: Annotated[
        str | None, typer.Option("--prefix", help="First elements of keys that are lists, as JSON.")
    ] = None,
    begin: Annotated[str | None, typer.Option("--from", help="From this key on.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Up to this key, without it.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10**9, help="At most so many rows.")] = 100,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the last key.")] = False,
    as_json: Json = False,
) -> None:
    """Show rows in the order of their keys. The store may be in use by another process.

    JSON: table, rows (list of key, value).

    Example: planstep table scan shop.planstep totals --from u1 --limit 10
    """
    first = None if begin is None else parse(begin)
    last = None if end is None else parse(end)
    with existing(store) as db:
        rows = db.table(table).scan(prefix(prefix_), first, last, limit, reverse)
    if as_json:
        print_json({"table": table, "rows": [{"key": k, "value": v} for k, v in rows]})
    else:
        print_rows(table, ["key", "value"], [[k, v] for k, v in rows])


@app.command(cls=StoreCommand)
def count(store: Store, table: TableName, as_json: Json = False) -> None:
    """Tell how many rows a table has.

    JSON: table, rows.

    Example: planstep table count shop.planstep totals
    """
    with existing(store) as db:
        rows = db.table(table).count()
    print_result({"table": table, "rows": rows}, as_json, str(rows))


app.command("load", cls=StoreCommand)(loading.load)
