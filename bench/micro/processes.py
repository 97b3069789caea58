"""Compares commits of attached processes with the owner's own, in one run.

    python -m planstep.bench.micro.processes     rounds take turns, so other work on the machine hits all alike

    a lone client      the owner's own p50, p99 ─ an attached process's ─ the difference
    64 in flight       the owner's own, a second ─ four attached processes with 16 each ─ the ratio
    a busy owner       a lone attached process beside a thread of the owner that only counts: p50, p99

Without a folder the store is in memory files where there are some, with durability "os": it is about the link then,
and not the disk. In a folder durability is "full".

Next: in_flight.py.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import planstep

from ..children import Child, Children, call

_SHM = Path("/dev/shm")
_PROCESSES, _IN_FLIGHT = 4, 64
Figures = dict[str, float]


def lone(db: planstep.Engine, count: int) -> Figures:
    """Commits one transaction after the other; returns microseconds."""
    took = []
    for n in range(count):
        began = time.perf_counter()
        with db.transaction() as tx:
            tx.write("t", b"y" * 100)
            tx.put("rows", n % 100, n)
        took.append((time.perf_counter() - began) * 1e6)
    took.sort()
    return {"p50": took[count // 2], "p99": took[count * 99 // 100]}


def many(db: planstep.Engine, count: int, in_flight: int) -> None:
    """Commits with some transactions in flight, from one thread."""
    futures: deque[Any] = deque()
    for n in range(count):
        tx = db.transaction()
        tx.write("t", b"y" * 100)
        tx.put("rows", n % 100, n)
        futures.append(tx.submit())
        if len(futures) >= in_flight:
            futures.popleft().result()
    for future in futures:
        future.result()


def serve(path: str) -> None:
    """Does what it is told, line by line, as an attached process."""
    with planstep.open(path) as db:
        print("{}", flush=True)
        for line in sys.stdin:
            count, in_flight = json.loads(line)
            if in_flight:
                many(db, count, in_flight)
                print("{}", flush=True)
            else:
                print(json.dumps(lone(db, count)), flush=True)


class Attached:
    """A process that is attached to the store."""

    def __init__(self, children: Children, path: Path) -> None:
        pipes: dict[str, Any] = {"stdin": -1, "stdout": -1, "text": True}
        self._child: Child = children.start(call(serve, path), **pipes)
        self.answer()

    def tell(self, count: int, in_flight: int = 0) -> None:
        assert self._child.stdin is not None
        print(json.dumps([count, in_flight]), file=self._child.stdin, flush=True)

    def answer(self) -> Any:
        assert self._child.stdout is not None
        return json.loads(self._child.stdout.readline())

    def lone(self, count: int) -> Figures:
        self.tell(count)
        figures: Figures = self.answer()
        return figures


def rate(count: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def measure_round(db: planstep.Engine, processes: list[Attached], count: int) -> Figures:
    own, attached = lone(db, count), processes[0].lone(count)

    def of_all() -> None:
        for process in processes:
            process.tell(count // _PROCESSES, _IN_FLIGHT // _PROCESSES)
        for process in processes:
            process.answer()

    own_rate = rate(count, lambda: many(db, count, _IN_FLIGHT))
    rate_of_all = rate(count, of_all)
    ended = threading.Event()
    counter = threading.Thread(target=_count_until, args=(ended,))
    counter.start()
    try:
        beside_busy = processes[0].lone(count // 4)
    finally:
        ended.set()
        counter.join()
    return {
        "own_p50": own["p50"],
        "own_p99": own["p99"],
        "attached_p50": attached["p50"],
        "attached_p99": attached["p99"],
        "difference": attached["p50"] - own["p50"],
        "own_rate": own_rate,
        "attached_rate": rate_of_all,
        "ratio": rate_of_all / own_rate,
        "busy_p50": beside_busy["p50"],
        "busy_p99": beside_busy["p99"],
    }


def _count_until(ended: threading.Event) -> None:
    number = 0
    while not ended.is_set():
        for _ in range(1000):
            number += 1


def measure(count: int, rounds: int, folder: Path | None) -> list[Figures]:
    """Returns the figures of each round: microseconds, and commits a second."""
    where = folder or (_SHM if _SHM.is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="planstep-bench-", dir=where) as temporary:
        path = Path(temporary) / "s"
        with planstep.open(path, durability="full" if folder else "os") as db:
            db.create_topic("t", partitions=4)
            db.create_table("rows")
            with Children() as children:
                processes = [Attached(children, path) for _ in range(_PROCESSES)]
                return [measure_round(db, processes, count) for _ in range(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="processes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=2000, help="transactions of a way in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, help="where the store is made: on the disk to measure"
    )
    options = parser.parse_args()
    found = measure(options.count, options.rounds, options.folder)
    of = {name: statistics.median(each[name] for each in found) for name in found[0]}
    print("medians of the rounds                     p50 us   p99 us")
    for title, name in (
        ("a lone client, the owner's own", "own"),
        ("a lone client, attached", "attached"),
        ("the same, beside a busy owner", "busy"),
    ):
        print(f"{title:38}{of[name + '_p50']:>10.0f}{of[name + '_p99']:>9.0f}")
    print(f"attached beyond the owner's own       {of['difference']:>10.0f}")
    print("                                        a second")
    print(f"64 in flight, the owner's own         {of['own_rate']:>10,.0f}")
    print(f"4 attached processes with 16 each     {of['attached_rate']:>10,.0f}")
    print(f"ratio                                 {of['ratio']:>10.2f}")


if __name__ == "__main__":
    main()
