"""`planstep consumer …` lists, creates, moves and drops the consumers of a topic. Next: tables.py."""

from typing import Annotated, Any, cast

import typer

import planstep

from ..api.columns.batch import counted
from ..api.topics.description import Kind
from .command import StoreCommand
from .names import ConsumerName, MaybeConsumer, NewConsumer, TopicName, consumer_of
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
from .values import place

app = typer.Typer(help="Create, list, describe, seek and drop consumers.", no_args_is_help=True)
_PLACE = "earliest, latest, an offset, or a time (of this machine's zone if it has none)."


def _summary(db: "planstep.Engine", consumer: "planstep.ConsumerDescription") -> dict[str, Any]:
    return {
        "consumer": consumer.name,
        "kind": consumer.kind,
        "lag": consumer.lag,
        "missed": consumer.missed,
        **db.context.runtime.views.group_fields(consumer.name),
    }


def _parts(
    db: "planstep.Engine", topic: "planstep.Topic", consumer: "planstep.ConsumerDescription"
) -> list[dict[str, Any]]:
    views, tablets = db.context.runtime.views, db.context.topic(topic.name).partitions
    return [
        {**part._asdict(), **views.position_fields(tablet, consumer.name)}
        for part, tablet in zip(consumer.partitions, tablets, strict=True)
    ]


def _pending_text(pending: dict[str, Any]) -> str:
    if "producer" in pending:
        return f"{pending['position']} (producer {pending['producer']})"
    begin, end = pending["begin"], pending["end"]
    which = f"up to {end}" if pending["cumulative"] else f"[{begin}, {end})"
    return f"{which} in {pending['txn_id']}"


@app.command("list", cls=StoreCommand)
def list_consumers(store: Store, topic: TopicName, as_json: Json = False) -> None:
    """List a topic's consumers, whether created or made by consuming.

    lag counts records that are not consumed yet, missed records that were trimmed before they were consumed.

    JSON: topic, consumers (list of consumer, kind, lag, missed; in mode kafka also the group's generation
    and members).

    Example: planstep consumer list shop.planstep clicks
    """
    with existing(store) as db:
        rows = [_summary(db, one) for one in db.topic(topic).consumers().values()]
    if as_json:
        print_json({"topic": topic, "consumers": rows})
    else:
        columns = list(rows[0] if rows else ("consumer", "kind", "lag", "missed"))
        for one in rows:
            one["members"] = ", ".join(one.get("members", ()))
        print_rows(f"consumers of {topic}", columns, [[one[c] for c in columns] for one in rows])


@app.command(cls=StoreCommand)
def describe(store: Store, topic: TopicName, name: ConsumerName, as_json: Json = False) -> None:
    """Show where a consumer is in each partition.

    position is the offset where it goes on. In mode kafka it may be greater than committed, since it skips markers
    and aborted records. pending lists positions whose transaction has not ended, with its producer or id.

    JSON: topic, consumer, kind, lag, missed, exclusive, partitions (list of partition, position, end, lag,
    missed); in mode kafka also generation, members, and for each partition committed (null: none) and
    pending (list of producer, position). In mode pulsar pending lists acknowledgements of open transactions: begin,
    end, txn_id, cumulative.

    Example: planstep consumer describe shop.planstep clicks resharder
    """
    with existing(store) as db:
        consumer = consumer_of(db.topic(topic), name)
        summary, parts = _summary(db, consumer), _parts(db, db.topic(topic), consumer)
    if as_json:
        fields = {"exclusive": consumer.exclusive, "partitions": parts}
        print_json({"topic": topic, **summary, **fields})
        return
    kind = f"{consumer.kind}, exclusive" if consumer.exclusive else consumer.kind
    title = f"consumer {name} of {topic} ({kind})"
    if "members" in summary:
        title += f", generation {summary['generation']}, members: "
        title += ", ".join(summary["members"]) or "none"
    for part in parts:
        if "pending" in part:
            part["pending"] = ", ".join(map(_pending_text, part["pending"]))
    print_rows(title, list(parts[0]), [list(part.values()) for part in parts])


@app.command(cls=StoreCommand)
def lag(store: Store, topic: TopicName, name: MaybeConsumer = None, as_json: Json = False) -> None:
    """Tell how many records a consumer, or each consumer, has not consumed yet.

    JSON: topic, lag (of all together), consumers (list of consumer, lag).

    Example: planstep consumer lag shop.planstep clicks resharder
    """
    with existing(store) as db:
        handle = db.topic(topic)
        consumers = [consumer_of(handle, name)] if name else list(handle.consumers().values())
    rows = [[one.name, one.lag] for one in consumers]
    if as_json:
        each = [{"consumer": one, "lag": behind} for one, behind in rows]
        print_json({"topic": topic, "lag": sum(one.lag for one in consumers), "consumers": each})
    elif name:
        print(consumers[0].lag)
    else:
        print_rows(f"consumers of {topic}", ["consumer", "lag"], rows)


@app.command(cls=StoreCommand)
def create(
    store: Store,
    topic: TopicName,
    name: NewConsumer,
    *,
    kind: Annotated[
        str,
        typer.Option(
            help="cumulative: what is consumed follows the position; individual: any records, in any "
            "order."
        ),
    ] = "cumulative",
    begin: Annotated[
        str, typer.Option("--start", "--from", metavar="PLACE", help=f"Where it begins: {_PLACE}")
    ] = "earliest",
    exist_ok: ExistOk = False,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="Mode pulsar: it has one reader at a time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a consumer; its kind cannot be changed.

    A cumulative consumer that begins at the oldest record needs no create: its first commit creates it.

    JSON: topic, consumer, kind, partitions (list of partition, position).

    Example: planstep consumer create shop.planstep clicks mailer --kind individual --start latest
    """
    start = place(begin, "--start")
    with existing(store, read_only=False) as db:
        handle = db.topic(topic)
        with db.context.open_view() as view:
            offsets = starts_of(view, topic, start, None)
        # It refuses other kinds.
        handle.create_consumer(name, cast(Kind, kind), offsets, exist_ok, exclusive)
        positions = handle.position(name)
    parts = [{"partition": p, "position": offset} for p, offset in positions.items()]
    result = {"topic": topic, "consumer": name, "kind": kind, "partitions": parts}
    print_result(result, as_json, f"consumer {name} of {topic}: {kind}, begins at {begin}")


@app.command(cls=StoreCommand)
def seek(
    store: Store,
    topic: TopicName,
    name: ConsumerName,
    *,
    to: Annotated[str, typer.Option(metavar="PLACE", help=f"Where it goes on: {_PLACE}")],
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move a consumer back or forth, and print its old and new positions.

    An individual consumer reads all records from the new position on again, also those it has consumed.

    JSON: topic, consumer, dry_run, partitions (list of partition, from, to).

    Example: planstep consumer seek shop.planstep clicks resharder --to 2026-11-21T08:00 --dry-run
    """
    start = place(to, "--to")
    with existing(store, read_only=dry_run) as db:
        handle = db.topic(topic)
        before = {part.partition: part.position for part in consumer_of(handle, name).partitions}
        with db.context.open_view() as view:
            offsets = starts_of(view, topic, start, partition)
        if not dry_run:
            handle.seek(name, offsets)
    moves = [{"partition": p, "from": before[p], "to": offset} for p, offset in offsets.items()]
    if as_json:
        print_json({"topic": topic, "consumer": name, "dry_run": dry_run, "partitions": moves})
    else:
        title = f"consumer {name} of {topic}" + (", not moved" if dry_run else "")
        print_rows(title, ["partition", "from", "to"], [list(move.values()) for move in moves])


@app.command(cls=StoreCommand)
def drop(
    store: Store, topic: TopicName, name: ConsumerName, yes: Yes = False, as_json: Json = False
) -> None:
    """Forget a consumer and its positions. Asks first.

    JSON: topic, consumer, lag (when it was dropped).

    Example: planstep consumer drop shop.planstep clicks resharder --yes
    """
    with existing(store) as db:
        behind = consumer_of(db.topic(topic), name).lag
    what = f"consumer {name} of topic {topic}, {counted(behind, 'record')} behind"
    confirm(f"Forget {what}, for ever?", yes)
    with existing(store, read_only=False) as db:
        db.topic(topic).drop_consumer(name)
    result = {"topic": topic, "consumer": name, "lag": behind}
    print_result(result, as_json, f"consumer {name} of {topic} dropped")
