"""`planstep tx …` and `verify` show transactions and damage of a store. Next: logs.py."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..api.columns.batch import counted
from ..api.engine import Engine
from ..api.snapshot import SnapshotView
from ..errors import Corruption, PlanstepError
from ..runtime.catalog import Names
from ..runtime.identity import ByName
from ..runtime.mode_hooks import ModeHooks
from ..runtime.open_stores import HOOKS
from ..runtime.open_transactions import OpenTransaction, tablet_name, undecided_in
from ..runtime.outcome import Outcome
from ..runtime.store_path import is_store
from ..store.files import Files
from ..store.meta import load_meta
from ..store.tables.header_check import DATA_FILE
from ..store.verify import verify as verify_store
from . import identities, live_transactions
from .command import StoreCommand
from .output import Json, Store, existing, print_json, print_result, print_rows
from .values import age, readable

tx = typer.Typer(help="List, explain and resolve transactions.", no_args_is_help=True)
Transaction = Annotated[
    str, typer.Argument(metavar="TX", help="Its id, as `tx list` shows it; tx.id has it.")
]


_OF_OTHER_MODES = "coordinator", "timeout_seconds", "waiting"


def _fields(outcome: Outcome, names: Names) -> dict[str, Any]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(outcome.when_ms / 1000))
    return {
        "tx": outcome.tx,
        "state": outcome.state,
        "place": outcome.place,
        "when": when if outcome.when_ms else None,
        "participants": [tablet_name(names, tablet) for tablet in outcome.participants],
    }


def _mode_of(store: Path) -> tuple[type[ModeHooks], int]:
    """Returns the hooks of a store's mode, and how many hosts it has."""
    meta = load_meta(store / "host-0", Files()) if is_store(store) else None
    if meta is None:
        existing(store).close()  # raises the error that says what is wrong
    hooks = None if meta is None else HOOKS.get(meta.mode)
    return (ModeHooks, 0) if meta is None or hooks is None else (hooks, meta.hosts)


def _by_name(store: Path) -> tuple[ByName, Path, int] | None:
    """Returns (lister, store, hosts) in a mode that knows transactions by their writers' names, else None."""
    hooks, hosts = _mode_of(store)
    return None if hooks.by_name is None else (hooks.by_name, store, hosts)


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

    In mode pulsar it lists those that coordinators have not ended, with --open or without. JSON: transactions (list
    of tx, like "(0,5)", state, coordinator, age_seconds, timeout_seconds, participants, and waiting as above, whose
    positions are acknowledgements).

    Example: planstep tx list shop.planstep --open
    """
    if only_open:
        _print_open(store, limit, as_json, 0)
        return
    if _mode_of(store)[0].by_txn_id:
        live_transactions.print_list(store, limit, as_json, 0)
        return
    by_name = _by_name(store)
    if by_name is not None:
        identities.print_list(*by_name, limit, as_json)
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


@tx.command(cls=StoreCommand)
def slow(
    store: Store,
    seconds: Annotated[
        float, typer.Option(min=0, help="Open for at least so many seconds.", metavar="SECONDS")
    ] = 10.0,
    limit: Annotated[int, typer.Option(min=1, help="Show at most N.")] = 20,
    as_json: Json = False,
) -> None:
    """List transactions that have been open for long, by the time that has passed, not by their time-outs.

    JSON: as `tx list --open`.

    Example: planstep tx slow shop.planstep --seconds 30
    """
    _print_open(store, limit, as_json, seconds)


def _print_open(store: Path, limit: int, as_json: bool, seconds: float) -> None:
    """Prints the open transactions that are at least so old, as the store's mode knows them."""
    by_name = _by_name(store)
    if by_name is not None:
        identities.print_list(*by_name, limit, as_json, seconds)
    elif _mode_of(store)[0].by_txn_id:
        live_transactions.print_list(store, limit, as_json, seconds)
    else:
        _list_open(store, limit, as_json, seconds)


def _list_open(store: Path, limit: int, as_json: bool, seconds: float) -> None:
    found = undecided_in(store, time.time_ns() // 1_000_000)
    transactions = [tx for tx in found if (tx.age_seconds or 0) >= seconds][:limit]
    if as_json:
        rows = []
        for tx in transactions:
            fields = tx._asdict()
            for name in ("held", *_OF_OTHER_MODES):
                del fields[name]
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

    In mode pulsar TX is an id like "(0,5)". JSON: the fields of `tx list`, log (list of entry, text), not_recorded.

    Example: planstep tx explain shop.planstep 1-17
    """
    by_name = _by_name(store)
    if by_name is not None:
        identities.explain(*by_name, transaction, as_json)
        return
    if _mode_of(store)[0].by_txn_id:
        live_transactions.explain(store, transaction, as_json)
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

    In mode pulsar TX is an id like "(0,5)": it is aborted if it is open, and a decided one is never changed.
    JSON: tx, state.

    Example: planstep tx resolve shop.planstep 1-17
    """
    by_name = _by_name(store)
    if by_name is not None:
        identities.resolve(*by_name, transaction, as_json)
        return
    if _mode_of(store)[0].by_txn_id:
        live_transactions.resolve(store, transaction, as_json)
        return
    with existing(store, read_only=False) as db:
        _known(db, transaction)
        fields = _fields(db.resolve(transaction), db.context.runtime.names)
    print_result(fields, as_json, f"transaction {fields['tx']}: {fields['state']}")


def verify(store: Store, as_json: Json = False) -> None:
    """Recompute digests and checksums, and read every record. Exit 1 when anything is wrong.

    In mode pulsar it also replays the logs of coordinators and consumers: each must give what the rows say.

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
            found = db.context.runtime.hooks.problems()
            problems += [{"tablet": where, "key": "", "what": what} for where, what in found]
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
