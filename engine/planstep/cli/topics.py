"""`planstep topic …` creates, lists, changes, trims and drops topics. Next: reading.py, writing.py, redrive.py."""

from typing import Annotated, Any, cast

import typer

import planstep

from ..api.columns.batch import counted
from ..api.columns.codecs import check_format
from ..api.open_engine import Mode
from ..api.topics.description import UNCHANGED, TopicDescription, retention_options
from ..proto.keys import check_name
from . import reading, redrive, writing
from .command import StoreCommand
from .names import NewTopic, TopicName
from .output import (
    DryRun,
    ExistOk,
    Json,
    Store,
    Yes,
    confirm,
    existing,
    print_json,
    print_result,
    print_rows,
)
from .reading import starts_of
from .values import duration, place, shown_duration, shown_size, size

app = typer.Typer(
    help="Create, list, describe, alter, trim, drop, write, read and redrive topics.",
    no_args_is_help=True,
)

Retention = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Records older than this go: 7d, 12h, 30m; none: they stay."),
]
RetentionBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="A partition's oldest go beyond this: 10GB, 512MiB; none: they stay."
    ),
]


def _settings(topic: TopicDescription) -> dict[str, Any]:
    return {
        "format": topic.format,
        "retention_seconds": topic.retention,
        "retention_bytes": topic.retention_bytes,
    }


_BUFFER = ["partition", "end", "max_read", "held_by", "records_behind", "ongoing", "aborted"]
_BUFFER += ["snapshots", "snapshot_bytes"]


def _buffer_fields(one: "planstep.BufferStats") -> dict[str, Any]:
    return {**one._asdict(), "held_by": None if one.held_by is None else str(one.held_by)}


def _print_topic(topic: TopicDescription, as_json: bool) -> None:
    partitions = len(topic.partitions)
    text = f"topic {topic.name}: {counted(partitions, 'partition')}, format {topic.format}"
    result = {"topic": topic.name, "partitions": partitions, **_settings(topic)}
    print_result(result, as_json, f"{text}, retention {_retention(topic)}")


def _retention(topic: TopicDescription) -> str:
    if topic.retention is None and topic.retention_bytes is None:
        return "none"
    age = "no age limit" if topic.retention is None else shown_duration(topic.retention)
    if topic.retention_bytes is None:
        return f"{age}, no size limit"
    return f"{age}, {shown_size(topic.retention_bytes)} a partition"


@app.command(cls=StoreCommand)
def create(
    store: Store,
    topic: NewTopic,
    *,
    partitions: Annotated[int | None, typer.Option(min=1, help="1 if not given.")] = None,
    format: Annotated[
        str | None, typer.Option(help="bytes (if not given), utf8, json or msgpack.")
    ] = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    hosts: Annotated[int | None, typer.Option(min=1, help="Hosts of a new store.")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="Commit protocol of a new store: deterministic (if not given), kafka or pulsar, which have no "
            "tables."
        ),
    ] = None,
    exist_ok: ExistOk = False,
    as_json: Json = False,
) -> None:
    """Create a topic, and the store if it does not exist.

    JSON: topic, partitions, format, retention_seconds, retention_bytes.

    Examples:

        planstep topic create shop.planstep clicks --partitions 16 --retention 7d

        planstep topic create style.planstep clicks --mode kafka
    """
    check_name(topic)  # all checks that can run before a store is created
    form = None if format is None else check_format(format)
    seconds = None if retention is None else duration(retention, "--retention")
    number = None if retention_bytes is None else size(retention_bytes, "--retention-bytes")
    retention_options((), seconds, number)
    with planstep.open(store, hosts=hosts, mode=cast(Mode | None, mode)) as db:  # refuses others
        created = db.create_topic(topic, partitions, form, exist_ok, seconds, number).describe()
    _print_topic(created, as_json)


@app.command("list", cls=StoreCommand)
def list_topics(store: Store, as_json: Json = False) -> None:
    """List topics with their sizes; in modes kafka and pulsar markers and aborted records count as records.

    JSON: topics (list of name, partitions, records, format, retention_seconds, retention_bytes).

    Example: planstep topic list shop.planstep
    """
    with existing(store) as db:
        topics = [topic.describe() for topic in db.topics().values()]
    columns = ["name", "partitions", "records", "format"]
    rows = [[t.name, len(t.partitions), t.records, t.format] for t in topics]
    if as_json:
        settings = map(_settings, topics)
        each = [dict(zip(columns, r, strict=True)) | s for r, s in zip(rows, settings, strict=True)]
        print_json({"topics": each})
    else:
        print_rows("topics", columns, rows)


@app.command(cls=StoreCommand)
def describe(store: Store, topic: TopicName, as_json: Json = False) -> None:
    """Show each partition's log start and log end; in mode kafka end is the last stable offset.

    `planstep topic read --raw` shows both the last stable offset and the log end.

    In mode pulsar end is the max read position. Each partition's transaction buffer is shown too: which transaction
    holds readers up, and the aborted ones.

    JSON: topic, format, retention_seconds, retention_bytes, partitions (list of partition, start,
    end); in mode pulsar also buffers (list of partition, state, start, end, max_read, held_by, records_behind,
    ongoing, aborted, snapshots, snapshot_max_read, snapshot_bytes, snapshot_segments, taken_seconds_ago,
    low_water_marks by coordinator).

    Example: planstep topic describe shop.planstep clicks
    """
    with existing(store) as db:
        description = db.topic(topic).describe()
        buffers = db.buffer_stats(topic) if db.context.runtime.hooks.by_txn_id else None
    if as_json:
        parts = [bounds._asdict() for bounds in description.partitions]
        own = {} if buffers is None else {"buffers": [_buffer_fields(one) for one in buffers]}
        print_json({"topic": topic, **_settings(description), "partitions": parts, **own})
    else:
        title = f"{topic}: format {description.format}, retention {_retention(description)}"
        print_rows(title, ["partition", "start", "end"], [list(b) for b in description.partitions])
        if buffers is not None:
            each = map(_buffer_fields, buffers)
            print_rows("buffers", _BUFFER, [[one[name] for name in _BUFFER] for one in each])


@app.command(cls=StoreCommand)
def alter(
    store: Store,
    topic: TopicName,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    as_json: Json = False,
) -> None:
    """Change how long records stay; a setting that is not given stays as it is.

    Trimming begins at once, in the background, while a process has the store open.

    JSON: topic, partitions, format, retention_seconds, retention_bytes.

    Example: planstep topic alter shop.planstep clicks --retention none --retention-bytes 10GB
    """
    if retention is None and retention_bytes is None:
        raise typer.BadParameter("say what to change", param_hint="--retention, --retention-bytes")
    seconds = UNCHANGED if retention is None else duration(retention, "--retention")
    number = UNCHANGED if retention_bytes is None else size(retention_bytes, "--retention-bytes")
    with existing(store, read_only=False) as db:
        handle = db.topic(topic)
        handle.alter(seconds, number)
        described = handle.describe()
    _print_topic(described, as_json)


@app.command(cls=StoreCommand)
def trim(
    store: Store,
    topic: TopicName,
    before: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="Records before this go: latest (all), an offset, or a time (of this machine's zone "
            "if it has none).",
        ),
    ],
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove the oldest records, consumed or not, and print the old and new log starts.

    JSON: topic, dry_run, removed, partitions (list of partition, from, to).

    Example: planstep topic trim shop.planstep clicks --before 2026-11-01 --dry-run
    """
    start = place(before, "--before")
    with existing(store, read_only=dry_run) as db:
        handle = db.topic(topic)
        with db.context.open_view() as view:
            offsets = starts_of(view, topic, start, partition)
            bounds = view.bounds(topic)
        if not dry_run:
            handle.trim(offsets)
    moves = [{"partition": p, "from": bounds[p][0], "to": to} for p, to in offsets.items()]
    removed = sum(max(0, to - bounds[p][0]) for p, to in offsets.items())
    if as_json:
        print_json({"topic": topic, "dry_run": dry_run, "removed": removed, "partitions": moves})
    else:
        title = f"{topic}: {counted(removed, 'record')} " + ("would go" if dry_run else "removed")
        print_rows(title, ["partition", "from", "to"], [list(move.values()) for move in moves])


@app.command(cls=StoreCommand)
def drop(store: Store, topic: TopicName, yes: Yes = False, as_json: Json = False) -> None:
    """Drop a topic with all its records, consumers and positions. Asks first.

    JSON: topic, records (how many it had).

    Example: planstep topic drop shop.planstep clicks --yes
    """
    with existing(store) as db:
        records = db.topic(topic).describe().records
        consumers = len(db.topic(topic).consumers())
    held = f"{counted(records, 'record')} and {counted(consumers, 'consumer')}"
    confirm(f"Drop topic {topic} with {held}, for ever?", yes)
    with existing(store, read_only=False) as db:
        db.drop_topic(topic)
    result = {"topic": topic, "records": records}
    print_result(result, as_json, f"topic {topic} dropped, with {held}")


app.command("write", cls=StoreCommand)(writing.write)
app.command("read", cls=StoreCommand)(reading.read)
app.command("redrive", cls=StoreCommand)(redrive.redrive)
