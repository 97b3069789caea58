"""`planstep backup` copies a store as of one step; `planstep restore` copies it back. Next: inspect.py."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..api.columns.batch import counted
from ..runtime.backup import Backup, backup_store
from ..runtime.backup import restore as restore_store
from ..runtime.seeding import restore_from
from ..shared.settings import Replicate
from .output import Json, Store, interruptible, print_result, progress
from .shared_logs import Snapshots
from .values import readable

_NOTHING = "nothing was made or replaced"


def backup(
    store: Store,
    to: Annotated[Path, typer.Argument(help="A folder that is not there yet.", metavar="TO")],
    as_json: Json = False,
) -> None:
    """Copy a store, as of one step, while its writers go on.

    TO is complete and verified, or it does not exist. A killed backup leaves
    TO.incomplete, which the next backup to TO removes. The folder above TO must
    exist, and TO must lie outside of the store. TO is a store with an id of its
    own: any command may read it.

    JSON: path, step, hosts, records, rows, bytes (of records).

    Example: planstep backup shop.planstep shop-monday.planstep
    """
    with interruptible(_NOTHING), progress("records", 1_000_000) as tell:
        done = backup_store(store, to, partial(tell, "backup"))
    _print("backed up to", done, as_json)


def restore(
    source: Annotated[
        Path | None, typer.Argument(help="A backup, or any store.", metavar="[FROM]")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Argument(
            help="The store's folder (default: $PLANSTEP_STORE).",
            metavar="STORE",
            envvar="PLANSTEP_STORE",
            show_envvar=False,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Restore from a shared log, in place of FROM."),
    ] = None,
    turn: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --from: as of this turn.")
    ] = None,
    *,
    snapshots: Snapshots = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the store that is there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make STORE a copy of a backup; the copy is verified before it gets its name.

    An existing store is replaced only with --force, and never while a process
    has it open, even read-only. FROM stays as it is.

    --from makes an ordinary store from the shared log of a replicated one, which goes
    on meanwhile: from its newest snapshot and the turns behind that, up to turn N.
    STORE must not be there yet. --snapshots is for a log in no object store.

    JSON: path, step, hosts, records, rows, bytes (of records); with --from: path,
    url, turn.

    Example: planstep restore shop-monday.planstep shop.planstep --force
    """
    if url is not None:
        if None not in (source, store) and os.fspath(store or "") != os.environ.get(
            "PLANSTEP_STORE"
        ):
            raise typer.BadParameter("--from URL is in place of FROM", param_hint="FROM")
        settings = Replicate(url, snapshots=snapshots)
        _restore_from(settings, turn, store if source is None else source, force, as_json)
        return
    if source is None or store is None or (turn, snapshots) != (None, None):
        raise typer.BadParameter("give FROM and STORE, or --from URL and STORE", param_hint="FROM")
    with interruptible(_NOTHING), progress("records", 1_000_000) as tell:
        done = restore_store(source, store, force, partial(tell, "restore"))
    _print("restored to", done, as_json)


def _restore_from(
    settings: Replicate, turn: int | None, store: Path | None, force: bool, as_json: bool
) -> None:
    if store is None:
        raise typer.BadParameter("give the STORE to be made", param_hint="STORE")
    if force:
        raise typer.BadParameter("--from replaces nothing: name a new STORE", param_hint="--force")
    with interruptible(_NOTHING):
        last = restore_from(settings, store, turn)
    done = {"path": str(store), "url": settings.url, "turn": last}
    print_result(done, as_json, f"restored to {store}: turn {last}, verified")


def _print(what: str, done: Backup, as_json: bool) -> None:
    records = f"{counted(done.records, 'record')} ({readable(done.bytes)})"
    text = f"{what} {done.path}: step {done.step}, {records}, {counted(done.rows, 'row')}, verified"
    print_result(done._asdict(), as_json, text)
