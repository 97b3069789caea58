"""`planstep own` opens a store and waits: a small process that owns it, so that busy ones only attach.

Next: app.py.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import planstep

from .output import check_is_store, print_json, sleep_while_read
from .values import duration

_LOOK_SECONDS = 0.2


def own(
    store: Annotated[
        Path, typer.Argument(envvar="PLANSTEP_STORE", metavar="STORE", help="The store.")
    ],
    *,
    seconds: Annotated[
        str | None, typer.Option("--for", metavar="AGE", help="End after so long: 30s, 1h.")
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            help='"full", the default: commits survive power loss; "os": the process.',
            show_default=False,
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the store where there is none.")
    ] = False,
    metrics: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=1, max=65535, help="Serve Prometheus metrics on this port."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Own a store, and do nothing else, so that other processes attach to this one.

    A process that owns a store runs the commits of all. One whose Python is busy
    delays those of the others; this one never is. Start it before them. If
    another process owns the store, this one attaches, and may own it next.

    It ends with exit 0 on Ctrl-C and SIGTERM. Then one of the attached processes
    owns the store, and nothing is lost.

    JSON: event (owner, attached, stopped), pid (of the store's owner).

    Example: planstep own shop
    """
    if not create:
        check_is_store(store)
    limit = None if seconds is None else duration(seconds, "--for")
    until = None if limit is None else time.monotonic() + limit
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    owner = None
    try:
        with planstep.open(store, create=create, **_given(durability)) as db:
            if metrics is not None:
                _serve(db, metrics)
            while until is None or time.monotonic() < until:
                if owner != db.owner:
                    owner = db.owner
                    _tell(owner, as_json)
                time.sleep(_LOOK_SECONDS)
                sleep_while_read(0)
    except KeyboardInterrupt:
        pass
    if as_json:
        print_json({"event": "stopped", "pid": owner})


def _serve(db: "planstep.Engine", port: int) -> None:
    planstep.metrics.register(db)
    import prometheus_client  # there, else `register` has said what to install

    try:
        prometheus_client.start_http_server(port)
    except OSError as error:
        raise planstep.IoError(
            f"metrics cannot be served on port {port}: {error.strerror}"
        ) from error


def _tell(owner: int | None, as_json: bool) -> None:
    event = "owner" if owner == os.getpid() else "attached"
    if as_json:
        print_json({"event": event, "pid": owner})
    elif event == "owner":
        print(f"owner: process {owner}, which is this one")
    else:
        print(f"attached: process {owner} owns the store")
    sys.stdout.flush()


def _given(durability: str | None) -> dict[str, Any]:
    """Returns what was given: what was left out is as the store's owner has it."""
    if durability not in (None, "full", "os"):
        raise typer.BadParameter("full or os", param_hint="--durability")
    return {} if durability is None else {"durability": durability}


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
