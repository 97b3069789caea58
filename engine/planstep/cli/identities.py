"""`planstep tx …` shows transactional ids in modes that know transactions by their writers' names.

    list      each id: state, producer, epoch, its open transaction's age and partitions
    --open    the ids whose transaction is open or ending, and the partitions whose readers wait for it
    explain   the newest records of the id's coordinator's log, and what its open transaction holds
    resolve   aborts the open transaction, and fences the producer that has the id

Next: stats.py.
"""

import time
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..api.columns.batch import counted
from ..closing import Closing
from ..errors import PlanstepError
from ..runtime.catalog import Names
from ..runtime.consistent_cut import open_views
from ..runtime.identity import ByName, Identity, Waiting
from .output import existing, print_json, print_result, print_rows
from .values import age


class _StoreView(Closing):
    """Read-only views of all hosts' stores, in which transactions under way stay undecided."""

    def __init__(self, by_name: ByName, store: Path, hosts: int) -> None:
        self.by_name = by_name
        self._views = open_views(store, hosts, complete=False)
        self.stores = dict(enumerate(self._views))
        self.names = Names(self._views[0])
        self.now_ms = time.time_ns() // 1_000_000

    def close(self) -> None:
        for view in self._views:
            view.close()

    def one(self, name: str) -> Identity:
        """Finds an id, with what its open transaction holds. PlanstepError suggests the nearest name."""
        about = self.stores, self.names, self.now_ms
        known = {one.name or "": one for one in self.by_name.identities(*about)}
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else "`planstep tx list` shows them"
            raise PlanstepError(f"no transactional id {name!r}; {hint}")
        held = (one for one in self.by_name.under_way(*about) if one.name == name)
        return next(held, known[name])


def _fields(one: Identity) -> dict[str, Any]:
    return {**one._asdict(), "waiting": [held._asdict() for held in one.waiting]}


def print_list(
    by_name: ByName,
    store: Path,
    hosts: int,
    limit: int,
    as_json: bool,
    open_for: float | None = None,
) -> None:
    """Prints all ids, or those whose transaction has been open for at least so many seconds."""
    only_open = open_for is not None
    with _StoreView(by_name, store, hosts) as view:
        find = by_name.under_way if only_open else by_name.identities
        found = find(view.stores, view.names, view.now_ms)
    ids = [one for one in found if not open_for or (one.age_seconds or 0) >= open_for][:limit]
    if as_json:
        rows = [_fields(one) for one in ids]
        if not only_open:
            for row in rows:
                del row["waiting"]
        print_json({"transactions": rows})
        return
    columns = ["id", "state", "producer", "epoch", "age", "participants"]
    columns.append("readers wait" if only_open else "updated")
    cells = [
        [
            one.name,
            one.state,
            one.producer,
            one.epoch,
            age(one.age_seconds),
            ", ".join(one.participants),
            "; ".join(filter(None, map(held_text, one.waiting)))
            if only_open
            else age(one.updated_seconds) + " ago",
        ]
        for one in ids
    ]
    print_rows("open transactions" if only_open else "transactional ids", columns, cells)


def held_text(held: Waiting) -> str:
    """Says who waits at a participant for its transaction; empty where nobody does."""
    texts = []
    if held.first_offset is not None:
        behind = f"{counted(held.records_behind, 'record')} from @{held.last_stable} on"
        texts.append(f"{held.participant}: {behind}")
    if held.positions:
        texts.append(f"{', '.join(held.positions)} pending")
    return "; ".join(texts)


def explain(by_name: ByName, store: Path, hosts: int, name: str, as_json: bool) -> None:
    with _StoreView(by_name, store, hosts) as view:
        one = view.one(name)
        log = by_name.history(view.stores, view.names, name)
    missing = [
        "earlier transactions of this id: only the newest one is kept",
        "requests and answers of its clients; records of the log before the newest 1,024 entries",
    ]
    if as_json:
        records = [record._asdict() for record in log]
        print_json({**_fields(one), "log": records, "not_recorded": missing})
        return
    since = "" if one.age_seconds is None else f", open for {age(one.age_seconds)}"
    print(f"transactional id {name}: {one.state}, producer {one.producer} epoch {one.epoch}{since}")
    for participant in one.participants:
        print(f"  participant: {participant}")
    for held in one.waiting:
        if text := held_text(held):
            print(f"  readers wait: {text}")
    for record in log:
        who = "" if record.producer is None else f" producer {record.producer} epoch {record.epoch}"
        where = f" [{', '.join(record.participants)}]" if record.participants else ""
        print(f"  log {record.entry}: {record.state}{where}{who}")
    for line in missing:
        print(f"  not recorded: {line}")


def resolve(by_name: ByName, store: Path, hosts: int, name: str, as_json: bool) -> None:
    """Takes the id over, as a new producer would: aborts its open transaction and fences its producer."""
    with _StoreView(by_name, store, hosts) as view:
        before = view.one(name)
    if before.open:
        with existing(store, read_only=False) as db:
            db.context.runtime.hooks.ready(name)
    with _StoreView(by_name, store, hosts) as view:
        after = view.one(name)
    change = f"was {before.state}, now" if before.open else "has nothing open:"
    text = f"transactional id {name} {change} {after.state}, epoch {after.epoch}"
    print_result({**_fields(after), "was": before.state}, as_json, text)
