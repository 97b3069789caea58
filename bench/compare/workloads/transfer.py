"""Consumes one record, updates two rows, writes one record: the smallest transaction with everything.

    "orders" p ─ read 1 ─▶ accounts a − n, b + n ─▶ write 1 to "done" p ─ commit        each worker in a loop

Payer, payee and amount follow from an order's identity, so the final balances are known beforehand.
First `shape.workers` threads run, then IN_FLIGHT of them, since many can share commits where a system allows that.
Figures that are not in `extra` are of the first part.

Without tables an account is a key of the worker's own changelog, and its balance the sum over workers.

Orders are loaded for 20,000 a second; `extra` says when they were used up before the time.

Next: contention.py.
"""

from typing import Any, ClassVar

from ...judges.trace import ROW, WRITE, Operation, identities
from ..systems.base import TABLES
from .base import Run, Verdict, Workload
from .driving import Attempt
from .inputs import filler_records, load
from .retrying import Retrier, closed_loop, costs_of_one
from .verifying import verify_passed_on

ORDERS, DONE, ACCOUNTS, CONSUMER = "orders", "done", "accounts", "transfers"
IN_FLIGHT = 16
_ACCOUNTS = 1000
_SHARE = 0.6
"""Share of the time for the first part."""
_SECONDLY = 20_000
"""Orders loaded for each second, over all workers."""
_RECORD_BYTES = 100
_LOADED = 5000


def transfer(source: int, ordinal: int) -> tuple[str, str, int]:
    """Returns (payer, payee, amount) of an order."""
    number = (source * 1_000_003 + ordinal * 7919 + 12345) * 2654435761 & 0xFFFFFFFF
    payer = number % _ACCOUNTS
    paid = (payer + 1 + number // _ACCOUNTS % (_ACCOUNTS - 1)) % _ACCOUNTS
    return f"a{payer}", f"a{paid}", 1 + ordinal % 100


class Transfer(Workload):
    name = "transfer"
    about = "consume one record, update two rows, write one record; few workers, then many"
    feeds: ClassVar = {DONE: f"{ORDERS}/{CONSUMER}"}
    without_tables = "an account is a key of each worker's changelog, in the same transaction"

    def prepare(self, run: Run) -> None:
        workers = run.shape.workers
        parts = workers + IN_FLIGHT
        run.system.prepare({ORDERS: parts, DONE: parts}, (ACCOUNTS,))
        seconds = run.shape.duration
        first = int(_SECONDLY * seconds * _SHARE / workers) + 10
        then = int(_SECONDLY * seconds * (1 - _SHARE) / IN_FLIGHT) + 10
        counts = run.state["counts"] = [first] * workers + [then] * IN_FLIGHT
        load(run, ORDERS, counts, filler_records(b"o" * (_RECORD_BYTES - 24)), _LOADED)

    def run(self, run: Run) -> None:
        seconds, workers = run.shape.duration, run.shape.workers
        run.extra["workers"] = _part(run, workers, 0, seconds * _SHARE, "")
        run.payload = run.transactions * _RECORD_BYTES
        seconds *= 1 - _SHARE
        run.extra["in_flight"] = _part(run, IN_FLIGHT, workers, seconds, "in_flight_")

    def verify(self, run: Run) -> Verdict:
        counts = run.state["counts"]
        verdict = verify_passed_on(run, ORDERS, DONE, CONSUMER, counts)
        expected = {f"a{n}": 0 for n in range(_ACCOUNTS)}
        for partition, count in enumerate(counts):
            position = run.system.position(ORDERS, CONSUMER, partition)
            for ordinal in range(min(count, position)):
                payer, paid, amount = transfer(partition, ordinal)
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


def _part(run: Run, count: int, begin: int, seconds: float, prefix: str) -> dict[str, Any]:
    """Runs `count` threads with partitions from `begin` on; returns their figures, the run's without a prefix."""
    tables = TABLES not in run.system.missing

    def body(worker: Retrier, attempt: Attempt) -> None:
        partition = begin + worker.number
        chunk = worker.read(attempt, ORDERS, partition, 1)
        if not chunk.values:
            return
        sources, ordinals, _ = identities(chunk.values)
        payer, paid, amount = transfer(sources[0], ordinals[0])
        for account, n in ((payer, -amount), (paid, amount)):
            attempt.work.add(ACCOUNTS, account, n)
            if tables:
                row = run.trace.lane(ROW, ACCOUNTS, -1, account)
                attempt.operations.append(Operation(attempt.tx, WRITE, row))
        worker.write(attempt, DONE, chunk.values, partition)

    names = [f"transfer-{n}" for n in range(count)]
    workers, figures, counters = closed_loop(run, names, CONSUMER, prefix, body, seconds)
    used_up = sum(worker.used_up for worker in workers)
    return {
        "threads": count,
        **figures,
        "commit_ms": run.latency(prefix + "commit_ms").summary(),
        **costs_of_one(counters, figures["successes"]),
        **({"orders_used_up_by": used_up} if used_up else {}),
    }
