"""Prints what a small transaction costs as a store gets older: CPU and memory, for each tenth of a million.

    python -m planstep.bench.micro.age [MODE …] [--transactions N]     modes deterministic, kafka (100,000)

    proof/rows/growth.py ─ a child, N small transactions ─▶ a line for each tenth ─▶ the last against the second

CPU is that of the process, all threads; RSS is the largest of each tenth, and "own" the part that is no map of
a file. The rest is LMDB's map: it grows by some 5 bytes a transaction until the outcomes of a million are kept.
The first tenth warms up: logs and the allocator's pools reach their size there.

Next: bench_transaction.py.
"""

import argparse
from collections.abc import Iterator

from ..proof.rows.growth import Age, aging_stores
from .instructions import memory_folder

TRANSACTIONS = {"deterministic": 1_000_000, "kafka": 100_000}
_TENTHS = 10


def ages(mode: str, transactions: int) -> Iterator[Age]:
    """Yields the tenths as they end; in memory, where there is a file system in memory."""
    with memory_folder() as folder, aging_stores(folder / "s", mode, 1, False) as (store,):
        for _ in range(_TENTHS):
            yield store.run(transactions // _TENTHS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("modes", nargs="*", choices=[*TRANSACTIONS, []], metavar="MODE")
    parser.add_argument("--transactions", type=int, help="how many in each mode")
    asked = parser.parse_args()
    for mode in asked.modes or TRANSACTIONS:
        transactions = asked.transactions or TRANSACTIONS[mode]
        print(f"{mode}, {transactions:,} transactions")
        print(f"{'tenth':>8}{'CPU us':>10}{'RSS MB':>10}{'own MB':>10}")
        seen: list[Age] = []
        try:
            for age in ages(mode, transactions):
                seen.append(age)
                print(
                    f"{len(seen):8}{age.cpu_us:10.1f}{age.rss / 1e6:10.1f}{age.own / 1e6:10.1f}",
                    flush=True,
                )
        except EOFError:
            raise SystemExit("the child process failed") from None
        second, last = seen[1], seen[-1]
        cpu, rss, own = (
            getattr(last, name) / getattr(second, name) for name in ("cpu_us", "rss", "own")
        )
        print(f"{'10 / 2':>8}{cpu:10.3f}{rss:10.3f}{own:10.3f}", flush=True)


if __name__ == "__main__":
    main()
