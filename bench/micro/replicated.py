"""Compares a replicated store with a local one, in one run: rates, latency, CPU, and what its shared log gets.

    python -m planstep.bench.micro.replicated --folder DIR [--log DIR]       the stores take turns, round by round

    local         durability "full"                                          the measure of the others
    file          replicated to `--log`, on another disk if you have one
    async         the same in mode "async"
    file, 30 ms   the same, and each put takes 30 ms more, as in a bucket    with linger 0 and 0.05

Every ratio is of medians over the rounds, so other work on the machine hits all stores alike.

Next: bench/micro/bench_transaction.py.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import planstep
from planstep.shared.entry import NO_CHAIN, TURN, Owner, seal
from planstep.shared.files_log import FileObjects
from planstep.shared.registry import open_shared_log
from planstep.shared.shared_log import Position, Root

_CLIENTS, _MANY = 64, 1_000
_PUT_SECONDS = 0.03
_LINGER = 0.05
_PAYLOAD = b"x" * 100
Figures = dict[str, float]


@contextmanager
def slow_puts(seconds: float) -> Iterator[None]:
    """Makes each put to a shared log in a folder take so much longer, as one to a bucket does."""
    really = FileObjects.create

    def create(objects: FileObjects, name: str, data: bytes) -> bool:
        time.sleep(seconds)
        return really(objects, name, data)

    with patch.object(FileObjects, "create", create):
        yield


def open_store(
    home: Path, log: Path | None, linger: float | None = None, mode: str = "sync"
) -> planstep.Engine:
    replicate = None
    if log is not None:
        replicate = planstep.Replicate(log.as_uri(), linger=linger, reads="local", mode=mode)
    db = planstep.open(home, replicate=replicate)
    db.create_topic("t", exist_ok=True)
    db.write("t", _PAYLOAD)
    return db


def one_client(db: planstep.Engine, seconds: float) -> Figures:
    took = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        db.write("t", _PAYLOAD)
        took.append(time.perf_counter() - began)
    return {"p50_ms": 1_000 * statistics.median(took), "a_second": len(took) / seconds}


def many_clients(db: planstep.Engine, seconds: float, clients: int) -> Figures:
    """Lets so many threads commit; returns commits a second, and the CPU of one, in microseconds."""
    counts = [0] * clients
    end = time.perf_counter() + seconds

    def commit(number: int) -> None:
        while time.perf_counter() < end:
            db.write("t", _PAYLOAD)
            counts[number] += 1

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(clients)]
    began, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"a_second": sum(counts) / took, "cpu_us": 1e6 * cpu / max(1, sum(counts))}


def puts(db: planstep.Engine) -> int:
    stats = db.stats()["shared_log"]
    return int(stats["append_seconds"]["count"])


def bare_put(log: Path, seconds: float) -> Figures:
    """Appends entries as large as a commit to a log of its own; returns the median."""
    root = Root(b"sixteen bytes...", "deterministic", 1)
    shared, _ = open_shared_log((log.parent / f"{log.name}-bare").as_uri(), root)
    shared.open(Position())
    took, before, turn = [], NO_CHAIN, 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        turn += 1
        entry = seal(
            TURN, root.store_id, Owner(1, bytes(16)), turn, before, 0, payloads=[bytes(500)]
        )
        began = time.perf_counter()
        shared.append(entry)
        took.append(time.perf_counter() - began)
        before = entry.chain
    shared.close()
    return {"p50_ms": 1_000 * statistics.median(took)}


def one_round(folder: Path, log: Path, seconds: float) -> dict[str, Figures]:
    """Measures each store once, newly made."""
    found: dict[str, Figures] = {}
    with open_store(folder / "local", None) as db:
        found["local, 1 client"] = one_client(db, seconds)
        found[f"local, {_CLIENTS} clients"] = many_clients(db, seconds, _CLIENTS)
        found[f"local, {_MANY} clients"] = many_clients(db, seconds, _MANY)
    found["bare put"] = bare_put(log / "file", seconds)
    with open_store(folder / "file", log / "file") as db:
        found["file, 1 client"] = one_client(db, seconds)
        before = db.stats()
        found[f"file, {_CLIENTS} clients"] = many_clients(db, seconds, _CLIENTS)
        after = db.stats()
    with open_store(folder / "async", log / "async", mode="async") as db:
        found["async, 1 client"] = one_client(db, seconds)
        found[f"async, {_CLIENTS} clients"] = many_clients(db, seconds, _CLIENTS)
    logged = after["store"]["log_bytes"] - before["store"]["log_bytes"]
    sent = after["shared_log"]["sent_bytes"] - before["shared_log"]["sent_bytes"]
    shared, _ = open_shared_log((log / "file").as_uri(), None)
    sizes = shared.objects.sizes() if shared.objects is not None else {}
    shared.close()
    singles = sum(size for name, size in sizes.items() if name.startswith("log/"))
    runs = sum(size for name, size in sizes.items() if name.startswith("run/"))
    found["bytes"] = {"sent_per_logged": sent / logged, "runs_per_turns": runs / singles}
    with slow_puts(_PUT_SECONDS):
        with open_store(folder / "slow", log / "slow", 0.0) as db:
            found[f"30 ms, {_MANY} clients"] = many_clients(db, seconds, _MANY)
        with open_store(folder / "lingering", log / "lingering", _LINGER) as db:
            before_puts, began = puts(db), time.perf_counter()
            figures = many_clients(db, seconds, _MANY)
            figures["puts_a_second"] = (puts(db) - before_puts) / (time.perf_counter() - began)
            found[f"30 ms, linger {_LINGER}, {_MANY} clients"] = figures
    return found


def compare(found: dict[str, Figures]) -> Figures:
    """Returns the ratios that say whether a replicated store is as quick as it may be."""
    local, file, behind = (
        found[f"{name}, {_CLIENTS} clients"] for name in ("local", "file", "async")
    )
    slow, lingering = (name for name in found if name.startswith("30 ms"))
    return {
        "file/local, commits a second, 64 clients": file["a_second"] / local["a_second"],
        "file/local, CPU of a commit": file["cpu_us"] / local["cpu_us"],
        "file, 1 client: p50 beyond a bare put, ms": found["file, 1 client"]["p50_ms"]
        - found["bare put"]["p50_ms"],
        "async/local, commits a second, 64 clients": behind["a_second"] / local["a_second"],
        "async/local, 1 client: p50": found["async, 1 client"]["p50_ms"]
        / found["local, 1 client"]["p50_ms"],
        "30 ms/local, commits a second, 1,000 clients": found[slow]["a_second"]
        / found[f"local, {_MANY} clients"]["a_second"],
        "puts a second x linger": found[lingering]["puts_a_second"] * _LINGER,
        "bytes sent per byte logged, with runs": found["bytes"]["sent_per_logged"],
        "bytes of runs per byte of turns": found["bytes"]["runs_per_turns"],
    }


def medians(rounds: list[dict[str, Figures]]) -> dict[str, Figures]:
    return {
        name: {key: statistics.median(each[name][key] for each in rounds) for key in figures}
        for name, figures in rounds[0].items()
    }


def main(arguments: list[str] | None = None, say: Callable[[str], Any] = print) -> None:
    parser = argparse.ArgumentParser(prog="replicated", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, help="where stores are made, on the disk to measure")
    parser.add_argument("--log", type=Path, help="where logs are made; default: in the folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rounds = []
    for _ in range(options.rounds):
        with (
            tempfile.TemporaryDirectory(prefix="planstep-bench-", dir=options.folder) as folder,
            tempfile.TemporaryDirectory(
                prefix="planstep-bench-", dir=options.log or options.folder
            ) as log,
        ):
            rounds.append(one_round(Path(folder), Path(log), options.seconds))
    found = medians(rounds)
    if options.json:
        say(json.dumps({"figures": found, "ratios": compare(found)}))
        return
    for name, figures in found.items():
        say(f"{name:34}" + "  ".join(f"{key} {value:,.2f}" for key, value in figures.items()))
    for name, value in compare(found).items():
        say(f"{name:50}{value:>8.2f}")


if __name__ == "__main__":
    main()
