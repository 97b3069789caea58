"""`planstep table …`. Next: inspect.py."""

import json
from typing import Annotated, Any

import typer

import planstep

from .output import Json, Store, existing, print_json, print_rows

app = typer.Typer(help="Create and list tables; get, put and scan rows.", no_args_is_help=True)


def parse(text: str) -> Any:
    """JSON where it is JSON, else the text itself; lists become tuples, for keys."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


@app.command()
def create(
    store: Store,
    name: str,
    shards: Annotated[int, typer.Option(min=1)] = 4,
    format: Annotated[str, typer.Option(help="msgpack, json, utf8 or bytes.")] = "msgpack",
    as_json: Json = False,
) -> None:
    """Create a table, and the store if there is none."""
    with planstep.open(store) as db:
        db.create_table(name, shards=shards, format=format)
    if as_json:
        print_json({"table": name, "shards": shards, "format": format})
    else:
        print(f"table {name}: {shards} shards, format {format}")


@app.command("list")
def list_tables(store: Store, as_json: Json = False) -> None:
    """List tables with their number of rows."""
    with existing(store) as db, db.snapshot() as view:
        rows = [[t.name, t.describe().shards, view.count(t.name)] for t in db.tables().values()]
    if as_json:
        found = [dict(zip(("name", "shards", "rows"), row, strict=True)) for row in rows]
        print_json({"tables": found})
    else:
        print_rows("tables", ["name", "shards", "rows"], rows)


@app.command()
def get(store: Store, name: str, key: str, as_json: Json = False) -> None:
    """Show one row. KEY is JSON (1, "a", ["a", 1]) or plain text; exit 1 when there is none.

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


@app.command()
def put(store: Store, name: str, key: str, value: str, as_json: Json = False) -> None:
    """Write one row. KEY and VALUE are JSON, or plain text."""
    with existing(store, read_only=False) as db:
        row: Any = json.loads(value) if _is_json(value) else value
        if db.table(name).format == "bytes":
            row = value.encode()
        place = db.table(name).put(parse(key), row)
    if as_json:
        print_json({"table": name, "key": key, "place": place})
    else:
        print(f"written at place {place}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@app.command()
def scan(
    store: Store,
    name: str,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = 100,
    prefix: Annotated[str | None, typer.Option(help='A tuple\'s first elements: ["u"]')] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From the last key.")] = False,
    as_json: Json = False,
) -> None:
    """Show rows in the order of their keys."""
    start = None if prefix is None else parse(prefix)
    if start is not None and not isinstance(start, tuple):
        start = (start,)
    with existing(store) as db:
        rows = db.table(name).scan(prefix=start, limit=limit, reverse=reverse)
    if as_json:
        print_json({"table": name, "rows": [{"key": k, "value": v} for k, v in rows]})
    else:
        print_rows(name, ["key", "value"], [[k, v] for k, v in rows])
