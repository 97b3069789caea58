"""`planstep tx …`, `verify` and `log dump` show transactions, damage and the log of a store. Next: stats.py."""

import contextlib
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..api.columns.batch import counted
from ..api.engine import Engine
from ..api.snapshot import SnapshotView
from ..errors import Corruption, PlanstepError
from ..host.describe import Nameless, appends
from ..runtime.catalog import Names
from ..runtime.identity import ByName
from ..runtime.open_stores import HOOKS, is_store
from ..runtime.open_transactions import OpenTransaction, tablet_name, undecided_in
from ..runtime.outcome import Outcome
from ..store.dump import dump
from ..store.files import Files
from ..store.meta import load_meta
from ..store.tables.header_check import DATA_FILE
from ..store.verify import verify as verify_store
from . import identities
from .command import StoreCommand
from .output import Json, Store, existing, print_json, print_result, print_rows
from .values import age, readable

tx = typer.Typer(help="List, explain and resolve transactions.", no_args_is_help=True)
log = typer.Typer(help="Look into the log.", no_args_is_help=True)
Transaction = Annotated[
    str, typer.Argument(metavar="TX", help="Its id, as `tx list` shows it; tx.id has it.")
]


def _fields(outcome: Outcome, names: Names) -> dict[str, Any]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(outcome.when_ms / 1000))
    return {
        "tx": outcome.tx,
        "state": outcome.state,
        "place": outcome.place,
        "when": when if outcome.when_ms else None,
        "participants": [tablet_name(names, tablet) for tablet in outcome.participants],
    }


def _by_name(store: Path) -> tuple[ByName, Path, int] | None:
    """Returns (lister, store, hosts) in a mode that knows transactions by their writers' names, else None."""
    meta = load_meta(store / "host-0", Files()) if is_store(store) else None
    if meta is None:
        existing(store).close()  # raises the error that says what is wrong
    hooks = None if meta is None else HOOKS.get(meta.mode)
    if meta is None or hooks is None or hooks.by_name is None:
        return None
    return hooks.by_name, store, meta.hosts


def _known(db: Engine, transaction: str) -> Outcome:
    """Returns how a transaction ended or stands. PlanstepError when the store knows nothing of it."""
    outcome = db.outcome(transaction)
    if outcome.state == "unknown" and all(tx.tx != outcome.tx for tx in db.open_transactions()):
        raise PlanstepError(
            f"no such transaction: {outcome.tx} never tried to commit, and the store has nothing of it"
        )
    return outcome


@tx.command("list", cls=StoreCommand)
def list_transactions(
    store: Store,
    limit: Annotated[int, typer.Option(min=1, help="Show at most N, the newest ones.")] = 20,
    only_open: Annotated[
        bool,
        typer.Option(
            "--open", help="List open transactions only: what each holds, and whom it delays."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the newest transactions that the coordinator remembers, or those still open.

    JSON: transactions (list of tx, state, place, when, age_seconds,
    participants). With --open: tx, state (staged, prepared, planned), place,
    age_seconds, participants, bytes, waits_for, delays, held (list of
    participant, state, records, bytes, keys, consumers, waits_for,
    votes_missing, delays).

    In mode kafka it lists transactional ids by name. --open lists those whose transaction is open or ending, and
    hanging transactions that no coordinator knows (name null). JSON: transactions (list of name, state,
    producer, epoch, age_seconds (of its open transaction), updated_seconds, timeout_seconds,
    participants). With --open also waiting (list of participant, first_offset, last_stable,
    records_behind, positions): readers stop at last_stable.

    Example: planstep tx list shop.planstep --open
    """
    by_name = _by_name(store)
    if by_name is not None:
        identities.print_list(*by_name, limit, only_open, as_json)
        return
    if only_open:
        _list_open(store, limit, as_json)
        return
    now = time.time()
    with existing(store) as db:
        outcomes = db.transactions(limit)
        names = db.context.runtime.names
    entries = [
        {
            **_fields(outcome, names),
            "age_seconds": round(max(0.0, now - outcome.when_ms / 1000), 3)
            if outcome.when_ms
            else None,
        }
        for outcome in outcomes
    ]
    if as_json:
        print_json({"transactions": entries})
    else:
        columns = ["tx", "state", "place", "when", "age", "participants"]
        rows = [
            [
                f["tx"],
                f["state"],
                None if f["place"] is None else str(tuple(f["place"])),
                f["when"],
                age(f["age_seconds"]),
                ", ".join(f["participants"]),
            ]
            for f in entries
        ]
        print_rows("transactions", columns, rows)


def _list_open(store: Path, limit: int, as_json: bool) -> None:
    transactions = undecided_in(store, time.time_ns() // 1_000_000)[:limit]
    if as_json:
        rows = []
        for tx in transactions:
            fields = tx._asdict()
            del fields["held"]
            fields |= {"bytes": tx.bytes, "waits_for": tx.waits_for, "delays": tx.delays}
            rows.append({**fields, "held": [held._asdict() for held in tx.held]})
        print_json({"transactions": rows})
        return
    columns = ["tx", "state", "age", "participants", "holds", "waits for", "delays"]
    cells = []
    for tx in transactions:
        missing = [f"vote of {v}" for held in tx.held for v in held.votes_missing]
        waits = ", ".join(dict.fromkeys([*tx.waits_for, *missing]))
        names = ", ".join(tx.participants)
        delays = ", ".join(tx.delays)
        cells.append([tx.tx, tx.state, age(tx.age_seconds), names, _holds(tx), waits, delays])
    print_rows("transactions under way", columns, cells)


def _holds(tx: OpenTransaction) -> str:
    records, keys = sum(h.records for h in tx.held), sum(h.keys for h in tx.held)
    words = [counted(records, "record")] if records else []
    words += [counted(keys, "row")] if keys else []
    words += [f"consumer {name}" for name in dict.fromkeys(c for h in tx.held for c in h.consumers)]
    return ", ".join([*words, readable(tx.bytes)])


@tx.command(cls=StoreCommand)
def explain(store: Store, transaction: Transaction, as_json: Json = False) -> None:
    """Show a transaction's way through proxy, coordinator and tablets, as far as it was recorded.

    JSON: tx, state, place, when, participants, messages (list of host, turn, to, message), syncs,
    not_recorded (list).

    In mode kafka TX is a transactional id. JSON: the fields of `tx list --open`, log (list of entry, state,
    producer, epoch, updated_ms, participants: the newest of its coordinator's log), not_recorded.

    Example: planstep tx explain shop.planstep 1-17
    """
    by_name = _by_name(store)
    if by_name is not None:
        identities.explain(*by_name, transaction, as_json)
        return
    with existing(store) as db:
        names = db.context.runtime.names
        fields = _fields(_known(db, transaction), names)
        messages = [
            {"host": host, "turn": turn, "to": tablet_name(names, tablet), "message": message}
            for host, turn, tablet, message in db.recorded(transaction)
        ]
    missing = _not_recorded(fields, messages)
    if as_json:
        syncs = len({(m["host"], m["turn"]) for m in messages})
        print_json({**fields, "messages": messages, "syncs": syncs, "not_recorded": missing})
    else:
        _print_way(fields, messages, missing)


def _not_recorded(fields: dict[str, Any], messages: list[dict[str, Any]]) -> list[str]:
    """Lists the parts of a transaction's way that were not recorded, and why."""
    missing = []
    if fields["state"] == "unknown":
        missing.append("this transaction never tried to commit: nothing of it was recorded")
    elif not messages:
        missing.append('messages, turns and syncs: open the store with trace="messages" for those')
    if fields["state"] in ("committed", "aborted", "planned") and not fields["participants"]:
        missing.append('participants: the store was open with trace="off"')
    return [*missing, "times of individual messages: only the step's plan has a timestamp"]


def _print_way(fields: dict[str, Any], messages: list[dict[str, Any]], missing: list[str]) -> None:
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
def resolve(store: Store, transaction: Transaction, as_json: Json = False) -> None:
    """Abort a transaction that was never planned; a planned one ends as its plan says.

    JSON: tx, state, place, when, participants.

    In mode kafka TX is a transactional id: its open transaction is aborted, and the producer that has the id is
    fenced. A transaction that is decided gets its markers. An id with no open transaction stays as it is.
    JSON: the fields of `tx explain` without log, and was (the state before).

    Example: planstep tx resolve shop.planstep 1-17
    """
    by_name = _by_name(store)
    if by_name is not None:
        identities.resolve(*by_name, transaction, as_json)
        return
    with existing(store, read_only=False) as db:
        _known(db, transaction)
        fields = _fields(db.resolve(transaction), db.context.runtime.names)
    print_result(fields, as_json, f"transaction {fields['tx']}: {fields['state']}")


def verify(store: Store, as_json: Json = False) -> None:
    """Recompute digests and checksums, and read every record. Exit 1 when anything is wrong.

    Run it while no process writes: changes of an owner may show as problems.
    In that case verify again once the store is closed.

    JSON: ok, records, problems (list of tablet, key, what).

    Example: planstep verify shop.planstep
    """
    problems: list[dict[str, str]] = []
    if not (store / "host-0").is_dir():
        existing(store).close()
    for host in sorted(store.glob("host-*")):
        problems += [
            {"tablet": p.tablet, "key": p.key, "what": f"{host.name}: {p.what}"}
            for p in verify_store(host)
        ]
    records = 0
    try:
        if any(p["key"] == DATA_FILE for p in problems):
            raise Corruption("its records were not read: the tables' pages are damaged")
        with existing(store) as db, db.context.open_view() as view:
            for name, topic in db.topics().items():
                for partition in range(topic.partitions):
                    records += _read_partition(view, name, partition, problems)
    except PlanstepError as error:
        problems.append({"tablet": "store", "key": "", "what": str(error)})
    if as_json:
        print_json({"ok": not problems, "records": records, "problems": problems})
    else:
        if problems:
            rows: list[list[Any]] = [list(problem.values()) for problem in problems]
            print_rows("problems", ["tablet", "key", "what"], rows)
        print(f"{counted(records, 'record')} read, {counted(len(problems), 'problem')}")
    if problems:
        raise typer.Exit(1)


def _read_partition(
    view: SnapshotView, topic: str, partition: int, problems: list[dict[str, str]]
) -> int:
    """Reads every record of a partition. Returns how many precede the first damaged one."""
    records, at = 0, view.bounds(topic)[partition][0]
    while True:
        try:
            batch = view.read(topic, at, partition, 10_000)
            len(batch.values)
        except Corruption as error:
            where = f"topic {topic}, partition {partition}"
            problems.append({"tablet": where, "key": f"offset {at}", "what": str(error)})
            return records
        if not len(batch):
            return records
        records += len(batch)
        at = batch.ends[partition]


@log.command("dump", cls=StoreCommand)
def dump_log(
    store: Store,
    host: Annotated[int, typer.Option(min=0, help="Which host's log.")] = 0,
    limit: Annotated[
        int, typer.Option(min=1, max=10**9, help="Show at most N records, the last ones.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Show the last records of a host's log: kind, turn, sizes, and what each appended.

    Each record holds one turn: batches at their offsets, steps and outcomes, entries of coordinators' logs,
    positions, and numbers of table rows.

    JSON: host, records (list of segment, offset, kind, turn, synced, payload_bytes, appends: list of
    texts, changes: list of the keys that were put or deleted).

    Example: planstep log dump shop.planstep --limit 5
    """
    folder: Path = store / f"host-{host}"
    if not folder.is_dir():
        existing(store).close()
        raise PlanstepError(f"{store} has no host {host}")
    names: Any = None
    meta = load_meta(folder, Files())
    mode = "" if meta is None else meta.mode
    with contextlib.suppress(PlanstepError), existing(store) as db:  # no names if damaged
        names = db.context.runtime.names
    records = list(deque(dump(folder, partial(appends, mode, names or Nameless())), limit))
    if as_json:
        print_json({"host": host, "records": records})
        return
    columns = ["segment", "offset", "kind", "turn", "synced", "payload_bytes", "appends"]
    rows = [[*(r[c] for c in columns[:-1]), "; ".join(r["appends"])] for r in records]
    print_rows("log", columns, rows)
