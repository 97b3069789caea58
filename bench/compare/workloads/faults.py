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

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from ..systems import open_system
from . import faults_dropped, faults_killed
from .base import Run, Verdict, Workload
from .faults_dropped import CONSUMER, IN, KEY, OUT, ROUNDS, TABLE
from .inputs import Input, load
from .verifying import verify_passed_on

PARTITIONS_MAX = 4
_RECORD_SIZE, _LOADED = 128, 4096
_TIME_OUT = "transaction_timeout_ms"


class Faults(Workload):
    name = "faults"
    about = "a worker's session dropped, the owner killed with kill -9: time until work goes on"
    feeds: ClassVar = {OUT: f"{IN}/{CONSUMER}"}
    kills: ClassVar = True

    def prepare(self, run: Run) -> None:
        generator = Input(replace(run.shape, record_size=_RECORD_SIZE, demo=False))
        # Each round of drops takes some records of one partition.
        dropped = _partitions(run) * ROUNDS * 4
        run.state["counts"] = _prepare(run, generator, dropped, faults_dropped.tables(run))
        faults_killed.folder(run).mkdir()
        with _second_store(run) as killed:
            run.state["killed counts"] = _prepare(killed, generator, faults_killed.count(killed))

    def run(self, run: Run) -> None:
        partitions = _partitions(run)
        until = run.now() + int(run.shape.duration * 1e9)
        dropped = faults_dropped.drop(run, partitions)
        killed, run.state["acknowledged"] = faults_killed.kill(run, partitions, until)
        run.latencies.clear()  # they are of a few commits each: `extra` has their times
        run.visible_of.clear()
        run.extra = {"dropped": dropped, "killed": killed, "settings": _settings(run, partitions)}
        run.seconds = run.now() / 1e9

    def verify(self, run: Run) -> Verdict:
        """Verifies both stores; completes `run.extra`."""
        verdict = verify_passed_on(run, IN, OUT, CONSUMER, run.state["counts"])
        if "row" in run.state and run.system.rows(TABLE).get(KEY) != run.state["row"]:
            verdict.violations["row"] = 1
            verdict.problems.append("the shared row has not what was committed last")
        with _second_store(run, read_only=True) as killed:
            second = verify_passed_on(killed, IN, OUT, CONSUMER, run.state["killed counts"])
        acknowledged = [
            (one.partition, ordinal)
            for one in run.state["acknowledged"]
            for ordinal in range(one.begin, one.end)
        ]
        records = killed.trace.records
        stored = set(zip(records.source, records.ordinal, strict=True))
        lost, total = sum(one not in stored for one in acknowledged), len(acknowledged)
        run.extra["killed"] |= {"acknowledged": total, "lost": lost, "repeated": second.duplicated}
        verdict.add(second)
        if lost:
            verdict.violations["lost"] = lost
            verdict.problems.append(f"{lost} of {total} records of acknowledged commits are lost")
        return verdict


def _partitions(run: Run) -> int:
    """Returns the number of input partitions, of output partitions, and of workers."""
    return max(1, min(run.shape.partitions, run.shape.workers, PARTITIONS_MAX))


def _prepare(run: Run, generator: Input, count: int, tables: tuple[str, ...] = ()) -> list[int]:
    """Prepares a store; returns the number of records of each input partition."""
    counts = [count] * _partitions(run)
    run.system.prepare({IN: len(counts), OUT: len(counts)}, tables)
    load(run, IN, counts, generator.records, _LOADED)
    return counts


@contextmanager
def _second_store(run: Run, read_only: bool = False) -> Iterator[Run]:
    """Opens the store whose owner is killed, with a server of its own if it needs one; yields a run with it."""
    options = replace(run.options, server="")
    if read_only:
        options = replace(options, read_only=True, rtt=0.0)
    with closing(open_system(run.system.name, faults_killed.folder(run), options)) as system:
        yield Run(system, options, run.shape, run.folder)


def _settings(run: Run, partitions: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"partitions": partitions, "workers": partitions}
    for setting in run.system.settings():
        if setting.name == _TIME_OUT and run.system.ended_by:
            settings[_TIME_OUT] = setting.value
            settings[f"{run.system.mode or run.system.name}_default_ms"] = setting.original_default
    return settings
