"""Runs small transactions with state, as most applications have them: few threads, then many.

    "orders" p ─ read 1 ─▶ accounts a − n, b + n ─▶ write 1 to "done" p ─ commit        each thread in a loop
    warm │ 1 thread ───── │ 4 ─── │ 16 ─── │ 64 ───▶ time           one part after the other, partitions of its own

A thread begins its next transaction when the last one has ended: a closed loop, which shows what a system can do.
Payer, payee and amount follow from an order's identity, so the final balances are known beforehand. All parts are
verified. Figures that are not in `extra` are of the part with one thread; the warm-up has none.

Without tables an account is a key of the worker's own changelog, and its balance the sum over workers.

Orders are loaded for _SECONDLY transactions a second. A part whose orders are used up before its time says so.

Next: contention.py.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from ...judges.trace import ROW, WRITE, Operation, identities
from ..systems.base import TABLES
from .base import Run, Verdict, Workload
from .driving import Attempt
from .inputs import filler_records, load
from .retrying import Retrier, closed_loop
from .verifying import verify_passed_on

ORDERS, DONE, ACCOUNTS, CONSUMER = "orders", "done", "accounts", "clerk"
THREADS = (1, 4, 16, 64)
"""Threads of the parts. The first part's figures are the run's own."""
_ACCOUNTS = 1000
_WARM_SHARE = 0.06
"""Share of the time before the first part, for one thread whose figures do not count."""
_FIRST_SHARE = 0.34
"""Share of the time for the first part; the others share the rest equally."""
_SECONDLY = 20_000
"""Orders loaded for each second, over all threads."""
_UNEVEN = 2
"""Orders loaded for each thread of many, as a multiple of its even share."""
_RECORD_BYTES = 100
_LOADED = 5000


class Part(NamedTuple):
    """Threads that run for `seconds`, each with a partition of its own from `begin` on, of `orders` each."""

    threads: int
    begin: int
    seconds: float
    orders: int
    prefix: str


def order(source: int, ordinal: int) -> tuple[str, str, int]:
    """Returns (payer, payee, amount) of an order."""
    number = (source * 1_000_003 + ordinal * 7919 + 12345) * 2654435761 & 0xFFFFFFFF
    payer = number % _ACCOUNTS
    paid = (payer + 1 + number // _ACCOUNTS % (_ACCOUNTS - 1)) % _ACCOUNTS
    return f"a{payer}", f"a{paid}", 1 + ordinal % 100


def parts(duration: float) -> Iterator[Part]:
    """Yields the warm-up, then a part for each of THREADS."""
    share = (1 - _WARM_SHARE - _FIRST_SHARE) / max(1, len(THREADS) - 1)
    shares = (_WARM_SHARE, _FIRST_SHARE, *[share] * (len(THREADS) - 1))
    begin = 0
    for n, (threads, share) in enumerate(zip((1, *THREADS), shares, strict=True)):
        uneven = _UNEVEN if threads > 1 else 1
        orders = int(_SECONDLY * duration * share / threads * uneven) + 10
        prefix = ("warm_", "", *(f"at_{threads}_" for threads in THREADS[1:]))[n]
        yield Part(threads, begin, duration * share, orders, prefix)
        begin += threads


class Small(Workload):
    name = "small"
    about = "small transactions with state: read one record, update two rows, write one; 1 to 64 threads"
    feeds: ClassVar = {DONE: f"{ORDERS}/{CONSUMER}"}
    without_tables = "an account is a key of each worker's changelog, in the same transaction"

    def prepare(self, run: Run) -> None:
        counts = [n.orders for n in parts(run.shape.duration) for _ in range(n.threads)]
        run.system.prepare({ORDERS: len(counts), DONE: len(counts)}, (ACCOUNTS,))
        run.state["counts"] = counts
        load(run, ORDERS, counts, filler_records(b"o" * (_RECORD_BYTES - 24)), _LOADED)

    def run(self, run: Run) -> None:
        warm, *measured = parts(run.shape.duration)
        _run(run, warm)
        run.extra["concurrency"] = {str(part.threads): _run(run, part) for part in measured}
        run.payload = run.transactions * _RECORD_BYTES

    def verify(self, run: Run) -> Verdict:
        counts = run.state["counts"]
        verdict = verify_passed_on(run, ORDERS, DONE, CONSUMER, counts)
        expected = {f"a{n}": 0 for n in range(_ACCOUNTS)}
        for partition, count in enumerate(counts):
            position = run.system.position(ORDERS, CONSUMER, partition)
            for ordinal in range(min(count, position)):
                payer, paid, amount = order(partition, ordinal)
                expected[payer] -= amount
                expected[paid] += amount
        balances = run.system.rows(ACCOUNTS)
        wrong = [name for name, n in expected.items() if balances.get(name, 0) != n]
        verdict.violations["balance"] = len(wrong)
        verdict.violations["total"] = int(sum(balances.values()) != 0)
        verdict.problems += [
            f"{name} has {balances.get(name, 0)}, not {expected[name]}" for name in wrong[:3]
        ]
        return verdict


def _run(run: Run, part: Part) -> dict[str, Any]:
    """Runs a part; returns its figures."""
    tables = TABLES not in run.system.missing

    def body(worker: Retrier, attempt: Attempt) -> None:
        partition = part.begin + worker.number
        chunk = worker.read(attempt, ORDERS, partition, 1)
        if not chunk.values:
            return
        sources, ordinals, _ = identities(chunk.values)
        payer, paid, amount = order(sources[0], ordinals[0])
        for account, n in ((payer, -amount), (paid, amount)):
            attempt.work.add(ACCOUNTS, account, n)
            if tables:
                row = run.trace.lane(ROW, ACCOUNTS, -1, account)
                attempt.operations.append(Operation(attempt.tx, WRITE, row))
        worker.write(attempt, DONE, chunk.values, partition)

    names = [f"{part.prefix or 'at_1_'}{n}" for n in range(part.threads)]
    workers, figures, meter = closed_loop(run, names, CONSUMER, part.prefix, body, part.seconds)
    used_up = sum(worker.used_up for worker in workers)
    return {
        "threads": part.threads,
        "transactions": figures["successes"],
        "transactions_per_second": figures["per_second"],
        "cancelled": figures["cancelled"],
        "commit_ms": run.latency(part.prefix + "commit_ms").summary(),
        "done_ms": figures["done_ms"],
        **meter.of_one(figures["successes"], "cpu_ms", "disk_bytes", "syncs", "appends"),
        **({"orders_used_up_by": used_up} if used_up else {}),
    }
