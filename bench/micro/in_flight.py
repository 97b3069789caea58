"""Compares the ways to keep commits in flight, in one run: CPU a transaction, and the ratio to the first way.

    python -m planstep.bench.micro.in_flight     the ways take turns, so other work on the machine hits all alike

    1 in flight   ─ a loop · process                                   read a record, write one, add to two rows
    64 in flight  ─ threads · process(workers=8, in_flight=8)          the same
    64 in flight  ─ threads · submit · asyncio                         write a record, add to two rows

The stores are in memory files where there are some: it is about waking, queues and futures, not the disk.

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


def tasks(db: planstep.Engine, count: int) -> None:
    async def client(engine: planstep.AsyncEngine, number: int) -> None:
        for _ in range(count // _IN_FLIGHT):
            async with engine.transaction() as tx:
                await tx.write("out", b"y" * 100)
                await tx.add("t", number, 1)
                await tx.add("t", -number - 1, 1)

    async def run() -> None:
        async with planstep.open_async(db.path) as engine:
            await asyncio.gather(*(client(engine, i) for i in range(_IN_FLIGHT)))

    asyncio.run(run())


Way = Callable[[planstep.Engine, int], None]
WAYS: dict[str, dict[str, Way]] = {
    "1 in flight, reading": {"loop": loop, "process": process},
    "64 in flight, reading": {"threads": reading_threads, "process": process_64},
    "64 in flight": {"threads": threads, "submit": submit, "asyncio": tasks},
}


def measure(way: Way, count: int) -> float:
    """Returns microseconds of CPU for a transaction, in a new store."""
    folder = tempfile.TemporaryDirectory(
        prefix="planstep-bench-", dir=_SHM if _SHM.is_dir() else None
    )
    with folder as path, planstep.open(Path(path) / "s", durability="os") as db:
        topic = db.create_topic("in", partitions=1 if way is loop or way is process else _IN_FLIGHT)
        for partition in range(topic.partitions):
            values = [b"x" * 100] * (count // topic.partitions)
            topic.write_batch(values, partition=partition)
        db.create_topic("out", partitions=4)
        db.create_table("t", shards=2)
        began = time.process_time()
        way(db, count)
        return (time.process_time() - began) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="in_flight", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=1280, help="transactions of a way in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    count = max(1, options.count // _IN_FLIGHT) * _IN_FLIGHT
    took: dict[Way, list[float]] = {way: [] for ways in WAYS.values() for way in ways.values()}
    for _ in range(options.rounds):
        for way, each in took.items():
            each.append(measure(way, count))
    print(f"{'CPU of a transaction, the median':38}{'us':>6}{'ratio':>8}")
    for title, ways in WAYS.items():
        first = statistics.median(took[next(iter(ways.values()))])
        for name, way in ways.items():
            own = statistics.median(took[way])
            print(f"{title + ': ' + name:38}{own:>6.0f}{own / first:>8.2f}")


if __name__ == "__main__":
    main()
