"""`planstep table …`. Next: inspect.py."""

import json
import os
from typing import Annotated, Any

import typer

from .output import Json, Store, StoreCommand, existing, print_json, print_rows

app = typer.Typer(help="Create and list tables; get, put and scan rows.", no_args_is_help=True)


def parse(text: str) -> Any:
    """JSON where it is JSON, else the text itself; lists become tuples, for keys."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@app.command(cls=StoreCommand)
def create(
    store: Store,
    name: str,
    shards: Annotated[int, typer.Option(min=1)] = 4,
    format: Annotated[str, typer.Option(help="msgpack, json, utf8 or bytes.")] = "msgpack",
    as_json: Json = False,
) -> None:
    """Create a table in a store that is there; `planstep topic create` makes one.

    JSON: table, shards, format.

    Example: planstep table create shop.planstep totals
    """
    with existing(store, read_only=False) as db:
        db.create_table(name, shards=shards, format=format)
    if as_json:
        print_json({"table": name, "shards": shards, "format": format})
    else:
        print(f"table {name}: {shards} shards, format {format}")


@app.command("list", cls=StoreCommand)
def list_tables(store: Store, as_json: Json = False) -> None:
    """List tables with their number of rows.

    JSON: tables (list of name, shards, rows).

    Example: planstep table list shop.planstep
    """
    with existing(store) as db, db.snapshot() as view:
        rows = [[t.name, t.describe().shards, view.count(t.name)] for t in db.tables().values()]
    if as_json:
        found = [dict(zip(("name", "shards", "rows"), row, strict=True)) for row in rows]
        print_json({"tables": found})
    else:
        print_rows("tables", ["name", "shards", "rows"], rows)


@app.command(cls=StoreCommand)
def get(store: Store, name: str, key: str, as_json: Json = False) -> None:
    """Show one row. KEY is JSON (1, "a", ["a", 1]) or plain text; exit 1 when there is none.

    JSON: table, key, found, value.

    Example: planstep table get shop.planstep totals u1
    """
    missing = object()
    with existing(store) as db:
        value: Any = db.table(name).get(parse(key), missing)
    found = value is not missing
    if as_json:
        print_json({"table": name, "key": key, "found": found, "value": value if found else None})
    elif found:
        print(value)
    if not found:
        raise typer.Exit(1)


@app.command(cls=StoreCommand)
def put(store: Store, name: str, key: str, value: str, as_json: Json = False) -> None:
    """Write one row. KEY and VALUE are JSON, or plain text.

    JSON: table, key, place (step and n).

    Example: planstep table put shop.planstep totals u1 3
    """
    with existing(store, read_only=False) as db:
        form = db.table(name).format
        row: Any = json.loads(value) if form not in ("bytes", "utf8") and _is_json(value) else value
        if form == "bytes":
            row = os.fsencode(value)
        place = db.table(name).put(parse(key), row)
    if as_json:
        print_json({"table": name, "key": key, "place": place})
    else:
        print(f"written at place {place}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@app.command(cls=StoreCommand)
def scan(
    store: Store,
    name: str,
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 100,
    prefix: Annotated[str | None, typer.Option(help='A tuple\'s first elements: ["u"]')] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the last key.")] = False,
    as_json: Json = False,
) -> None:
    """Show rows in the order of their keys.

    JSON: table, rows (list of key, value).

    Example: planstep table scan shop.planstep totals --limit 10
    """
    start = None if prefix is None else parse(prefix)
    if start is not None and not isinstance(start, tuple):
        start = (start,)
    with existing(store) as db:
        rows = db.table(name).scan(prefix=start, limit=limit, reverse=reverse)
    if as_json:
        print_json({"table": name, "rows": [{"key": k, "value": v} for k, v in rows]})
    else:
        print_rows(name, ["key", "value"], [[k, v] for k, v in rows])
