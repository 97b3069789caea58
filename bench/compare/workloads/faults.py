"""Applies the same two faults to each system, as the talk's next step: when does work go on, and is it right?

    the run's store            a session dropped amid its transaction      faults_dropped.py
    a second one, in killed/   its owner killed with kill -9, restarted    faults_killed.py, faults_owner.py

Where a worker's name stands for one producer (System.ended_by), an open transaction is ended in two ways: by
the next worker of that name, or by time-out if there is none. Both are measured.

Verified in both stores: each consumed record is in the output once, in order. Verified in the second: records that
were acknowledged before a kill are there. Trace and counters are those of the first store, since a trace covers
one.

Next: faults_dropped.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ...judges.trace import Trace
from ..systems import open_system
from ..systems.base import System
from . import faults_dropped, faults_killed
from .base import Run, Verdict, Workload
from .driving import Input, load
from .faults_dropped import CONSUMER, IN, KEY, OUT, TABLE
from .faults_killed import Acknowledged
from .verifying import passed_on

PARTITIONS_MAX = 4
_RECORD_SIZE = 128
_TIME_OUT = "transaction_timeout_ms"


class Faults(Workload):
    name = "faults"
    about = "a worker's session dropped, the owner killed with kill -9: time until work goes on"
    feeds: ClassVar = {OUT: f"{IN}/{CONSUMER}"}

    def prepare(self, run: Run) -> None:
        partitions = _partitions(run)
        made = Input(replace(run.shape, record_size=_RECORD_SIZE, demo=False))
        run.system.prepare({IN: partitions, OUT: partitions}, faults_dropped.tables(run))
        run.kept["counts"] = faults_dropped.counts(run, partitions)
        load(run, IN, run.kept["counts"], made)
        faults_killed.folder(run).mkdir()
        killed = _beside(run)
        try:
            run.kept["killed counts"] = faults_killed.prepare(killed, partitions, made)
        finally:
            killed.system.close()

    def run(self, run: Run) -> None:
        partitions = _partitions(run)
        until = run.now() + int(run.shape.duration * 1e9)
        dropped = faults_dropped.drop(run, partitions)
        killed, acknowledged = faults_killed.kill(run, partitions, until)
        run.latencies.clear()  # they are of a few commits each: `extra` has their times
        run.visible_of.clear()
        run.kept["acknowledged"] = acknowledged
        run.extra = {"dropped": dropped, "killed": killed, "settings": _settings(run, partitions)}
        run.seconds = run.now() / 1e9

    def verify(self, run: Run) -> Verdict:
        """Verifies both stores; completes `run.extra`."""
        verdict = passed_on(run, IN, OUT, CONSUMER, run.kept["counts"])
        if "row" in run.kept and run.system.rows(TABLE).get(KEY) != run.kept["row"]:
            verdict.violations["row"] = 1
            verdict.problems.append("the shared row has not what was committed last")
        killed = _beside(run, read_only=True)
        try:
            found = passed_on(killed, IN, OUT, CONSUMER, run.kept["killed counts"])
        finally:
            killed.system.close()
        acknowledged = run.kept["acknowledged"]
        lost = _lost(killed.trace, acknowledged)
        total = sum(one.end - one.begin for one in acknowledged)
        run.extra["killed"] |= {"acknowledged": total, "lost": lost, "repeated": found.duplicated}
        if lost:
            found.violations["lost"] = lost
            found.problems.append(f"{lost} of {total} records of acknowledged commits are lost")
        return _both(verdict, found)


def _partitions(run: Run) -> int:
    """Returns the number of input partitions, of output partitions, and of workers."""
    return max(1, min(run.shape.partitions, run.shape.workers, PARTITIONS_MAX))


def _beside(run: Run, read_only: bool = False) -> Run:
    """Returns a run with the second store, the one that is killed."""
    options = replace(run.options, read_only=True, rtt=0.0) if read_only else run.options
    system: System = open_system(run.system.name, faults_killed.folder(run), options)
    return Run(system, options, run.shape, run.folder)


def _settings(run: Run, partitions: int) -> dict[str, Any]:
    found: dict[str, Any] = {"partitions": partitions, "workers": partitions}
    for setting in run.system.settings():
        if setting.name == _TIME_OUT and run.system.ended_by:
            found[_TIME_OUT] = setting.value
            found[f"{run.system.mode}_default_ms"] = setting.original_default
    return found


def _lost(trace: Trace, acknowledged: Sequence[Acknowledged]) -> int:
    """Counts records of acknowledged commits that the output lacks."""
    records = trace.records
    there = set(zip(records.source, records.ordinal, strict=True))
    return sum(
        (one.partition, ordinal) not in there
        for one in acknowledged
        for ordinal in range(one.begin, one.end)
    )


def _both(one: Verdict, other: Verdict) -> Verdict:
    violations = dict(one.violations)
    for name, times in other.violations.items():
        violations[name] = violations.get(name, 0) + times
    return Verdict(
        one.records + other.records,
        one.missing + other.missing,
        one.duplicated + other.duplicated,
        one.out_of_order + other.out_of_order,
        violations,
        one.problems + other.problems,
    )


WORKLOAD = Faults()
