"""`planstep tx …`, `stats`, `verify`, `log dump`: looking into a store. Next: reshard.py."""

import time
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import Corruption, PlanstepError
from ..outcome import Outcome
from ..proto.ids import tablet_text
from ..store.dump import dump
from ..store.pages import DATA_FILE
from ..store.verify import verify as verify_store
from .output import Json, Store, StoreCommand, existing, print_json, print_rows

tx = typer.Typer(help="List, explain and resolve transactions.", no_args_is_help=True)
log = typer.Typer(help="Look into the log.", no_args_is_help=True)


def _fields(outcome: Outcome) -> dict[str, Any]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(outcome.when_ms / 1000))
    return {
        "tx": outcome.tx,
        "state": outcome.state,
        "place": outcome.place,
        "when": when if outcome.when_ms else None,
        "participants": [tablet_text(tablet) for tablet in outcome.participants],
    }


@tx.command("list", cls=StoreCommand)
def list_transactions(
    store: Store,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
    as_json: Json = False,
) -> None:
    """List the newest transactions that the coordinator remembers.

    JSON: transactions (list of tx, state, place, when, participants).

    Example: planstep tx list shop.planstep --limit 5
    """
    with existing(store) as db:
        found = [_fields(outcome) for outcome in db.transactions(limit)]
    if as_json:
        print_json({"transactions": found})
    else:
        rows = [[f["tx"], f["state"], f["place"], f["when"], len(f["participants"])] for f in found]
        print_rows("transactions", ["tx", "state", "place", "when", "participants"], rows)


@tx.command(cls=StoreCommand)
def explain(store: Store, transaction: str, as_json: Json = False) -> None:
    """Tell a transaction's way through proxy, coordinator and tablets, as far as it was recorded.

    JSON: tx, state, place, when, participants, messages (list of host, turn, to, message), syncs,
    not_recorded (list).

    Example: planstep tx explain shop.planstep 1-17
    """
    with existing(store) as db:
        fields = _fields(db.outcome(transaction))
        messages = [
            {"host": host, "turn": turn, "to": tablet_text(tablet), "message": message}
            for host, turn, tablet, message in db.recorded(transaction)
        ]
    syncs = len({(m["host"], m["turn"]) for m in messages})
    missing = []
    if fields["state"] == "unknown":
        missing.append("this transaction never asked for a place: nothing of it was recorded")
    elif not messages:
        missing.append('messages, turns and syncs: open the store with trace="messages" for those')
    if fields["state"] in ("committed", "aborted", "planned") and not fields["participants"]:
        missing.append('participants: the store was open with trace="off"')
    missing.append("times of single messages: a turn has none, only the step's plan carries one")
    if as_json:
        print_json({**fields, "messages": messages, "syncs": syncs, "not_recorded": missing})
        return
    print(f"transaction {fields['tx']}: {fields['state']}")
    if fields["place"]:
        print(f"  place (step, n): {tuple(fields['place'])}, planned {fields['when']}")
    for participant in fields["participants"]:
        print(f"  participant: {participant}")
    last = None
    for m in messages:
        if (m["host"], m["turn"]) != last:
            last = (m["host"], m["turn"])
            print(f"  host {m['host']}, turn {m['turn']} (one append, one sync):")
        print(f"    {m['message']} -> {m['to']}")
    for line in missing:
        print(f"  not recorded: {line}")


@tx.command(cls=StoreCommand)
def resolve(store: Store, transaction: str, as_json: Json = False) -> None:
    """End a transaction that was never planned; one that is planned is left to its plan.

    JSON: tx, state, place, when, participants.

    Example: planstep tx resolve shop.planstep 1-17
    """
    with existing(store, read_only=False) as db:
        fields = _fields(db.resolve(transaction))
    if as_json:
        print_json(fields)
    else:
        print(f"transaction {fields['tx']}: {fields['state']}")


def stats(store: Store, as_json: Json = False) -> None:
    """Show what a store holds: step, topics, tables, sizes on disk.

    JSON: hosts, generation, step, topics (records by name), tables (rows by name), bytes_on_disk
    (log, tables).

    Example: planstep stats shop.planstep
    """
    with existing(store) as db, db.snapshot() as view:
        info = db.stats()
        topics = {t.name: t.describe().records for t in db.topics().values()}
        tables = {t.name: view.count(t.name) for t in db.tables().values()}
    sizes = {"log": 0, "tables": 0}
    for path in store.glob("host-*/*"):
        if path.is_file():
            sizes["log"] += path.stat().st_blocks * 512
    for path in store.glob("host-*/table/data.mdb"):
        sizes["tables"] += path.stat().st_blocks * 512
    result = {
        "hosts": info["hosts"],
        "generation": info["generation"],
        "step": info["step"],
        "topics": topics,
        "tables": tables,
        "bytes_on_disk": sizes,
    }
    if as_json:
        print_json(result)
    else:
        rows = [[k, v] for k, v in result.items() if not isinstance(v, dict)]
        rows += [[f"topic {k}", f"{v} records"] for k, v in topics.items()]
        rows += [[f"table {k}", f"{v} rows"] for k, v in tables.items()]
        rows += [[f"{k} on disk", f"{v} bytes"] for k, v in sizes.items()]
        print_rows(str(store), ["what", "value"], rows)


def verify(store: Store, as_json: Json = False) -> None:
    """Recompute digests and checksums, and read every record. Exit 1 when anything is wrong.

    The store must not be open elsewhere.

    JSON: ok, records, problems (list of tablet, key, what).

    Example: planstep verify shop.planstep
    """
    problems: list[dict[str, str]] = []
    if not (store / "host-0").is_dir():
        with existing(store):
            pass
    for host in sorted(store.glob("host-*")):
        problems += [
            {"tablet": p.tablet, "key": p.key, "what": f"{host.name}: {p.what}"}
            for p in verify_store(host)
        ]
    records = 0
    try:
        if any(p["key"] == DATA_FILE for p in problems):
            raise Corruption("its records were not read: the tables' pages are damaged")
        with existing(store) as db, db.snapshot() as view:
            for name, topic in db.topics().items():
                for partition in range(topic.partitions):
                    at = view.bounds(name)[partition][0]
                    while True:
                        try:
                            batch = view.read(name, at, partition, 10_000)
                            len(batch.values)
                        except Corruption as error:
                            where = f"topic {name}, partition {partition}"
                            problems.append(
                                {"tablet": where, "key": f"offset {at}", "what": str(error)}
                            )
                            break
                        if not len(batch):
                            break
                        records += len(batch)
                        at += len(batch)
    except PlanstepError as error:
        problems.append({"tablet": "store", "key": "", "what": str(error)})
    if as_json:
        print_json({"ok": not problems, "records": records, "problems": problems})
    else:
        rows = [[p["tablet"], p["key"], p["what"]] for p in problems]
        if rows:
            print_rows("problems", ["tablet", "key", "what"], rows)
        print(f"{records} records read, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


@log.command("dump", cls=StoreCommand)
def dump_log(
    store: Store,
    host: Annotated[int, typer.Option(min=0, help="Which host's log.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10**9, help="The last so many records.")] = 20,
    as_json: Json = False,
) -> None:
    """Show the last records of a host's log: kind, turn, sizes, keys changed.

    JSON: host, records (list of segment, offset, kind, turn, synced, payload_bytes, changes).

    Example: planstep log dump shop.planstep --limit 5
    """
    folder: Path = store / f"host-{host}"
    if not folder.is_dir():
        with existing(store):
            pass
        raise PlanstepError(f"{store} has no host {host}")
    records = list(deque(dump(folder), limit))
    if as_json:
        print_json({"host": host, "records": records})
        return
    columns = ["segment", "offset", "kind", "turn", "synced", "payload_bytes", "changes"]
    print_rows("log", columns, [[r[c] for c in columns] for r in records])
