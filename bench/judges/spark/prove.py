"""Uses Spark to judge a comparison: counts each run's anomalies, and compares them with Python's checker.

    Traces ─▶ Delivery ─▶ log ─┬▶ certificate.py ┐
                               ├▶ reader.py      ├▶ (run, anomaly, how often) ─▶ checks ─▶ agreeing.py
                               └▶ logs.py        ┘
           ─▶ percentiles of latencies ─▶ wins.py

Each check is over all runs at once; two checks run beside each other. Next: loading.py.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from ...report.html.figures import figures, timed
from ..python import IN_PLACE, NONE, PLANNED
from ..python import findings as names
from .agreeing import differing_percentiles, differing_wins, disagreements, entry_of, not_there
from .certificate import Certificates
from .delivery import Delivery
from .folders import BadTrace
from .loading import Traces
from .logs import check_logs
from .percentiles import percentiles
from .progress import Progress
from .reader import check_reader
from .session import is_local, java_of
from .stores import NOT_AS_STORED, Stored, stores
from .unordered import check_unordered_reads
from .wins import who_wins

SETTINGS = {
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",  # by a job else, from 32 files on
    "spark.sql.files.openCostInBytes": "65536",  # a run's files are small, and many
}
_AT_ONCE = 2
"""Checks that run at once: with more, the driver's memory would have to hold what they broadcast."""
Tell = Callable[[str], None]
CHECKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "stores: as traced": (
        "Spark reads the same records in the kept stores as in their traces",
        (NOT_AS_STORED,),
    ),
    "delivery: exactly once": (
        "the store has each record once that a transaction consumed or wrote",
        (names.LOST, names.REPEATED, names.FOREIGN, names.ABORTED_VISIBLE),
    ),
    "delivery: whole or not at all": (
        "all partitions of a transaction have its records, or none has",
        (names.TORN,),
    ),
    "delivery: order": (
        "each partition keeps the order of the records of one source",
        (names.REORDERED,),
    ),
    "delivery: offsets": (
        "each record has the offset that its commit returned",
        (names.INCONSISTENT_OFFSET,),
    ),
    "certificate: places": (
        "each committed transaction has a place of its own, and no aborted one has",
        (names.PLACE_MISSING, names.PLACE_REPEATED, names.PLACE_OF_ABORTED),
    ),
    "certificate: real time": (
        "a transaction that began after the reply to another has a later place",
        (names.REAL_TIME,),
    ),
    "certificate: reads": (
        "each read saw the last write before its place",
        (names.DIRTY_READ, names.STALE_READ, names.FUTURE_READ, names.FOREIGN_READ),
    ),
    "certificate: positions": (
        "consumed ranges have no gap and no overlap",
        (names.POSITION_GAP, names.POSITION_OVERLAP),
    ),
    "certificate: offsets": (
        "published ranges have no gap and no overlap, and logs have no holes",
        (names.OFFSET_GAP, names.OFFSET_OVERLAP),
    ),
    "reads: of what was": (
        "no transaction, not even an aborted one, saw a value of an aborted one, or one that nobody wrote",
        (
            *(names.UNCOMMITTED_DIRTY_READ, names.UNCOMMITTED_FOREIGN_READ),
            *(names.DIRTY_READ, names.FOREIGN_READ),
        ),
    ),
    "reader: polls": (
        "each poll continues where the one before ended; unread records are counted, and allowed",
        (
            *(names.POLL_SKIP, names.INTERNAL_POLL_SKIP, names.NON_MONOTONIC_POLL),
            *(names.INTERNAL_NON_MONOTONIC_POLL, names.UNSEEN),
        ),
    ),
    "reader: records": (
        "the reader got only records that the store has at the end, and only after commit was called",
        (names.ABORTED_READ, names.PRECOMMITTED_READ, names.INCONSISTENT_OFFSET, names.LOST),
    ),
    "logs: order": (
        "without places: records of transactions do not interleave, and keep the order of their worker",
        (names.INTERNAL_SEND_SKIP, names.NON_MONOTONIC_SEND),
    ),
    "logs: inputs": (
        "without places: no two transactions consumed the same record, by position or one by one",
        (names.USED_TWICE, names.ACKNOWLEDGED_TWICE),
    ),
    "logs: cycles": (
        "without places: the order of transactions has no cycle",
        (names.G0, names.G1C, names.G1C_WW),
    ),
}
"""A sentence for each check, and the anomalies that it finds."""


def prove(spark: Any, folder: Path, tell: Tell = lambda line: None) -> dict[str, Any]:
    """Returns {"spark": …, "figures": …} of a comparison's folder, as docs/compare.md has them.

    The figures are Python's. `tell` is called with a line for each job. BadTrace, a ValueError, names a file that
    cannot be judged.
    """
    began = time.monotonic()
    summary = _summary(folder)
    with closing(Traces.of(spark, folder)) as traces, settings(spark):
        proof = Proof(traces, summary, tell)
        proof.read()
        if is_local(spark.sparkContext.master):
            proof.hold_against(folder)
        proof.check()
        by_run = proof.percentiles()
    won = who_wins(by_run)
    proof.compare(by_run, won)
    return {
        "spark": {
            "ran": True,
            "why_not": None,
            "version": spark.version,
            "master": spark.sparkContext.master,
            "java": java_of(spark),
            "seconds": round(time.monotonic() - began, 2),
            "jobs": proof.jobs,
            "rows_read": proof.rows_read,
            "agrees_with_python": not proof.disagreements,
            "checks": proof.checks(),
            "disagreements": proof.disagreements,
            "who_wins": won,
        },
        "figures": figures(folder, summary),
    }


@contextmanager
def settings(spark: Any) -> Iterator[None]:
    """Applies SETTINGS within the block; the session is the caller's, so its own settings return after it."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def _summary(folder: Path) -> dict[str, Any] | None:
    """Returns the comparison's summary; None where it is missing, or has no systems yet."""
    try:
        summary = json.loads((folder / "results.json").read_text())
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) and "systems" in summary else None


class Proof:
    """The checks of a comparison. `counts` by check, by run: anomaly → count."""

    def __init__(self, traces: Traces, summary: Mapping[str, Any] | None, tell: Tell) -> None:
        self.traces, self._summary = traces, summary
        rows = sum(sum(run.rows.values()) for run in traces.runs)
        self._progress = Progress(tell, rows)
        self.jobs: list[dict[str, Any]] = []
        self.counts: dict[str, dict[str, dict[str, int]]] = {name: {} for name in CHECKS}
        self.rows_read = 0
        self.disagreements: list[str] = []
        self._rows: dict[str, int] = {}
        self._doubted: set[str] = set()

    @contextmanager
    def _job(self, name: str, rows: int) -> Iterator[None]:
        self.traces.spark.sparkContext.setJobDescription(name)
        job = {"name": name, "seconds": 0.0, "rows": rows}
        self.jobs.append(job)
        began = time.monotonic()
        with self._progress.job(name):
            yield
        job["seconds"] = round(time.monotonic() - began, 3)

    def read(self) -> None:
        """Reads all tables. BadTrace unless Spark reads as many rows of each as its file has."""
        expected = {
            (table, run.number): rows
            for run in self.traces.runs
            for table, rows in run.rows.items()
            if rows
        }
        self.rows_read = sum(expected.values())
        with self._job("rows of all tables", self.rows_read):
            counts = self.traces.counts()
            self.traces.check_numbers()
        for key, rows in expected.items():
            if counts.get(key) != rows:
                table, run = key
                path = self.traces.runs[run].folder / f"{table}.parquet"
                raise BadTrace(f"{path} has {rows} rows, and Spark read {counts.get(key, 0)}")

    def hold_against(self, folder: Path) -> None:
        """Compares the stores that were kept with the traces."""
        paths, rows = stores(self.traces, folder), self.traces.rows
        if paths:
            with self._check("stores", rows("records", paths) + rows("inputs", paths)) as note:
                stored = Stored(self.traces, paths)
                note(stored.anomalies())
            self.rows_read += stored.rows

    def check(self) -> None:
        traces, rows = self.traces, self.traces.rows
        certificates = Certificates(traces)
        places, others = traces.of_mode(PLANNED), traces.of_mode(IN_PLACE, NONE)
        with self._check("delivery", rows("records") + rows("inputs")) as note:
            delivery = Delivery(traces)  # without rows, too: missing rows may be the error
            note(delivery.anomalies())
        log = delivery.log
        reading = [run for run, layout in enumerate(traces.layouts) if layout.has_reads]
        checks: list[tuple[str, int, Callable[[], list[Any]]]] = [
            ("certificate: places", rows("transactions", places), certificates.places),
            ("certificate: real time", rows("transactions", places), certificates.real_time),
            ("certificate: reads", rows("operations", {*places} & {*reading}), certificates.reads),
            ("certificate: positions", rows("operations", places), certificates.positions),
            ("certificate: offsets", rows("records", places), lambda: certificates.offsets(log)),
            ("reads", rows("operations", reading), lambda: check_unordered_reads(traces)),
            ("reader", rows("seen"), lambda: check_reader(traces, log)),
            ("logs", rows("records", others), lambda: check_logs(traces, log)),
        ]
        # Spark plans and compiles one check while it runs another's tasks.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for ended in [pool.submit(self._run, *one) for one in checks]:
                ended.result()

    def _run(self, name: str, rows: int, make: Callable[[], list[Any]]) -> None:
        with self._check(name, rows) as note:
            note(make() if rows else [])

    @contextmanager
    def _check(self, job: str, rows: int) -> Iterator[Callable[[list[Any]], None]]:
        """Runs checks as one job; yields a function that notes what their frames (run, name, n) have."""
        mine = {name: anomalies for name, (_, anomalies) in CHECKS.items() if name.startswith(job)}
        self._rows |= dict.fromkeys(mine, rows)

        def note(frames: list[Any]) -> None:
            if not frames:
                return
            noted = self.traces.sql(
                """select run, name, cast(sum(n) as bigint) as n from {noted}
                where name is not null group by run, name having sum(n) > 0""",
                noted=reduce(lambda a, b: a.unionAll(b), frames),
            )
            for row in noted.collect():
                check = next(name for name, anomalies in mine.items() if row.name in anomalies)
                run = self.traces.runs[row.run].name
                self.counts[check].setdefault(run, {})[row.name] = row.n

        with self._job(job, rows):
            yield note

    def percentiles(self) -> dict[str, Any]:
        runs = self.traces.runs
        of_run = {run.number: timed(run.about, entry_of(self._summary, run)) for run in runs}
        rows = self.traces.rows("transactions") + self.traces.rows("batches")
        with self._job("percentiles", rows + self.traces.rows("seen")):
            return percentiles(self.traces, runs, of_run)

    def compare(self, by_run: Mapping[str, Any], won: list[dict[str, Any]]) -> None:
        runs = self.traces.runs
        with self._job("agreement with Python", 0):
            for anomaly, text in disagreements(self._summary, runs, self.by_run()):
                self._doubted.add(anomaly)
                self.disagreements.append(text)
            self.disagreements += not_there(self._summary, runs)
            self.disagreements += differing_percentiles(self._summary, runs, by_run)
            self.disagreements += differing_wins(self._summary, by_run, won)

    def by_run(self) -> dict[str, Counter[str]]:
        """Returns the anomalies of all checks together."""
        totals: dict[str, Counter[str]] = {}
        for by_run in self.counts.values():
            for run, counts in by_run.items():
                totals.setdefault(run, Counter()).update(counts)
        return totals

    def checks(self) -> list[dict[str, Any]]:
        runs = {run.name: run for run in self.traces.runs}
        checks = []
        for name, (what, anomalies) in CHECKS.items():
            forbidden, allowed = Counter[str](), Counter[str]()
            for run, counts in self.counts[name].items():
                for anomaly, count in counts.items():
                    (allowed if anomaly in runs[run].allowed else forbidden)[anomaly] += count
            checks.append(
                {
                    "name": name,
                    "what": what,
                    "rows": self._rows.get(name, 0),
                    "found": forbidden,
                    "allowed": allowed,
                    "by_run": self.counts[name],
                    "agrees": self._doubted.isdisjoint(anomalies),
                }
            )
        return checks
