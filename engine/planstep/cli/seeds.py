"""`planstep replicate STORE URL` begins a log with a store that has turns, and ends that. Next: stats.py."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..api.open_engine import is_url
from ..runtime.row_diff import compare
from ..runtime.seeding import seed, stop
from ..shared.settings import Replicate
from .output import (
    Json,
    Store,
    Yes,
    check_is_store,
    confirm,
    field_of,
    interruptible,
    print_result,
)
from .shared_logs import Snapshots

_START = "start"


class WithStart(TyperGroup):
    """A group whose first argument may be a store: then it is the command `start`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = [_START, *args]
        return super().parse_args(ctx, args)


def start(
    store: Store,
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The shared log, as s3://bucket/shop.")
    ] = None,
    end: Annotated[
        bool, typer.Option("--stop", help="Make STORE an ordinary store again; without URL.")
    ] = False,
    reseed: Annotated[
        bool, typer.Option("--reseed", help="Give URL the turns that it has lost, from STORE.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Replicate a store that has turns already: URL begins with a snapshot of it.

    No process may have STORE open. From then on it opens with replicate=URL only. It
    may be killed and repeated.

    --stop ends that for this folder: STORE is an ordinary store, with the turns that
    it has. URL stays as it is, and other machines may go on there: from then on
    these are two stores, and neither has what the other one commits.

    --reseed is for a log that was put back to an older state, so that it ends before
    STORE does. It goes on behind STORE. Stop all other machines that have the store
    open first: one that was taken over in a turn that is lost does not know it.

    JSON: path, url (null with --stop), turn (the last one of STORE before that).

    The word `start` may be left out.

    Example: planstep replicate start shop.planstep s3://bucket/shop
    """
    check_is_store(store)
    if end == (url is not None) or (end and reseed):
        raise typer.BadParameter("give URL, or --stop alone", param_hint="URL")
    if end or reseed:
        what = f"end the replication of {store}" if end else f"continue {url} behind {store}"
        confirm(f"Shall this {what}? Other machines may have the store open.", yes)
    with interruptible("it may be repeated"):
        turn = stop(store) if url is None else seed(Path(store), Replicate(url), reseed)
    text = f"{store} is not replicated any more" if end else f"{store} is replicated to {url}"
    print_result({"path": str(store), "url": url, "turn": turn}, as_json, f"{text}: turn {turn}")


def diff(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A folder of the store.")],
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="Another folder, or the shared log's URL.")
    ],
    snapshots: Snapshots = None,
    as_json: Json = False,
) -> None:
    """Compare two folders of a replicated store as of one turn, and name the first row that differs.

    It is for a follower that ended with Diverged. Two folders must be at the same turn,
    as they are once nobody owns the store and the other one has followed. With a URL the
    log is restored as of STORE's turn, in a temporary folder.

    It exits with 0 if no row differs, and with 1 otherwise. Records are not compared:
    `planstep verify` checks them.

    JSON: path, other, turn, rows (how many differ); of the first one tablet, key, and where
    (differs, only here: in STORE, only there), else null.

    Example: planstep replicate diff shop.planstep s3://bucket/shop
    """
    check_is_store(store)
    to = Replicate(other, snapshots=snapshots) if is_url(other) else Path(other)
    with interruptible("nothing was changed"):
        found = compare(store, to)
    first = f", first {field_of(repr(found.key))} of {found.tablet} ({found.where})"
    counts = f"{found.rows} rows differ{first}" if found.rows else "no row differs"
    fields = {"path": str(store), "other": other, **found._asdict()}
    print_result(fields, as_json, f"turn {found.turn}: {counts}")
    if found.rows:
        raise typer.Exit(1)
