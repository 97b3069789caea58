"""Measures what a part of a run costs, and tells it for one transaction.

    Meter(run) ─ the part runs ─ stop() ─▶ counters, cpu_s, seconds ─▶ of_one(transactions, names)

CPU is that of this process and of the servers that work for the system.

Next: retrying.py.
"""

import time

from ..processes import usage
from ..systems.base import Counters
from .base import Run


class Meter:
    """The costs of a part that begins now: the system's counters, CPU seconds, and the time it took."""

    def __init__(self, run: Run) -> None:
        self._run, self._pids = run, run.system.pids()
        self._before, self._cpu_s, self._began = run.system.counters(), self._cpu(), run.now()
        self.counters, self.seconds = Counters(), 0.0
        self.cpu_s: float | None = None

    def stop(self) -> None:
        self.seconds = (self._run.now() - self._began) / 1e9
        cpu_s = self._cpu()
        if cpu_s is not None and self._cpu_s is not None:
            self.cpu_s = cpu_s - self._cpu_s
        self.counters = self._run.system.counters().since(self._before)

    def of_one(self, transactions: int, *names: str) -> dict[str, float | None]:
        """Returns these costs for each of `transactions`; None where it is not counted, or there are none.

        A name is "cpu_ms" or one of the fields of Counters.
        """
        costs = {
            name: self.cpu_ms(transactions)
            if name == "cpu_ms"
            else self.counters.per(name, transactions)
            for name in names
        }
        return {name: None if cost is None else round(cost, 3) for name, cost in costs.items()}

    def cpu_ms(self, transactions: int) -> float | None:
        if self.cpu_s is None or not transactions:
            return None
        return 1000 * self.cpu_s / transactions

    def _cpu(self) -> float | None:
        """Returns the CPU seconds so far; None if this platform does not tell what servers use."""
        servers = usage(self._pids)
        if self._pids and not servers.memory_bytes:
            return None
        return time.process_time() + servers.cpu_s
