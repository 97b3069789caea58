"""Compares the ways to keep commits in flight, in one run: CPU, rate, and the ratio to the first way.

    python -m planstep.bench.micro.in_flight     the ways take turns, so other work on the machine hits all alike

    1 in flight   ─ a loop · process                                   read a record, write one, add to two rows
    64 in flight  ─ threads · process(workers=8, in_flight=8) · both in asyncio      the same
    64 in flight  ─ threads · submit · asyncio                         write a record, add to two rows

Without a folder the stores are in memory files where there are some, with durability "os": it is about waking,
queues and futures then, not the disk. In a folder durability is "full".

Next: bench/micro/bench_transaction.py.
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import planstep

_SHM = Path("/dev/shm")
_IN_FLIGHT, _WORKERS = 64, 8


def write(tx: planstep.Transaction, number: int) -> None:
    tx.write("out", b"y" * 100)
    tx.add("t", number, 1)
    tx.add("t", -number - 1, 1)


def loop(db: planstep.Engine, count: int) -> None:
    for _ in range(count):
        with db.transaction() as tx:
            tx.read("in", "c", max_records=1)
            write(tx, 7)


def process(db: planstep.Engine, count: int, workers: int = 1, in_flight: int = 1) -> None:
    def run(tx: planstep.Transaction, _: planstep.ReadBatch) -> None:
        write(tx, 7)

    done = db.process(
        run, "in", "c", max_records=1, until_idle=True, workers=workers, in_flight=in_flight
    )
    assert (done.transactions, done.conflicts) == (count, 0)


def process_64(db: planstep.Engine, count: int) -> None:
    process(db, count, _WORKERS, _IN_FLIGHT // _WORKERS)


def threads(db: planstep.Engine, count: int, reads: bool = False) -> None:
    def client(number: int) -> None:
        for _ in range(count // _IN_FLIGHT):
            with db.transaction() as tx:
                if reads:
                    tx.read("in", "c", max_records=1, partition=number)
                write(tx, number)

    clients = [threading.Thread(target=client, args=(i,)) for i in range(_IN_FLIGHT)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()


def reading_threads(db: planstep.Engine, count: int) -> None:
    threads(db, count, True)


def submit(db: planstep.Engine, count: int) -> None:
    for _ in range(count // _IN_FLIGHT):
        futures = []
        for number in range(_IN_FLIGHT):
            tx = db.transaction()
            write(tx, number)
            futures.append(tx.submit())
        for future in futures:
            future.result()


async def write_async(tx: planstep.AsyncTransaction, number: int) -> None:
    await tx.write("out", b"y" * 100)
    await tx.add("t", number, 1)
    await tx.add("t", -number - 1, 1)


def tasks(db: planstep.Engine, count: int, reads: bool = False) -> None:
    async def client(engine: planstep.AsyncEngine, number: int) -> None:
        for _ in range(count // _IN_FLIGHT):
            async with engine.transaction() as tx:
                if reads:
                    await tx.read("in", "c", max_records=1, partition=number)
                await write_async(tx, number)

    async def run() -> None:
        async with planstep.open_async(db.path) as engine:
            await asyncio.gather(*(client(engine, i) for i in range(_IN_FLIGHT)))

    asyncio.run(run())


def reading_tasks(db: planstep.Engine, count: int) -> None:
    tasks(db, count, True)


def process_tasks(db: planstep.Engine, count: int) -> None:
    async def one(tx: planstep.AsyncTransaction, _: planstep.ReadBatch) -> None:
        await write_async(tx, 7)

    async def run() -> None:
        async with planstep.open_async(db.path) as engine:
            done = await engine.process(
                one,
                "in",
                "c",
                max_records=1,
                until_idle=True,
                workers=_WORKERS,
                in_flight=_IN_FLIGHT // _WORKERS,
            )
            assert done.transactions == count

    asyncio.run(run())


Way = Callable[[planstep.Engine, int], None]
WAYS: dict[str, dict[str, Way]] = {
    "1 in flight, reading": {"loop": loop, "process": process},
    "64 in flight, reading": {
        "threads": reading_threads,
        "process": process_64,
        "asyncio": reading_tasks,
        "asyncio process": process_tasks,
    },
    "64 in flight": {"threads": threads, "submit": submit, "asyncio": tasks},
}


class Took(NamedTuple):
    """Holds the microseconds of CPU and of time that a transaction took."""

    cpu: float
    wall: float


def measure(way: Way, count: int, folder: Path | None) -> Took:
    """Measures one way in a new store."""
    where = folder or (_SHM if _SHM.is_dir() else None)
    with (
        tempfile.TemporaryDirectory(prefix="planstep-bench-", dir=where) as path,
        planstep.open(Path(path) / "s", durability="full" if folder else "os") as db,
    ):
        topic = db.create_topic("in", partitions=1 if way is loop or way is process else _IN_FLIGHT)
        for partition in range(topic.partitions):
            values = [b"x" * 100] * (count // topic.partitions)
            topic.write_batch(values, partition=partition)
        db.create_topic("out", partitions=4)
        db.create_table("t", shards=2)
        cpu, wall = time.process_time(), time.perf_counter()
        way(db, count)
        spent = time.process_time() - cpu, time.perf_counter() - wall
        return Took(*(seconds / count * 1e6 for seconds in spent))


def main() -> None:
    parser = argparse.ArgumentParser(prog="in_flight", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=1280, help="transactions of a way in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where stores are made, on the disk to measure")
    options = parser.parse_args()
    count = max(1, options.count // _IN_FLIGHT) * _IN_FLIGHT
    took: dict[Way, list[Took]] = {way: [] for ways in WAYS.values() for way in ways.values()}
    for _ in range(options.rounds):
        for way, each in took.items():
            each.append(measure(way, count, options.folder))
    print(f"{'medians of the rounds':38}{'CPU us':>8}{'ratio':>7}{'a second':>10}")
    for title, ways in WAYS.items():
        first = _median(took[next(iter(ways.values()))]).cpu
        for name, way in ways.items():
            own = _median(took[way])
            line = f"{title + ': ' + name:38}{own.cpu:>8.0f}{own.cpu / first:>7.2f}"
            print(f"{line}{1e6 / own.wall:>10,.0f}")


def _median(rounds: list[Took]) -> Took:
    return Took(*map(statistics.median, zip(*rounds, strict=True)))


if __name__ == "__main__":
    main()
