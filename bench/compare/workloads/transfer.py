"""Consumes one record, updates two rows, writes one record: the smallest transaction with everything.

    "orders" p ─ read 1 ─▶ accounts a − n, b + n ─▶ write 1 to "done" p ─ commit        each worker in a loop

Payer, payee and amount follow from an order's identity, so the final balances are known beforehand.
First `shape.workers` threads run, then IN_FLIGHT of them, since many can share commits where a system allows that.
Figures that are not in `extra` are of the first part.

Without tables an account is a key of the worker's own changelog, and its balance the sum over workers.

Orders are loaded for 20,000 a second; `extra` says when they were used up before the time.

Next: contention.py.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from ...judges.trace import ROW, WRITE, Operation, identities, identity
from ..systems.base import TABLES, System
from .base import Run, Verdict, Workload
from .driving import Attempt, Doing, threads
from .retrying import Line, Trying, spent, told
from .verifying import passed_on

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
    drawn = (source * 1_000_003 + ordinal * 7919 + 12345) * 2654435761 & 0xFFFFFFFF
    payer = drawn % _ACCOUNTS
    paid = (payer + 1 + drawn // _ACCOUNTS % (_ACCOUNTS - 1)) % _ACCOUNTS
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
        counts = run.kept["counts"] = [first] * workers + [then] * IN_FLIGHT
        filler = b"o" * (_RECORD_BYTES - 24)
        for partition, count in enumerate(counts):
            for begin in range(0, count, _LOADED):
                end = min(count, begin + _LOADED)
                values = [identity(partition, n) + filler for n in range(begin, end)]
                run.system.load(ORDERS, partition, values, None)

    def run(self, run: Run) -> None:
        seconds, workers = run.shape.duration, run.shape.workers
        before = run.system.counters()
        run.extra["workers"] = self._part(run, workers, 0, seconds * _SHARE, "")
        run.measured = before, run.system.counters()
        run.extra["in_flight"] = self._part(
            run, IN_FLIGHT, workers, seconds * (1 - _SHARE), "in_flight_"
        )

    def _part(
        self, run: Run, count: int, begin: int, seconds: float, prefix: str
    ) -> dict[str, Any]:
        """Runs `count` threads with partitions from `begin` on; returns their figures."""
        before = run.system.counters()
        line = Line()
        trying = [
            Trying(Doing(run, f"transfer-{n}", CONSUMER, n, prefix), run.shape.seed + n, line)
            for n in range(count)
        ]
        started = run.now()
        until = started + int(seconds * 1e9)
        used_up: list[int] = []
        threads(run, [_work(run, one, begin + n, until, used_up) for n, one in enumerate(trying)])
        took = (run.now() - started) / 1e9
        after = run.system.counters()
        for one in trying:
            one.doing.settle()
        successes = sum(one.tries.successes for one in trying)
        if not prefix:
            run.transactions, run.seconds = successes, took
            run.cancelled = sum(one.tries.cancelled for one in trying)
            run.payload = successes * _RECORD_BYTES
        return {
            "threads": count,
            **told([one.tries for one in trying], took),
            "commit_ms": run.latency(prefix + "commit_ms").summary(),
            **spent(before, after, successes),
            **({"orders_used_up_by": len(used_up)} if used_up else {}),
        }

    def verify(self, run: Run) -> Verdict:
        counts = run.kept["counts"]
        verdict = passed_on(run, ORDERS, DONE, CONSUMER, counts, len(counts))
        expected = {f"a{n}": 0 for n in range(_ACCOUNTS)}
        for partition, count in enumerate(counts):
            position = run.system.position(ORDERS, CONSUMER, partition)
            for ordinal in range(min(count, position)):
                payer, paid, amount = transfer(partition, ordinal)
                expected[payer] -= amount
                expected[paid] += amount
        found = run.system.rows(ACCOUNTS)
        wrong = [name for name, n in expected.items() if found.get(name, 0) != n]
        verdict.violations["balance"] = len(wrong)
        verdict.violations["total"] = int(sum(found.values()) != 0)
        verdict.problems += [
            f"{name} has {found.get(name, 0)}, not {expected[name]}" for name in wrong[:3]
        ]
        return verdict


def _work(
    run: Run, trying: Trying, partition: int, until: int, used_up: list[int]
) -> Callable[[], None]:
    doing, lane = trying.doing, run.trace.lane
    tables = has_tables(run.system)

    def body(attempt: Attempt) -> None:
        work = attempt.work
        taken = work.read(ORDERS, partition, 1)
        if not taken.values:
            work.rollback()
            raise _UsedUp
        sources, ordinals, _ = identities(taken.values)
        payer, paid, amount = transfer(sources[0], ordinals[0])
        for account, n in ((payer, -amount), (paid, amount)):
            work.add(ACCOUNTS, account, n)
            if tables:
                row = lane(ROW, ACCOUNTS, -1, account)
                attempt.operations.append(Operation(attempt.tx, WRITE, row))
        doing.write(attempt, DONE, taken.values, partition)
        doing.consumed(attempt, ORDERS, partition, taken.begin, taken.end)

    def work() -> None:
        try:
            while trying.run(body, until) is not None:
                pass
        except _UsedUp:
            used_up.append(partition)

    return work


class _UsedUp(Exception):
    """No order is left."""


def has_tables(system: System) -> bool:
    return TABLES not in system.missing


WORKLOAD = Transfer()
