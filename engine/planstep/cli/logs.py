"""`planstep log …` shows a store's log, and the batches in coordinators' and consumers' logs. Next: stats.py."""

import contextlib
from collections import deque
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..api.administration import Logs
from ..errors import PlanstepError
from ..host.describe import Nameless, appends
from ..store.dump import dump
from ..store.files import Files
from ..store.meta import load_meta
from .command import StoreCommand
from .output import Json, Store, existing, print_json, print_result, print_rows

log = typer.Typer(help="Look into the logs.", no_args_is_help=True)


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


@log.command(cls=StoreCommand)
def batches(store: Store, as_json: Json = False) -> None:
    """Tell which logs of coordinators and consumers hold batches, which a program before PIP-160 cannot read.

    Before a downgrade switch batching off, and look until no batched entries are left. Those of pending
    acknowledgements go as the consumer moves on and records come. Of modes kafka and pulsar.

    JSON: batched_left (false when an earlier program can read all), logs (list of logs, owner, batching (null where
    only the owner of the store knows), entries, records, batched, oldest, last_batched).

    Example: planstep log batches shop.planstep
    """
    with existing(store) as db:
        found = db.log_batches()
    left = any(one.report.last_batched is not None for one in found)
    if as_json:
        logs = [{"logs": o.logs, "owner": o.owner, **o.report._asdict()} for o in found]
        print_json({"batched_left": left, "logs": logs})
        return
    rows = [[one.logs, one.owner, one.report.text] for one in found]
    print_rows("logs", ["logs", "owner", "batches"], rows)
    print("batched entries are left" if left else "no batched entries are left")


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


class Which(StrEnum):
    TRANSACTIONS = "transactions"
    PENDING_ACKS = "pending-acks"
    BOTH = "both"


@log.command(cls=StoreCommand)
def batching(
    store: Store,
    switch: Annotated[Switch, typer.Argument(metavar="on|off", help="Whether logs are batched.")],
    logs: Annotated[
        Which,
        typer.Option(help="Those of coordinators, those of consumers (mode pulsar), or both."),
    ] = Which.BOTH,
    as_json: Json = False,
) -> None:
    """Switch the buffered writer of coordinators' and consumers' logs (PIP-160), for good.

    The switch goes before the settings of whoever opens the store. Of modes kafka and pulsar.

    JSON: logs, batching.

    Example: planstep log batching shop.planstep off --logs pending-acks
    """
    on, which = switch is Switch.ON, cast(Logs, logs.value.replace("-", " "))
    with existing(store, read_only=False) as db:
        db.switch_log_batching(on, which)
    text = f"logs ({which}): batching is {switch.value}"
    print_result({"logs": logs.value, "batching": on}, as_json, text)
