"""Runs small transactions with state, as most applications have them: few threads, then many.

    "orders" p ─ read 1 ─▶ accounts a − n, b + n ─▶ write 1 to "done" p ─ commit        each thread in a loop
    warm │ 1 thread ──── │ warm │ 4 ─── │ warm │ 16 ─── │ warm │ 64 ───▶ time          thread p has partition p

A thread begins its next transaction when the last one has ended: a closed loop, which shows what a system can do.
Each thread keeps its worker, a client of the system, through all parts. Clients connect, and initialise what they
need, with their first transaction. So each thread commits one before a part's clock runs.

Payer, payee and amount follow from an order's identity, so the final balances are known beforehand. All parts are
verified, warm-ups too. Figures that are not in `extra` are of the part with one thread.

Without tables an account is a key of the worker's own changelog, and its balance the sum over workers.

Orders are loaded for _SECONDLY transactions a second. A part whose orders are used up before its time says so.

Next: contention.py.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, NamedTuple

from ...judges.trace import ROW, WRITE, Operation, identities
from ..systems.base import TABLES
from .base import Run, Verdict, Workload
from .driving import Attempt, threads
from .inputs import filler_records, load
from .retrying import Retrier, closed_loop
from .verifying import verify_passed_on

ORDERS, DONE, ACCOUNTS, CONSUMER = "orders", "done", "accounts", "clerk"
THREADS = (1, 4, 16, 64)
"""Threads of the parts. The first part's figures are the run's own."""
_ACCOUNTS = 1000
_WARM_MAX_S = 30.0
"""Seconds that a thread's first transaction may take."""
_CONNECTING = 8
"""Workers that connect at once, before their part begins; each waits for a server's answers."""
_FIRST_SHARE = 0.4
"""Share of the time for the first part; the others share the rest equally."""
_SECONDLY = 20_000
"""Orders loaded for each second, over all threads."""
_UNEVEN = 2
"""Orders loaded for each thread of many, as a multiple of its even share."""
_RECORD_BYTES = 100
_LOADED = 5000


class Part(NamedTuple):
    """A number of threads that run for `seconds`."""

    threads: int
    seconds: float

    @property
    def orders(self) -> int:
        """Returns the orders that each thread needs."""
        uneven = _UNEVEN if self.threads > 1 else 1
        return int(_SECONDLY * self.seconds / self.threads * uneven) + 10


def order(source: int, ordinal: int) -> tuple[str, str, int]:
    """Returns (payer, payee, amount) of an order."""
    number = (source * 1_000_003 + ordinal * 7919 + 12345) * 2654435761 & 0xFFFFFFFF
    payer = number % _ACCOUNTS
    paid = (payer + 1 + number // _ACCOUNTS % (_ACCOUNTS - 1)) % _ACCOUNTS
    return f"a{payer}", f"a{paid}", 1 + ordinal % 100


def parts(duration: float) -> list[Part]:
    """Returns a part for each of THREADS, the fewest first."""
    first, *others = THREADS
    share = (1 - _FIRST_SHARE) / max(1, len(others))
    return [
        Part(first, duration * _FIRST_SHARE),
        *(Part(threads, duration * share) for threads in others),
    ]


class Small(Workload):
    name = "small"
    about = "small transactions with state: read one record, update two rows, write one; 1 to 64 threads"
    feeds: ClassVar = {DONE: f"{ORDERS}/{CONSUMER}"}
    without_tables = "an account is a key of each worker's changelog, in the same transaction"

    def prepare(self, run: Run) -> None:
        all_parts = parts(run.shape.duration)
        counts = run.state["counts"] = [
            sum(part.orders for part in all_parts if part.threads > partition)
            for partition in range(all_parts[-1].threads)
        ]
        run.system.prepare({ORDERS: len(counts), DONE: len(counts)}, (ACCOUNTS,))
        load(run, ORDERS, counts, filler_records(b"o" * (_RECORD_BYTES - 24)), _LOADED)

    def run(self, run: Run) -> None:
        workers: list[Retrier] = []
        figures = run.extra["concurrency"] = {}
        for part in parts(run.shape.duration):
            numbers = range(len(workers), part.threads)
            with ThreadPoolExecutor(_CONNECTING) as pool:
                workers += pool.map(partial(_worker, run), numbers)
            figures[str(part.threads)] = _run(
                run, part, workers, "" if not figures else f"at_{part.threads}_"
            )
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


def _worker(run: Run, number: int) -> Retrier:
    return Retrier(run, f"small-{number}", CONSUMER, number, "warm_")


def _run(run: Run, part: Part, workers: list[Retrier], prefix: str) -> dict[str, Any]:
    """Runs a part; returns its figures."""
    body = partial(_transfer, run, TABLES not in run.system.missing)

    def warm_up(worker: Retrier) -> None:
        worker.begin_part("warm_")
        worker.repeat(partial(body, worker), run.now() + int(_WARM_MAX_S * 1e9))

    threads(run, [partial(warm_up, worker) for worker in workers])
    figures, meter = closed_loop(run, workers, prefix, body, part.seconds)
    used_up = sum(worker.used_up for worker in workers)
    return {
        "threads": part.threads,
        "transactions": figures["successes"],
        "transactions_per_second": figures["per_second"],
        "cancelled": figures["cancelled"],
        "commit_ms": run.latency(prefix + "commit_ms").summary(),
        "done_ms": figures["done_ms"],
        **meter.of_one(figures["successes"], "cpu_ms", "disk_bytes", "syncs", "appends"),
        **({"orders_used_up_by": used_up} if used_up else {}),
    }


def _transfer(run: Run, tables: bool, worker: Retrier, attempt: Attempt) -> None:
    chunk = worker.read(attempt, ORDERS, worker.number, 1)
    if not chunk.values:
        return
    sources, ordinals, _ = identities(chunk.values)
    payer, paid, amount = order(sources[0], ordinals[0])
    for account, n in ((payer, -amount), (paid, amount)):
        attempt.work.add(ACCOUNTS, account, n)
        if tables:
            row = run.trace.lane(ROW, ACCOUNTS, -1, account)
            attempt.operations.append(Operation(attempt.tx, WRITE, row))
    worker.write(attempt, DONE, chunk.values, worker.number)
