"""`planstep topic …`. Next: tables.py."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import planstep

from ..api.formats import check_format
from ..errors import PlanstepError
from ..proto.keys import check_name
from .output import Json, Store, StoreCommand, existing, print_json, print_rows

app = typer.Typer(help="Create, list, describe, write and read topics.", no_args_is_help=True)


@app.command(cls=StoreCommand)
def create(
    store: Store,
    name: str,
    partitions: Annotated[int, typer.Option(min=1)] = 1,
    format: Annotated[str, typer.Option(help="bytes, utf8, json or msgpack.")] = "bytes",
    hosts: Annotated[int | None, typer.Option(min=1, help="Hosts of a new store.")] = None,
    as_json: Json = False,
) -> None:
    """Create a topic, and the store if there is none.

    JSON: topic, partitions, format.

    Example: planstep topic create shop.planstep clicks --partitions 16
    """
    check_name(name)  # before there is a store
    check_format(format)
    with planstep.open(store, hosts=hosts) as db:
        db.create_topic(name, partitions=partitions, format=format)
    if as_json:
        print_json({"topic": name, "partitions": partitions, "format": format})
    else:
        print(f"topic {name}: {partitions} partitions, format {format}")


@app.command("list", cls=StoreCommand)
def list_topics(store: Store, as_json: Json = False) -> None:
    """List topics with their sizes.

    JSON: topics (list of name, partitions, records, format).

    Example: planstep topic list shop.planstep
    """
    with existing(store) as db:
        found = [topic.describe() for topic in db.topics().values()]
    if as_json:
        rows = [
            {
                "name": t.name,
                "partitions": len(t.partitions),
                "records": t.records,
                "format": t.format,
            }
            for t in found
        ]
        print_json({"topics": rows})
    else:
        cells = [[t.name, len(t.partitions), t.records, t.format] for t in found]
        print_rows("topics", ["name", "partitions", "records", "format"], cells)


@app.command(cls=StoreCommand)
def describe(store: Store, name: str, as_json: Json = False) -> None:
    """Show each partition's log start and log end.

    JSON: name, format, partitions (list of partition, start, end).

    Example: planstep topic describe shop.planstep clicks
    """
    with existing(store) as db:
        topic = db.topic(name).describe()
    if as_json:
        parts = [{"partition": p, "start": start, "end": end} for p, start, end in topic.partitions]
        print_json({"name": name, "format": topic.format, "partitions": parts})
    else:
        rows = [list(bounds) for bounds in topic.partitions]
        print_rows(name, ["partition", "start", "end"], rows)


@app.command(cls=StoreCommand)
def write(
    store: Store,
    name: str,
    values: Annotated[
        list[str] | None, typer.Argument(help="Values; lines of stdin if none.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="One key for all.")] = None,
    file: Annotated[Path | None, typer.Option(help="One record per line of a file.")] = None,
    as_json: Json = False,
) -> None:
    """Write records, all in one transaction.

    JSON: topic, records (how many), place (step and n).

    Example: printf 'a\\nb\\n' | planstep topic write shop.planstep clicks --key u1
    """
    if file is not None:
        lines = file.read_bytes().splitlines()
    elif values:
        lines = [os.fsencode(value) for value in values]
    else:
        if sys.stdin is None:
            raise PlanstepError("nothing to write: no values are given, and stdin is closed")
        lines = [line.rstrip(b"\n") for line in sys.stdin.buffer]
    with existing(store, read_only=False) as db:
        form = db.topic(name).format
        encoded = [_value(form, line, n) for n, line in enumerate(lines, 1)]
        with db.transaction() as tx:
            tx.write_batch(name, encoded, keys=None if key is None else [key] * len(encoded))
        place = tx.commit.place
    if as_json:
        print_json({"topic": name, "records": len(encoded), "place": place})
    else:
        print(f"{len(encoded)} records written at place {place}")


def _value(form: str, line: bytes, number: int) -> object:
    """A line as the topic's format wants it: bytes, text, or what the JSON in it says."""
    if form == "bytes":
        return line
    try:
        text = line.decode()
        return text if form == "utf8" else json.loads(text)
    except (ValueError, RecursionError) as error:
        wanted = "UTF-8" if form == "utf8" else "JSON"
        raise PlanstepError(
            f"line {number} is no {wanted}, and the topic's format is {form}: {error}; nothing was "
            "written"
        ) from None


@app.command(cls=StoreCommand)
def read(
    store: Store,
    name: str,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    start: Annotated[int, typer.Option(min=0, help="From this offset of the partition.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="At most so many records.")] = 100,
    as_json: Json = False,
) -> None:
    """Show records; nothing is consumed.

    JSON: topic, records (list of partition, offset, key, value).

    Example: planstep topic read shop.planstep clicks --partition 3 --start 100
    """
    with existing(store) as db:
        batch = db.topic(name).read(start, partition, max_records=limit)
    if as_json:
        rows = [
            {"partition": r.partition, "offset": r.offset, "key": r.key, "value": r.value}
            for r in batch
        ]
        print_json({"topic": name, "records": rows})
    else:
        cells = [[r.partition, r.offset, r.key, r.value] for r in batch]
        print_rows(name, ["partition", "offset", "key", "value"], cells)
