"""Spark's verdict on a comparison: what each check found in each run, and whether Python's checker found the same.

    Traces ─▶ Delivery ─▶ log ─┬▶ certificate   ┐
                               ├▶ reader        ├▶ (run, name, n) ─▶ checks, agreement
                               └▶ logs          ┘
           ─▶ Figures ─▶ latencies … ─▶ wins.py: who wins where

Each check is one job over all runs. Next: loading.py.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from ..check.kafka import ALLOWED, ALLOWED_ELSEWHERE
from .certificate import Certificates
from .delivery import Delivery
from .loading import KAFKA, Traces
from .logs import check_logs
from .reader import check_reader

Tell = Callable[[str], None]


@dataclass
class Found:
    """By check: run → anomaly → how often."""

    name: str
    what: str
    rows: int
    by_run: dict[str, dict[str, int]] = field(default_factory=dict)


class Proof:
    def __init__(self, traces: Traces, tell: Tell) -> None:
        self.traces, self._tell = traces, tell
        self.jobs: list[dict[str, Any]] = []
        self.checks: list[Found] = []

    @contextmanager
    def _job(self, name: str, rows: int) -> Iterator[None]:
        self._tell(name)
        self.traces.spark.sparkContext.setJobDescription(name)
        began = time.monotonic()
        yield
        seconds = round(time.monotonic() - began, 3)
        self.jobs.append({"name": name, "seconds": seconds, "rows": rows})

    def check(self, name: str, what: str, rows: int, make: Callable[[], list[Any]]) -> None:
        found = Found(name, what, rows)
        with self._job(name, rows):
            frames = make()
            if frames:
                union = reduce(lambda a, b: a.unionAll(b), frames)
                noted = self.traces.sql(
                    """select run, name, cast(sum(n) as bigint) as n from {noted}
                    where name is not null group by run, name having sum(n) > 0""",
                    noted=union,
                )
                for row in noted.collect():
                    run = self.traces.runs[row.run].name
                    found.by_run.setdefault(run, {})[row.name] = row.n
        self.checks.append(found)

    def run(self) -> None:
        traces = self.traces
        records, transactions = traces.rows("records"), traces.rows("transactions")
        operations = traces.rows("operations")
        delivery: list[Delivery] = []

        def deliver() -> list[Any]:
            delivery.append(Delivery(traces))
            return delivery[0].found()

        self.check("delivery", "", records, deliver)
        log = delivery[0].log
        certificates = Certificates(traces)
        self.check("certificate: places", "", transactions, certificates.places)
        self.check("certificate: real time", "", transactions, certificates.real_time)
        self.check("certificate: reads", "", operations, certificates.reads)
        self.check("certificate: positions", "", operations, certificates.positions)
        self.check("certificate: offsets", "", operations, lambda: certificates.offsets(log))
        self.check("reader", "", traces.rows("seen"), lambda: check_reader(traces, log))
        self.check("logs", "", records, lambda: check_logs(traces, log))
