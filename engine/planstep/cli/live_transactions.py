"""`planstep tx …` shows transactions in modes whose coordinators give them ids, like (0,5).

    list, slow   those that have not ended, with who waits for them
    explain      the records about one in its coordinator's log, and what it holds
    resolve      aborts an open one

Next: stats.py.
"""

from pathlib import Path
from typing import Any

from ..errors import PlanstepError
from ..proto.ids import parse_txn
from ..runtime.open_transactions import OpenTransaction
from .identities import held_text
from .output import existing, print_json, print_result, print_rows
from .values import age


def _fields(one: OpenTransaction) -> dict[str, Any]:
    names = "tx", "state", "coordinator", "age_seconds", "timeout_seconds", "participants"
    waiting = [held._asdict() for held in one.waiting]
    return {**{name: getattr(one, name) for name in names}, "waiting": waiting}


def print_list(store: Path, limit: int, as_json: bool, seconds: float) -> None:
    with existing(store) as db:
        found = db.slow_transactions(seconds)[:limit]
    if as_json:
        print_json({"transactions": [_fields(one) for one in found]})
        return
    columns = ["tx", "state", "age", "time-out", "participants", "readers wait"]
    rows = [
        [
            one.tx,
            one.state,
            age(one.age_seconds),
            age(one.timeout_seconds),
            ", ".join(one.participants),
            "; ".join(filter(None, map(held_text, one.waiting))),
        ]
        for one in found
    ]
    print_rows("open transactions", columns, rows)


def explain(store: Path, transaction: str, as_json: bool) -> None:
    id = parse_txn(transaction)
    with existing(store) as db:
        one = next((one for one in db.open_transactions() if one.tx == str(id)), None)
        log = db.context.runtime.hooks.administration.history(id)
    if one is None:
        raise PlanstepError(
            f"no transaction {id} is open: it has ended, or never was; `planstep tx list` shows open ones"
        )
    missing = ["what its clients asked for and were answered; what its participants have logged"]
    if as_json:
        records = [{"entry": entry, "text": text} for entry, text in log]
        print_json({**_fields(one), "log": records, "not_recorded": missing})
        return
    since = f"open for {age(one.age_seconds)}, time-out {age(one.timeout_seconds)}"
    print(f"transaction {id}: {one.state}, {since}, coordinator {one.coordinator}")
    for participant in one.participants:
        print(f"  participant: {participant}")
    for held in one.waiting:
        if text := held_text(held):
            print(f"  readers wait: {text}")
    for entry, text in log:
        print(f"  log {entry}: {text}")
    for line in missing:
        print(f"  not recorded: {line}")


def resolve(store: Path, transaction: str, as_json: bool) -> None:
    with existing(store, read_only=False) as db:
        id = db.abort_transaction(transaction)
    print_result({"tx": str(id), "state": "ABORTED"}, as_json, f"transaction {id}: ABORTED")
